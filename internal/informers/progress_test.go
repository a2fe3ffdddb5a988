package informers_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// lastTold returns the last progress that the recorder has.
func (r *recorder) lastTold(t *testing.T) *object.Delta {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) == 0 {
		t.Fatal("there is no progress")
	}
	return r.told[len(r.told)-1]
}

// says returns what a progress says of each scope, without times: "configmaps, start…". last is a
// resourceVersion that the bus has.
func says(d *object.Delta, last uint64) (out []string) {
	for _, s := range d.Report.Scopes {
		text := s.Resource.String()
		if s.Scope != "" {
			text = s.Scope
		}
		if s.Count > 1 {
			text = fmt.Sprintf("%d scopes of %s", s.Count, text)
		}
		switch {
		case s.ResourceVersion == 0:
			text += ", nothing claimed"
		case s.ResourceVersion < last:
			text += fmt.Sprintf(" up to %d", s.ResourceVersion)
		}
		for _, i := range s.Interruptions {
			isOpen := i.Until.IsZero()
			if isOpen && i.Why == object.InterruptedClosed {
				continue // the watch has just ended at its timeout, which is drawn
			}
			text += ", " + string(i.Why)
			if isOpen {
				text += "…"
			}
		}
		for _, h := range s.Hidden {
			text += fmt.Sprintf(", hidden from %d to %d", h.From.ResourceVersion, h.Until.ResourceVersion)
		}
		out = append(out, text)
	}
	return out
}

// wantTold waits for a minute, and compares what the next progress says, which the bus has up to
// last.
func (l *life) wantTold(t *testing.T, last uint64, want ...string) *object.Delta {
	t.Helper()
	pass(time.Minute)
	d := l.lastTold(t)
	if diff := cmp.Diff(want, says(d, last)); diff != "" {
		t.Errorf("the progress says (-want +got):\n%s", diff)
	}
	return d
}

// marks makes an API server send a bookmark each minute, until the test ends.
func (s *apiServer) marks(t *testing.T) {
	go func() {
		for wait(t.Context(), time.Minute) {
			s.bookmark()
		}
	}()
}

func TestAnAgentSendsItsProgressEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.marks(t)
		began := time.Now()
		l := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Rules[0].Resources = []selection.Pattern{pattern("configmaps"), pattern("nodes")}
		})
		pass(10 * time.Minute)
		l.mu.Lock()
		told := l.told
		l.mu.Unlock()
		if n := len(told); n != 10 && n != 9 {
			t.Errorf("%d progress events in ten minutes", n)
		}
		for k, d := range told {
			r := d.Report
			if r.Number != uint64(k+1) || r.Ends {
				t.Errorf("the event %d has the number %d, ends: %t", k+1, r.Number, r.Ends)
			}
			if at := time.Unix(0, d.Observed); k > 1 && (at.Sub(r.To) > 65*time.Second || r.To.After(at)) {
				t.Errorf("the event at %v says that the bus has everything to %v", at, r.To)
			}
			if r.Since.Before(began) {
				t.Errorf("the event begins at %v, before the run, at %v", r.Since, began)
			}
		}
		last := s.put("b", "1", nil).rv
		d := l.wantTold(t, last, "configmaps")
		if d.Report.SnapshotBegan.Sub(began).Abs() > time.Second {
			t.Errorf("the last snapshot began at %v, want %v", d.Report.SnapshotBegan, began)
		}
		l.end()
		if err := l.set.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := l.lastTold(t); !d.Report.Ends {
			t.Errorf("the last progress is not the end: %+v", d.Report)
		}
	})
}

// Changes that the bus has not acknowledged are not claimed.
func TestProgressClaimsWhatTheBusHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		first := s.put("a", "1", nil).rv
		s.marks(t)
		l := live(t, s, m, nil)
		pass(time.Minute)
		l.wantTold(t, first, "configmaps")
		l.hold(func(d *object.Delta) bool { return d.Stream == nil && d.Report == nil })
		pass(time.Second)
		changed := time.Now()
		second := s.put("a", "2", nil).rv
		l.wantTold(t, second, fmt.Sprintf("configmaps up to %d", second-1))
		d := l.wantTold(t, second, fmt.Sprintf("configmaps up to %d", second-1))
		if to := d.Report.To; !to.Before(changed) {
			t.Errorf("it claims everything to %v, and the bus lacks a change at %v", to, changed)
		}
		l.acknowledge()
		l.wantTold(t, second, "configmaps")
	})
}

