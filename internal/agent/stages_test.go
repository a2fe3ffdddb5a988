package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// diary records the actions of the stages, in order.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) add(entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, entry)
}

// untilEnded returns a stage that ends with its context.
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

// none is a step that has nothing to do.
func none(context.Context) error { return nil }

func TestStagesEndOneAfterTheOther(t *testing.T) {
	var d diary
	closed := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	err := RunStages(ctx, time.Minute, Stages{
		Observe: d.untilEnded("observe"),
		Waiting: func() int { return 0 },
		Drained: func(context.Context) error {
			d.add("drained")
			return nil
		},
		Finish: func(context.Context) error {
			d.add("finished")
			return nil
		},
		CloseQueue: func() { d.add("queue closed"); close(closed) },
		Dispatch: func(context.Context) error {
			<-closed
			d.add("pump ended")
			return nil
		},
		Save: d.untilEnded("checkpoint"), Bus: d.untilEnded("bus"),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"observe ended", "drained", "finished", "queue closed", "pump ended", "checkpoint ended", "bus ended",
	}; !slices.Equal(d.entries, want) {
		t.Errorf("got %q, want %q", d.entries, want)
	}
}

func TestGraceEndsADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begin := time.Now()
		err := RunStages(ctx, 20*time.Second, Stages{
			Observe: d.untilEnded("observe"), Waiting: func() int {
				return 0
			}, Drained: never, Finish: none, CloseQueue: func() {},
			Dispatch: func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
			Save: d.untilEnded("checkpoint"), Bus: d.untilEnded("bus"),
		}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, ErrGrace) || time.Since(begin) != 20*time.Second {
			t.Errorf("got %v after %v, want the end of the grace period after 20 s", err, time.Since(begin))
		}
	})
}

func TestAFailingStageEndsAll(t *testing.T) {
	var d diary
	failure := errors.New("the stream would lose events")
	err := RunStages(t.Context(), time.Minute, Stages{
		Observe: d.untilEnded("observe"), Waiting: func() int {
			return 0
		}, Drained: never, Finish: none, CloseQueue: func() {}, Dispatch: d.untilEnded("pump"),
		Save: d.untilEnded("checkpoint"), Bus: func(context.Context) error { return failure },
	}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
}

// An agent ends if another agent has written its checkpoint. Otherwise both would lose history in
// turn.
func TestAConflictOfCheckpointsEndsAll(t *testing.T) {
	var d diary
	conflict := errors.New("somebody else has written it")
	err := RunStages(t.Context(), time.Minute, Stages{
		Observe: d.untilEnded("observe"), Waiting: func() int {
			return 0
		}, Drained: never, Finish: none, CloseQueue: func() {},
		Dispatch: d.untilEnded("pump"), Save: func(context.Context) error { return conflict }, Bus: d.untilEnded("bus"),
	}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, conflict) {
		t.Errorf("got %v, want %v", err, conflict)
	}
	slices.Sort(d.entries)
	if want := []string{"bus ended", "observe ended", "pump ended"}; !slices.Equal(d.entries, want) {
		t.Errorf("got %q, want %q", d.entries, want)
	}
}

// The checkpoint is saved even if the bus does not acknowledge the last progress events within the
// grace period. That is not a failure, because they are not changes.
func TestTheCheckpointIsSavedWhenGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, stop := context.WithCancel(t.Context())
		stop()
		err := RunStages(ctx, 20*time.Second, Stages{
			Observe: d.untilEnded("observe"), Waiting: func() int {
				return 1
			}, Drained: none, Finish: never, CloseQueue: func() {},
			Dispatch: never, Save: d.untilEnded("checkpoint"), Bus: d.untilEnded("bus"),
		}, slog.New(slog.DiscardHandler))
		if err != nil || !slices.Contains(d.entries, "checkpoint ended") {
			t.Errorf("got %v after %q", err, d.entries)
		}
	})
}

// A failed bus ends the pump before its own stage returns. RunStages must return the error of the
// bus.
func TestTheErrorOfAFailedBusIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		failure := errors.New("the disk is full")
		closed := make(chan struct{})
		err := RunStages(t.Context(), time.Minute, Stages{
			Observe: d.untilEnded("observe"), Waiting: func() int {
				return 1
			}, Drained: never, Finish: none, CloseQueue: func() {},
			Dispatch: func(context.Context) error {
				<-closed
				return fmt.Errorf("publish pods/1: %w", publish.ErrClosed)
			},
			Save: UntilEnded,
			Bus: func(context.Context) error {
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
