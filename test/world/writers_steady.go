package world

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// SteadyWriters change objects at a moderate rate, even while tests stop and restart API servers.
type SteadyWriters struct {
	APIs   []*API
	Every  time.Duration // How often each writer takes a step.
	Steps  atomic.Int64
	Failed atomic.Int64 // Steps with an unexpected error. Only etcd shows whether they took effect.
}

// Run runs the steps of each writer in the background until stop is called.
func (sw *SteadyWriters) Run(t testing.TB, writers ...func(*Writers) func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for i, make := range writers {
		wg.Go(func() {
			ws := &writersOf{apis: sw.APIs, at: i % len(sw.APIs)}
			ws.use()
			step := make(&ws.Writers)
			tick := time.NewTicker(sw.Every)
			defer tick.Stop()
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				// stop does not cancel a step: the API server could still execute the request after
				// the test has read the last revision.
				attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
				err := step(attempt)
				cancel()
				sw.Steps.Add(1)
				if !Tolerable(err) {
					sw.Failed.Add(1)
					ws.at++
					ws.use()
				}
			}
		})
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			wg.Wait()
		}
	}
	t.Cleanup(stop)
	return stop
}

// writersOf is a set of writers that can switch to another API server.
type writersOf struct {
	Writers
	apis []*API
	at   int
}

func (w *writersOf) use() { w.API = w.apis[w.at%len(w.apis)] }

// Labelled is one step of a writer of custom resources that enter and leave the selector
// team=payments.
func (w *Writer) Labelled(ctx context.Context) error {
	all := Collection(oracle.Widgets, w.Namespace)
	name := w.Name()
	uri := all + "/" + name
	w.N++
	inside := w.RNG.IntN(2) == 0
	widget := obj{
		"apiVersion": oracle.WidgetsGroup + "/v1", "kind": "Widget",
		"metadata": Meta(name, "labels", obj{"team": Team(inside)}), "spec": obj{"step": w.N},
	}
	var err error
	switch w.RNG.IntN(8) {
	case 0, 1:
		_, err = w.API.Create(ctx, all, widget)
	case 2, 3, 4:
		_, err = w.API.MergePatch(ctx, uri, obj{"metadata": obj{"labels": obj{"team": Team(inside)}}})
	case 5:
		_, err = w.API.MergePatch(ctx, uri, obj{"spec": obj{"step": w.N}})
	case 6:
		err = w.API.Remove(ctx, uri)
	case 7:
		if err = w.API.Remove(ctx, uri); err == nil {
			_, err = w.API.Create(ctx, all, widget)
		}
	}
	return err
}

// Team returns a value of the label team that the selector team=payments matches, or one that it
// does not match.
func Team(inside bool) string {
	if inside {
		return "payments"
	}
	return "search"
}
