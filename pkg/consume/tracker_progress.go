package consume

import (
	"slices"
	"strings"
	"time"
)

// Reached is what progress says about a scope.
type Reached struct {
	// Time is the time of the last progress that is about the scope. Its agent worked then.
	Time time.Time
	// To is the time up to which the stream has everything that the API server had sent, except in
	// interruptions (ScopeProgress.Interruptions). It is the latest that was reported; zero: none
	// was. If it falls back behind Time, the agent works, and does not observe the scope at
	// present.
	To time.Time
	// ResourceVersion is the highest one reported, "": none was. All changes up to it are in the
	// stream before that event; on Kafka, all changes of the partition that has the event. So keep
	// a Tracker for each partition.
	ResourceVersion string
	History         uint32 // of ResourceVersion, see Event.History
	// Writer and Run are those of the last progress, as in Progress.
	Writer, Run string
	// Ended reports that the writer has ended to observe the scope since then (TypeScopeEnded). It
	// sends no more progress about the scope.
	Ended bool
}

// Reached returns what progress has said about a scope of a cluster, named as in Event.Scope. It
// returns false if there was no progress of the scope yet. A progress names only scopes that differ
// from others of their resource. So the Tracker must have read when the run of the agent started
// the scope: from TypeScopeStarted or TypeSnapshotStarted.
//
// It distinguishes an idle cluster from a dead agent. Each agent sends progress once a minute, also
// if nothing changes. If Time is more than three minutes before the present, the agent or the
// connection to it is down, unless the scope has Ended. (In a quiet topic of one namespace on
// Kafka, wait 65 minutes.) If Time is recent, the agent works. Then To shows whether it observes
// this scope. While the watch of the scope works, To is at most two minutes before Time. It is
// older for a resource without bookmarks, in which nothing has changed.
func (t *Tracker) Reached(cluster ClusterKey, scope string) (Reached, bool) {
	resource := scope
	if i := strings.IndexAny(scope, "/?"); i >= 0 {
		resource = scope[:i]
	}
	r := t.resources[resourceKey{cluster, resource}]
	if r == nil || r.scopes[scope] == nil {
		return Reached{}, false
	}
	p := r.scopes[scope].progress
	return p, !p.Time.IsZero()
}

type writerKey struct {
	cluster ClusterKey
	name    string
}

// writer is what the stream says of the last run of an agent.
type writer struct {
	name   string
	run    string
	number int // of its last progress
	// observed has the scopes that the run has started and not ended, by resource and name.
	observed map[string]map[string]observation
	// ended has when the run ended other scopes; pruned. A late copy of their starts is older.
	ended map[string]time.Time
}

// observation is the observation of a scope by a run.
type observation struct {
	// since is when the run started the scope; zero: only a snapshot shows the observation. Further
	// starts say that the rules have changed, or a snapshot began.
	since time.Time
	at    time.Time // of its last start
	// started is false if only snapshots show the observation. Then it may be that of a part of a
	// scope.
	started bool
}

// writer returns the writer of that name. late reports that a later run of the writer is known.
func (t *Tracker) writer(cluster ClusterKey, name, runName string) (w *writer, late bool) {
	w = t.writers[writerKey{cluster, name}]
	if w == nil {
		w = &writer{name: strings.Clone(name)}
		if t.writers == nil {
			t.writers = map[writerKey]*writer{}
		}
		t.writers[writerKey{cluster.clone(), w.name}] = w
	}
	if w.run == runName {
		return w, false
	}
	if CompareRuns(runName, w.run) < 0 {
		return w, true
	}
	w.run, w.number = strings.Clone(runName), 0
	w.observed, w.ended = map[string]map[string]observation{}, map[string]time.Time{}
	return w, false
}

func (k ClusterKey) clone() ClusterKey {
	return ClusterKey{strings.Clone(k.Source), strings.Clone(k.UID)}
}

