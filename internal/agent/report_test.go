package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// refusing is a place for a checkpoint, which refuses to save while err is set.
type refusing struct {
	checkpoint.Store

	err atomic.Pointer[error]
}

func (*refusing) Lock(context.Context) (func() error, error) { return func() error { return nil }, nil }
func (*refusing) Load(context.Context) ([]byte, error)       { return nil, nil }
func (*refusing) String() string                             { return "checkpoint file /x" }

func (r *refusing) Save(context.Context, []byte) error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}

// A checkpoint that cannot be saved is shown at once, and makes the agent unready after a minute.
func TestCheckpointThatCannotBeSavedIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(refusing)
		keeper := checkpoint.NewKeeper(store, checkpoint.Identity{}, slog.New(slog.DiscardHandler), nil)
		if err := keeper.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		informers, err := newIdleInformers(config.Default(), &rest.Config{Host: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		r := newReporter(&agent{
			cfg:       config.Default(),
			options:   new(Options),
			informers: informers,
			keeper:    &deferredKeeper{},
			stdout:    io.Discard,
			queue: queue.New[*object.Delta](queue.Options{Events: 1, Bytes: 1, InFlight: 1},
				prometheus.NewRegistry()),
		})
		r.keeper.Store(keeper)
		at := uint64(1)
		keeper.Track("pods", func() (checkpoint.Position, bool) {
			at++
			return checkpoint.Position{Scope: checkpoint.Scope{Resource: "pods", ResourceVersion: at}, Acked: at}, true
		}, nil)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- keeper.Run(ctx) }()
		probes := r.probes()
		for i := range probes { // the others are ready
			if p := &probes[i]; p.Name != "checkpoint" {
				p.Ready = func() error { return nil }
			}
		}
		r.checks = admin.NewChecks(nil, probes...)
		look := func() *admin.Check {
			ready := r.checks.Look(time.Now())
			for i := range ready.Checks {
				if k := &ready.Checks[i]; k.Name == "checkpoint" {
					if ready.Ready != (k.OK || k.Aside) {
						t.Errorf("ready %t with %+v", ready.Ready, k)
					}
					return k
				}
			}
			t.Fatal("there is no such check")
			return nil
		}
		<-time.After(10 * time.Second)
		if k := look(); !k.OK {
			t.Errorf("at first: %+v", k)
		}
		full := errors.New("disk full")
		store.err.Store(&full)
		<-time.After(20 * time.Second)
		if k := look(); k.OK || !k.Aside || !strings.Contains(k.Detail, "disk full") {
			t.Errorf("after some seconds: %+v", k)
		}
		<-time.After(50 * time.Second)
		if k := look(); k.OK || k.Aside || !strings.HasPrefix(k.Detail, "file /x could not be saved for 1m") ||
			!strings.Contains(k.Detail, "disk full") {
			t.Errorf("after a minute: %+v", k)
		}
		store.err.Store(nil)
		<-time.After(20 * time.Second)
		if k := look(); !k.OK {
			t.Errorf("in the end: %+v", k)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
