package informers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// noisy withholds updates whose value begins with "noise", and deltas with these ops.
type noisy string

func (n noisy) Withholds(d *object.Delta) string {
	o := d.After
	if o == nil {
		o = d.Before
	}
	switch {
	case strings.Contains(string(n), string(d.Op)):
		return "operations"
	case d.Op == object.Updated && strings.HasPrefix(valueOf(o), "noise"):
		return "noise:test"
	}
	return ""
}

func filtered(n noisy) func(*selection.Rule) {
	return func(r *selection.Rule) { r.Filter = func(*object.Resource) selection.Filter { return n } }
}

// skips returns the short forms of the deltas of objects, each with its number of skipped versions.
func (r *recorder) skips() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, d := range r.deltas {
		if d.Stream == nil {
			out = append(out, fmt.Sprintf("%s +%d", short(d), d.Skipped))
		}
	}
	return out
}

// Withheld versions are counted in the object's next delta, and nothing waits for them.
func TestWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(filtered("")) })
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		for _, v := range []string{"noise 1", "noise 2", "2", "3", "noise 3"} {
			s.put("a", v, nil)
		}
		s.delete("a")
		s.put("a", "1", nil)
		last := s.put("a", "noise 4", nil)
		eventually(t, "the checkpoint to pass what is withheld", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.ResourceVersion == last.rv
		})
		want := []string{
			"r a uid-1 -→1 +0", "u a uid-1 noise 2→2 +2", "u a uid-1 2→3 +0", "d a uid-1 noise 3→- +1",
			"c a uid-2 -→1 +0",
		}
		if d := cmp.Diff(want, l.skips()); d != "" {
			t.Errorf("deltas with what was skipped (-want +got):\n%s", d)
		}
		l.end()

		// After a restart, the withheld versions are not known: a stream event comes first.
		again := live(t, s, m, func(o *informers.Options, r *recorder) {
			o.Rules[0] = rule(filtered("d"))
			r.scopes = true
		})
		again.wait(t, "scope.started 0")
		s.put("a", "noise 5", nil)
		s.put("a", "2", nil)
		s.put("a", "noise 6", nil)
		s.delete("a")
		s.put("a", "3", nil)
		again.wait(t, "scope.started 0", "u a uid-2 noise 5→2", "c a uid-3 -→3")
		if d := cmp.Diff([]string{"u a uid-2 noise 5→2 +1", "c a uid-3 -→3 +0"}, again.skips()); d != "" {
			t.Errorf("behind a restart (-want +got):\n%s", d)
		}
		again.mu.Lock()
		defer again.mu.Unlock()
		if got := again.deltas[0].Stream.ResourceVersion; got != last.rv {
			t.Errorf("observed from %d, want %d", got, last.rv)
		}
	})
}

// Pending deltas of a relist are filtered like live ones.
func TestWithheldRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(filtered("cr")) })
		l.wait(t, "snapshot.started 2", "snapshot.completed 0") // this filter withholds reads
		s.mu.Lock()
		rv := s.rv
		s.mu.Unlock()
		s.gone(rv + 6)
		s.put("a", "noise 1", nil)
		s.put("a", "noise 2", nil)
		s.put("a", "2", nil)
		s.put("b", "noise 1", nil)
		s.put("c", "1", nil)
		last := s.put("c", "2", nil)
		s.CloseClientConnections()
		l.waitPerName(t, "snapshot.started 2", "snapshot.completed 0", "gap 0 expired", "u a uid-1 noise 2→2",
			"u c uid-3 1→2")
		got := l.skips()
		slices.Sort(got)
		if d := cmp.Diff([]string{"u a uid-1 noise 2→2 +2", "u c uid-3 1→2 +1"}, got); d != "" {
			t.Errorf("deltas with what was skipped (-want +got):\n%s", d)
		}
		eventually(t, "the checkpoint to pass the relist", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.ResourceVersion >= last.rv && c.Snapshot == nil
		})
	})
}

// If other fields are stripped or redacted, the agent sends a gap in which nothing is missing. It
// sends none if an older release wrote the checkpoint, which then does not record the fields.
func TestContentChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		run := func(value string, strip []string, redact []string, want ...string) {
			t.Helper()
			l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Strip, o.Rules[0].Redact = strip, redact })
			eventually(t, "to be captured", func() bool { return captured(l.set) })
			s.put("a", value, nil)
			l.wait(t, want...)
			l.mu.Lock()
			for _, d := range l.deltas {
				if e := d.Stream; e != nil && e.Kind == object.Gap && (!e.Recovered || e.From != e.To || e.From == 0) {
					t.Errorf("gap %+v", e)
				}
			}
			l.mu.Unlock()
			eventually(t, "the checkpoint to pass", func() bool {
				_ = m.Flush(t.Context())
				c, _ := m.saved("configmaps")
				s.mu.Lock()
				defer s.mu.Unlock()
				return c.ResourceVersion == s.rv && c.Snapshot == nil
			})
			l.end()
		}
		fields := []string{"metadata.managedFields"}
		run("2", fields, nil, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "u a uid-1 1→2")
		run("3", fields, nil, "u a uid-1 2→3")
		run("4", append(fields, "metadata.labels"), nil, "gap 0 content-changed", "u a uid-1 3→4")
		run("5", append(fields, "metadata.labels"), []string{"data"}, "gap 0 content-changed", "u a uid-1 →")
		run("6", fields, []string{"data", "metadata.labels"}, "u a uid-1 →") // the same content, configured differently
		m.mu.Lock()
		c := m.scopes["configmaps"]
		c.Content = ""
		m.scopes["configmaps"] = c
		m.mu.Unlock()
		run("7", fields, nil, "u a uid-1 6→7")
	})
}

