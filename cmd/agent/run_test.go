package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// diary writes down what the stages do, in order.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) add(entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, entry)
}

// untilEnded is a stage that ends with its context.
func (d *diary) untilEnded(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		d.add(name + " ended")
		return nil
	}
}

// never is a queue that is not drained.
func never(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// none is nothing to tell.
func none(context.Context) error { return nil }

func TestStagesEndOneAfterTheOther(t *testing.T) {
	defer goleak.VerifyNone(t)
	var d diary
	closed := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	err := runStages(ctx, time.Minute, stages{
		observe: d.untilEnded("observe"),
		waiting: func() int { return 0 },
		drained: func(context.Context) error {
			d.add("drained")
			return nil
		},
		finish: func(context.Context) error {
			d.add("finished")
			return nil
		},
		closeQueue: func() { d.add("queue closed"); close(closed) },
		dispatch: func(context.Context) error {
			<-closed
			d.add("pump ended")
			return nil
		},
		remember: d.untilEnded("checkpoint"), bus: d.untilEnded("bus"),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"observe ended", "drained", "finished", "queue closed", "pump ended", "checkpoint ended", "bus ended"}; !slices.Equal(d.entries, want) {
		t.Errorf("got %q, want %q", d.entries, want)
	}
}

func TestGraceEndsADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begin := time.Now()
		err := runStages(ctx, 20*time.Second, stages{
			observe: d.untilEnded("observe"), waiting: func() int { return 0 }, drained: never, finish: none, closeQueue: func() {},
			dispatch: func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
			remember: d.untilEnded("checkpoint"), bus: d.untilEnded("bus"),
		}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, errGrace) || time.Since(begin) != 20*time.Second {
			t.Errorf("got %v after %v, want the end of the grace period after 20 s", err, time.Since(begin))
		}
	})
}

func TestAFailingStageEndsAll(t *testing.T) {
	defer goleak.VerifyNone(t)
	var d diary
	failure := errors.New("the stream would lose events")
	err := runStages(t.Context(), time.Minute, stages{
		observe: d.untilEnded("observe"), waiting: func() int { return 0 }, drained: never, finish: none, closeQueue: func() {}, dispatch: d.untilEnded("pump"),
		remember: d.untilEnded("checkpoint"), bus: func(context.Context) error { return failure },
	}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
}

// A checkpoint that another agent has written ends this one: two would take turns in losing history.
func TestAConflictOfCheckpointsEndsAll(t *testing.T) {
	defer goleak.VerifyNone(t)
	var d diary
	conflict := errors.New("somebody else has written it")
	err := runStages(t.Context(), time.Minute, stages{
		observe: d.untilEnded("observe"), waiting: func() int { return 0 }, drained: never, finish: none, closeQueue: func() {},
		dispatch: d.untilEnded("pump"), remember: func(context.Context) error { return conflict }, bus: d.untilEnded("bus"),
	}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, conflict) {
		t.Errorf("got %v, want %v", err, conflict)
	}
	slices.Sort(d.entries)
	if want := []string{"bus ended", "observe ended", "pump ended"}; !slices.Equal(d.entries, want) {
		t.Errorf("got %q, want %q", d.entries, want)
	}
}

// What is drained is remembered also where the bus is not told any more within the grace period. Nothing has failed then:
// what waits are no changes.
func TestTheCheckpointIsSavedWhenGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, stop := context.WithCancel(t.Context())
		stop()
		err := runStages(ctx, 20*time.Second, stages{
			observe: d.untilEnded("observe"), waiting: func() int { return 1 }, drained: none, finish: never, closeQueue: func() {},
			dispatch: never, remember: d.untilEnded("checkpoint"), bus: d.untilEnded("bus"),
		}, slog.New(slog.DiscardHandler))
		if err != nil || !slices.Contains(d.entries, "checkpoint ended") {
			t.Errorf("got %v after %q", err, d.entries)
		}
	})
}

// A bus that fails ends the pump before it has ended itself: what it says is what matters.
func TestTheErrorOfAFailedBusIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		failure := errors.New("the disk is full")
		closed := make(chan struct{})
		err := runStages(t.Context(), time.Minute, stages{
			observe: d.untilEnded("observe"), waiting: func() int { return 1 }, drained: never, finish: none, closeQueue: func() {},
			dispatch: func(context.Context) error {
				<-closed
				return fmt.Errorf("publish pods/1: %w", publish.ErrClosed)
			},
			remember: untilEnded,
			bus: func(context.Context) error {
				close(closed)
				synctest.Wait() // the pump has ended
				return failure
			},
		}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, failure) {
			t.Errorf("got %v, want %v", err, failure)
		}
	})
}

func TestLoggedHostHoldsNoPassword(t *testing.T) {
	for host, want := range map[string]string{
		"https://admin:hunter2@127.0.0.1:6443": "https://admin:xxxxx@127.0.0.1:6443",
		"127.0.0.1:6443":                       "http://127.0.0.1:6443",
		"https://rancher.example/k8s/c-1":      "https://rancher.example/k8s/c-1",
	} {
		if got := redacted(&rest.Config{Host: host}); got != want {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
	}
	// One that cannot be read is not repeated.
	if _, err := idleSet(config.Default(), &rest.Config{Host: "admin:hunter2@[::1"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}
