package publish

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// LogAge is the maximum time between two reads of the logs' identities.
	LogAge = time.Minute
	// LogPause is the minimum time between two looks.
	LogPause = time.Second
	// oddLooks is the number of consecutive looks that must show a log too short, or with an
	// earlier identity. A replica or broker that lags may report either for a moment.
	oddLooks = 3
	// maxGone bounds the earlier identities of a log.
	maxGone = 8
	// maxLogs and maxEnds bound the state: logs, and acknowledged positions of all logs. The most
	// recently used logs are kept.
	maxLogs = 500
	maxEnds = 6000
)

// Log is the known state of one log: a stream of JetStream, or a topic of Kafka.
type Log struct {
	Name    string
	Cluster string // of Kafka; "": unknown
	ID      string // a log that is created again has another one; "": unknown
	// Acked is the position after the last acknowledged record, by partition: a log that ends below
	// it has lost records.
	Acked []uint64
	// Replaced is the number of the replacement that this log began with; 0 for the first log seen.
	Replaced uint64
}

// Logs compares the logs of a bus with their stored state. A log counts as replaced if its identity
// has changed, or if it ends below its last acknowledged position. It is safe for concurrent use.
type Logs struct {
	takes func(name string, r *object.Resource, namespace string) bool

	mu       sync.Mutex
	all      map[string]*trackedLog
	last     uint64                 // the number of the last replacement
	replaced func(name, why string) // called without mu
	trouble  error                  // why an identity could not be read
}

// trackedLog is a log with the state from this run.
type trackedLog struct {
	Log            // without Acked
	ends  []*Tail  // by partition
	odd   int      // consecutive looks that showed it too short, or with an earlier identity
	gone  []string // the latest earlier identities of this run
	used  time.Time
	whole time.Time // when a look last found nothing wrong; zero: not in this run
	since time.Time // when the former log was last found whole; zero: not in this run, or not replaced
}

// NewLogs returns empty Logs. takes reports whether events of a resource in a namespace ("": any)
// may go to a log.
func NewLogs(takes func(name string, r *object.Resource, namespace string) bool) *Logs {
	return &Logs{takes: takes, all: map[string]*trackedLog{}, replaced: func(string, string) {}}
}

// Restore sets the state of an earlier run. last is the highest replacement number in use anywhere.
// It must be called before the bus runs.
func (l *Logs) Restore(all []Log, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, last)
	for _, k := range all {
		l.last = max(l.last, k.Replaced)
		t := l.track(k.Name)
		t.Log, t.Acked = k, nil
		for i, end := range k.Acked {
			t.end(i).end.Store(end)
		}
	}
}

// OnReplaced sets f, which is called after each replacement with the log and the evidence. It must
// be called before the bus runs; f must not block.
func (l *Logs) OnReplaced(f func(name, why string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced = f
}

// Known returns the state for the next run.
func (l *Logs) Known() []Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Log
	ends := 0
	for _, t := range l.recent() {
		k := t.Log
		ends += len(t.ends)
		if ends <= maxEnds {
			k.Acked = t.acked()
		}
		if k.ID != "" || k.Cluster != "" || k.Replaced > 0 || len(k.Acked) > 0 {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b Log) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Names returns the names of all logs.
func (l *Logs) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.recent()
	out := make([]string, len(all))
	for i, t := range all {
		out[i] = t.Name
	}
	return out
}

// recent returns the maxLogs most recently used logs and drops the others. It must be called with
// mu held.
func (l *Logs) recent() []*trackedLog {
	all := make([]*trackedLog, 0, len(l.all))
	for _, t := range l.all {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *trackedLog) int {
		return cmp.Or(b.used.Compare(a.used), strings.Compare(a.Name, b.Name))
	})
	for len(all) > maxLogs {
		delete(l.all, all[len(all)-1].Name)
		all = all[:len(all)-1]
	}
	return all
}

// Last returns the number of the last replacement of a log for events of the resource in the
// namespace ("": any), or 0. since is when the former log was last seen whole, or zero if not in
// this run.
func (l *Logs) Last(r *object.Resource, namespace string) (number uint64, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.all {
		if t.Replaced > number && l.takes(t.Name, r, namespace) {
			number, since = t.Replaced, t.since
		}
	}
	return number, since
}

// LogsState is the state of the logs, for display.
type LogsState struct {
	Logs    int   // total
	Unknown int   // those whose identity could not be read
	Trouble error // the reason; nil: unknown
}

// State returns the state of the logs.
func (l *Logs) State() LogsState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LogsState{Logs: len(l.all), Trouble: l.trouble}
	for _, t := range l.all {
		if t.ID == "" {
			s.Unknown++
		}
	}
	return s
}

// track returns the log of that name, which it adds if it is new. It must be called with mu held.
func (l *Logs) track(name string) *trackedLog {
	t := l.all[name]
	if t == nil {
		t = &trackedLog{Log: Log{Name: name}, used: time.Now()}
		l.all[name] = t
	}
	return t
}

