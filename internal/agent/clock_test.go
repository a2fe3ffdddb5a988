package agent

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/clock"
)

// TestTimesBeginAfterThoseOfTheLastRun has a last run whose clock was ahead.
func TestTimesBeginAfterThoseOfTheLastRun(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store := checkpoint.OpenFile(filepath.Join(t.TempDir(), "checkpoint.json"))
	at := time.Now().Add(time.Hour)
	for _, run := range []string{"first", "second"} {
		k := checkpoint.NewKeeper(store, checkpoint.Identity{}, log, nil)
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := &agent{log: log, clock: NewClock(log, prometheus.NewRegistry(), func(clock.Interruption) {})}
		a.beginTime(k)
		if run == "first" {
			a.clock.Begin(at)
			k.Track("pods", func() (checkpoint.Position, bool) { return checkpoint.Position{}, true }, nil)
		} else if got := a.clock.Now(); !got.Equal(at) {
			t.Errorf("the %s run begins at %v, want %v", run, got, at)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
