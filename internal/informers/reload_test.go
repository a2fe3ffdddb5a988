package informers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

func specOf(rules ...selection.Rule) selection.Spec {
	return selection.Spec{Rules: rules, Strip: []string{"metadata.managedFields"}, Secrets: true}
}

func redacted(paths ...string) func(*selection.Rule) {
	return func(r *selection.Rule) { r.Redact = paths }
}

func (l *life) reload(t *testing.T, sel selection.Spec) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	sel.Part = l.part
	if err := l.set.Reload(ctx, sel); err != nil {
		t.Fatalf("reload: %v", err)
	}
}

// acknowledgeLate acknowledges held deltas until ctx ends, a part at a time and in random order,
// and makes room for as many.
func (r *recorder) acknowledgeLate(ctx context.Context) {
	for {
		r.mu.Lock()
		change := r.change
		rand.Shuffle(len(r.unacked), func(a, b int) { r.unacked[a], r.unacked[b] = r.unacked[b], r.unacked[a] })
		now := r.unacked[:(len(r.unacked)+2)/3]
		r.unacked = slices.Clone(r.unacked[len(now):])
		rest := len(r.unacked)
		r.mu.Unlock()
		for _, d := range now {
			d.Acker.Acked(d)
		}
		r.mu.Lock()
		r.room += len(now)
		if len(now) > 0 {
			r.touch()
		}
		r.mu.Unlock()
		if rest > 0 {
			continue
		}
		select {
		case <-change:
		case <-ctx.Done():
			return
		}
	}
}

// streams returns the stream events so far in their short form.
func (r *recorder) streams() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, d := range r.deltas {
		if d.Stream != nil {
			out = append(out, strings.TrimSpace(d.Stream.Scope+" "+short(d)))
		}
	}
	return out
}

// onceEach fails unless the deltas of each object, except reads, are the versions in the server's
// history after rv: each version once, in order.
func onceEach(t *testing.T, s *apiServer, r *recorder, rv uint64) {
	t.Helper()
	want, got := map[string][]string{}, map[string][]string{}
	s.mu.Lock()
	for _, v := range s.history {
		if v.rv > rv {
			op := "u"
			switch {
			case v.deleted:
				op = "d"
			case v.before == nil:
				op = "c"
			}
			want[v.name] = append(want[v.name], fmt.Sprintf("%s %d", op, v.rv))
		}
	}
	s.mu.Unlock()
	r.mu.Lock()
	for _, d := range r.deltas {
		if d.Stream == nil && d.Op != object.Read {
			got[d.Ref.Name()] = append(got[d.Ref.Name()], fmt.Sprintf("%s %d", d.Op, d.ResourceVersion))
		}
	}
	r.mu.Unlock()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("sent (-history +sent):\n%s", d)
	}
}

// Under load, each version of an object that stays selected is sent once, whatever is reloaded.
func TestReloadUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		for n := range 5 {
			s.put(fmt.Sprintf("cm-%d", n), "0", nil)
		}
		s.mu.Lock()
		start := s.rv
		s.mu.Unlock()
		l := live(t, s, m, func(_ *informers.Options, r *recorder) {
			r.holds, r.room = func(*object.Delta) bool { return true }, 16
		})
		stop := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wg.Go(func() { l.acknowledgeLate(ctx) })
		eventually(t, "to be captured", func() bool { return captured(l.set) })
		var writer sync.WaitGroup
		var written int
		writer.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					written = n
					return
				default:
				}
				name := fmt.Sprintf("cm-%d", n%5)
				if n%23 == 22 {
					s.delete(name)
				} else {
					s.put(name, fmt.Sprint(n), nil)
				}
				if n%50 == 49 { // not faster than the other end takes it
					_ = l.until(t.Context(), func() bool { return len(l.deltas) >= n/2 })
				}
			}
		})
		progress := func() {
			l.mu.Lock()
			n := len(l.deltas)
			l.mu.Unlock()
			if err := l.until(t.Context(), func() bool { return len(l.deltas) > n+100 }); err != nil {
				t.Fatal(err)
			}
		}
		for _, sel := range []selection.Spec{
			specOf(rule(filtered("r"))),
			specOf(rule(redacted("metadata.labels"))),
			specOf(rule(redacted("metadata.labels"))),
			specOf(rule(selected("colour=red", "")), rule(nil)),
			specOf(rule(func(r *selection.Rule) {
				r.LabelSelector = "colour=red"
				r.Redact = []string{"data"}
			}), rule(nil)),
			specOf(rule(nil)),
		} {
			progress()
			l.reload(t, sel)
		}
		progress()
		close(stop)
		writer.Wait()
		s.mu.Lock()
		last := s.rv
		s.mu.Unlock()
		eventually(t, "all to be sent", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.ResourceVersion == last
		})
		onceEach(t, s, l.recorder, start)
		want := []string{
			"configmaps snapshot.started 5", "configmaps snapshot.completed 5", "configmaps gap 0 content-changed",
			"configmaps gap 0 content-changed", // labels are no longer redacted
			"configmaps gap 0 content-changed", // the data of red objects is redacted
			"configmaps gap 0 content-changed",
		}
		if d := cmp.Diff(want, l.streams()); d != "" {
			t.Errorf("stream events (-want +got):\n%s", d)
		}
		t.Logf("%d versions", written)
	})
}