func (t *trackedLog) end(partition int) *Tail {
	for len(t.ends) <= partition {
		t.ends = append(t.ends, &Tail{})
	}
	return t.ends[partition]
}

// acked returns a copy of the acknowledged positions; nil if there are none.
func (t *trackedLog) acked() []uint64 {
	out := make([]uint64, len(t.ends))
	for i, e := range t.ends {
		out[i] = e.end.Load()
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Tail returns the end of one partition of a log.
func (l *Logs) Tail(name string, partition int) *Tail {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.track(name).end(partition)
}

// Look is the state of a log before a request about it: positions that are acknowledged later prove
// nothing.
type Look struct {
	Name   string
	Acked  []uint64
	number uint64
}

// Look begins a look at a log.
func (l *Logs) Look(name string) Look {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.track(name)
	return Look{Name: name, Acked: t.acked(), number: t.Replaced}
}

// UnknownEnd is the end of a partition that could not be read.
const UnknownEnd = math.MaxUint64

// NoteFound processes the result of a look: the log's ends, by partition, and its identity, if
// known. It reports whether another look is needed soon.
func (l *Logs) NoteFound(k Look, cluster, id string, ends []uint64) (again bool) {
	l.mu.Lock()
	t := l.track(k.Name)
	if t.Replaced != k.number { // replaced meanwhile: the answer may concern the former log
		l.mu.Unlock()
		return true
	}
	t.used = time.Now()
	why := ""
	switch {
	case t.Cluster != "" && cluster != "" && t.Cluster != cluster:
		why = fmt.Sprintf("it is in cluster %s instead of %s", cluster, t.Cluster)
	case t.ID != "" && id != "" && t.ID != id:
		why = fmt.Sprintf("its id is %s instead of %s", id, t.ID)
		if slices.Contains(t.gone, id) {
			again = t.countOdd()
		}
	case isShort(k.Acked, ends):
		why = "it has lost acknowledged records"
		again = t.countOdd()
	case t.ID == "" && slices.Contains(t.gone, id) && t.countOdd():
		again = true // a broker that lags may report the former log
	default:
		t.Cluster, t.ID = cmp.Or(cluster, t.Cluster), cmp.Or(id, t.ID)
		t.odd, t.whole = 0, t.used
	}
	if why == "" || again {
		l.mu.Unlock()
		return again
	}
	l.replace(t)
	t.Cluster, t.ID = cluster, id
	f := l.replaced
	l.mu.Unlock()
	f(k.Name, why)
	return false
}

// countOdd counts an odd look, and reports whether another look must confirm it.
func (t *trackedLog) countOdd() bool {
	t.odd++
	return t.odd < oddLooks
}

// isShort reports whether a partition ends below its acknowledged position. Nil ends are unknown.
func isShort(acked, ends []uint64) bool {
	if ends == nil {
		return false
	}
	for i, a := range acked {
		if a > 0 && (i >= len(ends) || ends[i] < a) {
			return true
		}
	}
	return false
}

// NoteRepeatedPosition processes an acknowledgement at a position that an earlier record had: the
// log has lost that one. m is the tail when the record was first sent.
func (l *Logs) NoteRepeatedPosition(name string, partition int, m Mark) {
	l.mu.Lock()
	t := l.track(name)
	if t.end(partition).era.Load() != m.era { // known already
		l.mu.Unlock()
		return
	}
	l.replace(t)
	t.Cluster, t.ID = "", "" // the next look adopts what it finds
	f := l.replaced
	l.mu.Unlock()
	f(name, "it has acknowledged two records at the same position")
}

// replace notes the replacement of a log. It must be called with mu held.
func (l *Logs) replace(t *trackedLog) {
	l.last++
	t.Replaced = l.last
	t.odd = 0
	t.since = t.whole
	if t.ID != "" {
		t.gone = append(t.gone[max(0, len(t.gone)+1-maxGone):], t.ID)
	}
	for _, e := range t.ends {
		e.reset()
	}
}

// SetTrouble sets the reason why identities cannot be read; nil if they can.
func (l *Logs) SetTrouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = err
}

// Tail is the end of one partition of a log: the position after the last acknowledged record.
type Tail struct {
	mu  sync.Mutex // must be held to write era or end
	era atomic.Uint64
	end atomic.Uint64
}

// Mark is a tail at one moment. The log stores a record that is first sent at that moment at end or
// later, unless the log was replaced or has lost records.
type Mark struct{ era, end uint64 }

// Mark returns the current tail. It reads the era first, because reset writes it last.
func (t *Tail) Mark() Mark { return Mark{era: t.era.Load(), end: t.end.Load()} }

// NoteAcked notes an acknowledgement of records that were first sent at m and are stored from
// position first to before end. It reports false if an earlier record had one of these positions.
func (t *Tail) NoteAcked(m Mark, first, end uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.era.Load() != m.era: // perhaps from the former log
		return true
	case first < m.end:
		return false
	}
	if end > t.end.Load() {
		t.end.Store(end)
	}
	return true
}

// reset begins another era, without acknowledged positions.
func (t *Tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end.Store(0)
	t.era.Add(1)
}
