package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

// script drives a store step by step, in a bubble. It compares what the lane gets with lines of
// text.
type script struct {
	t        *testing.T
	s        *Store
	lane     *scriptLane
	ctx      context.Context
	saved    func() error // what saving the positions returns; nil: no error
	saves    atomic.Int64
	captured atomic.Int64 // calls of NoteCaptured
	gates    []string     // what the informer shows of the gate
}

// scripted runs a script in a bubble, with a store whose options it may change.
func scripted(t *testing.T, options func(*Options), run func(x *script)) {
	t.Helper()
	scheduled(t, 0, options, run)
}

// scheduled is scripted with an interval of snapshots.
func scheduled(t *testing.T, every time.Duration, options func(*Options), run func(x *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newScript(t, options)
		go x.s.Run(x.ctx, every)
		run(x)
	})
}

// alone is scripted without the cursor.
func alone(t *testing.T, run func(x *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(newScript(t, nil)) })
}

func newScript(t *testing.T, options func(*Options)) *script {
	x := &script{t: t, lane: &scriptLane{free: make(chan struct{})}, ctx: t.Context()}
	o := Options{
		Resource:     configMaps,
		Scope:        "configmaps",
		Lane:         x.lane,
		Now:          time.Now,
		Log:          slog.New(slog.DiscardHandler),
		Metrics:      testMetrics(),
		NoteCaptured: func() { x.captured.Add(1) },
		Save: func(context.Context) error {
			x.saves.Add(1)
			if x.saved != nil {
				return x.saved()
			}
			return nil
		},
		Gate: func(loading, closed bool) {
			x.gates = append(x.gates, fmt.Sprintf("loading %t, closed %t", loading, closed))
		},
	}
	if options != nil {
		options(&o)
	}
	x.s = New(o)
	return x
}

// observe lists objects for the first time, without a snapshot.
func (x *script) observe(rv uint64, objects ...*object.Object) {
	x.load(Fresh, rv, []*Notice{x.s.Adopt()}, objects...)
	x.settle()
	x.lane.lines()
}

// load begins and ends a list of objects that are not compared with others.
func (x *script) load(at ListState, rv uint64, notices []*Notice, objects ...*object.Object) {
	x.s.BeginList(at)
	for _, o := range objects {
		x.s.Load(o, nil)
	}
	x.s.EndList(rv, notices...)
}

// finder recovers versions inside a gap.
type finder func(ctx context.Context, to uint64) (whole, recovered bool, err error)

// relist compares a list with the last-known objects, after lost history.
func (x *script) relist(l Loss, rv uint64, find finder, objects ...*object.Object) {
	x.s.BeginList(Relist)
	for _, o := range objects {
		x.s.Compare(o, new(object.Scanned))
	}
	x.s.Lose(l)
	x.s.EndList(rv, x.s.Gap(rv, find))
}

// watch applies events.
func (x *script) watch(events ...Event) {
	x.t.Helper()
	if !x.s.Apply(x.ctx, events, func() {}) {
		x.t.Error("the events are not applied")
	}
}

// settle acknowledges everything, until nothing more follows.
func (x *script) settle() {
	for synctest.Wait(); x.lane.acknowledge(1) > 0; synctest.Wait() {
	}
}

// sends checks what was put into the lane since the last check.
func (x *script) sends(want ...string) {
	x.t.Helper()
	synctest.Wait()
	if diff := gocmp.Diff(strings.Join(want, "\n"), strings.Join(x.lane.lines(), "\n")); diff != "" {
		x.t.Errorf("-want +sent\n%s", diff)
	}
}

// ends checks everything that is sent until all is acknowledged.
func (x *script) ends(want ...string) {
	x.t.Helper()
	x.settle()
	x.sends(want...)
}

// position checks where a restart resumes.
func (x *script) position(want uint64) {
	x.t.Helper()
	if p, ok := x.s.Position(); !ok || p.ResourceVersion != want {
		x.t.Errorf("the position is %d (%t), want %d", p.ResourceVersion, ok, want)
	}
}

// scriptLane has room unless it is full. The script acknowledges what it has.
type scriptLane struct {
	mu    sync.Mutex
	full  bool          // takes nothing
	busy  bool          // live deltas leave no room: TryPut takes nothing
	free  chan struct{} // closed when there may be room
	items []*object.Delta
	bytes []int // of all items so far
	next  []string
}

func (l *scriptLane) Put(ctx context.Context, _ string, bytes int, d *object.Delta) error {
	for !l.take(false, bytes, d) {
		select {
		case <-l.Room():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (l *scriptLane) TryPut(_ string, bytes int, d *object.Delta) bool { return l.take(true, bytes, d) }

func (l *scriptLane) take(tried bool, bytes int, d *object.Delta) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full || tried && l.busy {
		return false
	}
	l.items, l.bytes = append(l.items, d), append(l.bytes, bytes)
	l.next = append(l.next, line(d))
	return true
}

func (l *scriptLane) Room() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free
}

// fill takes the room away, or gives it back: all of it (full), or that of pending deltas (busy).
func (l *scriptLane) fill(full, busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full, l.busy = full, busy
	close(l.free)
	l.free = make(chan struct{})
}

// acknowledge acknowledges the first n deltas, and returns how many there were.
func (l *scriptLane) acknowledge(n int) int {
	l.mu.Lock()
	n = min(n, len(l.items))
	first := l.items[:n]
	l.items = l.items[n:]
	l.mu.Unlock()
	for _, d := range first {
		d.Acker.Acked(d)
	}
	return n
}

// lines returns what was put since the last call.
func (l *scriptLane) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.next
	l.next = nil
	return out
}

// line describes a delta: "u a@11 after 5" is an update of a.
func line(d *object.Delta) string {
	var out strings.Builder
	add := func(when bool, format string, args ...any) {
		if when {
			fmt.Fprintf(&out, format, args...)
		}
	}
	if e := d.Stream; e != nil {
		add(true, "%s", e.Kind)
		add(e.Kind == object.Gap, " %d-%d %s", e.From, e.To, e.Reason)
		add(e.Kind != object.Gap, " %d", e.ResourceVersion)
		add(e.IsOfSnapshot(), " of %d", e.Objects)
		add(e.Recovered, " recovered")
		add(e.Initial, " initial")
		add(e.Continued, " continued")
		add(e.History > 0, " history %d", e.History)
		return out.String()
	}
	add(true, "%s %s@%d", d.Op, d.Ref.Key[strings.LastIndexByte(d.Ref.Key, '/')+1:], d.ResourceVersion)
	add(d.Previous > 0, " after %d", d.Previous)
	add(d.Before != nil && d.Previous == 0, " with before")
	add(d.Inferred, " inferred")
	add(d.Skipped > 0, " skipped %d", d.Skipped)
	add(d.History > 0, " history %d", d.History)
	add(d.ChangedBy != nil, " by %s", d.ChangedBy)
	return out.String()
}

// event is a watch event of an object.
func event(kind watch.EventType, o *object.Object) Event {
	return Event{
		Type:      kind,
		Version:   o.ResourceVersion,
		Object:    o,
		ChangedBy: []byte("me"),
		Observed:  time.Now().UnixNano(),
	}
}

// outside is a watch event of an object that no rule takes.
func outside(kind watch.EventType, o *object.Object) Event {
	e := event(kind, o)
	e.Outside = true
	return e
}

func bookmark(rv uint64) Event { return Event{Type: watch.Bookmark, Version: rv} }

// sleep advances the clock of the bubble.
func sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
}
