package replay

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// claims are what the progress of agents in a record says about the scopes of a replay, up to its
// end.
type claims struct {
	to      timeline.Moment
	writers map[writerKey]*writer
	scopes  map[scopeKey]*claim
	copies  map[eventKey]int // of progress that not all partitions have
	latest  map[consume.ClusterKey]time.Time
	etcds   map[etcdKey]string
	names   map[consume.ClusterKey]string // the writer whose names of etcds these are
}

type etcdKey struct {
	cluster  consume.ClusterKey
	resource string
}

type writerKey struct {
	cluster consume.ClusterKey
	name    string
}

// writer is an agent.
type writer struct {
	run    string
	scopes map[string]string // the scopes that the run observes, with their resources
	parts  map[string]bool   // those with nothing but a snapshot: each may be a part of another
}

// claim is what is known of a scope.
type claim struct {
	since     time.Time // interruptions and hidden spans of earlier times are not known
	entry     consume.ScopeProgress
	completes bool // the entry is about the whole span up to the end
}

func newClaims(to timeline.Moment) *claims {
	return &claims{
		to:      to,
		writers: map[writerKey]*writer{},
		scopes:  map[scopeKey]*claim{},
		copies:  map[eventKey]int{},
		latest:  map[consume.ClusterKey]time.Time{},
		etcds:   map[etcdKey]string{},
		names:   map[consume.ClusterKey]string{},
	}
}

// note notes an event about the stream. included: it is at the end of the span or before it.
func (c *claims) note(e *consume.Event, included bool) {
	s := e.Stream
	if e.Type == consume.TypeScopeEnded {
		for _, w := range c.writers {
			if w.run == s.Run {
				delete(w.scopes, e.Scope)
			}
		}
		if included {
			delete(c.scopes, scopeKey{e.ClusterKey(), e.Scope})
		}
		return
	}
	if s.Writer == "" || s.Run == "" {
		return
	}
	w := c.writer(e.ClusterKey(), s.Writer, s.Run)
	if w == nil {
		return
	}
	w.scopes[e.Scope] = e.GroupResource()
	if e.Type == consume.TypeScopeStarted {
		delete(w.parts, e.Scope)
	} else if _, ok := w.parts[e.Scope]; !ok {
		w.parts[e.Scope] = true
	}
}

// writer returns an agent in a run; nil if the run is earlier than the present one.
func (c *claims) writer(cluster consume.ClusterKey, name, run string) *writer {
	key := writerKey{cluster, name}
	w := c.writers[key]
	switch {
	case w == nil || consume.CompareRuns(w.run, run) < 0:
		w = &writer{run: run, scopes: map[string]string{}, parts: map[string]bool{}}
		c.writers[key] = w
	case w.run != run:
		return nil
	}
	return w
}

// covers returns the scopes that an entry of a progress is about.
func (w *writer) covers(p *consume.Progress, entry *consume.ScopeProgress) []string {
	if entry.Scope != "" {
		return []string{entry.Scope}
	}
	var out []string
	for scope, resource := range w.scopes {
		named := slices.ContainsFunc(p.Scopes, func(o consume.ScopeProgress) bool {
			return o.Resource == resource && o.Scope == scope
		})
		if resource == entry.Resource && !named && !w.isPart(scope) {
			out = append(out, scope)
		}
	}
	return out
}

// isPart reports whether a scope is a part of another one, with a snapshot of its own.
func (w *writer) isPart(scope string) bool {
	if !w.parts[scope] {
		return false
	}
	for other := range w.scopes {
		if consume.IsPartOf(scope, other) {
			return true
		}
	}
	return false
}

