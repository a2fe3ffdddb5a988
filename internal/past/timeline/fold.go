package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Options of a Fold or a State.
type Options struct {
	// Etcd says whether the resourceVersions of a resource ("events", "widgets.example.com") of a
	// cluster are of the etcd that the moment is of. An aggregated API has its own, and so may
	// Events. The answer at a resourceVersion is Unknown unless it is SameEtcd. nil: all are.
	Etcd func(cluster consume.ClusterKey, resource string) Etcd
	// Asked reports whether an answer needs a scope of a resource, of which only progress is known.
	// nil: it needs all.
	Asked func(resource, scope string) bool
	// Joined: the events begin in the middle of the record. A progress event follows the first
	// snapshot of its scope, so the first one shows that the scope has had a snapshot, although
	// that was not read.
	Joined bool
	// Late keeps what Fold.Late returns.
	Late bool
}

// Fold applies the rules of the record to events up to a moment.
type Fold struct {
	moment Moment
	opts   Options
	logs   map[consume.Log]*logFold
	left   map[consume.Object]lack // objects that left the selection and did not come back, by name: without the uid
	masked map[objectKey]place     // objects that are redacted
	ended  map[objectKey]bool      // objects that have ended in one log, and that another one still has
	gap    *consume.Event          // see Gap
	done   *bool                   // the last answer of Done; nil: an event about scopes came since
	edges  *edges                  // nil: the moment is no span
	// toldLate says up to where Late has returned the spans of a scope.
	toldLate map[scopeKey]time.Time
	server   serverVersion
}

// serverVersion is the version of the API server that the latest progress up to the moment says,
// or, if none does, the first progress of a run after it. A run says it first in that.
type serverVersion struct {
	said    time.Time
	version string // "v1.37.1"; "": none says it
	later   bool   // after the moment
}

func (v *serverVersion) note(e *consume.Event, included bool) {
	p := e.Progress
	if p.APIServerVersion == "" || !included && (v.version != "" || p.Number != 1) {
		return
	}
	if v.version == "" || v.later || !e.Time.Before(v.said) {
		*v = serverVersion{e.Time, strings.Clone(p.APIServerVersion), !included}
	}
}

// lack is an object that left the selection.
type lack struct {
	uid   string
	place place
}

// NewFold returns a Fold up to a moment.
func NewFold(m Moment, o Options) *Fold {
	f := &Fold{
		moment:   m,
		opts:     o,
		logs:     map[consume.Log]*logFold{},
		left:     map[consume.Object]lack{},
		masked:   map[objectKey]place{},
		ended:    map[objectKey]bool{},
		toldLate: map[scopeKey]time.Time{},
	}
	if !m.since.IsZero() {
		f.edges = newEdges(m.since, m.time)
	}
	return f
}

// Add applies the next event of a log and returns the versions that it adds up to the moment. First
// come the objects that it shows to be gone, then its own version if that is news. The versions
// share the memory of e.
func (f *Fold) Add(e *consume.Event) []*Version {
	f.gap = nil
	if e.DeadLetterReason != "" {
		return nil // not a part of the stream
	}
	l, included := f.log(e), f.moment.Includes(e)
	included = included && !l.isOfLaterStart(e)
	switch {
	case e.Progress != nil:
		f.done = nil
		f.server.note(e, included)
		l.observe(f.moment, e, f.opts)
		return nil
	case e.IsFormerProgress():
		f.done = nil
		l.noteFormer(e)
		return nil
	case e.Stream != nil:
		f.done = nil
		if gap := l.noteStream(f.moment, e, included); included {
			f.gap = gap
		}
	}
	if !included {
		l.objects.Touch(e)
		l.noteLater(e)
		return nil
	}
	again := e.Op == consume.Read && l.has(e)
	verdict := l.objects.Apply(e)
	var out []*Version
	for i := range verdict.Gone {
		o := &verdict.Gone[i]
		if !f.hasMoved(l, o) && !f.hasEnded(o) {
			out = append(out, goneOf(*o, e))
		}
	}
	if verdict.News && e.Data != nil {
		l.places[placeOf(e)] += e.Data.Skipped
		v := versionOf(e)
		v.Again = again
		out = append(out, v)
	}
	for _, v := range out {
		l.resolveLetter(v, f.moment)
		f.noteLack(v)
		f.noteEnd(l, v)
	}
	return out
}

