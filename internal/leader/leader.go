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

// Options say who wants to lead, by which Lease. RetryPeriod < RenewDeadline < LeaseDuration.
type Options struct {
	Config          *rest.Config
	Namespace, Name string // of the Lease
	Identity        string // of this process alone: no other one, and no later one, may have it

	LeaseDuration time.Duration // for how long others keep away from a Lease that is not renewed; the Lease has it in whole seconds, 2 or more
	RenewDeadline time.Duration // for how long the fence passes without a renewal
	RetryPeriod   time.Duration // between two looks, and two renewals

	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Term is what who leads has. It goes on through pauses.
type Term struct {
	Epoch uint64 // leaseTransitions + 1
}

// Status is what can be said of an elector.
type Status struct {
	Seen    bool   // the API server has told of the Lease once
	Leading bool   // this process holds it
	Paused  bool   // it does, and may not write: the Lease could not be renewed in time
	Over    error  // why it may never write again, and is about to end; nil: it may, now or when it leads
	Holder  string // who holds it, as of the last look; "": nobody
	Epoch   uint64 // of the holder
	Err     error  // of the last request; nil: it was answered
}

// Elector leads, or stands by to lead.
type Elector struct {
	o       Options
	leases  leases
	now     clock
	fence   *Fence
	metrics *metrics

	transitions atomic.Int64
	touched     atomic.Pointer[instant] // when the request was sent that the API server answered last; nil: none
	begun       chan struct{}           // closed when this process leads
	created     instant

	mu     sync.Mutex
	status Status

	// All below is Run's, and Release's when that has returned.

	held     *lease  // as it was written or read last; nil: this process stands by
	observed *lease  // by a standby, at the last look that found it; nil: none has
	since    instant // it has not changed
	paused   bool
	failing  bool // the last request has failed
	waited   string
}

// requests are given up after RenewDeadline/2, so that there is time for a second one.
const attemptsPerDeadline = 2

// New checks the options. It starts nothing, and asks nothing of the API server.
func New(o Options) (*Elector, error) {
	switch {
	case o.Namespace == "" || o.Name == "" || o.Identity == "":
		return nil, errors.New("leader election: the Lease needs a namespace and a name, and its holder an identity")
	case o.RetryPeriod <= 0 || o.RenewDeadline <= o.RetryPeriod || o.LeaseDuration <= o.RenewDeadline:
		return nil, fmt.Errorf("leader election: it must be that 0 < retryPeriod (%v) < renewDeadline (%v) < leaseDuration (%v)",
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
	e := &Elector{o: o, leases: l, now: now, fence: newFence(now, o.RenewDeadline), begun: make(chan struct{}), created: now()}
	e.metrics = newMetrics(o.Registerer, e)
	return e
}

// Fence is for whoever writes to the bus.
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

// Status may be called at any time.
func (e *Elector) Status() Status {
	e.mu.Lock()
	s := e.status
	e.mu.Unlock()
	s.Over = e.fence.ended()
	s.Paused = s.Leading && s.Over == nil && !e.fence.open()
	return s
}

// String is the status in words: "standby, kubecdc-7d9f_X leads".
func (s *Status) String() string {
	switch {
	case s.Over != nil:
		return "has led, and ends"
	case s.Leading:
		return fmt.Sprintf("leads, epoch %d", s.Epoch)
	case s.Holder == "":
		return "standby, nobody leads"
	}
	return fmt.Sprintf("standby, %s leads", s.Holder)
}

// Ready returns nil if this process leads, or would if the leader were gone. An API server that is away makes no standby
// unready, once it has told of the Lease: it takes nothing from what there is.
func (e *Elector) Ready() error {
	s := e.Status()
	switch {
	case s.Over != nil:
		return fmt.Errorf("this agent ends, and stands by when it is started again: %w", s.Over)
	case s.Paused:
		return fmt.Errorf("the Lease %s/%s could not be renewed within %v, publishing pauses: %w", e.o.Namespace, e.o.Name, e.o.RenewDeadline, orUnknown(s.Err))
	case !s.Seen:
		return fmt.Errorf("the API server has not told of the Lease %s/%s yet: %w", e.o.Namespace, e.o.Name, orUnknown(s.Err))
	}
	return nil
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("it was not asked, or has not answered")
	}
	return err
}

// Run stands by, leads, and renews the Lease, until ctx ends: then it returns nil, and this process may hold the Lease still.
// End ctx when nothing more is written to the bus, and call Release. The error of Run wraps ErrLost: another agent leads.
// Call it once.
func (e *Elector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		next, err := e.round(ctx)
		if err != nil {
			e.fence.shut(err)
			e.held = nil
			e.set(func(s *Status) { s.Leading = false })
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
	return nil
}

// round looks at the Lease, or renews it, and tells when to do so next.
func (e *Elector) round(ctx context.Context) (next time.Duration, err error) {
	if e.held == nil {
		return e.standBy(ctx)
	}
	e.notePause()
	next, err = e.renew(ctx)
	e.notePause()
	return next, err
}

// request is ctx for one request.
func (e *Elector) request(ctx context.Context) (context.Context, context.CancelFunc) {
	d := e.o.RenewDeadline / attemptsPerDeadline
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %v", d))
}

// Release gives the Lease back, if this process holds it, so that another one leads at once. Whatever becomes of that, the fence never
// passes again. It is called when Run has returned.
func (e *Elector) Release(ctx context.Context) error {
	e.fence.shut(fmt.Errorf("%w: the Lease is given back", ErrLost))
	if e.held == nil {
		return nil
	}
	var err error
	for range 2 {
		l := *e.held
		l.Spec = leaseSpec{
			LeaseDurationSeconds: released, RenewTime: e.stamp(), AcquireTime: l.Spec.AcquireTime, LeaseTransitions: l.Spec.LeaseTransitions,
			Strategy: l.Spec.Strategy, PreferredHolder: l.Spec.PreferredHolder,
		}
		if _, err = e.leases.update(ctx, &l); err == nil {
			e.held = nil
			e.set(func(s *Status) { s.Leading, s.Holder = false, "" })
			e.o.Log.Info("the Lease is given back, another agent may lead", "epoch", epochOf(&l.Spec))
			return nil
		}
		if !isConflict(err) {
			break
		}
		there, getErr := e.leases.get(ctx)
		switch {
		case apierrors.IsNotFound(getErr), getErr == nil && there.Spec.HolderIdentity != e.o.Identity:
			return nil // nothing of ours is there
		case getErr != nil:
			return fmt.Errorf("give the Lease %s/%s back: %w", e.o.Namespace, e.o.Name, getErr)
		}
		e.held = there
	}
	return fmt.Errorf("give the Lease %s/%s back: %w", e.o.Namespace, e.o.Name, err)
}

func (e *Elector) set(change func(*Status)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.status)
}

// answered notes what the API server has told, of a request that was sent at that time.
func (e *Elector) answered(sent instant, spec *leaseSpec) {
	e.touched.Store(&sent)
	if spec != nil {
		e.transitions.Store(spec.LeaseTransitions)
	}
	if e.failing {
		e.failing = false
		e.o.Log.Info("the Lease can be reached again")
	}
	e.set(func(s *Status) {
		s.Seen, s.Err, s.Holder, s.Epoch = true, nil, "", 0
		if spec != nil {
			s.Holder, s.Epoch = spec.HolderIdentity, epochOf(spec)
		}
	})
}

// failed notes that a request had no good answer.
func (e *Elector) failed(ctx context.Context, doing string, err error) {
	if ctx.Err() != nil {
		return
	}
	e.set(func(s *Status) { s.Err = err })
	level := slog.LevelDebug
	if !e.failing {
		e.failing, level = true, slog.LevelWarn
	}
	e.o.Log.Log(ctx, level, "cannot reach the Lease, retrying", "doing", doing, "err", err)
}

// age is for the metric.
func (e *Elector) age() float64 {
	touched := e.created
	if t := e.touched.Load(); t != nil {
		touched = *t
	}
	return e.now().since(touched).Seconds()
}

func epochOf(s *leaseSpec) uint64 { return uint64(max(s.LeaseTransitions, 0)) + 1 }

// released is leaseDurationSeconds of a Lease that was given back, as client-go writes it.
const released = 1

// seconds is LeaseDuration as the Lease has it. It is never that of one that was given back: without a holder's name, which somebody
// may have removed, it would look like one.
func (e *Elector) seconds() int64 {
	return max(int64(math.Ceil(e.o.LeaseDuration.Seconds())), released+1)
}