// progress notes the progress of an agent. whole says which scopes count. included: it is at the
// end of the span or before it.
func (c *claims) progress(e *consume.Event, whole func(resource, scope string) bool, included bool) {
	p := e.Progress
	w := c.writer(e.ClusterKey(), p.Writer, p.Run)
	if w == nil {
		return
	}
	for i := range p.Scopes {
		entry := &p.Scopes[i]
		c.noteEtcd(e.ClusterKey(), p.Writer, entry)
		if entry.ResourceVersion == "" {
			continue
		}
		for _, scope := range w.covers(p, entry) {
			key := scopeKey{e.ClusterKey(), scope}
			known := c.scopes[key]
			if known != nil && known.completes || !whole(entry.Resource, scope) {
				continue
			}
			if known == nil {
				known = &claim{}
				c.scopes[key] = known
			}
			known.extend(c.to, p.Since, entry, included)
			known.entry.Scope, known.entry.Count = scope, 0
		}
	}
}

// noteEtcd notes the etcd of a resource. Two writers have different names for one etcd, so what
// another one says is not known.
func (c *claims) noteEtcd(cluster consume.ClusterKey, writer string, entry *consume.ScopeProgress) {
	if entry.Etcd == "" {
		return
	}
	key := etcdKey{cluster, entry.Resource}
	switch {
	case c.names[cluster] == "":
		c.names[cluster] = writer
	case c.names[cluster] == writer:
	case c.etcds[key] == "":
		c.etcds[key] = consume.EtcdUnknown
		return
	default:
		return
	}
	c.etcds[key] = entry.Etcd
}

// extend extends what is known by a later entry, but not beyond the end of the span. included: the
// entry is not from after it.
func (c *claim) extend(to timeline.Moment, since time.Time, entry *consume.ScopeProgress, included bool) {
	before := c.entry
	rv, history, atVersion := to.ResourceVersion()
	switch {
	case to.IsNow():
	case atVersion && entry.History == history && version(entry.ResourceVersion) >= rv:
		c.completes = true
	case !atVersion && !entry.To.Before(to.Time()):
		c.completes = true
	}
	c.since, c.entry = since, *entry
	if included && !c.completes {
		return
	}
	c.entry.SnapshotBegan = before.SnapshotBegan
	if atVersion {
		if c.completes {
			c.entry.ResourceVersion, c.entry.To = strconv.FormatUint(rv, 10), before.To
		}
		return
	}
	c.entry.ResourceVersion, c.entry.History = before.ResourceVersion, before.History // the later ones are not sent
	if c.completes {
		c.entry.To = to.Time()
	}
	c.entry.Interruptions = slices.DeleteFunc(slices.Clone(entry.Interruptions), func(i consume.Interruption) bool {
		return i.From.After(to.Time())
	})
	c.entry.Hidden = slices.DeleteFunc(slices.Clone(entry.Hidden), func(h consume.HiddenSpan) bool {
		return h.From.After(to.Time())
	})
}

func version(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// finish returns the progress of the replay at its end, one event for each cluster. Without it, a
// reader would take the silence after the last event for a time without changes, or of nobody.
func (r *Replay) finish(c *claims) ([]*consume.Event, error) {
	if !r.sendsProgress() {
		return nil, nil
	}
	reports := map[consume.ClusterKey]*object.Report{}
	names := map[consume.ClusterKey]string{}
	byName := func(a, b scopeKey) int { return strings.Compare(a.name, b.name) }
	for _, key := range slices.SortedFunc(maps.Keys(c.scopes), byName) {
		known, s := c.scopes[key], r.scopes[key]
		entry := known.entry
		if s == nil {
			continue // the replay has no snapshot of the scope
		}
		if entry.ResourceVersion == "" { // none came before the end: the snapshot has everything up to its own
			entry.ResourceVersion, entry.History = s.floor, s.last.History()
		}
		if entry.ResourceVersion == "" || !c.to.IsNow() && known.since.After(r.end(c, key.cluster)) {
			continue // nobody observed the scope at the end
		}
		if !entry.To.IsZero() && entry.To.Before(r.time()) {
			continue // nor in the span
		}
		if entry.SnapshotBegan.Before(r.time()) {
			entry.SnapshotBegan = time.Time{}
			if s.complete {
				entry.SnapshotBegan = r.time() // that of the replay
			}
		}
		report := reports[key.cluster]
		if report == nil {
			report = &object.Report{Number: 1, Since: r.time(), Ends: true}
			reports[key.cluster], names[key.cluster] = report, s.last.Cluster
		}
		if known.since.After(report.Since) {
			report.Since = known.since
		}
		entry.Etcd = c.etcds[etcdKey{key.cluster, entry.Resource}]
		report.Scopes = append(report.Scopes, scopeReport(&entry))
	}
	var out []*consume.Event
	for _, cluster := range slices.SortedFunc(maps.Keys(reports), func(a, b consume.ClusterKey) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.UID, b.UID))
	}) {
		e, err := r.encode(&encode.Options{
			Cluster:    r.cluster(names[cluster]),
			ClusterUID: cluster.UID,
			Writer:     r.writer(cluster),
			Run:        fmt.Sprintf("0-%d", r.time().UnixMilli()),
		}, &object.Delta{Observed: r.end(c, cluster).UnixNano(), Report: reports[cluster]})
		if err != nil {
			return nil, err
		}
		if r.matches(e) {
			out = append(out, e)
		}
	}
	return out, nil
}

