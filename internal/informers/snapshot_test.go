package informers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

// fragile is a memory that fails while saves is 0. Each save takes one of saves.
type fragile struct {
	*memory

	mu    sync.Mutex
	saves int
}

func (f *fragile) set(saves int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saves = saves
}

func (f *fragile) Flush(ctx context.Context) error {
	f.mu.Lock()
	fails := f.saves == 0
	if !fails {
		f.saves--
	}
	f.mu.Unlock()
	if fails { // as a Keeper, which retries until then
		<-ctx.Done()
		return fmt.Errorf("save the checkpoint: %w: disk full", context.Cause(ctx))
	}
	return f.memory.Flush(ctx)
}

// A snapshot that cannot begin delays no change. It is given up, which its requester learns, and a
// later one begins.
func TestSnapshotThatCannotBeginDelaysNoChange(t *testing.T) {
	isStart := func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.SnapshotStarted }
	for name, c := range map[string]struct {
		breaks  func(f *fragile, r *recorder)
		mends   func(f *fragile, r *recorder)
		delay   time.Duration // of a change, at most
		orphan  bool          // the start of the snapshot that is given up comes late
		because string
	}{
		"the checkpoint cannot be saved": {
			breaks: func(f *fragile, _ *recorder) { f.set(0) }, mends: func(f *fragile, _ *recorder) {
				f.set(unbounded)
			},
			because: "disk full",
		},
		"the checkpoint cannot be saved once the gate is shut": {
			breaks: func(f *fragile, _ *recorder) { f.set(1) }, mends: func(f *fragile, _ *recorder) {
				f.set(unbounded)
			},
			delay: 6 * time.Second, because: "disk full",
		},
		"a change before it is not acknowledged": {
			breaks: func(_ *fragile, r *recorder) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.held = true
			},
			mends: func(_ *fragile, r *recorder) { r.acknowledge() }, because: "the bus has not acknowledged",
		},
		"its start is not acknowledged": {
			breaks: func(_ *fragile, r *recorder) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.holds = isStart
			},
			mends: func(_ *fragile, r *recorder) { r.acknowledge() },
			delay: 6 * time.Second, orphan: true, because: "the bus has not acknowledged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				m := &fragile{memory: newMemory(), saves: unbounded}
				s.put("a", "1", nil)
				l := live(t, s, m.memory, func(o *informers.Options, r *recorder) {
					o.Memory = m
				})
				want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
				l.wait(t, want...)
				pass(time.Second)
				c.breaks(m, l.recorder)
				s.put("a", "2", nil)
				want = append(want, "u a uid-1 1→2")
				l.wait(t, want...)

				failed := make(chan error, 1)
				go func() {
					_, err := l.set.Snapshot(t.Context(), "configmaps", "")
					failed <- err
				}()
				pass(time.Second)
				if c.orphan {
					want = append(want, "snapshot.started 1")
				}
				s.put("b", "1", nil)
				changed := time.Now()
				want = append(want, "c b uid-2 -→1")
				l.wait(t, want...)
				if d := time.Since(changed); d > c.delay {
					t.Errorf("a change was delayed for %v", d)
				}
				pass(30 * time.Second)
				select {
				case err := <-failed:
					if !errors.Is(err, store.ErrNotBegun) || !strings.Contains(err.Error(), c.because) {
						t.Errorf("the snapshot: %v", err)
					}
				default:
					t.Fatal("the snapshot is neither begun nor given up")
				}
				if st := l.set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != informer.HealthOK {
					t.Errorf("%+v", st)
				}
				s.put("b", "2", nil)
				want = append(want, "u b uid-2 1→2")
				l.wait(t, want...)

				c.mends(m, l.recorder)
				pass(time.Second)
				if _, err := l.set.Snapshot(t.Context(), "configmaps", ""); err != nil {
					t.Fatal(err)
				}
				want = append(want, "snapshot.started 2", "r a uid-1 -→2", "r b uid-2 -→2", "snapshot.completed 2")
				l.wait(t, want...)
			})
		})
	}
}