// An agent that was away says so, if something has changed meanwhile.
func TestProgressAfterARestart(t *testing.T) {
	for name, changes := range map[string]bool{"changes": true, "no change": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				last := s.put("a", "1", nil).rv
				s.marks(t)
				liveSaved(t, s, m, nil).end()
				away := time.Now()
				pass(10 * time.Second)
				if changes {
					last = s.put("a", "2", nil).rv
				}
				pass(10 * time.Second)
				l := live(t, s, m, nil)
				pass(time.Minute)
				d := l.wantTold(t, last, interruptedIf(changes, "configmaps", ", start"))
				if !changes {
					return
				}
				i := d.Report.Scopes[0].Interruptions[0]
				if i.From.After(away) || away.Sub(i.From) > time.Minute || i.Until.Before(away.Add(20*time.Second)) {
					t.Errorf("interrupted from %v to %v, the agent ended at %v", i.From, i.Until, away)
				}
			})
		})
	}
}

func interruptedIf(interrupted bool, text, more string) string {
	if interrupted {
		return text + more
	}
	return text
}

// A watch cannot be opened for a while, and something changes meanwhile.
func TestProgressAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.marks(t)
		l := live(t, s, m, nil)
		pass(2 * time.Minute)
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				fail(w, http.StatusServiceUnavailable, "")
				return true
			}
		})
		s.CloseClientConnections()
		cut := time.Now()
		pass(40 * time.Second)
		last := s.put("a", "2", nil).rv
		s.do(func() { s.fault = nil })
		pass(time.Minute)
		d := l.wantTold(t, last, "configmaps, cut")
		i := d.Report.Scopes[0].Interruptions[0]
		if i.From.After(cut) || cut.Sub(i.From) > 65*time.Second || i.Until.Sub(cut) < 40*time.Second {
			t.Errorf("interrupted from %v to %v, and the watch was cut at %v for 40 s", i.From, i.Until, cut)
		}
		pass(11 * time.Minute)
		l.wantTold(t, last, "configmaps")
	})
}

// The process stands still, and what changes meanwhile is late.
func TestProgressAfterTheProcessStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.marks(t)
		l := live(t, s, m, nil)
		pass(2 * time.Minute)
		stopped := time.Now()
		last := s.put("a", "2", nil).rv
		synctest.Wait()
		l.set.Interrupt(stopped.Add(-10*time.Second), object.InterruptedStopped)
		pass(time.Minute)
		l.wantTold(t, last, "configmaps, stopped")
	})
}

// A filter withholds versions, and deletions.
func TestProgressSaysWhatFiltersHide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		s.marks(t)
		hides := func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(filtered("d")) }
		l := live(t, s, m, hides)
		pass(time.Minute)
		l.wantTold(t, 0, "configmaps")
		first := s.put("a", "noise", nil).rv
		l.wantTold(t, first, fmt.Sprintf("configmaps, hidden from %d to 0", first))
		shown := s.put("a", "2", nil).rv
		span := fmt.Sprintf(", hidden from %d to %d", first, shown)
		l.wantTold(t, shown, "configmaps"+span)
		pass(time.Minute)
		deleted := s.delete("b").rv
		l.wantTold(t, deleted, fmt.Sprintf("configmaps%s, hidden from %d to 0", span, deleted))
		pass(11 * time.Minute)
		l.wantTold(t, deleted, fmt.Sprintf("configmaps, hidden from %d to 0", deleted))
		_ = m.Flush(t.Context())
		l.end()

		again := live(t, s, m, hides)
		pass(2 * time.Minute)
		if h := again.lastTold(t).Report.Scopes[0].Hidden; len(h) != 1 || !h[0].Until.IsZero() {
			t.Fatalf("after a restart, the hidden spans are %v", h)
		}
		if _, err := again.set.Snapshot(t.Context(), "", ""); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if h := again.lastTold(t).Report.Scopes[0].Hidden; len(h) != 1 || h[0].Until.IsZero() {
			t.Errorf("after a snapshot, the hidden spans are %v", h)
		}
		pass(time.Minute)
		_ = m.Flush(t.Context())
		again.end()

		third := live(t, s, m, hides)
		pass(time.Minute)
		third.wantTold(t, deleted, "configmaps")
	})
}

