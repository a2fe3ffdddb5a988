package informers_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// saveAll waits until the checkpoint has everything that has happened.
func saveAll(t *testing.T, s *apiServer, m *memory) {
	t.Helper()
	eventually(t, "the checkpoint to pass", func() bool {
		_ = m.Flush(t.Context())
		c, _ := m.saved("configmaps")
		s.mu.Lock()
		defer s.mu.Unlock()
		return c.ResourceVersion == s.rv && c.Snapshot == nil && !c.Sweep
	})
}

// contentGaps returns the gaps of reason content-changed.
func (r *recorder) contentGaps() (all []*object.StreamEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		if e := d.Stream; e != nil && e.Reason == object.ContentChanged {
			all = append(all, e)
		}
	}
	return all
}

// The API server serves known versions in another form after a restart of the agent: a gap says so,
// and a snapshot has the form that the next before has.
func TestOtherFormWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2")
		s.put("b", "2", nil)
		first.wait(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2", "u b uid-2 1→2")
		saveAll(t, s, m)
		first.end()
		left := time.Now()
		same := live(t, s, m, nil)
		eventually(t, "to be captured", func() bool { return captured(same.set) })
		saveAll(t, s, m)
		same.end()
		same.wait(t) // nothing has changed

		s.setForm(" new")
		pass(time.Minute)
		second := live(t, s, m, nil)
		want := []string{
			"gap 0 content-changed", "snapshot.started 2", "r a uid-1 -→1 new", "r b uid-2 -→2 new",
			"snapshot.completed 2",
		}
		second.wait(t, want...)
		gap := second.contentGaps()[0]
		if rv := s.rv; gap.From != rv || gap.To != rv || gap.Recovered || gap.History != 0 ||
			gap.Since.Before(left.Add(-time.Minute)) || gap.Since.After(left) {
			t.Errorf("gap %+v at %d, left at %v", gap, rv, left)
		}
		s.put("a", "2", nil)
		second.wait(t, append(want, "u a uid-1 1 new→2 new")...)
		saveAll(t, s, m)
		second.end()

		third := live(t, s, m, nil)
		eventually(t, "to be captured", func() bool { return captured(third.set) })
		saveAll(t, s, m)
		third.wait(t) // it was announced
		third.end()

		// An older release has written the checkpoint: nothing is known about forms.
		s.setForm(" newer")
		m.mu.Lock()
		c := m.scopes["configmaps"]
		c.Forms = 0
		m.scopes["configmaps"] = c
		m.mu.Unlock()
		fourth := live(t, s, m, nil)
		eventually(t, "to be captured", func() bool { return captured(fourth.set) })
		saveAll(t, s, m)
		fourth.wait(t)
		fourth.end()

		s.setForm(" newest")
		never := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Snapshot = informer.SnapshotNever })
		never.wait(t, "gap 0 content-changed")
	})
}

// While strip or redaction differ from those of the last run, forms cannot be compared.
func TestOtherFormUnderOtherRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		saveAll(t, s, m)
		first.end()
		second := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Strip = append(o.Strip, "metadata.labels")
		})
		second.wait(t, "gap 0 content-changed")
		if gap := second.contentGaps()[0]; !gap.Recovered {
			t.Errorf("gap %+v", gap)
		}
		saveAll(t, s, m)
		second.end()
		s.setForm(" new")
		third := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Strip = append(o.Strip, "metadata.labels") })
		third.wait(t, "gap 0 content-changed", "snapshot.started 1", "r a uid-1 -→1 new", "snapshot.completed 1")
		if gap := third.contentGaps()[0]; gap.Recovered {
			t.Errorf("gap %+v", gap)
		}
	})
}

// An agent that ends before the bus has the gap announces it again. One that ends before the
// snapshot sends that.
func TestOtherFormIsAnnouncedAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := live(t, s, m, nil)
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		saveAll(t, s, m)
		first.end()
		s.setForm(" new")
		crash := func(unacknowledged object.StreamKind, want ...string) {
			t.Helper()
			l := live(t, s, m, func(_ *informers.Options, rec *recorder) {
				rec.holds = func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == unacknowledged }
			})
			l.wait(t, want...)
			_ = m.Flush(t.Context())
			l.end()
		}
		crash(object.Gap, "gap 0 content-changed")
		crash(object.Gap, "gap 0 content-changed")
		crash(object.SnapshotStarted, "gap 0 content-changed", "snapshot.started 1")
		last := live(t, s, m, nil)
		last.wait(t, "snapshot.started 1", "r a uid-1 -→1 new", "snapshot.completed 1")
	})
}

