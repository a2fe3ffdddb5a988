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

// stamp is the time for people who look at the Lease. Nothing is decided by it.
func (e *Elector) stamp() *metav1.MicroTime {
	return &metav1.MicroTime{Time: time.Unix(0, e.now().Wall).UTC().Truncate(time.Microsecond)}
}

// soon is the next round after a failed request, or one that somebody was faster than.
func (e *Elector) soon() time.Duration { return e.o.RetryPeriod/4 + rand.N(e.o.RetryPeriod/4+1) }

// again is the next round where somebody has written the Lease in between, who may go on doing so.
func (e *Elector) again() time.Duration { return e.o.RetryPeriod / 20 }

// standBy looks at the Lease, and takes it if it is free.
func (e *Elector) standBy(ctx context.Context) (next time.Duration, err error) {
	asking, cancel := e.request(ctx)
	defer cancel()
	sent := e.now()
	l, err := e.leases.get(asking)
	switch {
	case apierrors.IsNotFound(err):
		e.answered(sent, nil)
		return e.place(ctx), nil
	case err != nil:
		e.failed(ctx, "look at it", err)
		return e.soon(), nil
	}
	e.answered(sent, &l.Spec)
	seen := e.now() // behind the answer: what it tells is older
	if e.observed == nil || !e.observed.Spec.equal(&l.Spec) {
		e.since = seen
	}
	e.observed = l
	e.noteHolder(&l.Spec)
	free := time.Duration(0)
	switch {
	case l.Spec.HolderIdentity == e.o.Identity: // we have taken it, and heard no answer
	case l.Spec.HolderIdentity == "" && l.Spec.LeaseDurationSeconds == released: // given back
	default:
		// Whoever leads may have another configuration: the longer duration counts.
		free = max(l.Spec.duration(), e.o.LeaseDuration) - seen.since(e.since)
	}
	if free > 0 {
		return min(free, e.o.RetryPeriod), nil
	}
	return e.take(ctx, l), nil
}

// place creates the Lease where there is none, for nobody: it is taken like any other, when it has not changed for LeaseDuration.
// Somebody may have deleted it while its holder leads. That it is gone at two looks would not tell that it was in between.
func (e *Elector) place(ctx context.Context) (next time.Duration) {
	writing, cancel := e.request(ctx)
	defer cancel()
	l := &lease{Spec: leaseSpec{LeaseDurationSeconds: e.seconds(), RenewTime: e.stamp()}}
	if e.observed != nil {
		l.Spec.LeaseTransitions = e.observed.Spec.LeaseTransitions // numbers go on
	}
	_, err := e.leases.create(writing, l)
	switch {
	case isConflict(err):
		return e.again() // somebody was faster
	case err != nil:
		e.failed(ctx, "create it", err)
		return e.soon()
	case e.observed != nil:
		e.o.Log.Warn("somebody has deleted the Lease: it is there again, and is taken when nobody can lead any more", "holder", e.waited, "wait", e.o.LeaseDuration)
	default:
		e.o.Log.Info("there was no Lease: it is created, and taken when it is certain that nobody leads", "wait", e.o.LeaseDuration)
	}
	return 0
}

// noteHolder says who leads, when that changes.
func (e *Elector) noteHolder(s *leaseSpec) {
	if s.HolderIdentity == e.waited || s.HolderIdentity == e.o.Identity {
		return
	}
	e.waited = s.HolderIdentity
	if e.waited != "" {
		e.o.Log.Info("standing by, another agent leads", "holder", e.waited, "epoch", epochOf(s))
	}
}

