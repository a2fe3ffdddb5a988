package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Options of a Fold or a State.
type Options struct {
	// Etcd says whether the resourceVersions of a resource ("events", "widgets.example.com") of a
	// cluster are of the etcd that the moment is of. An aggregated API has its own, and so may
	// Events. The answer at a resourceVersion is Unknown unless it is SameEtcd. nil: all are.
	Etcd func(cluster consume.ClusterKey, resource string) Etcd
	// Asked reports whether an answer needs a scope of a resource, of which only progress is known. nil: it needs all.
	Asked func(resource, scope string) bool
	// Joined: the events begin in the middle of the record. A progress event follows the first snapshot of its scope, so the first one shows
	// that the scope has had a snapshot, although that was not read.
	Joined bool
}

// Fold applies the rules of the record to events up to a moment.
type Fold struct {
	moment Moment
	opts   Options
	logs   map[consume.Log]*logFold
	lacks  map[consume.Object]lack // by name: without the uid
	gap    *consume.Event          // see Gap
}

// lack is an object that left the selection and did not come back, or that is redacted.
type lack struct {
	uid   string
	place place
	left  bool
}

// NewFold returns a Fold up to a moment.
func NewFold(m Moment, o Options) *Fold {
	return &Fold{moment: m, opts: o, logs: map[consume.Log]*logFold{}, lacks: map[consume.Object]lack{}}
}

// Add applies the next event of a log and returns the versions that it adds up to the moment. First come the objects that it shows
// to be gone, then its own version if that is news. The versions share the memory of e.
func (f *Fold) Add(e *consume.Event) []*Version {
	f.gap = nil
	if e.DeadLetterReason != "" {
		return nil // not a part of the stream
	}
	l, included := f.log(e), f.moment.Includes(e)
	included = included && !l.isOfLaterStart(e)
	switch {
	case e.Progress != nil:
		l.observe(f.moment, e, f.opts)
		return nil
	case e.IsFormerProgress():
		l.noteFormer(e)
		return nil
	case e.Stream != nil:
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
	for _, o := range verdict.Gone {
		out = append(out, goneOf(o, e))
	}
	if verdict.News && e.Data != nil {
		l.places[placeOf(e)] += e.Data.Skipped
		v := versionOf(e)
		v.Again = again
		out = append(out, v)
	}
	for _, v := range out {
		l.resolveLetter(v)
		f.noteLack(v)
	}
	return out
}

// has reports whether the last known version of an object is that of e.
func (l *logFold) has(e *consume.Event) bool {
	history, seq := l.objects.Highest(e.ClusterKey(), e.GroupResource(), e.UID)
	return seq > 0 && point{history, seq} == pointOf(e)
}

// noteLack notes whether the object of a version has left or is redacted. A name belongs to one object at a time.
func (f *Fold) noteLack(v *Version) {
	name := nameOf(v)
	left := v.Op == consume.Left
	switch {
	case left || v.Redacted():
		name.Source, name.ClusterUID, name.Resource = strings.Clone(name.Source), strings.Clone(name.ClusterUID), strings.Clone(name.Resource)
		name.Namespace, name.Name = strings.Clone(name.Namespace), strings.Clone(name.Name)
		f.lacks[name] = lack{strings.Clone(v.UID), place{name.ClusterKey(), name.Resource, strings.Clone(v.Scope), name.Namespace}, left}
	case !v.Gone() || f.lacks[name].uid == v.UID:
		delete(f.lacks, name)
	}
}

// Gap returns the gap up to the moment that the last added event announces or shows, nil if it does neither. A snapshot shows a gap if it
// begins a scope again, because the agent lost its position or etcd was restored.
func (f *Fold) Gap() *consume.Event { return f.gap }

// Done reports whether the record has passed the moment, so that reading on adds no version. (A later snapshot may still show one that
// was withheld or is among the dead letters.) It returns false if the moment is now.
func (f *Fold) Done() bool {
	passed := false
	for _, l := range f.logs {
		for _, key := range l.listed() {
			switch l.scopes[key].passed(f.moment) {
			case notPassed:
				return false
			case hasPassed:
				passed = true
			case mayReturn:
			}
		}
	}
	return passed
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
// cluster, resource and name. A scope that had not begun at the moment is left out if another one had
// its objects. If the record has objects of a resource and no stream events, the
// resource has an entry without a name.
func (f *Fold) Scopes() []Scope {
	all := map[scopeKey]Scope{}
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
	for _, l := range f.logs {
		for p := range l.places {
			key := scopeKey{p.cluster, p.resource}
			if _, ok := all[key]; !ok && !slices.ContainsFunc(slices.Collect(maps.Values(all)), func(s Scope) bool { return s.Name != "" && p.in(&s) }) {
				all[key] = Scope{Source: p.cluster.Source, ClusterUID: p.cluster.UID, Resource: p.resource, Certainty: Unknown}
			}
		}
	}
	f.addLetters(all)
	scopes := dropLater(slices.SortedFunc(maps.Values(all), func(a, b Scope) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.ClusterUID, b.ClusterUID),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	}))
	for _, lack := range f.lacks {
		for i := range scopes {
			switch s := &scopes[i]; {
			case !lack.place.in(s):
			case lack.left:
				s.Left++
			default:
				s.Redacted++
			}
		}
	}
	return scopes
}