// end returns the time of the progress at the end.
func (r *Replay) end(c *claims, cluster consume.ClusterKey) time.Time {
	at := r.time()
	if c.latest[cluster].After(at) {
		at = c.latest[cluster]
	}
	if to := r.o.To.Time(); !r.o.To.IsNow() && to.After(at) {
		at = to
	}
	return at.UTC()
}

// writer names the replay as a writer of progress. A second run has the same name.
func (r *Replay) writer(cluster consume.ClusterKey) string {
	sum := sha256.Sum256(
		[]byte(strings.Join([]string{"replay", cluster.Source, cluster.UID, r.id, r.o.To.String()}, "\x00")))
	return fmt.Sprintf("%x", sum[:8])
}

// sendsProgress reports whether the target gets everything that the record has of the selection, so
// that progress may say so.
func (r *Replay) sendsProgress() bool {
	return !r.Split && len(r.bad) == 0 && len(r.reading.Incomplete) == 0
}

// isWhole reports whether all events of a scope are sent, or of all scopes of a resource ("").
func (r *Replay) isWhole(resource, scope string) bool {
	return r.o.Whole == nil || r.o.Whole(resource, scope)
}

// precedes reports whether a progress is from before the span.
func (r *Replay) precedes(e *consume.Event) bool {
	rv, history, ok := r.o.From.ResourceVersion()
	if !ok {
		return r.o.From.Includes(e)
	}
	return !slices.ContainsFunc(e.Progress.Scopes, func(s consume.ScopeProgress) bool {
		return cmp.Or(cmp.Compare(s.History, history), cmp.Compare(version(s.ResourceVersion), rv)) > 0
	})
}

// hasProgress reports whether a progress is of the span, up to its end.
func (r *Replay) hasProgress(e *consume.Event) bool {
	rv, history, ok := r.o.To.ResourceVersion()
	if !ok {
		return r.o.To.Includes(e)
	}
	return !slices.ContainsFunc(e.Progress.Scopes, func(s consume.ScopeProgress) bool {
		return cmp.Or(cmp.Compare(s.History, history), cmp.Compare(version(s.ResourceVersion), rv)) > 0
	})
}

func scopeReport(s *consume.ScopeProgress) object.ScopeReport {
	plural, group, _ := strings.Cut(s.Resource, ".")
	out := object.ScopeReport{
		Resource:        &object.Resource{Group: group, Name: plural},
		Scope:           s.Scope,
		ResourceVersion: version(s.ResourceVersion),
		History:         s.History,
		To:              s.To,
		SnapshotBegan:   s.SnapshotBegan,
		Etcd:            s.Etcd,
	}
	for _, i := range s.Interruptions {
		out.Interruptions = append(out.Interruptions, object.Interruption{
			From: i.From, Until: i.Until, Why: i.Why,
		})
	}
	for _, h := range s.Hidden {
		out.Hidden = append(out.Hidden, object.HiddenSpan{
			From:  object.Point{ResourceVersion: version(h.FromResourceVersion), Time: h.From},
			Until: object.Point{ResourceVersion: version(h.UntilResourceVersion), Time: h.Until},
		})
	}
	return out
}