// take takes the Lease as it was seen.
func (e *Elector) take(ctx context.Context, seen *lease) (next time.Duration) {
	writing, cancel := e.request(ctx)
	defer cancel()
	l, now := *seen, e.stamp()
	if seen.Spec.HolderIdentity != e.o.Identity {
		l.Spec.LeaseTransitions++
		l.Spec.AcquireTime = now
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = e.o.Identity, e.seconds(), now
	sent := e.now()
	written, err := e.leases.update(writing, &l)
	switch {
	case isConflict(err), apierrors.IsNotFound(err):
		return e.soon() // somebody was faster
	case err != nil:
		e.failed(ctx, "take it", err)
		return e.soon()
	}
	e.held = written
	e.answered(sent, &written.Spec)
	e.fence.renew(sent)
	e.set(func(s *Status) { s.Leading = true })
	e.o.Log.Info("this agent leads", "identity", e.o.Identity, "epoch", epochOf(&written.Spec), "before", e.waited)
	close(e.begun)
	return e.o.RetryPeriod
}

// renew renews the Lease on condition that nobody has written it since.
func (e *Elector) renew(ctx context.Context) (next time.Duration, err error) {
	writing, cancel := e.request(ctx)
	defer cancel()
	l := *e.held
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = e.o.Identity, e.seconds(), e.stamp()
	sent := e.now()
	written, err := e.leases.update(writing, &l)
	switch {
	case err == nil:
		e.renewed(written, sent)
		return max(time.Millisecond, e.o.RetryPeriod-e.now().since(sent)), nil // its validity has begun when it was sent, and so has this wait
	case isConflict(err), apierrors.IsNotFound(err): // a Lease that is not there is a conflict: to update one may create it
		return e.meet(ctx, &l)
	}
	e.failed(ctx, "renew it", err)
	return e.soon(), nil
}

func (e *Elector) renewed(l *lease, sent instant) {
	e.notePause() // one that nobody was awake for
	e.held = l
	e.answered(sent, &l.Spec)
	e.fence.renew(sent)
}

// restore creates the Lease that somebody has deleted. While our fence passes, nobody else can have led since we renewed it last:
// all others wait for longer. If it is shut, somebody may have led in between, and gone.
func (e *Elector) restore(ctx context.Context, l *lease) (next time.Duration, err error) {
	if !e.fence.open() {
		return 0, e.lost("the Lease was deleted while it could not be renewed: another agent may have led")
	}
	writing, cancel := e.request(ctx)
	defer cancel()
	sent := e.now()
	created, err := e.leases.create(writing, l)
	switch {
	case err == nil && !e.fence.open():
		// It took long. Somebody may have placed the Lease and led, and then it was deleted once more. Nobody renews what is created.
		return 0, e.lost("the Lease was deleted, and it took too long to create it again: another agent may have led")
	case err == nil:
		e.renewed(created, sent)
		e.o.Log.Warn("somebody has deleted the Lease: it is there again, as it was")
		return e.o.RetryPeriod, nil
	case isConflict(err): // somebody, or ourselves with an answer that was lost: the next round finds out who
		return e.again(), nil
	}
	e.failed(ctx, "create it again", err)
	return e.soon(), nil
}

// meet finds out who has written the Lease: ourselves, by a request whose answer was lost; somebody who put a label on it; or
// another agent. l is what could not be written.
func (e *Elector) meet(ctx context.Context, l *lease) (next time.Duration, err error) {
	asking, cancel := e.request(ctx)
	defer cancel()
	there, err := e.leases.get(asking)
	switch {
	case apierrors.IsNotFound(err):
		return e.restore(ctx, l)
	case err != nil:
		e.failed(ctx, "look at it", err)
		return e.soon(), nil
	}
	switch holder := there.Spec.HolderIdentity; {
	case holder != e.o.Identity && holder != "":
		return 0, e.lost(fmt.Sprintf("%q holds the Lease", holder))
	case there.uid() != e.held.uid():
		// It was deleted, and placed anew by a standby, or by us. What its number says of the time before is worth nothing.
		if !e.fence.open() {
			return 0, e.lost("the Lease was deleted, and created again, while it could not be renewed: another agent may have led")
		}
	case there.Spec.LeaseTransitions != e.held.Spec.LeaseTransitions:
		return 0, e.lost("another agent has led, and given the Lease back")
	}
	// Nobody has led in between. The next round renews it, on condition that nobody writes it until then.
	held := *e.held
	held.Metadata = there.Metadata
	e.held = &held
	return e.again(), nil
}

func (e *Elector) lost(why string) error {
	return fmt.Errorf("%w: %s (%s/%s)", ErrLost, why, e.o.Namespace, e.o.Name)
}

// notePause says when the fence is found shut that was open, and open again.
func (e *Elector) notePause() {
	open := e.fence.open()
	if open == !e.paused {
		return
	}
	e.paused = !open
	if open {
		e.o.Log.Info("the Lease is renewed again and nobody has led in between: publishing goes on")
		return
	}
	e.metrics.pauses.Inc()
	cause := e.Status().Err
	if cause == nil {
		cause = errors.New("this process, or its machine, stood still")
	}
	e.o.Log.Warn("the Lease could not be renewed in time, publishing pauses", "renew_deadline", e.o.RenewDeadline, "err", cause)
}