func (f *Fold) log(e *consume.Event) *logFold {
	l := f.logs[e.Position.Log]
	if l == nil {
		l = &logFold{
			scopes: map[scopeKey]*scope{}, places: map[place]int{}, later: map[objectKey]bool{},
			letters: map[letterKey]*letter{}, writers: map[writerKey]*writer{}, joined: f.opts.Joined,
		}
		f.logs[e.Position.Log] = l
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
	joined  bool // see Options

	// restarted has the snapshots of scopes that had ended at the moment, and were started again
	// after it.
	restarted map[snapshotKey]bool
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

// in reports whether objects of the place belong to a scope. An event names its scope if that has selectors.
func (p place) in(s *Scope) bool {
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
		s = &scope{resource: strings.Clone(resource), joined: l.joined}
		key.cluster = consume.ClusterKey{Source: strings.Clone(key.cluster.Source), UID: strings.Clone(key.cluster.UID)}
		key.name = strings.Clone(key.name)
		l.scopes[key] = s
	}
	return s
}

// noteStream notes an event about the stream of a scope. It returns the gap that the event announces or shows, nil if it does neither.
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

// listed returns the scopes of informers. The name of a part of which a snapshot was taken is none, unless nothing else is known.
func (l *logFold) listed() []scopeKey {
	var out []scopeKey
	for key, s := range l.scopes {
		if s.informer || !l.hasPart(key) {
			out = append(out, key)
		}
	}
	return out
}

func sortedKeys[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }

func (l *logFold) hasPart(part scopeKey) bool {
	for key := range l.scopes {
		if key.cluster == part.cluster && consume.IsPartOf(part.name, key.name) {
			return true
		}
	}
	return false
}

// noteLater counts the versions that were withheld before the first event of an object after the moment. Those before a later event
// are after the moment too.
func (l *logFold) noteLater(e *consume.Event) {
	key := objectKey{e.ClusterKey(), e.GroupResource(), e.UID}
	if e.Data == nil || l.later[key] {
		return
	}
	history, seq := l.objects.Highest(key.cluster, key.resource, key.uid)
	if known := (point{history, seq}); known == (point{}) || !known.below(pointOf(e)) {
		return // the state never had the object, its resourceVersions are no numbers, or e is a late copy
	}
	key = objectKey{ // e may own the memory
		consume.ClusterKey{Source: strings.Clone(e.Source), UID: strings.Clone(e.ClusterUID)}, strings.Clone(key.resource), strings.Clone(e.UID),
	}
	l.later[key] = true
	l.places[placeOf(e)] += e.Data.Skipped
}

// letter is an event among the dead letters.
type letter struct {
	scope    scopeKey
	object   objectKey
	at       point
	from, to Bound
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
	history, seq := l.objects.Highest(id.cluster, e.GroupResource(), uid)
	l.letters[id] = &letter{
		scope: scopeOf(e), object: objectKey{id.cluster, e.GroupResource(), uid}, at: pointOf(e),
		from: Bound{e.Stream.Since, e.Stream.FromResourceVersion, e.History()}, to: Bound{e.Time, e.Stream.ToResourceVersion, e.History()},
		resolved: !(point{history, seq}).below(pointOf(e)), // a copy was refused
	}
}

func (l *logFold) resolveLetter(v *Version) {
	for _, letter := range l.letters {
		if letter.object == v.key() && !(point{v.History, number(v.ResourceVersion)}).below(letter.at) {
			letter.resolved = true
		}
	}
}

// addLetters adds the dead letters that the state lacks. The gap that names one is in all logs, the events of its object are in one.
func (f *Fold) addLetters(all map[scopeKey]Scope) {
	missing := map[letterKey]*letter{}
	for _, l := range f.logs {
		maps.Copy(missing, l.letters)
	}
	for _, l := range f.logs {
		maps.DeleteFunc(missing, func(id letterKey, _ *letter) bool { return l.letters[id] != nil && l.letters[id].resolved })
	}
	byID := func(a, b letterKey) int { return strings.Compare(a.id, b.id) }
	for _, id := range slices.SortedFunc(maps.Keys(missing), byID) {
		letter := missing[id]
		s, ok := all[letter.scope]
		if !ok {
			continue
		}
		s.DeadLetters = append(s.DeadLetters, id.id)
		if s.Certainty < Uncertain {
			s.Certainty, s.From, s.To, s.Reason = Uncertain, letter.from, letter.to, consume.ReasonDeadLetter
		}
		all[letter.scope] = s
	}
}
