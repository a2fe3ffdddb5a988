package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// Acknowledged positions are saved after 5 s, positions that only moved after 60 s, and unchanged
// ones never.
func TestRunSavesWhatChanged(t *testing.T) {
	t.Run("nobody counts changes", func(t *testing.T) {
		testSaves(t, func(*informer) func() uint64 { return nil })
	})
	t.Run("changes are counted", func(t *testing.T) {
		testSaves(t, func(of *informer) func() uint64 { return of.count })
	})
}

func testSaves(t *testing.T, counts func(of *informer) func() uint64) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		k := newKeeper(t, m)
		pods := &informer{}
		k.Track("pods", pods.position, counts(pods))
		stop := run(t, k)
		step := func(what string, d time.Duration, want int) {
			t.Helper()
			before, _ := m.counts()
			<-time.After(d)
			synctest.Wait()
			if after, _ := m.counts(); after-before != want {
				t.Errorf("%s: %d saves in %v, want %d", what, after-before, d, want)
			}
		}
		<-time.After(time.Second)
		step("nothing to resume from", 10*time.Minute, 0)
		pods.set(100, 1)
		step("the first position", 5*time.Second, 1)
		step("nothing changed", 10*time.Minute, 0)
		pods.set(101, 2)
		step("an acknowledgement", 5*time.Second, 1)
		pods.set(102, 2)
		step("a bookmark, too soon", 50*time.Second, 0)
		pods.set(103, 2)
		step("a bookmark", 10*time.Second, 1)
		pods.set(104, 2)
		step("a bookmark, again", 60*time.Second, 1)
		pods.set(104, 9)
		step("acknowledged behind what is outstanding", 10*time.Minute, 0)
		pods.set(110, 10)
		step("all of it", 5*time.Second, 1)
		pods.change(func(p *checkpoint.Position) { p.LastSeen = time.Now() })
		step("a sign of life", 10*time.Minute, 0)
		pods.change(func(p *checkpoint.Position) { p.Snapshot = &checkpoint.Snapshot{ID: "a"} })
		step("a snapshot", 5*time.Second, 1)
		pods.change(func(p *checkpoint.Position) { p.Snapshot = &checkpoint.Snapshot{ID: "a", Cursor: "x"} })
		step("its cursor", 5*time.Second, 1)
		k.Forget("pods")
		step("forgotten", 5*time.Second, 1)
		if got := m.there(t); len(got) != 0 {
			t.Errorf("kept: %v", got)
		}
		for rv := range uint64(100) {
			pods.set(200+rv, 20+rv)
			if rv == 0 {
				k.Track("pods", pods.position, counts(pods))
			}
			<-time.After(100 * time.Millisecond)
		}
		if saves, _ := m.counts(); saves > 11 {
			t.Errorf("%d saves: more often than every 5 s", saves)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(map[string]uint64{"pods": 299}, rvs(m.there(t))); diff != "" {
			t.Errorf("at the end (-want +got):\n%s", diff)
		}
		if m.locked {
			t.Error("still locked")
		}
	})
}

// A position is asked for once after each save, and after each change that is counted. One that is
// not counted is saved within a minute.
func TestUnchangedPositionsAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		k := newKeeper(t, m)
		pods, nodes := informerAt(100, 1), informerAt(100, 1)
		k.Track("pods", pods.position, pods.count)
		k.Track("nodes", nodes.position, nodes.count)
		stop := run(t, k)
		<-time.After(11 * time.Second) // saved once; not at the time of a check
		asked := func(i *informer) int {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.asked
		}
		before := asked(nodes)
		for rv := range uint64(8) {
			pods.set(101+rv, 1)
			<-time.After(5 * time.Second)
		}
		if n := asked(nodes) - before; n > 1 {
			t.Errorf("the unchanged position was asked for %d times", n)
		}
		if got := rvs(m.there(t))["pods"]; got != 100 {
			t.Errorf("saved at %d", got)
		}
		nodes.mu.Lock()
		nodes.p.Etcd = 2 // nobody has counted that
		nodes.mu.Unlock()
		<-time.After(time.Minute)
		if got := m.there(t)["nodes"].Etcd; got != 2 {
			t.Errorf("saved with etcd %d", got)
		}
		pods.set(200, 2)
		<-time.After(5 * time.Second)
		if got := rvs(m.there(t))["pods"]; got != 200 {
			t.Errorf("saved at %d", got)
		}
		before = asked(nodes)
		<-time.After(40 * time.Second)
		if n := asked(nodes) - before; n > 1 {
			t.Errorf("after a save, the unchanged position was asked for %d times", n)
		}
		if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A run begins with the state that the last one left, keeps scopes that nobody tracks, and does not