// noteEnd notes whether an object has ended that another log still has. When a topic grows, later
// events of an object may go to another partition, and the next snapshot sweeps it in the old one.
func (f *Fold) noteEnd(in *logFold, v *Version) {
	if len(f.logs) < 2 {
		return
	}
	switch key := v.key(); {
	case !v.Gone():
		delete(f.ended, key)
	case f.isIn(key, in):
		cluster := consume.ClusterKey{Source: strings.Clone(v.Source), UID: strings.Clone(v.ClusterUID)}
		f.ended[objectKey{cluster, strings.Clone(v.Resource), strings.Clone(v.UID)}] = true
	}
}

// hasEnded reports whether an object that is gone from a log has ended in another one before.
func (f *Fold) hasEnded(o *consume.Object) bool {
	key := objectKey{o.ClusterKey(), o.Resource, o.UID}
	if !f.ended[key] {
		return false
	}
	if !f.isIn(key, nil) {
		delete(f.ended, key)
	}
	return true
}

// isIn reports whether a log has an object, except one.
func (f *Fold) isIn(key objectKey, except *logFold) bool {
	for _, l := range f.logs {
		if l != except && l.objects.Has(key.cluster, key.resource, key.uid) {
			return true
		}
	}
	return false
}

// hasMoved reports whether an object that is gone from a log exists in another one. When a topic
// grows, later events of an object may go to another partition.
func (f *Fold) hasMoved(from *logFold, o *consume.Object) bool {
	if len(f.logs) < 2 {
		return false
	}
	highest := func(l *logFold) point {
		history, seq := l.objects.Highest(o.ClusterKey(), o.Resource, o.UID)
		return point{history, seq}
	}
	for _, l := range f.logs {
		if l != from && l.objects.Has(o.ClusterKey(), o.Resource, o.UID) && !highest(l).below(highest(from)) {
			return true
		}
	}
	return false
}

// has reports whether the last known version of an object is that of e.
func (l *logFold) has(e *consume.Event) bool {
	history, seq := l.objects.Highest(e.ClusterKey(), e.GroupResource(), e.UID)
	return seq > 0 && point{history, seq} == pointOf(e)
}

// noteLack notes whether the object of a version has left, or is redacted. As in a State, a name
// belongs to one object that has left, and an older one may still have it: its end is not in the
// record.
func (f *Fold) noteLack(v *Version) {
	name := nameOf(v)
	switch {
	case v.Op == consume.Left:
		name.Source = strings.Clone(name.Source)
		name.ClusterUID = strings.Clone(name.ClusterUID)
		name.Resource = strings.Clone(name.Resource)
		name.Namespace, name.Name = strings.Clone(name.Namespace), strings.Clone(name.Name)
		f.left[name] = lack{strings.Clone(v.UID), place{
			name.ClusterKey(), name.Resource, strings.Clone(v.Scope), name.Namespace,
		}}
	case !v.Gone() || f.left[name].uid == v.UID:
		delete(f.left, name)
	}
	key := v.key()
	if !v.Redacted() {
		delete(f.masked, key)
		return
	}
	if is := (place{key.cluster, key.resource, v.Scope, v.Namespace}); f.masked[key] == is {
		return
	}
	cluster := consume.ClusterKey{Source: strings.Clone(v.Source), UID: strings.Clone(v.ClusterUID)}
	key = objectKey{cluster, strings.Clone(v.Resource), strings.Clone(v.UID)}
	f.masked[key] = place{cluster, key.resource, strings.Clone(v.Scope), strings.Clone(v.Namespace)}
}

// APIServerVersion returns the version of the API server at the moment ("v1.37.1"), "" if no
// progress that was added says it. If the first progress of a run follows the moment, it is that of
// the run.
func (f *Fold) APIServerVersion() string { return f.server.version }

// Gap returns the gap up to the moment that the last added event announces or shows, nil if it does
// neither. A snapshot shows a gap if it begins a scope again, because the agent lost its position
// or etcd was restored.
func (f *Fold) Gap() *consume.Event { return f.gap }

// Done reports whether the record has passed the moment, so that reading on adds no version. (A
// later snapshot may still show one that was withheld or is among the dead letters.) It returns
// false if the moment is now.
func (f *Fold) Done() bool {
	if f.done == nil {
		done := f.hasPassed()
		f.done = &done
	}
	return *f.done
}

