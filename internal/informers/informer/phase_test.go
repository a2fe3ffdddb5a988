package informer

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// From each phase a scope can come to its end, and to each phase from the first one; a change that
// the table does not have is logged.
func TestTableOfPhases(t *testing.T) {
	reached := map[Phase]bool{PhaseWaiting: true}
	for range PhaseRemoved {
		for from := range PhaseRemoved {
			for to := range PhaseRemoved + 1 {
				reached[to] = reached[to] || reached[from] && from.leadsTo(to)
			}
		}
	}
	var names []string
	for p := range PhaseRemoved + 1 {
		names = append(names, p.String())
		if ends := p.leadsTo(PhaseRemoved); !reached[p] || ends != (p < PhaseRemoved) || p.leadsTo(p) {
			t.Errorf("%s is reached: %t, ends: %t, follows itself: %t", p, reached[p], ends, p.leadsTo(p))
		}
	}
	want := "waiting listing announcing live blocked relisting draining retiring drained removed"
	if d := cmp.Diff(want, strings.Join(names, " ")); d != "" {
		t.Error(d)
	}
	var log strings.Builder
	s := &state{scope: "pods", log: slog.New(slog.NewTextHandler(&log, nil)), changed: func() {}}
	s.enter(PhaseListing)
	if log.Len() > 0 {
		t.Errorf("logged %q", &log)
	}
	s.phase = PhaseRelisting
	s.enter(PhaseLive)
	if got := log.String(); !strings.Contains(got,
		`level=ERROR msg="illegal change of phase" scope=pods from=relisting to=live`) {
		t.Errorf("logged %q", got)
	}
}

// The size of a list is shown only while the list is loaded.
func TestExpectedObjectsAreThoseOfTheList(t *testing.T) {
	s := &state{scope: "pods", log: slog.New(slog.DiscardHandler), changed: func() {}, phase: PhaseWaiting}
	s.enter(PhaseListing)
	s.noteAnswer(time.Now(), 500)
	if s.expects != 500 {
		t.Errorf("while the list is loaded, %d objects are expected", s.expects)
	}
	s.enter(PhaseDraining)
	if s.expects != 0 {
		t.Errorf("after the list, %d objects are expected", s.expects)
	}
}

// A response that does not say how large the list is keeps what an earlier one has said.
func TestSizeOfAListIsKept(t *testing.T) {
	s := &state{scope: "pods", log: slog.New(slog.DiscardHandler), changed: func() {}, phase: PhaseListing}
	s.noteAnswer(time.Unix(1, 0), 7)
	s.noteAnswer(time.Unix(2, 0), 0)
	if s.expects != 7 {
		t.Errorf("%d objects are expected, want 7", s.expects)
	}
}
