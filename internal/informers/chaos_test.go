package informers_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

// bus is both a queue and a bus. It records and acknowledges deltas in order per key. A crash drops
// the others.
type bus struct {
	mu      sync.Mutex
	rng     *rand.Rand
	record  []*object.Delta
	told    []reported
	lanes   map[string][]*object.Delta // by key
	waiting int
	crashes []int // how much was on record then
	crashed bool
	stuck   bool
}

func (b *bus) put(key string, d *object.Delta) {
	b.lanes[key] = append(b.lanes[key], d)
	b.waiting++
}

func (b *bus) Put(ctx context.Context, key string, _ int, d *object.Delta) error {
	for {
		b.mu.Lock()
		if b.waiting < 20 && !b.crashed {
			b.put(key, d)
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()
		if !wait(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

func (b *bus) TryPut(key string, _ int, d *object.Delta) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting >= 10 || b.crashed {
		return false
	}
	b.put(key, d)
	return true
}

func (b *bus) Room() <-chan struct{} {
	later := make(chan struct{})
	time.AfterFunc(time.Millisecond, func() { close(later) })
	return later
}

// wait waits for d. It returns false if ctx ends first. It creates no timer that has already
// expired; see waitFor in the tests of package leader.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// run publishes until ctx ends.
func (b *bus) run(ctx context.Context) {
	for wait(ctx, 300*time.Microsecond) {
		b.mu.Lock()
		var acked *object.Delta
		keys := make([]string, 0, len(b.lanes))
		for key := range b.lanes {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if len(keys) > 0 && !b.crashed && !b.stuck {
			key := keys[b.rng.IntN(len(keys))]
			acked = b.lanes[key][0]
			if acked.Report != nil {
				b.told = append(b.told, reported{acked, len(b.record)})
			} else {
				b.record = append(b.record, acked)
			}
			b.lanes[key] = b.lanes[key][1:]
			if len(b.lanes[key]) == 0 {
				delete(b.lanes, key)
			}
			b.waiting--
			if b.rng.IntN(8) == 0 && acked.Stream == nil && acked.Report == nil {
				b.record = append(b.record, acked) // a copy
			}
		}
		b.mu.Unlock()
		if acked != nil && acked.Acker != nil {
			acked.Acker.Acked(acked)
		}
	}
}

// crash drops the queue. A few of its deltas are on the bus without an acknowledgement.
func (b *bus) crash() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashed = true
	for _, lane := range b.lanes {
		if b.rng.IntN(3) == 0 && lane[0].Report == nil {
			b.record = append(b.record, lane[0])
		}
	}
	b.lanes, b.waiting = map[string][]*object.Delta{}, 0
	b.crashes = append(b.crashes, len(b.record))
}

// TestHistoryUnderFaults runs a succession of agents over one history with random faults, and
// compares the record with the history. SEEDS sets the number of runs.
func TestHistoryUnderFaults(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 30
	}
	if text := os.Getenv("SEEDS"); text != "" {
		var err error
		seeds, err = strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		for _, selector := range []string{"", "in=1"} {
			t.Run(fmt.Sprint(seed, selector), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					faults(t, uint64(seed), selector)
				})
			})
		}
	}
}

