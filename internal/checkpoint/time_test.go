package checkpoint_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// TestTheLastTimeIsKept shows that a run, and each later one, knows the last time of the run before
// it: also a leader that takes over and ends before its first save.
func TestTheLastTimeIsKept(t *testing.T) {
	s := newAPIServer(t)
	at := time.Date(2026, 11, 20, 15, 0, 0, 123, time.UTC)
	first, _ := takeOver(t, s.store(t), 1)
	if got := first.Time(); !got.IsZero() {
		t.Errorf("without a run before: %v", got)
	}
	first.TrackTime(func() time.Time { return at })
	pods := informerAt(10, 10)
	first.Track("pods", pods.position, nil)
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for epoch := uint64(2); epoch < 4; epoch++ {
		next, _ := takeOver(t, s.store(t), epoch)
		if got := next.Time(); !got.Equal(at) {
			t.Errorf("epoch %d knows %v, want %v", epoch, got, at)
		}
	}
	d, err := checkpoint.Read(t.Context(), s.store(t))
	if err != nil {
		t.Fatal(err)
	}
	if !d.Time.Equal(at) {
		t.Errorf("the checkpoint has %v, want %v", d.Time, at)
	}
	alone := checkpoint.NewKeeper(s.store(t), us, slog.New(slog.DiscardHandler), nil)
	if err := alone.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := alone.Time(); !got.Equal(at) {
		t.Errorf("without an election: %v, want %v", got, at)
	}
	if err := alone.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