// write back what it has just read.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{data: encode(t, document())}
		k := newKeeper(t, m)
		want := document()
		if diff := cmp.Diff(want.Scopes, k.Scopes()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if !k.Saved().Equal(want.Saved) {
			t.Errorf("saved at %v, want %v", k.Saved(), want.Saved)
		}
		stop := run(t, k)
		for name, s := range k.Scopes() {
			s.LastSeen = time.Now()
			s.SnapshotBegan = s.SnapshotBegan.In(time.FixedZone("", 3600))
			if s.Namespaces == nil {
				s.Namespaces = []string{}
			}
			if s.Snapshot != nil {
				again := *s.Snapshot
				s.Snapshot = &again
			}
			if name != "widgets.example.com" {
				k.Track(name, func() (checkpoint.Position, bool) { return checkpoint.Position{Scope: s}, true }, nil)
			}
		}
		<-time.After(10 * time.Minute)
		if err := k.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if saves, _ := m.counts(); saves != 0 {
			t.Errorf("%d saves of what has not changed", saves)
		}
		// Until it reports a position, a scope keeps its old one; then the function that was
		// tracked last counts.
		k.Track("pods", func() (checkpoint.Position, bool) { return checkpoint.Position{}, false }, nil)
		k.Track("nodes", informerAt(7, 0).position, nil)
		<-time.After(5 * time.Second)
		synctest.Wait()
		wantRVs := rvs(want.Scopes)
		wantRVs["nodes"] = 7
		if diff := cmp.Diff(wantRVs, rvs(m.there(t))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		k.Track("pods", informerAt(90_000, 0).position, nil)
		k.Forget("widgets.example.com")
		delete(wantRVs, "widgets.example.com")
		wantRVs["pods"] = 90_000
		<-time.After(5 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff(wantRVs, rvs(m.there(t))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// Concurrent calls of Flush share a save; a call that comes while it is in progress does not rely
// on it.
func TestFlushIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{delay: time.Second}
		k := newKeeper(t, m)
		const n = 60
		var g sync.WaitGroup
		flush := func(i int) {
			scope := fmt.Sprintf("scope-%d", i)
			k.Track(scope, informerAt(uint64(i), 0).position, nil)
			if err := k.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			if got, ok := m.there(t)[scope]; !ok || got.ResourceVersion != uint64(i) {
				t.Errorf("%s is not saved when Flush returns: %v", scope, got)
			}
		}
		for i := range n {
			g.Go(func() { flush(i) })
		}
		<-time.After(500 * time.Millisecond)
		for i := range n {
			g.Go(func() { flush(n + i) }) // while the first is in progress
		}
		g.Wait()
		// Those whose Track came after the first look share the second, or the third.
		if saves, _ := m.counts(); saves > 3 {
			t.Errorf("%d saves", saves)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If thousands of scopes begin one after the other, each with a Flush, they share writes of the
// whole document.
func TestFlushLeavesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			n     = 1000
			each  = time.Millisecond
			write = 10 * time.Millisecond
		)
		m := &memory{delay: write}
		k := newKeeper(t, m)
		var g sync.WaitGroup
		for i := range n {
			<-time.After(each)
			scope := fmt.Sprintf("scope-%d", i)
			k.Track(scope, informerAt(uint64(i+1), 0).position, nil)
			began := time.Now()
			g.Go(func() {
				if err := k.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 11*write {
					// a save that has begun, the pause after it, and its own save
					t.Errorf("%s was saved after %v", scope, took)
				}
			})
		}
		g.Wait()
		if saves, _ := m.counts(); saves > n/50+2 {
			t.Errorf("%d saves of %v each within %v", saves, write, n*each)
		}
		if got := len(m.there(t)); got != n {
			t.Errorf("%d scopes are saved", got)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Run's check of resourceVersions that only moved saves nothing: a Flush must not rely on it.
func TestFlushBesideRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		k := newKeeper(t, m)
		pods := informerAt(1, 0)
		k.Track("pods", pods.position, nil)
		stop := run(t, k)
		for rv := range uint64(100) {
			pods.set(rv+2, 0)
			if rv%3 == 0 {
				<-time.After(5 * time.Second) // with Run's tick
			}
			if err := k.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := m.there(t)["pods"].ResourceVersion; got != rv+2 {
				t.Fatalf("after Flush %d is saved, want %d", got, rv+2)
			}
		}
		if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// Position functions may take locks that callers of Track, Forget or Scopes hold.
func TestPositionsAreAskedWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, new(memory))
		k.Track("pods", func() (checkpoint.Position, bool) {
			k.Track("nodes", informerAt(1, 0).position, nil)
			k.Forget("nodes")
			return at(5, 0), true
		}, nil)
		if err := errors.Join(k.Flush(t.Context()), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A position that moves backward is logged: a restart would repeat changes. It may move backward if
// etcd was restored.
func TestPositionMovesBackward(t *testing.T) {
	var log bytes.Buffer
	k := checkpoint.NewKeeper(new(memory), us, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods := informerAt(100, 1)
	k.Track("pods", pods.position, nil)
	for _, step := range []struct {
		rv      uint64
		history uint32
		want    int
	}{{100, 0, 0}, {101, 0, 0}, {101, 0, 0}, {90, 0, 1}, {95, 0, 0}, {10, 1, 0}} {
		log.Reset()
		pods.change(func(p *checkpoint.Position) { p.ResourceVersion, p.History = step.rv, step.history })
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "moved backward"); n != step.want {
			t.Errorf("at %d of history %d, it is logged %d times, want %d", step.rv, step.history, n, step.want)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSaveFailsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		var log bytes.Buffer
		reg := prometheus.NewRegistry()
		k := checkpoint.NewKeeper(m, us, slog.New(slog.NewTextHandler(&log, nil)), reg)
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop := run(t, k)
		pods := informerAt(1, 1)
		k.Track("pods", pods.position, nil)
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.fail(errors.New("disk full"))
		pods.set(2, 2)
		var g sync.WaitGroup
		for range 60 {
			g.Go(func() {
				if err := k.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := k.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush that is given up: %v", err)
		}
		<-time.After(9 * time.Minute)
		pods.set(3, 3)
		m.fail(nil)
		g.Wait()
		if got := m.there(t)["pods"].ResourceVersion; got != 3 {
			t.Errorf("saved is %d: not what is there when it works again", got)
		}
		saves, tries := m.counts()
		if saves != 2 || tries < 30 || tries > 100 {
			t.Errorf("%d saves of %d tries in 10 min: 60 that flush retry as one", saves, tries)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if n := len(lines); n < 9 || n > 12 {
			t.Errorf("%d lines in 10 min:\n%s", n, log.String())
		}
		if !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "disk full") ||
			!strings.Contains(lines[len(lines)-1], "saved again") {
			t.Errorf("log:\n%s", log.String())
		}
		if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				name := f.GetName()
				for _, l := range metric.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
		if got["kubecdc_checkpoint_saves_total ok"] != 2 ||
			got["kubecdc_checkpoint_saves_total error"] != float64(tries-2) ||
			got["kubecdc_checkpoint_bytes"] != float64(len(m.data)) ||
			got["kubecdc_checkpoint_last_save_timestamp_seconds"] == 0 {
			t.Errorf("metrics: %v", got)
		}
	})
}

// A store that refuses at the start ends the agent with a remedy; one that has accepted before may
// accept again.
func TestSaveIsRefused(t *testing.T) {
	refusal := &checkpoint.Error{
		Kind:   checkpoint.ErrRefused,
		Where:  "memory",
		What:   "forbidden",
		Remedy: "see 'kubecdc rbac'",
	}
	synctest.Test(t, func(t *testing.T) {
		m := &memory{err: refusal}
		k := checkpoint.NewKeeper(m, us, slog.New(slog.DiscardHandler), nil)
		if err := k.Load(t.Context()); !errors.Is(err, checkpoint.ErrRefused) || m.locked {
			t.Errorf("Load: %v, locked %v", err, m.locked)
		}
		m.fail(nil)
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.fail(refusal)
		k.Track("pods", informerAt(1, 1).position, nil)
		stop := run(t, k)
		if err := k.Flush(t.Context()); !errors.Is(err, checkpoint.ErrRefused) {
			t.Errorf("Flush: %v", err)
		}
		if err := stop(); !errors.Is(err, checkpoint.ErrRefused) {
			t.Errorf("Run: %v", err)
		}
		if err := k.Close(t.Context()); err != nil || m.locked {
			t.Errorf("Close: %v, locked %v", err, m.locked)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		k := newKeeper(t, m)
		pods := informerAt(1, 1)
		k.Track("pods", pods.position, nil)
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.fail(refusal)
		pods.set(2, 2)
		stop := run(t, k)
		<-time.After(time.Minute)
		m.fail(nil)
		<-time.After(time.Minute)
		synctest.Wait()
		if got := m.there(t)["pods"].ResourceVersion; got != 2 {
			t.Errorf("saved is %d", got)
		}
		if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestLoadWaitsForWhatMayPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{data: encode(t, document()), err: errors.New("connection refused")}
		time.AfterFunc(time.Minute, func() { m.fail(nil) })
		k := newKeeper(t, m)
		if len(k.Scopes()) != 3 {
			t.Errorf("scopes: %v", k.Scopes())
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		m.fail(errors.New("connection refused"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := k.Load(ctx); !errors.Is(err, context.DeadlineExceeded) || m.locked {
			t.Errorf("Load that is given up: %v, locked %v", err, m.locked)
		}
	})
}

func TestLoadOfAnother(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*checkpoint.Document)
		kind   error
		want   string
	}{
		"cluster": {
			func(d *checkpoint.Document) { d.ClusterUID, d.Cluster = "22f1", "dev" }, checkpoint.ErrForeign,
			`it belongs to cluster "dev" (uid 22f1), this is "prod-eu-1" (uid 11e0-uid): name another checkpoint in the configuration, or start over`,
		},
		"name": {
			func(d *checkpoint.Document) { d.Cluster = "prod" }, checkpoint.ErrForeign,
			`it was written for cluster name "prod", the name is now "prod-eu-1"`,
		},
		"bus": {
			func(d *checkpoint.Document) { d.Bus = "nats://other:4222 stream X" }, checkpoint.ErrForeign,
			`it belongs to the records on nats://other:4222 stream X, this is nats://nats:4222 stream KUBECDC: name another checkpoint`,
		},
		"format": {func(d *checkpoint.Document) {
			d.FormatVersion = 2
		}, checkpoint.ErrFormat, "use the kubecdc that wrote it"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "checkpoint.json")
			s := checkpoint.OpenFile(path)
			unlock := lock(t, s)
			d := document()
			c.change(d)
			save(t, s, string(encode(t, d)))
			unlock()
			err := checkpoint.NewKeeper(s, us, slog.New(slog.DiscardHandler), nil).Load(t.Context())
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) ||
				!strings.HasPrefix(err.Error(), "checkpoint file "+path+": ") {
				t.Errorf("%v\nwant %v with %s", err, c.kind, c.want)
			}
			lock(t, s)() // a failed Load has released the lock
		})
	}
}

// State reports how long saving has failed, whether attempts fail or hang.
func TestStateOfACheckpointThatCannotBeSaved(t *testing.T) {
	for name, breaks := range map[string]func(m *memory){
		"fails": func(m *memory) { m.fail(errors.New("disk full")) },
		"hangs": func(m *memory) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.delay = 2 * time.Minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(memory)
				k := newKeeper(t, m)
				stop := run(t, k)
				pods := informerAt(1, 1)
				k.Track("pods", pods.position, nil)
				<-time.After(10 * time.Second)
				if s := k.State(); s.Failing != 0 || s.Trouble != nil {
					t.Errorf("at first: %+v", s)
				}
				breaks(m)
				<-time.After(time.Hour) // nothing has changed
				if s := k.State(); s.Failing != 0 {
					t.Errorf("with nothing to save: %+v", s)
				}
				pods.set(2, 2)
				<-time.After(65 * time.Second)
				if s := k.State(); s.Failing < time.Minute || s.Failing > 65*time.Second {
					t.Errorf("after a minute: %+v", s)
				}
				m.fail(nil)
				<-time.After(2 * time.Minute)
				if s := k.State(); s.Failing != 0 || s.Trouble != nil {
					t.Errorf("in the end: %+v", s)
				}
				if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
