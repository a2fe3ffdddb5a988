package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Options configure an Elector. RetryPeriod < RenewDeadline < LeaseDuration.
type Options struct {
	Config          *rest.Config
	Namespace, Name string // of the Lease
	Identity        string // unique to this process, also among later ones

	// how long standbys wait after the last renewal; the Lease has it in whole seconds, 2 or more
	LeaseDuration time.Duration
	RenewDeadline time.Duration // how long the fence passes without a renewal
	RetryPeriod   time.Duration // between two reads, or two renewals

	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Term is a period of leadership. Pauses do not end it.
type Term struct {
	Epoch uint64 // leaseTransitions + 1
}

// Status is the state of an elector.
type Status struct {
	Seen    bool   // the API server has answered a request for the Lease
	Leading bool   // this process holds the Lease
	Paused  bool   // this process holds the Lease, but could not renew it in time and must not write
	Over    error  // why this process must never write again and is about to exit; nil otherwise
	Holder  string // of the Lease at the last read; "" if it has none
	Epoch   uint64 // of the holder
	Err     error  // of the last request, nil if it succeeded
}

// Elector competes for the Lease and renews it, so that only one of several agents writes. Run does
// all of that in the caller's goroutine. Other goroutines wait for the leadership (Wait), pass the
// fence before each write (Fence), and ask for the Status. Release follows Run.
type Elector struct {
	o       Options
	leases  leases
	now     clock
	fence   *Fence
	metrics *metrics

	transitions atomic.Int64
	touched     atomic.Pointer[instant] // when the last answered request was sent; nil if there is none
	begun       chan struct{}           // closed when this process leads
	created     instant

	mu     sync.Mutex
	status Status

	// Only Run uses the fields below, and Release after Run has returned.

	held          *lease  // as last written or read; nil while this process is a standby
	observed      *lease  // as a standby last read it; nil before that
	observedSince instant // when observed last changed
	paused        bool
	failing       bool   // the last request failed
	loggedHolder  string // the holder that was last logged
}

// attemptsPerDeadline is the number of requests that fit into RenewDeadline: each has a timeout of
// its part.
const attemptsPerDeadline = 2

// New checks the options. It starts nothing and sends no request.
func New(o Options) (*Elector, error) {
	switch {
	case o.Namespace == "" || o.Name == "" || o.Identity == "":
		return nil, errors.New("leader election: the Lease needs a namespace and a name, and the agent an identity")
	case o.RetryPeriod <= 0 || o.RenewDeadline <= o.RetryPeriod || o.LeaseDuration <= o.RenewDeadline:
		return nil,
			fmt.Errorf(
				"leader election: retryPeriod (%v) must be greater than 0 and less than renewDeadline (%v), which must be less than leaseDuration (%v)",
				o.RetryPeriod, o.RenewDeadline, o.LeaseDuration)
	}
	l, err := newRemoteLease(o.Config, o.Namespace, o.Name)
	if err != nil {
		return nil, err
	}
	return newElector(o, l, systemClock()), nil
}

func newElector(o Options, l leases, now clock) *Elector {
	o.Log = o.Log.With("lease", o.Namespace+"/"+o.Name)
	e := &Elector{
		o:       o,
		leases:  l,
		now:     now,
		fence:   newFence(now, o.RenewDeadline),
		begun:   make(chan struct{}),
		created: now(),
	}
	e.metrics = newMetrics(o.Registerer, e)
	return e
}

// Fence returns the fence that each write to the bus must pass.
func (e *Elector) Fence() *Fence { return e.fence }

// Wait returns once this process leads, or with the cause of ctx.
func (e *Elector) Wait(ctx context.Context) (Term, error) {
	select {
	case <-e.begun:
		return Term{Epoch: e.Status().Epoch}, nil
	case <-ctx.Done():
		return Term{}, context.Cause(ctx)
	}
}

// Status returns the current state.
func (e *Elector) Status() Status {
	e.mu.Lock()
	s := e.status
	e.mu.Unlock()
	s.Over = e.fence.shutCause()
	s.Paused = s.Leading && s.Over == nil && !e.fence.isOpen()
	return s
}

// String returns the status for people: "standby, kubecdc-7d9f_X leads".
func (s *Status) String() string {
	switch {
	case s.Over != nil:
		return "lost the Lease, exiting"
	case s.Leading:
		return fmt.Sprintf("leads, epoch %d", s.Epoch)
	case s.Holder == "":
		return "standby, no agent leads"
	}
	return fmt.Sprintf("standby, %s leads", s.Holder)
}

// Ready returns nil if this process leads, or could take over from the leader. An unreachable API
// server does not make a standby unready once it has read the Lease: readiness of a standby would
// not help anybody.
func (e *Elector) Ready() error {
	s := e.Status()
	switch {
	case s.Over != nil:
		return fmt.Errorf("this agent exits, and becomes a standby after a restart: %w", s.Over)
	case s.Paused:
		return fmt.Errorf("the Lease %s/%s could not be renewed within %v, publishing pauses: %w", e.o.Namespace,
			e.o.Name, e.o.RenewDeadline, orUnknown(s.Err))
	case !s.Seen:
		return fmt.Errorf("the Lease %s/%s was not read yet: %w", e.o.Namespace, e.o.Name, orUnknown(s.Err))
	}
	return nil
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no response yet")
	}
	return err
}