// observe notes what a stream event says about the scopes of its run. isCopy reports whether the
// event was seen before. The result is false if the event is late: a later run of its writer is
// known, or a later start or end of the scope.
func (t *Tracker) observe(e *Event, s *scope, isCopy bool) bool {
	if e.Stream.Writer == "" || e.Stream.Run == "" {
		return true
	}
	w, late := t.writer(e.ClusterKey(), e.Stream.Writer, e.Stream.Run)
	if late {
		return false
	}
	resource, name := e.GroupResource(), e.Scope
	o, isObserved := w.observed[resource][name]
	last := o.at
	if !isObserved {
		last = w.ended[name]
	}
	isStart := e.Type == TypeScopeStarted
	if e.Time.Equal(last) { // a copy, or the times of the run stand still
		isSame := isStart && o.started || e.Type == TypeScopeEnded && !isObserved
		if isCopy || isSame {
			return false
		}
	}
	switch {
	case e.Time.Before(last):
		return false
	case e.Type == TypeScopeEnded:
		w.end(resource, name, e.Time)
		s.progress.Ended = s.progress.Ended || s.progress.Writer == w.name
	case isStart || !w.isPart(resource, name):
		if isStart && !isObserved {
			o.since = e.Time
		}
		w.start(resource, name, observation{o.since, e.Time, isStart || o.started})
		s.progress.Ended = s.progress.Ended && s.progress.Writer != w.name
	}
	return true
}

// start notes that the run observes a scope. The scopes of earlier snapshots may be parts of it.
func (w *writer) start(resource, name string, o observation) {
	scopes := w.observed[resource]
	if scopes == nil {
		scopes = map[string]observation{}
		w.observed[strings.Clone(resource)] = scopes
	}
	_, isObserved := scopes[name]
	if !isObserved {
		delete(w.ended, name)
		w.dropParts(resource, name)
		name = strings.Clone(name)
	}
	scopes[name] = o
}

// end notes that the run does not observe a scope any more.
func (w *writer) end(resource, name string, at time.Time) {
	w.dropParts(resource, name)
	delete(w.observed[resource], name)
	w.ended[strings.Clone(name)] = at
}

// dropParts removes the parts of a scope that had a snapshot of their own.
func (w *writer) dropParts(resource, name string) {
	for part, o := range w.observed[resource] {
		if !o.started && IsPartOf(part, name) {
			delete(w.observed[resource], part)
		}
	}
}

// isPart reports whether a scope is a part of one that the run observes, or did.
func (w *writer) isPart(resource, part string) bool {
	for name := range w.observed[resource] {
		if IsPartOf(part, name) {
			return true
		}
	}
	for name := range w.ended {
		if IsPartOf(part, name) {
			return true
		}
	}
	return false
}

// prune removes the ends that are older than forget.
func (w *writer) prune(now time.Time, forget time.Duration) {
	for name, at := range w.ended {
		if now.Sub(at) >= forget {
			delete(w.ended, name)
		}
	}
}

// covered returns the scopes that an entry without a scope is about. sent is the time of the
// progress: it does not know a scope that was started then or later.
func (w *writer) covered(p *Progress, resource string, sent time.Time) []string {
	var named []string
	for i := range p.Scopes {
		if s := &p.Scopes[i]; s.Resource == resource && s.Scope != "" {
			named = append(named, s.Scope)
		}
	}
	var out []string
	for name, o := range w.observed[resource] {
		isNamed := slices.ContainsFunc(named, func(n string) bool {
			return n == name || !o.started && IsPartOf(name, n)
		})
		if !isNamed && o.since.Before(sent) {
			out = append(out, name)
		}
	}
	return out
}

// applyProgress applies the progress of an agent.
func (t *Tracker) applyProgress(e *Event) Verdict {
	p := e.Progress
	w, late := t.writer(e.ClusterKey(), p.Writer, p.Run)
	if late || p.Number <= w.number {
		return Verdict{}
	}
	w.number = p.Number
	w.prune(e.Time, t.forget())
	for i := range p.Scopes {
		entry := &p.Scopes[i]
		scopes := []string{entry.Scope}
		if entry.Scope == "" {
			scopes = w.covered(p, entry.Resource, e.Time)
		}
		if len(scopes) == 0 || entry.Resource == "" {
			continue
		}
		r := t.resourceAt(resourceKey{e.ClusterKey(), entry.Resource}, e.Time)
		for _, name := range scopes {
			r.scopeOf(name).reach(e.Time, w, entry)
		}
	}
	return Verdict{News: true}
}

// reach notes what a progress says about the scope.
func (s *scope) reach(now time.Time, w *writer, entry *ScopeProgress) {
	p := &s.progress
	if !now.Before(p.Time) {
		p.Time = now
		p.Writer = w.name
		p.Run = w.run
		p.Ended = false
	}
	if entry.ResourceVersion == "" {
		return
	}
	at := point{entry.History, sequence(entry.ResourceVersion)}
	if !at.below(s.reached) { // after a kill, an agent may report a little less than before
		s.reached = at
		p.ResourceVersion = strings.Clone(entry.ResourceVersion)
		p.History = at.history
	}
	if entry.To.After(p.To) {
		p.To = entry.To
	}
}