// A resource that is added is read. One that is removed gets a tombstone, and is read again if it
// returns. The others continue.
func TestReloadResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.nodes = true
		s.put("a", "1", nil)
		s.putIn("", "node", "1", nil)
		nodes := rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{pattern("nodes")} })
		l := live(t, s, m, nil)
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		l.reload(t, specOf(rule(nil), nodes))
		want = append(want, "snapshot.started 1", "r node uid-2 -→1", "snapshot.completed 1")
		l.wait(t, want...)
		s.put("a", "2", nil)
		want = append(want, "u a uid-1 1→2")
		l.wait(t, want...)
		s.putIn("", "node", "2", nil)
		want = append(want, "u node uid-2 1→2")
		l.wait(t, want...)
		s.put("a", "3", nil) // a tombstone waits for a later resourceVersion
		want = append(want, "u a uid-1 2→3")
		l.wait(t, want...)
		l.reload(t, specOf(rule(nil)))
		want = append(want, "gap 0 selection-changed", "~l node uid-2 2→-")
		l.wait(t, want...)
		eventually(t, "the scope to be forgotten", func() bool {
			_ = m.Flush(t.Context())
			_, nodes := m.saved("nodes")
			_, configmaps := m.saved("configmaps")
			return !nodes && configmaps
		})
		s.put("a", "4", nil)
		want = append(want, "u a uid-1 3→4")
		l.wait(t, want...)
		l.reload(t, specOf(nodes, rule(nil)))
		want = append(want, "snapshot.started 1", "r node uid-2 -→2", "snapshot.completed 1")
		l.wait(t, want...)
		eventually(t, "the scope to be remembered", func() bool {
			_ = m.Flush(t.Context())
			c, ok := m.saved("nodes")
			return ok && c.Snapshot == nil
		})
	})
}

// A resource that returns in the run that sent its tombstone begins with a gap with reason
// selection-changed: no checkpoint was lost.
func TestReloadComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.nodes = true
		s.put("a", "1", nil)
		s.putIn("", "node", "1", nil)
		nodes := rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{pattern("nodes")} })
		l := live(t, s, newMemory(), func(o *informers.Options, r *recorder) {
			o.Rules = []selection.Rule{rule(nil), nodes}
			o.LastEvent = func(_ context.Context, res *object.Resource) (informer.LastEvent, bool, error) {
				return r.lastEvent(res)
			}
		})
		eventually(t, "to be captured", func() bool { return captured(l.set) })
		s.put("a", "2", nil) // a tombstone waits for a later resourceVersion
		l.reload(t, specOf(rule(nil)))
		ofNodes := func() []string {
			return slices.DeleteFunc(l.streams(), func(e string) bool { return !strings.HasPrefix(e, "nodes ") })
		}
		eventually(t, "the tombstone", func() bool { return len(ofNodes()) == 3 })
		s.put("a", "3", nil)
		l.reload(t, specOf(rule(nil), nodes))
		want := []string{
			"nodes snapshot.started 1", "nodes snapshot.completed 1", "nodes gap 0 selection-changed",
			"nodes gap 0 selection-changed", "nodes snapshot.started 1", "nodes snapshot.completed 1",
		}
		eventually(t, "all to be told of nodes", func() bool { return len(ofNodes()) >= len(want) })
		if d := cmp.Diff(want, ofNodes()); d != "" {
			t.Errorf("stream events (-want +got):\n%s", d)
		}
	})
}

// lastEvent returns the last stream event of a resource, as on a bus that has all recorded deltas.
func (r *recorder) lastEvent(of *object.Resource) (informer.LastEvent, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range slices.Backward(r.deltas) {
		if e := d.Stream; e != nil && e.Resource.Name == of.Name {
			return informer.LastEvent{
				Scope:           e.Scope,
				ResourceVersion: max(e.ResourceVersion, e.To),
				History:         e.History,
				At:              time.Now(),
				Object:          r.lastObjectLocked(of),
			}, true, nil
		}
	}
	return informer.LastEvent{}, false, nil
}

