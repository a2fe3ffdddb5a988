package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseTime returns the time for the Lease. It only informs people: no decision depends on it.
func (e *Elector) leaseTime() *metav1.MicroTime {
	return &metav1.MicroTime{Time: time.Unix(0, e.now().Wall).UTC().Truncate(time.Microsecond)}
}

// retryDelay returns the delay after a failed request, or after another elector was faster.
func (e *Elector) retryDelay() time.Duration { return e.o.RetryPeriod/4 + rand.N(e.o.RetryPeriod/4+1) }

// conflictDelay returns the delay after another client has written the Lease between our read and
// our write.
func (e *Elector) conflictDelay() time.Duration { return e.o.RetryPeriod / 20 }

// standBy reads the Lease, and takes it if it is free.
func (e *Elector) standBy(ctx context.Context) (next time.Duration, err error) {
	asking, cancel := e.requestContext(ctx)
	defer cancel()
	sent := e.now()
	l, err := e.leases.get(asking)
	switch {
	case apierrors.IsNotFound(err):
		e.noteAnswer(sent, nil)
		return e.createLease(ctx), nil
	case err != nil:
		e.noteFailure(ctx, "read", err)
		return e.retryDelay(), nil
	}
	e.noteAnswer(sent, &l.Spec)
	seen := e.now() // after the response: its content is older
	if e.observed == nil || !e.observed.Spec.isEqual(&l.Spec) {
		e.observedSince = seen
	}
	e.observed = l
	e.noteHolder(&l.Spec)
	free := time.Duration(0)
	switch {
	case l.Spec.HolderIdentity == e.o.Identity: // we took it, and the response was lost
	case l.Spec.HolderIdentity == "" && l.Spec.LeaseDurationSeconds == released:
	default:
		// The leader may have another configuration: the longer duration counts.
		free = max(l.Spec.duration(), e.o.LeaseDuration) - seen.since(e.observedSince)
	}
	if free > 0 {
		return min(free, e.o.RetryPeriod), nil
	}
	return e.takeLease(ctx, l), nil
}

// createLease creates a missing Lease without a holder: it may have been deleted while its holder
// leads, so it is taken only after it has not changed for LeaseDuration. (That it was missing at
// two reads would not prove that it was missing in between.)
func (e *Elector) createLease(ctx context.Context) (next time.Duration) {
	writing, cancel := e.requestContext(ctx)
	defer cancel()
	l := &lease{Spec: leaseSpec{LeaseDurationSeconds: e.leaseSeconds(), RenewTime: e.leaseTime()}}
	if e.observed != nil {
		l.Spec.LeaseTransitions = e.observed.Spec.LeaseTransitions // epochs continue
	}
	_, err := e.leases.create(writing, l)
	switch {
	case isConflict(err):
		return e.conflictDelay() // another elector was faster
	case err != nil:
		e.noteFailure(ctx, "create", err)
		return e.retryDelay()
	case e.observed != nil:
		e.o.Log.Warn("the Lease was deleted; created it again, acquiring it when no agent can lead any more", "holder",
			e.loggedHolder, "wait", e.o.LeaseDuration)
	default:
		e.o.Log.Info("created the Lease, acquiring it when it is certain that no agent leads", "wait",
			e.o.LeaseDuration)
	}
	return 0
}

// noteHolder logs a change of the leader.
func (e *Elector) noteHolder(s *leaseSpec) {
	if s.HolderIdentity == e.loggedHolder || s.HolderIdentity == e.o.Identity {
		return
	}
	e.loggedHolder = s.HolderIdentity
	if e.loggedHolder != "" {
		e.o.Log.Info("standby, another agent leads", "holder", e.loggedHolder, "epoch", epochOf(s))
	}
}

// takeLease takes the Lease, with the precondition that it has not changed since it was read.
func (e *Elector) takeLease(ctx context.Context, seen *lease) (next time.Duration) {
	writing, cancel := e.requestContext(ctx)
	defer cancel()
	l, now := *seen, e.leaseTime()
	if seen.Spec.HolderIdentity != e.o.Identity {
		l.Spec.LeaseTransitions++
		l.Spec.AcquireTime = now
	}
	l.Spec.HolderIdentity = e.o.Identity
	l.Spec.LeaseDurationSeconds = e.leaseSeconds()
	l.Spec.RenewTime = now
	sent := e.now()
	written, err := e.leases.update(writing, &l)
	switch {
	case isConflict(err), apierrors.IsNotFound(err):
		return e.retryDelay() // another elector was faster
	case err != nil:
		e.noteFailure(ctx, "take", err)
		return e.retryDelay()
	}
	e.held = written
	e.noteAnswer(sent, &written.Spec)
	e.fence.noteRenewal(sent)
	e.updateStatus(func(s *Status) { s.Leading = true })
	e.o.Log.Info("this agent leads", "identity", e.o.Identity, "epoch", epochOf(&written.Spec), "before",
		e.loggedHolder)
	close(e.begun)
	return e.o.RetryPeriod
}