// Redacted fields stay redacted in the tombstone of a scope whose rule was removed.
func TestTombstoneRedacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "secret", nil)
		first := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Rules[0] = rule(selected("!colour", ""))
			o.Rules[0].Redact = []string{"data.value"}
		})
		first.wait(t, "snapshot.started 1", "r a uid-1 -→", "snapshot.completed 1")
		eventually(t, "the snapshot to be done with", func() bool {
			_ = m.Flush(t.Context())
			c, ok := m.saved("configmaps?labelSelector=!colour")
			return ok && c.Snapshot == nil
		})
		first.end()
		s.put("other", "1", nil)
		second := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Rules[0].Resources = []selection.Pattern{pattern("secrets")}
			s.do(func() {
				s.fault = func(w http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, "/secrets") {
						fail(w, http.StatusForbidden, "Forbidden")
						return true
					}
					return false
				}
			})
		})
		second.wait(t, "gap 0 selection-changed", "~l a uid-1 →-")
	})
}

// Withheld versions stay counted if a reload keeps the informer. If a successor resumes, it sends a
// stream event first, and no longer counts them.
func TestWithheldReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		l := live(t, s, newMemory(), func(o *informers.Options, r *recorder) {
			o.Rules[0] = rule(filtered(""))
			r.scopes = true
		})
		want := []string{"scope.started 0", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		withheld := func(n int) {
			t.Helper()
			for range n {
				s.put("a", "noise", nil)
			}
			last := s.put("b", fmt.Sprint(n), nil) // its delta follows those versions
			want = append(want,
				fmt.Sprintf("%s b uid-2 %s→%d", map[bool]string{true: "c", false: "u"}[last.before == nil],
					valueBefore(last), n))
			l.wait(t, want...)
		}
		withheld(2)
		l.reload(t, specOf(rule(nil)))
		s.put("a", "noise", nil)
		want = append(want, "u a uid-1 noise→noise")
		l.wait(t, want...)
		l.reload(t, specOf(rule(filtered(""))))
		withheld(3)
		l.reload(t, specOf(rule(selected("colour=red", "")), rule(nil)))
		want = append(want, "scope.started 0")
		l.wait(t, want...)
		s.put("a", "2", nil)
		want = append(want, "u a uid-1 noise→2")
		l.wait(t, want...)
		got := l.skips()
		if d := cmp.Diff([]string{
			"r a uid-1 -→1 +0", "c b uid-2 -→2 +0", "u a uid-1 noise→noise +2", "u b uid-2 2→3 +0",
			"u a uid-1 noise→2 +0",
		}, got); d != "" {
			t.Errorf("deltas with what was skipped (-want +got):\n%s", d)
		}
	})
}

// valueBefore returns the value of the version before, or "-" if there was none.
func valueBefore(v *version) string {
	if v.before == nil {
		return "-"
	}
	return v.before.value
}

// Versions withheld after a deletion that a relist found are counted, even if a live event sends
// the deletion.
func TestWithheldBehindADebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(filtered("c")) })
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		passed := func(v *version) {
			t.Helper()
			eventually(t, "the checkpoint to pass", func() bool {
				_ = m.Flush(t.Context())
				c, _ := m.saved("configmaps")
				return c.ResourceVersion >= v.rv && c.Snapshot == nil
			})
		}
		noise := s.put("a", "noise", nil)
		passed(noise)
		l.setRoom(1) // for the gap
		s.gone(noise.rv + 1)
		s.delete("a")
		s.CloseClientConnections()
		eventually(t, "the gap", func() bool { return l.has("gap 0 expired") })
		s.put("a", "1", nil)
		s.put("b", "1", nil) // waits after the delta of a
		eventually(t, "the watch to wait", func() bool { return l.set.Status()[0].Phase == informer.PhaseBlocked })
		l.setRoom(unbounded)
		passed(s.put("a", "2", nil))
		got := l.skips()
		slices.Sort(got)
		if d := cmp.Diff([]string{"d a uid-1 noise→- +1", "r a uid-1 -→1 +0", "u a uid-2 1→2 +1"}, got); d != "" {
			t.Errorf("deltas with what was skipped (-want +got):\n%s", d)
		}
	})
}

// After a filter is removed, the checkpoint keeps Filtered set until a later stream event is
// acknowledged.
func TestNoLongerFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(filtered("")) })
		saved := func(what string, cond func(c checkpoint.Scope) bool) {
			t.Helper()
			eventually(t, what, func() bool {
				_ = m.Flush(t.Context())
				c, ok := m.saved("configmaps")
				return ok && cond(c)
			})
		}
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		last := s.put("a", "noise", nil)
		saved("what is withheld to be passed", func(c checkpoint.Scope) bool {
			return c.ResourceVersion == last.rv && c.Snapshot == nil && c.Filtered
		})
		l.end()
		for _, acknowledged := range []bool{false, true} {
			l := live(t, s, m, func(_ *informers.Options, r *recorder) {
				r.scopes = true
				r.holds = func(d *object.Delta) bool { return d.Stream != nil && !acknowledged }
			})
			l.wait(t, "scope.started 0")
			saved("what is still to be said", func(c checkpoint.Scope) bool { return c.Filtered != acknowledged })
			l.end()
		}
	})
}