// lastObjectLocked returns the newest event of an object of a resource, nil if it does not show an
// observed version.
func (r *recorder) lastObjectLocked(of *object.Resource) *informer.LastObject {
	for _, d := range slices.Backward(r.deltas) {
		switch {
		case d.Stream != nil || d.Ref.Resource.Name != of.Name:
			continue
		case d.Inferred || d.Op == object.Left:
			return nil
		}
		return &informer.LastObject{
			Namespace:       d.Ref.Namespace(),
			Name:            d.Ref.Name(),
			UID:             d.Ref.UID,
			ResourceVersion: d.ResourceVersion,
			History:         d.History,
			Gone:            d.Op == object.Deleted,
			ChangedBy:       d.ChangedBy,
		}
	}
	return nil
}

// A selection is widened. The objects that both selections take are not lost in between.
func TestReloadNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.putIn("shop", "a", "1", nil)
		s.putIn("other", "b", "1", nil)
		l := live(t, s, newMemory(), func(o *informers.Options, _ *recorder) {
			o.Rules[0] = rule(inNamespaces("shop"))
		})
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		s.putIn("shop", "a", "2", nil)
		want = append(want, "u a uid-1 1→2")
		l.wait(t, want...)
		l.reload(t, specOf(rule(inNamespaces("shop", "other"))))
		want = append(want, "snapshot.started 1", "r b uid-2 -→1", "snapshot.completed 1")
		l.wait(t, want...)
		s.putIn("shop", "a", "3", nil)
		want = append(want, "u a uid-1 2→3")
		l.wait(t, want...)
		l.reload(t, specOf(rule(nil)))
		s.putIn("other", "b", "2", nil)
		eventually(t, "both to be there in the scope of all", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			got := map[string]bool{}
			for _, d := range l.deltas {
				if d.Scope == "configmaps" && d.After != nil {
					got[d.Ref.Name()+valueOf(d.After)] = true
				}
			}
			return got["a3"] && got["b2"]
		})
	})
}

// A snapshot that is being sent continues: no object is read twice or left out, and it is
// completed.
func TestReloadDuringSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		for n := range 40 {
			s.put(fmt.Sprintf("cm-%02d", n), "0", nil)
		}
		l := live(t, s, m, func(_ *informers.Options, r *recorder) { r.room = 15 })
		if err := l.until(t.Context(), func() bool { return l.room == 0 }); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- l.set.Reload(t.Context(), specOf(rule(redacted("metadata.labels")))) }()
		l.setRoom(unbounded)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		last := s.put("cm-00", "1", nil)
		eventually(t, "all to be sent", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.ResourceVersion == last.rv && c.Snapshot == nil
		})
		reads := map[string]int{}
		l.mu.Lock()
		for _, d := range l.deltas {
			if d.Stream == nil && d.Op == object.Read {
				reads[d.Ref.Name()]++
			}
		}
		l.mu.Unlock()
		if len(reads) != 40 || slices.Max(slices.Collect(func(yield func(int) bool) {
			for _, n := range reads {
				if !yield(n) {
					return
				}
			}
		})) != 1 {
			t.Errorf("reads %v, want one of each of 40", reads)
		}
		streams := l.streams()
		if streams[0] != "configmaps snapshot.started 40" ||
			!slices.Contains(streams, "configmaps snapshot.completed 40") ||
			!slices.Contains(streams, "configmaps gap 0 content-changed") {
			t.Errorf("stream events %v", streams)
		}
	})
}

// A reload does not wait for a list that fails, nor if nothing runs yet.
func TestReloadWhileListsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/configmaps") {
					return false
				}
				fail(w, http.StatusInternalServerError, "InternalError")
				return true
			}
		})
		l := live(t, s, newMemory(), nil)
		eventually(t, "the list to fail", func() bool {
			st := l.set.Status()
			return len(st) > 0 && st[0].Health == informer.HealthFailing
		})
		l.reload(t, specOf(rule(redacted("data.value"))))
		l.reload(t, specOf(rule(nil), rule(selected("a=b", ""))))
		l.reload(t, specOf(rule(redacted("metadata.labels"))))
		s.do(func() { s.fault = nil })
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
	})
}

// An invalid selection is rejected with an error, and changes nothing.
func TestReloadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		l := live(t, s, newMemory(), nil)
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		for name, sel := range map[string]selection.Spec{
			"strip":  {Rules: []selection.Rule{rule(nil)}, Strip: []string{"metadata..x"}},
			"redact": specOf(rule(redacted("metadata.name"))),
			"labels": specOf(rule(selected("a in (", ""))),
			"fields": specOf(rule(selected("", "a>b"))),
		} {
			if err := l.set.Reload(t.Context(), sel); err == nil ||
				!strings.Contains(err.Error(), strings.TrimSuffix(name, "s")) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		s.put("a", "2", nil)
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "u a uid-1 1→2")
		l.end()
		if err := l.set.Reload(t.Context(), specOf(rule(nil))); err == nil {
			t.Error("a set that has ended took a selection")
		}
	})
}