// A change of the definition while the agent runs is followed by a comparison of the contents, a
// gap and a snapshot.
func TestOtherFormAfterDefinitionIsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newCustoms(t), newMemory()
		s.release = "v1.37.2"
		s.define(true)
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		l := live(t, s.apiServer, m, takes(widgets(nil)))
		want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
		l.wait(t, want...)
		for range 10 {
			pass(time.Minute)
			s.bookmarkDefinitions()
		}
		changed, rv := time.Now(), s.rv
		s.change(2)
		s.setForm(" new")
		s.put("b", "2", nil) // the patch of this change has the difference
		want = append(want, "u b uid-2 1→2 new")
		l.wait(t, want...)
		pass(30 * time.Second)
		want = append(want, "gap 0 content-changed", "snapshot.started 2", "r a uid-1 -→1 new", "r b uid-2 -→2 new",
			"snapshot.completed 2")
		l.wait(t, want...)
		if took := time.Since(changed); took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		gap := l.contentGaps()[0]
		if gap.Since.After(changed) || gap.Since.Before(changed.Add(-3*time.Minute)) || gap.From > rv || gap.To < rv ||
			gap.Recovered {
			t.Errorf("gap %+v, changed at %v, rv %d", gap, changed, rv)
		}
		s.put("a", "2", nil)
		want = append(want, "u a uid-1 1 new→2 new")
		l.wait(t, want...)

		// Another change waits for an hour, as far as the comparison goes.
		s.change(3)
		s.setForm(" newer")
		pass(58 * time.Minute)
		l.wait(t, want...)
		pass(2 * time.Minute)
		l.wait(t,
			append(want, "gap 0 content-changed", "snapshot.started 2", "r a uid-1 -→2 newer", "r b uid-2 -→2 newer",
				"snapshot.completed 2")...)
	})
}

// change changes the spec of the definition of widgets.
func (s *customs) change(generation int) {
	s.do(func() { s.generation = generation })
	s.show("MODIFIED", true)
}