// Run waits for the Lease, takes it and renews it until ctx ends, and then returns nil; this
// process may still hold the Lease. The caller ends ctx after its last write to the bus, and then
// calls Release. An error of Run wraps ErrLost: another agent leads. Run is called once.
func (e *Elector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		next, err := e.round(ctx)
		if err != nil {
			e.fence.shut(err)
			e.held = nil
			e.updateStatus(func(s *Status) { s.Leading = false })
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
	return nil
}

// round reads or renews the Lease, and returns the delay before the next round.
func (e *Elector) round(ctx context.Context) (next time.Duration, err error) {
	if e.held == nil {
		return e.standBy(ctx)
	}
	e.notePause()
	next, err = e.renewLease(ctx)
	e.notePause()
	return next, err
}

// requestContext returns the context of one request.
func (e *Elector) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	d := e.o.RenewDeadline / attemptsPerDeadline
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %v", d))
}

// Release releases the Lease, if this process holds it, so that a standby can lead at once. Even if
// that fails, the fence never passes again. Release is called after Run has returned.
func (e *Elector) Release(ctx context.Context) error {
	e.fence.shut(fmt.Errorf("%w: the Lease is released", ErrLost))
	if e.held == nil {
		return nil
	}
	var err error
	for range 2 {
		l := *e.held
		l.Spec = leaseSpec{
			LeaseDurationSeconds: released,
			RenewTime:            e.leaseTime(),
			AcquireTime:          l.Spec.AcquireTime,
			LeaseTransitions:     l.Spec.LeaseTransitions,
			Strategy:             l.Spec.Strategy,
			PreferredHolder:      l.Spec.PreferredHolder,
		}
		if _, err = e.leases.update(ctx, &l); err == nil {
			e.held = nil
			e.updateStatus(func(s *Status) { s.Leading, s.Holder = false, "" })
			e.o.Log.Info("released the Lease, another agent may lead", "epoch", epochOf(&l.Spec))
			return nil
		}
		if !isConflict(err) {
			break
		}
		there, getErr := e.leases.get(ctx)
		switch {
		case apierrors.IsNotFound(getErr), getErr == nil && there.Spec.HolderIdentity != e.o.Identity:
			return nil // we do not hold it any more
		case getErr != nil:
			return fmt.Errorf("release the Lease %s/%s: %w", e.o.Namespace, e.o.Name, getErr)
		}
		e.held = there
	}
	return fmt.Errorf("release the Lease %s/%s: %w", e.o.Namespace, e.o.Name, err)
}

func (e *Elector) updateStatus(change func(*Status)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.status)
}

// noteAnswer records the response to a request that was sent at sent. spec is nil if there is no
// Lease.
func (e *Elector) noteAnswer(sent instant, spec *leaseSpec) {
	e.touched.Store(&sent)
	if spec != nil {
		e.transitions.Store(spec.LeaseTransitions)
	}
	if e.failing {
		e.failing = false
		e.o.Log.Info("the Lease can be reached again")
	}
	e.updateStatus(func(s *Status) {
		s.Seen = true
		s.Err = nil
		s.Holder = ""
		s.Epoch = 0
		if spec != nil {
			s.Holder, s.Epoch = spec.HolderIdentity, epochOf(spec)
		}
	})
}

// noteFailure records a failed request.
func (e *Elector) noteFailure(ctx context.Context, doing string, err error) {
	if ctx.Err() != nil {
		return
	}
	e.updateStatus(func(s *Status) { s.Err = err })
	level := slog.LevelDebug
	if !e.failing {
		e.failing, level = true, slog.LevelWarn
	}
	e.o.Log.Log(ctx, level, "cannot reach the Lease, retrying", "doing", doing, "err", err)
}

// renewalAge returns the value of kubecdc_leader_renewal_age_seconds.
func (e *Elector) renewalAge() float64 {
	touched := e.created
	if t := e.touched.Load(); t != nil {
		touched = *t
	}
	return e.now().since(touched).Seconds()
}

func epochOf(s *leaseSpec) uint64 { return uint64(max(s.LeaseTransitions, 0)) + 1 }

// released is leaseDurationSeconds of a released Lease, as client-go writes it.
const released = 1

// leaseSeconds returns LeaseDuration for the Lease. It is greater than released: otherwise a Lease
// whose holder's name was removed would look released.
func (e *Elector) leaseSeconds() int64 {
	return max(int64(math.Ceil(e.o.LeaseDuration.Seconds())), released+1)
}