// hasPassed is Done. Events of objects do not change the answer.
func (f *Fold) hasPassed() bool {
	passed := false
	for _, l := range f.logs {
		for key, s := range l.scopes {
			is := s.passed(f.moment)
			switch {
			case is == mayReturn, !l.isListed(key, s):
			case is == notPassed:
				return false
			default:
				passed = true
			}
		}
	}
	return passed
}

// DoneIn is Done for one log of several. It returns false as long as the log lacks a scope that
// another log of its topic has.
func (f *Fold) DoneIn(log consume.Log) bool {
	l := f.logs[log]
	if l == nil {
		return false
	}
	passed := false
	for _, key := range l.listed() {
		switch l.scopes[key].passed(f.moment) {
		case notPassed:
			return false
		case hasPassed:
			passed = true
		case mayReturn:
		}
	}
	return passed && !f.lacksAny(log, l)
}

// lacksAny reports whether another log of the topic has a scope that a log does not have, and that
// has not ended.
func (f *Fold) lacksAny(log consume.Log, l *logFold) bool {
	for other, o := range f.logs {
		if other.Name != log.Name || o == l {
			continue
		}
		for key, s := range o.scopes {
			if !s.informer || s.hasEndedBy(f.moment) {
				continue
			}
			own := l.scopes[key]
			if own == nil || !own.informer && own.passed(f.moment) == notPassed {
				return true
			}
		}
	}
	return false
}

// NoteLog notes a log, of which perhaps no event is added. Each partition of a topic has all events
// about its scopes.
func (f *Fold) NoteLog(log consume.Log) { f.logOf(log) }

// DropLog drops a log that has nothing of the moment: it was created later.
func (f *Fold) DropLog(log consume.Log) { delete(f.logs, log) }

// Unnamed reports whether the last progress of a writer is about more scopes of a resource than the
// log has starts of: these are before the events that were added.
func (f *Fold) Unnamed() bool {
	for _, l := range f.logs {
		if len(l.unnamed) > 0 {
			return true
		}
	}
	return false
}

// Complete returns the moment up to which Add has returned all versions of a resource of a cluster;
// false: that is not known yet. Scopes that have ended, or were silent for longer than MaxLag, do
// not count: what they add later comes late.
func (f *Fold) Complete(cluster consume.ClusterKey, resource string) (Moment, bool) {
	var scopes []*scope
	for _, l := range f.logs {
		for _, key := range l.listed() {
			if s := l.scopes[key]; key.cluster == cluster && s.resource == resource && s.ended() == nil {
				scopes = append(scopes, s)
			}
		}
	}
	if len(scopes) == 0 {
		return Moment{}, false
	}
	newest := slices.MaxFunc(scopes, func(a, b *scope) int { return a.last.time.Compare(b.last.time) }).last.time
	var least *scope
	for _, s := range scopes {
		if newest.Sub(s.last.time) <= MaxLag && (least == nil || s.reached.at.below(least.reached.at)) {
			least = s
		}
	}
	return Moment{kind: atVersion, rv: least.reached.at}, least.reached.at.seq > 0
}

// Scopes says for each scope how certain the versions are that Add returned. They are sorted by
// cluster, resource and name. A scope that had not begun at the moment is left out if another one
// had its objects. If the record has objects of a resource and no stream events, the resource has
// an entry without a name. A scope is Unknown if a log of its topic does not have it: retention has
// removed what that log had.
func (f *Fold) Scopes() []certainty.Scope {
	all := map[scopeKey]certainty.Scope{}
	for _, l := range f.logs {
		for _, key := range l.listed() {
			s := l.scopes[key].judge(key.cluster, f.moment, f.opts)
			s.Name = key.name
			for p, skipped := range l.places {
				if p.in(&s) {
					s.Skipped += skipped
				}
			}
			if was, ok := all[key]; ok { // of another log: the worse of both
				was.Skipped, s.Skipped = was.Skipped+s.Skipped, was.Skipped+s.Skipped
				if was.Certainty > s.Certainty {
					s = was
				}
			}
			all[key] = s
		}
	}
	f.judgeAbsent(all)
	for _, l := range f.logs {
		for p := range l.places {
			key := scopeKey{p.cluster, p.resource}
			if _, ok := all[key]; !ok &&
				!slices.ContainsFunc(slices.Collect(maps.Values(all)),
					func(s certainty.Scope) bool { return s.Name != "" && p.in(&s) }) {
				s := certainty.Scope{Source: p.cluster.Source, ClusterUID: p.cluster.UID, Resource: p.resource}
				s.Lower(certainty.Cause{Kind: certainty.NoSnapshot})
				all[key] = s
			}
		}
	}
	f.addLetters(all)
	scopes := dropLater(f.moment, slices.SortedFunc(maps.Values(all), func(a, b certainty.Scope) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.ClusterUID, b.ClusterUID),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	}))
	for i := range scopes {
		s := &scopes[i]
		for _, left := range f.left {
			if left.place.in(s) {
				s.Left++
			}
		}
		for _, place := range f.masked {
			if place.in(s) {
				s.Redacted++
			}
		}
	}
	return scopes
}

