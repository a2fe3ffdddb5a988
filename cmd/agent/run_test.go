package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
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

func TestStagesEndOneAfterTheOther(t *testing.T) {
	defer goleak.VerifyNone(t)
	var d diary
	closed := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	err := runStages(ctx, time.Minute, stages{
		observe: d.untilEnded("observe"),
		waiting: func() int { return 0 }, closeQueue: func() { d.add("queue closed"); close(closed) },
		pump: func(context.Context) error {
			<-closed
			d.add("pump drained")
			return nil
		},
		bus: d.untilEnded("bus"),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"observe ended", "queue closed", "pump drained", "bus ended"}; !slices.Equal(d.entries, want) {
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
			observe: d.untilEnded("observe"), waiting: func() int { return 0 }, closeQueue: func() {},
			pump: func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
			bus: d.untilEnded("bus"),
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
		observe: d.untilEnded("observe"), waiting: func() int { return 0 }, closeQueue: func() {}, pump: d.untilEnded("pump"),
		bus: func(context.Context) error { return failure },
	}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
}

func TestLoggedHostHoldsNoPassword(t *testing.T) {
	if got := redacted("https://admin:hunter2@127.0.0.1:6443"); got != "https://admin:xxxxx@127.0.0.1:6443" {
		t.Errorf("got %q", got)
	}
}