// bookmarkDefinitions sends a bookmark on watches of definitions.
func (s *customs) bookmarkDefinitions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	s.frames = append(s.frames, frame{
		s.rv, fmt.Sprintf(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}`+"\n", s.rv),
	})
	s.changed.Broadcast()
}

// Two API servers of different releases answer in turn for 10 minutes, and the watches end with
// each turn.
func TestTwoAPIServersThatAnswerDifferently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.release = "v1.37.2"
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		l := live(t, s, m, nil)
		want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
		l.wait(t, want...)
		pass(5 * time.Minute)
		upgrade := time.Now()
		answer := func(is bool) {
			s.do(func() {
				s.release, s.form = "v1.37.2", ""
				if is {
					s.release, s.form = "v1.38.0", " new"
				}
			})
			s.CloseClientConnections()
		}
		for n := range 13 {
			answer(n%2 == 0)
			pass(47 * time.Second)
			if n%4 == 3 {
				s.compact() // the watch cannot resume: a list is compared
			}
			s.put("b", fmt.Sprint(n), nil)
		}
		answer(true)
		if gaps := l.contentGaps(); len(gaps) > 1 {
			t.Fatalf("%d announcements within 10 minutes", len(gaps))
		}
		pass(2 * time.Hour)
		gaps := l.contentGaps()
		if len(gaps) == 0 || len(gaps) > 2 || gaps[0].Since.Before(upgrade.Add(-3*time.Minute)) ||
			gaps[0].Since.After(upgrade.Add(time.Minute)) {
			t.Fatalf("%d announcements, the first since %v, upgrade at %v", len(gaps), gaps[0].Since, upgrade)
		}
		l.checkForms(t, map[string]string{"a": "1 new", "b": "12 new"})
		saveAll(t, s, m)
		l.end()
		again := live(t, s, m, nil)
		eventually(t, "to be captured", func() bool { return captured(again.set) })
		again.wait(t)
	})
}

// checkForms fails unless each before is what the record has of the object, except between a gap
// that may change it and its next event. The record must end with want. Copies of events do not
// count.
func (r *recorder) checkForms(t *testing.T, want map[string]string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	type state struct {
		value, uid string
		rv         uint64
		doubted    bool
	}
	known := map[string]*state{}
	read := map[string]bool{} // by the snapshot under way
	for _, d := range r.deltas {
		if e := d.Stream; e != nil {
			switch {
			case e.Kind == object.Gap && !e.Recovered:
				for _, o := range known {
					o.doubted = true
				}
			case e.Kind == object.SnapshotStarted:
				clear(read)
			case e.Kind == object.SnapshotCompleted:
				maps.DeleteFunc(known, func(name string, _ *state) bool { return !read[name] })
			}
			continue
		}
		name := d.Ref.Name()
		read[name] = true
		was := known[name]
		if was != nil && d.Op != object.Read {
			if d.ResourceVersion <= was.rv && d.Ref.UID == was.uid {
				continue // a copy
			}
			if d.Before != nil && d.Ref.UID == was.uid && !was.doubted && d.Previous == was.rv &&
				valueOf(d.Before) != was.value {
				t.Errorf("%s: the record has %q before it", short(d), was.value)
			}
		}
		switch {
		case d.After != nil:
			known[name] = &state{value: valueOf(d.After), uid: d.Ref.UID, rv: d.ResourceVersion}
		case was != nil && was.uid == d.Ref.UID:
			delete(known, name)
		}
	}
	got := map[string]string{}
	for name, o := range known {
		got[name] = o.value
	}
	if !maps.Equal(got, want) {
		t.Errorf("the record has %v, want %v", got, want)
	}
}

// A list after lost history shows known versions in another form, and no version of the API server
// says why. The next before is the form that was sent, and a comparison follows.
func TestOtherFormInARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		for _, name := range []string{"a", "b", "c"} {
			s.put(name, "1", nil)
		}
		l := live(t, s, m, nil)
		want := []string{
			"snapshot.started 3", "r a uid-1 -→1", "r b uid-2 -→1", "r c uid-3 -→1", "snapshot.completed 3",
		}
		l.wait(t, want...)
		s.setForm(" new")
		s.mu.Lock()
		rv := s.rv
		s.mu.Unlock()
		s.gone(rv + 1)
		s.put("b", "2", nil)
		s.CloseClientConnections()
		want = append(want, "gap 0 expired", "u b uid-2 1→2 new")
		l.wait(t, want...)
		s.put("c", "2", nil)
		want = append(want, "u c uid-3 1→2 new")
		l.wait(t, want...)
		pass(2 * time.Minute)
		l.wait(t,
			append(want, "gap 0 content-changed", "snapshot.started 3", "r a uid-1 -→1 new", "r b uid-2 -→2 new",
				"r c uid-3 -→2 new",
				"snapshot.completed 3")...)
		if n := len(l.contentGaps()); n != 1 {
			t.Errorf("%d gaps", n)
		}
	})
}

// A comparison that fails is made again, and one that finds nothing says nothing.
func TestComparisonOfFormsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.release = "v1.37.2"
		s.put("a", "1", nil)
		l := live(t, s, m, nil)
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		pass(90 * time.Second)
		lists, _, _ := s.counts()
		s.do(func() { s.release = "v1.37.3" })
		pass(3 * time.Hour)
		if now, _, _ := s.counts(); now != lists+1 {
			t.Errorf("%d lists, want one", now-lists)
		}
		l.wait(t, want...)
		failures := 0
		s.do(func() {
			s.release, s.form = "v1.38.0", " new"
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if !isList(r) || r.URL.Query().Get("limit") == "1" || failures == 3 {
					return false
				}
				failures++
				fail(w, http.StatusInternalServerError, "InternalError")
				return true
			}
		})
		pass(6 * time.Minute)
		l.wait(t,
			append(want, "gap 0 content-changed", "snapshot.started 1", "r a uid-1 -→1 new", "snapshot.completed 1")...)
		if failures != 3 ||
			slices.ContainsFunc(l.set.Status(), func(s informer.Status) bool { return s.Health != informer.HealthOK }) {
			t.Errorf("%d failures, status %+v", failures, l.set.Status())
		}
	})
}

// Objects change, forms change, watches break, history expires, and the agent restarts, at random.
// Each before is what the record has of the object, unless a gap says that it may not be. In the
// end, the record has all objects in their present form.
func TestFormsUnderFaults(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { formsUnderFaults(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func formsUnderFaults(t *testing.T, rng *rand.Rand) {
	s, m := newAPIServer(t), newMemory()
	s.release = "v1"
	var record []*object.Delta
	names := []string{"a", "b", "c", "d"}
	l := live(t, s, m, nil)
	end := func() {
		if rng.IntN(3) > 0 { // otherwise it is killed
			_ = m.Flush(t.Context())
		}
		l.end()
		record = append(record, l.deltas...)
	}
	releases := 1
	for range 60 {
		name := names[rng.IntN(len(names))]
		switch rng.IntN(10) {
		case 0, 1, 2:
			s.put(name, fmt.Sprint(rng.IntN(100)), nil)
		case 3:
			s.delete(name)
		case 4:
			s.setForm([]string{"", " x", " y"}[rng.IntN(3)])
			if rng.IntN(2) == 0 {
				releases++
				s.do(func() { s.release = fmt.Sprint("v", releases) })
			}
		case 5:
			s.CloseClientConnections()
		case 6:
			s.compact()
		case 7:
			s.bookmark()
		case 8:
			pass(time.Duration(rng.IntN(100)) * time.Minute)
		case 9:
			end()
			l = live(t, s, m, nil)
			if rng.IntN(2) == 0 {
				pass(time.Minute)
			}
		}
		pass(time.Duration(rng.IntN(20)) * time.Second)
	}
	pass(2 * time.Hour)
	s.do(func() { s.release = "last" })
	pass(2 * time.Hour)
	end()
	want := map[string]string{}
	s.do(func() {
		for _, v := range s.now {
			want[v.name] = v.value + s.form
		}
	})
	(&recorder{deltas: record}).checkForms(t, want)
}
