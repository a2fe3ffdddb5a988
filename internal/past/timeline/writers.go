package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// An entry of a progress may be about all scopes of a resource, without their names. Which scopes
// these are follows from the events by which the writer started and ended them. So a log keeps, for
// each writer, the scopes of its present run.

// MaxLag is how long after a moment an answer about it may still change. Bookmarks and progress
// come each minute.
const MaxLag = 125 * time.Second

// writer has the scopes of an agent, as a log states them.
type writer struct {
	run    string
	scopes map[string]map[string]scopeStart // of the run, by resource
	ended  map[string]bool                  // scopes that the run has ended
}

// scopeStart is the start of a scope by a run. at is zero if the log lacks its scope.started.
type scopeStart struct{ at time.Time }

// enterRun begins a run, unless it is the present one. It returns false if the run is earlier than
// the present one, so that its events come late.
func (w *writer) enterRun(run string) bool {
	if w.run == run {
		return true
	}
	if consume.CompareRuns(run, w.run) < 0 {
		return false
	}
	w.run = strings.Clone(run)
	w.scopes = map[string]map[string]scopeStart{}
	w.ended = map[string]bool{}
	return true
}

// noteScope notes the scope of a stream event that the run has sent.
func (w *writer) noteScope(e *consume.Event, isNews bool) {
	if !w.enterRun(e.Stream.Run) {
		return
	}
	resource, scope := e.GroupResource(), e.Scope
	switch {
	case e.Type == consume.TypeScopeEnded:
		delete(w.scopes[resource], scope)
		w.ended[strings.Clone(scope)] = true
		return
	case w.ended[scope] && !isNews:
		return // a copy
	}
	delete(w.ended, scope)
	if w.scopes[resource] == nil {
		w.scopes[strings.Clone(resource)] = map[string]scopeStart{}
	}
	start := w.scopes[resource][scope]
	if e.Type == consume.TypeScopeStarted && start.at.IsZero() { // later ones say that the rules have changed
		start.at = e.Time
	}
	w.scopes[resource][strings.Clone(scope)] = start
}

// scopesOf returns the known scopes that the kth entry of a progress is about. sent is the time of
// the progress. It is not about a scope that was started at that time or later.
func (w *writer) scopesOf(p *consume.Progress, k int, sent time.Time) []string {
	entry := &p.Scopes[k]
	if entry.Scope != "" {
		return []string{entry.Scope}
	}
	var out []string
	all := w.scopes[entry.Resource]
	for scope, start := range all {
		hasOwnEntry := slices.ContainsFunc(p.Scopes, func(o consume.ScopeProgress) bool {
			return o.Resource == entry.Resource && o.Scope == scope
		})
		isKnown := !start.at.IsZero() || !isPartOfAny(scope, all)
		if !hasOwnEntry && isKnown && start.at.Before(sent) {
			out = append(out, scope)
		}
	}
	slices.Sort(out)
	return out
}

// isPartOfAny reports whether a scope is a part of another one. A snapshot may be of such a part.
func isPartOfAny(part string, all map[string]scopeStart) bool {
	for scope := range all {
		if consume.IsPartOf(part, scope) {
			return true
		}
	}
	return false
}

// writer returns the writer of a name. If the log does not have it yet, it is added.
func (l *logFold) writer(cluster consume.ClusterKey, name string) *writer {
	key := writerKey{cluster, name}
	w := l.writers[key]
	if w == nil {
		w = &writer{}
		l.writers[key.clone()] = w
	}
	return w
}

// noteWriter notes the scope of a stream event for the writer that the event names.
func (l *logFold) noteWriter(e *consume.Event, isNews bool) {
	if s := e.Stream; s.Writer != "" && s.Run != "" {
		l.writer(e.ClusterKey(), s.Writer).noteScope(e, isNews)
	}
}

// noteProgress notes the progress of a writer for each scope that it is about.
func (l *logFold) noteProgress(m Moment, e *consume.Event, o Options) {
	p := e.Progress
	w := l.writer(e.ClusterKey(), p.Writer)
	if !w.enterRun(p.Run) {
		return
	}
	for k := range p.Scopes {
		entry := &p.Scopes[k]
		scopes := w.scopesOf(p, k, e.Time)
		l.noteUnnamed(e, entry, len(scopes), o)
		if entry.Scope == "" && l.isJoined && max(entry.Count, 1) > len(scopes) {
			scopes = append(scopes, entry.Resource) // their starts were not read
		}
		for _, name := range scopes {
			key := scopeKey{e.ClusterKey(), name}
			if l.scopes[key] == nil && o.Asked != nil && !o.Asked(entry.Resource, name) {
				continue
			}
			s := l.scope(key, entry.Resource)
			s.hasInformer = s.hasInformer || entry.Scope != "" || l.isJoined
			s.noteProgress(m, e, w.run, entry)
			l.noteMayBeLate(key, s, e.Time)
		}
	}
}

// noteUnnamed notes whether the log has the starts of all scopes that an entry of a progress is
// about.
func (l *logFold) noteUnnamed(e *consume.Event, entry *consume.ScopeProgress, known int, o Options) {
	if entry.Scope != "" {
		return
	}
	key := entryKey{writerKey{e.ClusterKey(), e.Progress.Writer}, entry.Resource}
	isIgnored := o.Asked != nil && !o.Asked(entry.Resource, "")
	if isIgnored || max(entry.Count, 1) <= known {
		delete(l.unnamed, key)
		return
	}
	if !l.unnamed[key] {
		l.unnamed[key.clone()] = true
	}
}
