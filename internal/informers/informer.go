package informers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	"golang.org/x/time/rate"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// Spec is what an informer observes, and where it begins.
type Spec struct {
	Scope      selection.Scope
	Lane       store.Lane
	Snapshots  SnapshotMode
	Every      time.Duration // between snapshots, 0: never
	Shared     bool          // other agents observe other parts of the resource, and announce them on the bus
	Internal   bool          // it is for the set itself: nothing of it is captured
	History    uint32        // number of the history that the resource was observed in
	Remembered bool          // the last run observed the resource
	Origin     *Origin       // where to resume, nil: nowhere
	Created    uint64        // resourceVersion before which there was no object, 0: that is not known
	CreatedAt  time.Time     // when Created was seen
}

// informer observes one resource in one scope: it lists (list.go), and follows from there (follow.go, watch.go).
type informer struct {
	spec          Spec
	client        *apiserver.Client
	resource      *object.Resource
	selection     selection.Scope
	scope         string
	ignored       func(*object.Ref) bool // what is never captured
	ignores       []string               // the same as namespace/name, for the checkpoint; nil: nothing of the resource ever is
	progressEvery time.Duration
	listSlots     *apiserver.ListSlots             // shared: bounds how many lists run at a time
	walkSlots     chan struct{}                    // shared: bounds how many versions are asked for at a time
	lookups       *rate.Limiter                    // shared: bounds how many revisions are looked at one by one
	hearing       *hearing                         // nil: the bus cannot be asked
	outage        *outage                          // shared
	denials       *denials                         // shared
	denied        func(context.Context, *informer) // told when a list was forbidden, before progressed is
	progressed    func()                           // told when the first snapshot may be complete, or impossible
	log           *slog.Logger
	metrics       *metrics

	store      *store.Store
	state      state
	dictionary dictionary
	kicked     chan struct{} // of one element: a request that failed may succeed now
	ended      chan struct{}

	removal    removal
	generation generation
	definition definition

	// retiring is set once the scope is no longer selected.
	retiring atomic.Pointer[checkpoint.Retiring]

	// Of the owner goroutine.
	born    uint64    // resourceVersion before which there was no object, 0: that is not known, or done with
	bornAt  time.Time // when that was seen
	retried time.Time // when a request that had failed was made again, the last time
	rewound bool      // a watch found that etcd was restored
	resume  *Origin   // where to resume, nil: nowhere, or that is done
	resumed *Origin   // where it has resumed
	// replayed is the resourceVersion up to which the run before may have told what is told again.
	replayed uint64
	asked    bool   // the bus was asked what it has heard
	heard    *Heard // and has
}

// relistReset is after how long without another list the delay between lists begins anew.
const relistReset = 2 * time.Minute

// errEnded is what those get who ask an informer that has ended.
var errEnded = errors.New("informer has ended")

// run observes until ctx ends: its goroutine owns what is known of history, and makes all writes to the store that a list or a watch
// causes. Everything that run started has ended when it returns.
func (i *informer) run(ctx context.Context) {
	defer close(i.ended)
	var others sync.WaitGroup
	others.Go(func() { i.store.Run(ctx, i.spec.Every) })
	others.Go(func() { i.tellProgress(ctx) })
	defer others.Wait()
	// Lists and watches retry by themselves. What follow returns for is a 410: list again at once, but not in a tight loop should every
	// watch end with one.
	for b := retry.New(); ; {
		began := time.Now()
		rv, err := i.list(ctx)
		if err != nil {
			return
		}
		i.follow(ctx, rv)
		if time.Since(began) > relistReset {
			b = retry.New()
		}
		if !b.Wait(ctx, nil) {
			return
		}
	}
}

// seen notes a sign of life of the watch.
func (i *informer) seen(at time.Time) {
	i.state.seen(at)
	i.metrics.lastSeen.Set(float64(at.UnixMilli()) / 1e3)
}