func faults(t *testing.T, seed uint64, selector string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	s, m := newAPIServer(t), newMemory()
	s.do(func() { s.rv++ })
	// Time passes only while all goroutines wait. Without delays in the server, no fault would
	// affect a request in flight.
	late, lateMu := rand.New(rand.NewPCG(seed, 3)), sync.Mutex{}
	s.delay = func() time.Duration {
		lateMu.Lock()
		defer lateMu.Unlock()
		if late.IntN(4) == 0 {
			return time.Duration(late.Int64N(int64(3 * time.Millisecond)))
		}
		return time.Duration(late.Int64N(int64(300 * time.Microsecond)))
	}
	b := &bus{rng: rand.New(rand.NewPCG(seed, 2)), lanes: map[string][]*object.Delta{}}
	var log strings.Builder
	var logMu sync.Mutex
	note := func(format string, args ...any) {
		logMu.Lock()
		defer logMu.Unlock()
		fmt.Fprintf(&log, format+"\n", args...)
	}
	n := 0
	write := func(times int) {
		for range times {
			n++
			name := fmt.Sprint("cm-", rng.IntN(8))
			if rng.IntN(5) == 0 {
				s.delete(name)
			} else {
				s.put(name, fmt.Sprint(n), map[string]string{"in": fmt.Sprint(min(1, rng.IntN(3)))})
			}
		}
	}
	write(20)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.run(ctx) })
	defer wg.Wait()
	defer cancel()
	var l *life
	start := func() {
		wait(ctx, time.Millisecond) // no two processes begin a snapshot in the same millisecond, which names it
		b.mu.Lock()
		b.crashed = false
		b.mu.Unlock()
		l = live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Lane = func(string) store.Lane { return b }
			o.Rules[0].LabelSelector = selector
			o.Log = slog.New(slog.NewTextHandler(noted(note), nil))
		})
	}
	start()
	for range 25 {
		write(rng.IntN(12))
		wait(ctx, time.Duration(rng.IntN(8))*time.Millisecond)
		switch rng.IntN(9) {
		case 0, 1:
			note("crash at %d", s.now1())
			b.crash()
			l.end()
			write(rng.IntN(10))
			if rng.IntN(3) == 0 {
				s.gone(s.now1())
			}
			if rng.IntN(6) == 0 {
				note("compact at %d", s.now1())
				s.compact()
			}
			write(rng.IntN(10))
			start()
		case 2:
			note("gone at %d", s.now1())
			s.gone(s.now1())
			if rng.IntN(3) == 0 { // long enough for the watch to give up, whatever is in flight
				write(rng.IntN(6))
				s.gone(s.now1())
				wait(ctx, time.Second)
			}
		case 3:
			s.CloseClientConnections()
		case 4:
			_ = m.Flush(ctx)
		case 5:
			sctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			_, _ = l.set.Snapshot(sctx, "", "")
			cancel()
		case 6:
			s.do(func() {
				s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
					fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
					return true
				}
			})
			s.CloseClientConnections()
			write(rng.IntN(12))
			wait(ctx, 2*time.Millisecond)
			s.do(func() { s.fault = nil })
		case 8:
			if rng.IntN(3) == 0 {
				note("compact at %d", s.now1())
				s.CloseClientConnections()
				write(rng.IntN(12))
				s.compact()
			}
		case 7:
			b.mu.Lock()
			b.stuck = !b.stuck
			b.mu.Unlock()
		}
	}
	b.mu.Lock()
	b.stuck = false
	b.mu.Unlock()
	s.do(func() { s.fault = nil })
	// A version of its own marks the end of history.
	last := s.put("last", "end", map[string]string{"in": "1"})
	defer func() {
		if t.Failed() {
			// CI never runs this test again.
			t.Log("VERDICT: the record, or its end, is not that of the history\n" + log.String())
		}
	}()
	eventually(t, "the last version to be on record", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.record, func(d *object.Delta) bool {
			return d.Stream == nil && d.Ref.UID == last.uid
		})
	})
	eventually(t, "the rest to be on record", func() bool {
		st, owes := l.set.Status(), l.set.Owes() // without mu: the store holds its own lock while it puts
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.waiting == 0 && len(st) == 1 && st[0].Pending == 0 && st[0].Captured && !owes
	})
	l.end()
	cancel()
	wg.Wait()
	takes := func(v *version) bool { return selector == "" || v.labels["in"] == "1" }
	of := truth{
		branches:   [][]*version{s.history},
		restored:   math.MaxUint64,
		record:     b.record,
		told:       b.told,
		crashes:    b.crashes,
		repeats:    true,
		selections: func(*version) []func(*version) bool { return []func(*version) bool{takes} },
	}
	if problems := append(of.problems("configmaps"),
		stateProblems(b.record, "configmaps", s.now, takes, func(string) bool { return false })...); len(problems) > 0 {
		for _, d := range b.record {
			note("  %s rv=%d", short(d), max(d.ResourceVersion, rvOf(d)))
		}
		t.Error(strings.Join(problems, "\n"))
	}
}

type noted func(string, ...any)

func (n noted) Write(p []byte) (int, error) {
	n("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

func rvOf(d *object.Delta) uint64 {
	if d.Stream == nil {
		return 0
	}
	return max(d.Stream.ResourceVersion, d.Stream.To)
}

func (s *apiServer) now1() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}