// judgeAbsent makes scopes Unknown that a log of their topic does not have. If a log has only a
// snapshot of a scope, it does not say that an agent observes the scope, but another log does. With
// Options.Joined, a log may have a scope under the name of its resource.
func (f *Fold) judgeAbsent(all map[scopeKey]certainty.Scope) {
	if f.opts.Joined || len(f.logs) < 2 {
		return
	}
	wanted := map[string]map[scopeKey]bool{} // by topic
	for log, l := range f.logs {
		if wanted[log.Name] == nil {
			wanted[log.Name] = map[scopeKey]bool{}
		}
		for _, key := range l.listed() {
			if !l.scopes[key].hasEndedBy(f.moment) {
				wanted[log.Name][key] = true
			}
		}
	}
	for log, l := range f.logs {
		for key := range wanted[log.Name] {
			own := l.scopes[key]
			if own != nil && l.isListed(key, own) {
				continue // it is judged already
			}
			if s := all[key]; f.isWorseIn(l, key, &s) {
				all[key] = s
			}
		}
	}
}

// isWorseIn makes a scope as uncertain as it is in a log, and reports whether that is worse.
func (f *Fold) isWorseIn(l *logFold, key scopeKey, s *certainty.Scope) bool {
	judged := certainty.Scope{Source: s.Source, ClusterUID: s.ClusterUID, Resource: s.Resource}
	if own := l.scopes[key]; own != nil {
		judged = own.judge(key.cluster, f.moment, f.opts)
	} else {
		judged.Lower(certainty.Cause{Kind: certainty.NoSnapshot})
	}
	if judged.Certainty <= s.Certainty {
		return false
	}
	judged.Name, judged.Skipped = s.Name, s.Skipped
	*s = judged
	return true
}

func (f *Fold) log(e *consume.Event) *logFold { return f.logOf(e.Position.Log) }

func (f *Fold) logOf(log consume.Log) *logFold {
	l := f.logs[log]
	if l == nil {
		l = &logFold{
			scopes:    map[scopeKey]*scope{},
			places:    map[place]int{},
			later:     map[objectKey]bool{},
			letters:   map[letterKey]*letter{},
			writers:   map[writerKey]*writer{},
			joined:    f.opts.Joined,
			unnamed:   map[entryKey]bool{},
			edges:     f.edges,
			keepsLate: f.opts.Late,
			lateIn:    map[scopeKey]bool{},
		}
		f.logs[log] = l
	}
	return l
}

// logFold is the part of a Fold of one log.
type logFold struct {
	objects consume.Tracker // of events up to the moment
	stream  consume.Tracker // of events about the stream alone, also after the moment
	scopes  map[scopeKey]*scope
	places  map[place]int      // of objects: how many versions were withheld
	later   map[objectKey]bool // objects of the moment that have an event after it
	letters map[letterKey]*letter
	writers map[writerKey]*writer
	unnamed map[entryKey]bool // see Fold.Unnamed
	joined  bool              // see Options
	edges   *edges

	keepsLate bool              // see Options.Late
	lateIn    map[scopeKey]bool // scopes that may have late spans
	now       time.Time         // of the last progress

	// restarted has the snapshots of scopes that had ended at the moment, and were started again
	// after it.
	restarted map[snapshotKey]bool
}

// entryKey identifies the entry of a progress that is about all scopes of a resource without one of
// their own.
type entryKey struct {
	writerKey

	resource string
}

// snapshotKey identifies a snapshot.
type snapshotKey struct {
	cluster consume.ClusterKey
	id      string
}

type scopeKey struct {
	cluster consume.ClusterKey
	name    string
}

func scopeOf(e *consume.Event) scopeKey { return scopeKey{e.ClusterKey(), e.Scope} }

// objectKey identifies an object. Objects of two resources may have the same UID, and so may those
// of two clusters.
type objectKey struct {
	cluster       consume.ClusterKey
	resource, uid string
}

