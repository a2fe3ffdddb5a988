package writers

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Silence is how long a writer must have sent nothing before it counts as gone. It sends its
// progress each minute, and a bus that is full or away delays that.
const Silence = 10 * time.Minute

// Writer is an agent, as a record shows it.
type Writer struct {
	Cluster    string // name
	ClusterUID string
	Name       string // as consume.Progress.Writer
	Run        string // its last one
	Checkpoint string // where it keeps its positions; "": the record does not say it
	Node       string // "": none
	// LastEvent is the time of its last event about scopes or progress. Ended reports that its last
	// run has ended in order.
	LastEvent time.Time
	Ended     bool

	number int       // of the last progress of Run
	last   time.Time // of its last event, also of an end that an operator has sent
	scopes map[string]*Scope
}

// Scope is a scope that a writer observes, as far as the record shows.
type Scope struct {
	Name     string
	Resource object.Resource // Namespaced is not known
	// ResourceVersion is the highest one up to which the writer has claimed to be complete.
	ResourceVersion uint64
	History         uint32
	Run             string // the last one that has observed it

	observed   bool
	started    bool // scope.started shows it, not only a snapshot, which may be that of a part of a scope
	start, end mark // the last ones
}

// mark is the place of an event among those of a writer.
type mark struct {
	run string
	at  time.Time
}

// before reports whether m is known to be before o.
func (m mark) before(o mark) bool {
	return cmp.Or(consume.CompareRuns(m.run, o.run), m.at.Compare(o.at)) < 0
}

// IsAlive reports whether the last run of the writer may work at now. A later run may begin at any
// time, and takes back the ends of its scopes.
func (w *Writer) IsAlive(now time.Time) bool { return !w.Ended && now.Sub(w.LastEvent) < Silence }

// Last returns the time of the latest event of the writer. An end must not be earlier.
func (w *Writer) Last() time.Time { return w.last }

// Observes reports whether the last run of the writer has observed a scope.
func (w *Writer) Observes(s *Scope) bool { return consume.CompareRuns(s.Run, w.Run) >= 0 }

// Epoch returns the epoch of the writer's last run; 0: it has none.
func (w *Writer) Epoch() uint64 {
	epoch, _, _ := strings.Cut(w.Run, "-")
	n, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Scopes returns the scopes that the writer has not ended, in the order of their names.
func (w *Writer) Scopes() []*Scope {
	var all []*Scope
	for _, name := range slices.Sorted(maps.Keys(w.scopes)) {
		if s := w.scopes[name]; s.observed && (s.started || !w.hasWhole(s)) {
			all = append(all, s)
		}
	}
	return all
}

// hasWhole reports whether the snapshots of part are those of a part of another scope.
func (w *Writer) hasWhole(part *Scope) bool {
	for name, s := range w.scopes {
		if s.started && consume.IsPartOf(part.Name, name) {
			return true
		}
	}
	return false
}

// Fold collects the writers of a record. The zero value is ready. The events may come in any order
// among logs, and any number of times.
type Fold struct {
	writers map[writerKey]*Writer
}

type writerKey struct {
	cluster consume.ClusterKey
	name    string
}

// Writers returns all writers, in the order of their clusters and names.
func (f *Fold) Writers() []*Writer {
	all := slices.Collect(maps.Values(f.writers))
	slices.SortFunc(all, func(a, b *Writer) int {
		return cmp.Or(
			cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.ClusterUID, b.ClusterUID),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return all
}

// Add adds an event. It ignores those that say nothing of writers.
func (f *Fold) Add(e *consume.Event) {
	switch {
	case e.DeadLetterReason != "":
	case e.Progress != nil:
		f.writer(e, e.Progress.Writer, e.Progress.Run).report(e)
	case e.Stream != nil && e.Stream.Writer != "" && e.Stream.Run != "":
		f.writer(e, e.Stream.Writer, e.Stream.Run).note(e)
	}
}

// writer returns the writer of an event, after it has begun the run unless a later one is known.
func (f *Fold) writer(e *consume.Event, name, run string) *Writer {
	key := writerKey{e.ClusterKey(), name}
	w := f.writers[key]
	if w == nil {
		key.cluster = consume.ClusterKey{Source: strings.Clone(e.Source), UID: strings.Clone(e.ClusterUID)}
		key.name = strings.Clone(name)
		w = &Writer{
			Cluster:    strings.Clone(e.Cluster),
			ClusterUID: key.cluster.UID,
			Name:       key.name,
			scopes:     map[string]*Scope{},
		}
		if f.writers == nil {
			f.writers = map[writerKey]*Writer{}
		}
		f.writers[key] = w
	}
	if w.Run != run && consume.CompareRuns(run, w.Run) >= 0 {
		w.Run = strings.Clone(run)
		w.number = 0
		w.Ended = false
	}
	isForgotten := e.Stream != nil && e.Stream.End == consume.EndForgotten // an operator sends it
	if w.Run == run && e.Time.After(w.LastEvent) && !isForgotten {
		w.LastEvent = e.Time
	}
	if e.Time.After(w.last) {
		w.last = e.Time
	}
	return w
}

// report notes a progress.
func (w *Writer) report(e *consume.Event) {
	p := e.Progress
	if p.Run != w.Run || p.Number < w.number {
		return
	}
	w.number, w.Ended = p.Number, p.Ends
	w.Checkpoint, w.Node = strings.Clone(p.Checkpoint), strings.Clone(p.Node)
	for _, s := range w.scopes {
		if s.Run != p.Run {
			continue
		}
		if entry := entryOf(p, s); entry != nil {
			s.raise(entry.ResourceVersion, entry.History)
		}
	}
}

// entryOf returns the entry of a progress that is about a scope; nil: none is.
func entryOf(p *consume.Progress, s *Scope) *consume.ScopeProgress {
	var all *consume.ScopeProgress
	for i := range p.Scopes {
		switch entry := &p.Scopes[i]; {
		case entry.Resource != s.Resource.String():
		case entry.Scope == s.Name:
			return entry
		case entry.Scope == "":
			all = entry
		}
	}
	return all
}

// note notes a stream event that names its writer.
func (w *Writer) note(e *consume.Event) {
	s := w.scopes[e.Scope]
	if s == nil {
		s = &Scope{Name: e.Scope, Resource: resourceOf(e)}
		w.scopes[e.Scope] = s
	}
	m := mark{e.Stream.Run, e.Time}
	if consume.CompareRuns(m.run, s.Run) >= 0 {
		s.Run = m.run
	}
	s.raise(e.Stream.ResourceVersion, e.History())
	if e.Type == consume.TypeScopeEnded {
		if !m.before(s.end) {
			s.end = m
		}
		s.observed = s.observed && m.before(s.start)
		return
	}
	s.started = s.started || e.Type == consume.TypeScopeStarted
	if !m.before(s.start) {
		s.start = m
	}
	s.observed = s.observed || !m.before(s.end)
}

// raise raises the position of a scope. An invalid version raises nothing.
func (s *Scope) raise(version string, history uint32) {
	rv, err := strconv.ParseUint(version, 10, 64)
	if err != nil || cmp.Or(cmp.Compare(history, s.History), cmp.Compare(rv, s.ResourceVersion)) < 0 {
		return
	}
	s.ResourceVersion, s.History = rv, history
}

func resourceOf(e *consume.Event) object.Resource {
	group, version, hasGroup := strings.Cut(e.APIVersion, "/")
	if !hasGroup {
		group, version = "", group
	}
	return object.Resource{
		Group:   group,
		Version: version,
		Name:    e.Resource,
		Kind:    e.Kind,
	}
}