// renewLease renews the Lease, with the precondition that it has not changed since.
func (e *Elector) renewLease(ctx context.Context) (next time.Duration, err error) {
	writing, cancel := e.requestContext(ctx)
	defer cancel()
	l := *e.held
	l.Spec.HolderIdentity = e.o.Identity
	l.Spec.LeaseDurationSeconds = e.leaseSeconds()
	l.Spec.RenewTime = e.leaseTime()
	sent := e.now()
	written, err := e.leases.update(writing, &l)
	switch {
	case err == nil:
		e.noteRenewal(written, sent)
		// the validity began when it was sent, and so does this delay
		return max(time.Millisecond, e.o.RetryPeriod-e.now().since(sent)), nil
	case isConflict(err), apierrors.IsNotFound(err):
		return e.resolveConflict(ctx, &l)
	}
	e.noteFailure(ctx, "renew", err)
	return e.retryDelay(), nil
}

func (e *Elector) noteRenewal(l *lease, sent instant) {
	e.notePause() // the process itself may have been paused
	e.held = l
	e.noteAnswer(sent, &l.Spec)
	e.fence.noteRenewal(sent)
}

// recreateLease creates the Lease after it was deleted. While our fence passes, no other agent can
// have led since our last renewal: standbys wait longer. If the fence is closed, another agent may
// have led in between.
func (e *Elector) recreateLease(ctx context.Context, l *lease) (next time.Duration, err error) {
	if !e.fence.isOpen() {
		return 0, e.errorOfLoss("the Lease was deleted while it could not be renewed: another agent may have led")
	}
	writing, cancel := e.requestContext(ctx)
	defer cancel()
	sent := e.now()
	created, err := e.leases.create(writing, l)
	switch {
	case err == nil && !e.fence.isOpen():
		// The request was slow: another agent may have created the Lease and led, and the Lease may
		// have been deleted again.
		return 0, e.errorOfLoss("the Lease was deleted, and it took too long to create it again: another agent may have led")
	case err == nil:
		e.noteRenewal(created, sent)
		e.o.Log.Warn("the Lease was deleted; created it again as it was")
		return e.o.RetryPeriod, nil
	case isConflict(err): // another agent, or our own request whose response was lost: the next round reads which
		return e.conflictDelay(), nil
	}
	e.noteFailure(ctx, "create again", err)
	return e.retryDelay(), nil
}

// resolveConflict finds out who has written the Lease: this process, by a request whose response
// was lost; a client that changed a label; or another agent. l could not be written.
func (e *Elector) resolveConflict(ctx context.Context, l *lease) (next time.Duration, err error) {
	asking, cancel := e.requestContext(ctx)
	defer cancel()
	there, err := e.leases.get(asking)
	switch {
	case apierrors.IsNotFound(err):
		return e.recreateLease(ctx, l)
	case err != nil:
		e.noteFailure(ctx, "read", err)
		return e.retryDelay(), nil
	}
	switch holder := there.Spec.HolderIdentity; {
	case holder != e.o.Identity && holder != "":
		return 0, e.errorOfLoss(fmt.Sprintf("%q holds the Lease", holder))
	case there.uid() != e.held.uid():
		// It was deleted, and created again by a standby or by us: leaseTransitions says nothing
		// about the time before.
		if !e.fence.isOpen() {
			return 0,
				e.errorOfLoss(
					"the Lease was deleted, and created again, while it could not be renewed: another agent may have led")
		}
	case there.Spec.LeaseTransitions != e.held.Spec.LeaseTransitions:
		return 0, e.errorOfLoss("another agent has led, and released the Lease")
	}
	// No other agent has led in between. The next round renews the Lease, with the precondition
	// that it does not change until then.
	held := *e.held
	held.Metadata = there.Metadata
	e.held = &held
	return e.conflictDelay(), nil
}

func (e *Elector) errorOfLoss(why string) error {
	return fmt.Errorf("%w: %s (%s/%s)", ErrLost, why, e.o.Namespace, e.o.Name)
}

// notePause logs when the fence has closed, and when it is open again.
func (e *Elector) notePause() {
	open := e.fence.isOpen()
	if open == !e.paused {
		return
	}
	e.paused = !open
	if open {
		e.o.Log.Info("renewed the Lease, no other agent has led in between: publishing resumes")
		return
	}
	e.metrics.pauses.Inc()
	cause := e.Status().Err
	if cause == nil {
		cause = errors.New("this process, or its machine, was paused")
	}
	e.o.Log.Warn("the Lease could not be renewed in time, publishing pauses", "renew_deadline", e.o.RenewDeadline,
		"err", cause)
}