func (v *Version) key() objectKey { return objectKey{v.ClusterKey(), v.Resource, v.UID} }

// letterKey identifies an event that is among the dead letters of a cluster.
type letterKey struct {
	cluster consume.ClusterKey
	id      string
}

// place is the part of an object's identity from which its scope follows.
type place struct {
	cluster                    consume.ClusterKey
	resource, scope, namespace string
}

func placeOf(e *consume.Event) place {
	return place{e.ClusterKey(), e.GroupResource(), e.Scope, e.Namespace}
}

// in reports whether objects of the place belong to a scope. An event names its scope if that has
// selectors.
func (p place) in(s *certainty.Scope) bool {
	if p.cluster != s.ClusterKey() || p.resource != s.Resource {
		return false
	}
	if p.scope != "" {
		return p.scope == s.Name
	}
	return !strings.Contains(s.Name, "?") && s.Covers(p.namespace)
}

// scope returns what is known of a scope.
func (l *logFold) scope(key scopeKey, resource string) *scope {
	s := l.scopes[key]
	if s == nil {
		s = &scope{
			resource:  strings.Clone(resource),
			joined:    l.joined,
			edges:     l.edges,
			keepsLate: l.keepsLate,
		}
		key.cluster = consume.ClusterKey{Source: strings.Clone(key.cluster.Source), UID: strings.Clone(key.cluster.UID)}
		key.name = strings.Clone(key.name)
		l.scopes[key] = s
	}
	return s
}

// noteStream notes an event about the stream of a scope. It returns the gap that the event
// announces or shows, nil if it does neither.
func (l *logFold) noteStream(m Moment, e *consume.Event, included bool) *consume.Event {
	news := l.stream.Apply(e).News
	l.noteWriter(e, news)
	if !news {
		return nil
	}
	gap := l.scope(scopeOf(e), e.GroupResource()).note(m, e)
	l.noteRestarted(e)
	l.noteLetter(e, included)
	return gap
}

// noteRestarted notes a snapshot that belongs to a later start of a scope. At a resourceVersion, it
// may read objects that did not change since, and that nobody observed at the moment.
func (l *logFold) noteRestarted(e *consume.Event) {
	if e.Type != consume.TypeSnapshotStarted || !l.isClosed(scopeOf(e)) {
		return
	}
	if l.restarted == nil {
		l.restarted = map[snapshotKey]bool{}
	}
	cluster := consume.ClusterKey{Source: strings.Clone(e.Source), UID: strings.Clone(e.ClusterUID)}
	l.restarted[snapshotKey{cluster, strings.Clone(e.Stream.Snapshot)}] = true
}

// isClosed reports whether a scope, or the scope of which it is a part, has ended and was started
// again, both after the moment.
func (l *logFold) isClosed(key scopeKey) bool {
	for of, s := range l.scopes {
		if s.closed && of.cluster == key.cluster && (of.name == key.name || consume.IsPartOf(key.name, of.name)) {
			return true
		}
	}
	return false
}

// isOfLaterStart reports whether an event is a read of such a snapshot.
func (l *logFold) isOfLaterStart(e *consume.Event) bool {
	return e.Op == consume.Read && e.Data != nil && l.restarted[snapshotKey{e.ClusterKey(), e.Data.Snapshot}]
}

// noteFormer notes a progress event as agents of former releases sent it.
func (l *logFold) noteFormer(e *consume.Event) {
	s := l.scope(scopeOf(e), e.GroupResource())
	s.informer = true
	now := mark{e.Time, pointOf(e)}
	s.former, s.last = s.former.max(now), s.last.max(now)
}

// listed returns the scopes of informers. The name of a part of which a snapshot was taken is none,
// unless nothing else is known.
func (l *logFold) listed() []scopeKey {
	var out []scopeKey
	for key, s := range l.scopes {
		if l.isListed(key, s) {
			out = append(out, key)
		}
	}
	return out
}

func (l *logFold) isListed(key scopeKey, s *scope) bool { return s.informer || !l.hasPart(key) }

func sortedKeys[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }

func (l *logFold) hasPart(part scopeKey) bool {
	if !strings.Contains(part.name, "/") { // it is no part of any
		return false
	}
	for key := range l.scopes {
		if key.cluster == part.cluster && consume.IsPartOf(part.name, key.name) {
			return true
		}
	}
	return false
}