// Before a scope ends, a progress says up to where the log has everything of the scope: its last
// change, and the time of that change.
func TestAProgressPrecedesTheEndOfAScope(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *customs, l *life){
		"a definition is deleted": func(_ *testing.T, s *customs, _ *life) {
			s.define(false)
			s.CloseClientConnections()
		},
		"it is no longer selected": func(t *testing.T, _ *customs, l *life) { l.reload(t, specOf(rule(nil))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCustoms(t)
				s.define(true)
				l := live(t, s.apiServer, newMemory(), withScopes(takes(widgets(nil))))
				l.awaitCaptured(t)
				pass(2 * time.Minute)
				s.put("a", "1", nil)
				pass(10 * time.Second)
				before := len(l.told)
				last := s.delete("a").rv
				at := time.Now()
				pass(time.Second) // the watch shows it
				end(t, s, l)
				eventually(t, "the end of the scope", func() bool { return l.has("scope.ended 0") })
				if n := len(l.told) - before; n != 1 {
					t.Fatalf("%d progress events precede the end, want one", n)
				}
				r := l.lastTold(t).Report
				i := slices.IndexFunc(r.Scopes, func(s object.ScopeReport) bool {
					return s.Scope == "widgets.shop.test"
				})
				if i < 0 {
					t.Fatalf("the progress before the end has %+v, want the scope", r.Scopes)
				}
				if e := r.Scopes[i]; e.ResourceVersion < last ||
					cmpTime(e.To, r.To).Before(at.Truncate(time.Millisecond)) {
					t.Errorf("the progress before the end has everything up to %d and %v, want %d and %v",
						e.ResourceVersion, cmpTime(e.To, r.To), last, at)
				}
			})
		})
	}
}

// A bus that does not accept progress delays the end of a scope, and does not prevent it.
func TestAnEndDoesNotNeedTheProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCustoms(t)
		s.define(true)
		l := live(t, s.apiServer, newMemory(), withScopes(takes(widgets(nil))))
		l.awaitCaptured(t)
		l.mu.Lock()
		l.noProgress = true
		l.mu.Unlock()
		for range 2 { // The second end finds a progress that waits.
			at := time.Now()
			s.define(false)
			s.CloseClientConnections()
			eventually(t, "the end of the scope", func() bool { return l.has("scope.ended 0") })
			if took := time.Since(at); took > 30*time.Second {
				t.Errorf("the end comes after %v", took)
			}
			l.mu.Lock()
			l.deltas = nil
			l.mu.Unlock()
			s.define(true)
			eventually(t, "the next start of the scope", func() bool { return l.has("scope.started 0") })
		}
	})
}

// cmpTime returns the time of an entry, or that of its event.
func cmpTime(own, shared time.Time) time.Time {
	if own.IsZero() {
		return shared
	}
	return own
}

// A scope whose start, or whose end, is not on the bus is named. Nothing is claimed for one that
// begins, and no more than its informer had for one that ends.
func TestProgressNamesScopesThatBeginOrEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		last := s.putIn("shop", "a", "1", nil).rv
		s.marks(t)
		l := live(t, s, m, func(o *informers.Options, r *recorder) {
			r.holds = func(d *object.Delta) bool {
				return d.Stream != nil && d.Stream.Kind == object.ScopeStarted
			}
			_ = o
		})
		l.wantTold(t, last, "configmaps, nothing claimed, start…")
		l.acknowledge()
		pass(time.Minute)
		l.wantTold(t, last, "configmaps")
		l.hold(func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.ScopeEnded })
		l.reload(t, specOf(rule(func(r *selection.Rule) { r.LabelSelector = "colour=red" })))
		pass(10 * time.Second)
		s.bookmark()
		d := l.wantTold(t, last, "configmaps", "configmaps?labelSelector=colour=red, nothing claimed")
		if named := d.Report.Scopes[0].Scope; named != "configmaps" {
			t.Errorf("the scope %q is named, want the one that ends", named)
		}
		l.acknowledge()
		pass(time.Minute)
		d = l.wantTold(t, last, "configmaps")
		if named := d.Report.Scopes[0].Scope; named != "" {
			t.Errorf("the scope %q is named", named)
		}
	})
}