// A periodic snapshot that cannot begin delays no change either, and is retried.
func TestSnapshotEveryThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		m := &fragile{memory: newMemory(), saves: unbounded}
		s.put("a", "1", nil)
		l := live(t, s, m.memory, func(o *informers.Options, _ *recorder) {
			o.Memory, o.Every = m, 10*time.Minute
		})
		want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		m.set(0)
		pass(10 * time.Minute)
		for n := 2; n < 12; n++ {
			s.put("a", fmt.Sprint(n), nil)
			pass(7 * time.Second)
			want = append(want, fmt.Sprintf("u a uid-1 %d→%d", n-1, n))
			l.wait(t, want...)
		}
		m.set(unbounded)
		pass(90 * time.Second)
		l.wait(t, append(want, "snapshot.started 1", "r a uid-1 -→11", "snapshot.completed 1")...)
	})
}

// A list that becomes necessary while a snapshot begins comes first, and no change is lost by
// giving the snapshot up.
func TestRelistWhileASnapshotBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		m := &fragile{memory: newMemory(), saves: unbounded}
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		l := live(t, s, m.memory, func(o *informers.Options, _ *recorder) {
			o.Memory = m
		})
		want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
		l.wait(t, want...)
		pass(time.Second)
		m.set(1)
		failed := make(chan error, 1)
		go func() {
			_, err := l.set.Snapshot(t.Context(), "configmaps", "")
			failed <- err
		}()
		pass(time.Millisecond) // the gate is shut
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				watch := r.URL.Query().Get("watch") != ""
				if watch {
					fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				}
				return watch
			}
		})
		s.CloseClientConnections()
		pass(time.Millisecond)
		s.put("a", "2", nil)
		s.gone(s.delete("b").rv)
		pass(3 * time.Second)
		select {
		case err := <-failed:
			if !errors.Is(err, store.ErrNotBegun) || !strings.Contains(err.Error(), "catching up") {
				t.Errorf("the snapshot: %v", err)
			}
		default:
			t.Error("the snapshot is not given up when the list begins")
		}
		l.waitPerName(t, append(want, "gap 0 expired", "u a uid-1 1→2", "d b uid-2 1→-")...)
	})
}

// A snapshot that was given up is not continued by the next run: objects that were created after it
// would be swept.
func TestGivenUpSnapshotIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := liveSaved(t, s, m, nil)
		l.forgetDeltas()
		l.setRoom(0) // the queue is full
		_, err := l.set.Snapshot(t.Context(), "configmaps", "")
		if !errors.Is(err, store.ErrNotBegun) {
			t.Fatalf("the snapshot: %v", err)
		}
		l.setRoom(unbounded)
		s.put("b", "1", nil)
		l.wait(t, "c b uid-2 -→1")
		l.end() // it is killed: nothing was saved since

		second := live(t, s, m, nil)
		second.wait(t, "c b uid-2 -→1", "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2")
	})
}

// The clock of the last run was ahead. That delays no periodic snapshot until then, and its times
// are not those of new events.
func TestTimesOfTheLastRunAreInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		liveSaved(t, s, m, nil).end()
		ahead := time.Now().Add(48 * time.Hour)
		m.mu.Lock()
		c := m.scopes["configmaps"]
		c.SnapshotBegan, c.LastSeen = ahead, ahead
		m.scopes["configmaps"] = c
		m.mu.Unlock()
		s.gone(s.put("a", "2", nil).rv + 1)
		second := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Every, o.Snapshot = time.Hour, informer.SnapshotInitial
		})
		pass(30 * time.Second)
		for _, gap := range second.gaps() {
			if gap.Since.After(time.Now()) {
				t.Errorf("the gap began at %v, it is %v", gap.Since, time.Now())
			}
		}
		s.do(func() { s.fault = nil })
		second.awaitCaptured(t)
		second.forgetDeltas()
		pass(62 * time.Minute)
		second.mu.Lock()
		defer second.mu.Unlock()
		if !slices.ContainsFunc(second.deltas,
			func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.SnapshotStarted }) {
			t.Error("no snapshot follows within an hour")
		}
	})
}
