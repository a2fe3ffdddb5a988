package informers_test

import (
	"context"
	"fmt"
	"log/slog"
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

// bus is a queue and a bus in one: it takes deltas, puts some of them on record, in order per key, and acknowledges some of
// those. A crash takes the rest along.
type bus struct {
	mu      sync.Mutex
	rng     *rand.Rand
	record  []*object.Delta
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

// wait waits for d; false: ctx ended first. It makes no timer that has expired already, see waitFor of package leader's tests.
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
			b.record = append(b.record, acked)
			if b.lanes[key] = b.lanes[key][1:]; len(b.lanes[key]) == 0 {
				delete(b.lanes, key)
			}
			b.waiting--
			if b.rng.IntN(8) == 0 && acked.Stream == nil {
				b.record = append(b.record, acked) // a copy
			}
		}
		b.mu.Unlock()
		if acked != nil && acked.Acker != nil {
			acked.Acker.Acked(acked)
		}
	}
}

// crash loses what waits, but for a record here and there that is on the bus and nobody was told.
func (b *bus) crash() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashed = true
	for _, lane := range b.lanes {
		if b.rng.IntN(3) == 0 {
			b.record = append(b.record, lane[0])
		}
	}
	b.lanes, b.waiting = map[string][]*object.Delta{}, 0
	b.crashes = append(b.crashes, len(b.record))
}