// noteLater counts the versions that were withheld before the first event of an object after the
// moment. Those before a later event are after the moment too.
func (l *logFold) noteLater(e *consume.Event) {
	key := objectKey{e.ClusterKey(), e.GroupResource(), e.UID}
	if e.Data == nil || l.later[key] {
		return
	}
	history, seq := l.objects.Highest(key.cluster, key.resource, key.uid)
	known := point{history, seq}
	if !l.objects.Has(key.cluster, key.resource, key.uid) || known == (point{}) || !known.below(pointOf(e)) {
		return // the state does not have the object, its resourceVersions are no numbers, or e is a late copy
	}
	key = objectKey{ // e may own the memory
		consume.ClusterKey{
			Source: strings.Clone(e.Source),
			UID:    strings.Clone(e.ClusterUID),
		}, strings.Clone(key.resource), strings.Clone(e.UID),
	}
	l.later[key] = true
	l.places[placeOf(e)] += e.Data.Skipped
}

// letter is an event among the dead letters.
type letter struct {
	scope    scopeKey
	object   objectKey
	at       point
	from, to certainty.Bound
	resolved bool // the log has the event, or one after it
}

// noteLetter notes the dead letter that a gap names.
func (l *logFold) noteLetter(e *consume.Event, included bool) {
	id := letterKey{e.ClusterKey(), e.Stream.DeadLetter}
	if id.id == "" || !included || l.letters[id] != nil {
		return
	}
	_, rest, _ := strings.Cut(id.id, "/")
	uid, version, _ := strings.Cut(rest, "/")
	if version == "d" || strings.HasPrefix(version, "d/") {
		return // that is all there is to say of a deletion
	}
	l.edges.note(e.Time)
	history, seq := l.objects.Highest(id.cluster, e.GroupResource(), uid)
	l.letters[id] = &letter{
		scope:  scopeOf(e),
		object: objectKey{id.cluster, e.GroupResource(), uid},
		at:     pointOf(e),
		from: certainty.Bound{
			Time:            e.Stream.Since,
			ResourceVersion: e.Stream.FromResourceVersion,
			History:         e.History(),
		},
		to:       certainty.Bound{Time: e.Time, ResourceVersion: e.Stream.ToResourceVersion, History: e.History()},
		resolved: !(point{history, seq}).below(pointOf(e)), // a copy was refused
	}
}

// resolveLetter notes that the log has a version, which may be a dead letter. A later snapshot may
// read it in another form than it had at the moment. Then the state lacks that form. Inside a span,
// the states before the version lack the dead letter.
func (l *logFold) resolveLetter(v *Version, m Moment) {
	for _, letter := range l.letters {
		s := l.scopes[letter.scope]
		isOtherForm := v.Op == consume.Read && s != nil && s.reforms
		if letter.object == v.key() && !isOtherForm && !(point{v.History, number(v.ResourceVersion)}).below(letter.at) {
			l.edges.note(v.Time)
			letter.resolved = letter.resolved || m.kind != atTime || !v.Time.After(m.first())
		}
	}
}

// addLetters adds the dead letters that the state lacks. The gap that names one is in all logs, the
// events of its object are in one.
func (f *Fold) addLetters(all map[scopeKey]certainty.Scope) {
	missing := map[letterKey]*letter{}
	for _, l := range f.logs {
		maps.Copy(missing, l.letters)
	}
	for _, l := range f.logs {
		maps.DeleteFunc(missing, func(id letterKey, _ *letter) bool {
			return l.letters[id] != nil && l.letters[id].resolved
		})
	}
	byID := func(a, b letterKey) int { return strings.Compare(a.id, b.id) }
	for _, id := range slices.SortedFunc(maps.Keys(missing), byID) {
		letter := missing[id]
		s, ok := all[letter.scope]
		if !ok {
			continue
		}
		if s.Find(certainty.DeadLetter) == nil {
			s.Lower(certainty.Cause{Kind: certainty.DeadLetter, From: letter.from, To: letter.to})
		}
		letter.addTo(s.Find(certainty.DeadLetter), id.id)
		all[letter.scope] = s
	}
}

// addTo adds the dead letter to the cause of its scope.
func (l *letter) addTo(c *certainty.Cause, id string) {
	c.DeadLetters = append(c.DeadLetters, id)
	if l.from.Time.Before(c.From.Time) {
		c.From = l.from
	}
	if l.to.Time.After(c.To.Time) {
		c.To = l.to
	}
}