// TestHistoryUnderFaults lets agents live and die over one history, with all that may happen to them, and compares what is on
// record with the history. SEEDS has other numbers of runs.
func TestHistoryUnderFaults(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 30
	}
	if text := os.Getenv("SEEDS"); text != "" {
		var err error
		if seeds, err = strconv.Atoi(text); err != nil {
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
	// Time passes only while all goroutines wait: without delays of the server, no fault would meet a request that is under way.
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
		wait(ctx, time.Millisecond) // no process starts within the millisecond in which the one before began a snapshot, which names it
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
			if rng.IntN(3) == 0 { // long enough for the watch to give up, whatever is under way then
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
	// The end of history, known by a version of its own.
	last := s.put("last", "end", map[string]string{"in": "1"})
	defer func() {
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	eventually(t, "the last version to be on record", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.record, func(d *object.Delta) bool { return d.Stream == nil && d.Ref.UID == last.uid })
	})
	eventually(t, "the rest to be on record", func() bool {
		st, owes := l.set.Status(), l.set.Owes() // without the lock: the store has its own while it puts
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.waiting == 0 && len(st) == 1 && st[0].Pending == 0 && st[0].Captured && !owes
	})
	l.end()
	cancel()
	wg.Wait()
	if problems := check(s, b.record, b.crashes, selector); len(problems) > 0 {
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

// check compares a record with the history.
func check(s *apiServer, record []*object.Delta, crashes []int, selector string) (problems []string) {
	fault := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	matches := func(v *version) bool { return v != nil && !v.deleted && (selector == "" || v.labels["in"] == "1") }
	type gap struct {
		from, to  uint64
		recovered bool
		at        int // in the record
	}
	var gaps []gap
	first := uint64(0)
	seen := map[string]string{} // content by id
	type state struct {
		value  string
		rv     uint64
		broken bool
	}
	states := map[string]*state{}   // by name
	reads := map[string]bool{}      // uid/rv of versions that were read
	highest := map[string]uint64{}  // by uid: what is not above it is late, and no news
	recorded := map[string]string{} // op by uid/rv, or uid/d
	for n, d := range record {
		if d.Stream != nil {
			switch d.Stream.Kind {
			case object.SnapshotStarted:
				if first == 0 {
					first = d.Stream.ResourceVersion
				}
			case object.Gap:
				gaps = append(gaps, gap{d.Stream.From, d.Stream.To, d.Stream.Recovered, n})
			}
			for _, st := range states {
				st.broken = true
			}
			continue
		}
		id := fmt.Sprintf("%s/%d", d.Ref.UID, d.ResourceVersion)
		switch d.Op {
		case object.Deleted:
			id = d.Ref.UID + "/d"
		case object.Read:
			id += "/r/" + d.Snapshot
		}
		content := fmt.Sprint(short(d), d.ResourceVersion, d.Previous)
		if was, ok := seen[id]; ok {
			if was != content && !d.Inferred && !strings.HasPrefix(was, "~") { // what was found once may be seen at another time
				fault("%s is the id of %s, and of %s", id, was, content)
			}
			continue
		}
		seen[id] = content
		recorded[id] = string(rune(d.Op))
		if d.Inferred {
			recorded[id] = "~" + recorded[id]
		}
		if d.Op == object.Read {
			reads[fmt.Sprintf("%s/%d", d.Ref.UID, d.ResourceVersion)] = true
		}
		if d.ResourceVersion <= highest[d.Ref.UID] && (d.Op == object.Read || reads[fmt.Sprintf("%s/%d", d.Ref.UID, d.ResourceVersion)]) {
			continue // a snapshot behind a gap may show a version before a restart tells of it
		}
		highest[d.Ref.UID] = max(highest[d.Ref.UID], d.ResourceVersion)
		name := d.Ref.Name()
		st := states[name]
		if st == nil {
			st = &state{broken: true}
			states[name] = st
		}
		if d.ResourceVersion < st.rv && slices.ContainsFunc(gaps, func(g gap) bool {
			return g.from < d.ResourceVersion && d.ResourceVersion <= g.to && slices.ContainsFunc(crashes, func(at int) bool {
				return g.at < at && at <= n
			})
		}) {
			continue // behind a gap of an earlier run: this one could be told more, and consumers see that it is late
		}
		if !st.broken && d.Op != object.Read && valueOf(d.Before) != st.value && !(d.Op == object.Entered && st.value == "-") {
			fault("chain of %s: %s at %d follows %s at %d", name, short(d), d.ResourceVersion, st.value, st.rv)
		}
		if d.Op != object.Read && d.ResourceVersion <= st.rv && st.rv != 0 && !d.Inferred {
			fault("order of %s: %s at %d after %d", name, short(d), d.ResourceVersion, st.rv)
		}
		st.value, st.broken = valueOf(d.After), false
		if !d.Inferred {
			st.rv = max(st.rv, d.ResourceVersion)
		}
	}
	// What a gap's ends know of: objects in the scope.
	alive := func(uid string, at uint64) bool {
		var last *version
		for _, v := range s.history {
			if v.uid == uid && v.rv <= at {
				last = v
			}
		}
		return matches(last)
	}
	for uid, name := range consumed(record) {
		if n := slices.IndexFunc(s.history, func(v *version) bool { return v.uid == uid }); n < 0 || s.now[s.history[n].key()] == nil ||
			s.now[s.history[n].key()].uid != uid || !matches(s.now[s.history[n].key()]) {
			fault("%s %s lives on for whoever reads the record", name, uid)
		}
	}
	for _, v := range s.now {
		if _, known := consumed(record)[v.uid]; matches(v) && !known {
			fault("%s %s does not exist for whoever reads the record", v.name, v.uid)
		}
	}
	for _, d := range record {
		if d.Stream != nil || d.Inferred || d.Previous == 0 {
			continue
		}
		n := slices.IndexFunc(s.history, func(v *version) bool { return v.rv == d.ResourceVersion && v.uid == d.Ref.UID })
		if n < 0 || s.history[n].before == nil || s.history[n].before.rv != d.Previous {
			fault("%s at %d says that it follows %d", short(d), d.ResourceVersion, d.Previous)
		}
	}
	for _, v := range s.history {
		if v.rv <= first {
			continue
		}
		op := ""
		switch was, is := matches(v.before), matches(v); {
		case is && v.before == nil:
			op = "c"
		case is && was:
			op = "u"
		case is:
			op = "e"
		case was && v.deleted:
			op = "d"
		case was:
			op = "l"
		}
		if op == "" {
			continue
		}
		excused := slices.ContainsFunc(gaps, func(g gap) bool {
			return g.from < v.rv && v.rv <= g.to && (!g.recovered || !alive(v.uid, g.from) && !alive(v.uid, g.to))
		})
		id := v.uid + "/" + strconv.FormatUint(v.rv, 10)
		if op == "d" {
			id = v.uid + "/d"
		}
		got := recorded[id]
		if vague := recorded[v.uid+"/"+strconv.FormatUint(v.rv, 10)]; vague == "~e" && op == "c" || vague == "~l" && op == "d" {
			continue // history was gone when it was asked which
		}
		if got != op && got != "~"+op && !excused {
			fault("%s %s %s at %d is not on record (%q is)", op, v.name, v.uid, v.rv, got)
		}
	}
	return problems
}

// consumed is the state that a consumer has at the end, names by uid: what is not above the highest resourceVersion of its
// object, or below that of another which has the name now, is late; a completed snapshot sweeps.
func consumed(record []*object.Delta) map[string]string {
	names, highest, touched, holder := map[string]string{}, map[string]uint64{}, map[string]int{}, map[string]string{}
	started := map[string]int{}
	for n, d := range record {
		if ev := d.Stream; ev != nil {
			switch begin, known := started[ev.Snapshot]; {
			case ev.Kind == object.SnapshotStarted && !known:
				started[ev.Snapshot] = n
			case ev.Kind == object.SnapshotCompleted && known:
				for uid := range names {
					if touched[uid] < begin {
						delete(names, uid)
					}
				}
			}
			continue
		}
		uid, name := d.Ref.UID, d.Ref.Name()
		if other := holder[name]; other != uid && names[other] != "" && highest[other] > d.ResourceVersion {
			continue
		}
		touched[uid] = n
		if d.ResourceVersion < highest[uid] || d.ResourceVersion == highest[uid] && d.Op != object.Read {
			continue
		}
		highest[uid] = d.ResourceVersion
		if holder[name] != uid {
			delete(names, holder[name])
		}
		holder[name] = uid
		if names[uid] = name; d.Op == object.Deleted || d.Op == object.Left {
			delete(names, uid)
		}
	}
	return names
}
