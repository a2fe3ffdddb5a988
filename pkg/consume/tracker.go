package consume

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Object names one object of one cluster. Its key is the cluster, Resource and UID: objects of two
// resources may have the same UID.
type Object struct {
	Source     string `json:"source"`               // as in Event.Source
	ClusterUID string `json:"clusterUID,omitempty"` // as in Event.ClusterUID
	Resource   string `json:"resource"`             // "deployments.apps", "pods"
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// ClusterKey returns the cluster of the object.
func (o *Object) ClusterKey() ClusterKey { return ClusterKey{o.Source, o.ClusterUID} }

// Verdict is the result of the rules for one event.
type Verdict struct {
	// News reports whether no earlier event said the same. Otherwise the event is a copy or late:
	// ignore it. Gone counts in either case.
	News bool
	// Gone are objects that no longer exist and have no event that says so: a sweep found them,
	// another object has their name, or their deletion is a dead letter. They are sorted by
	// namespace, name and uid.
	Gone []Object
}

// DefaultForget is the time for which a Tracker keeps deleted objects.
const DefaultForget = time.Hour

// Tracker applies the rules of the stream to events in the order in which they are read:
//
//   - A cluster is a source and a clusteruid: a cluster that is created again under the same name
//     is another one. The key of an object is its cluster, resource and uid.
//   - A record may come more than once, and late. An event of an object is news if its History and
//     sequence are above the highest ones seen. After a restore of etcd, sequences start over at a
//     lower number and History is higher. A new snapshot may have a lower History or
//     resourceVersion than all earlier ones: then etcd was restored while no agent watched.
//     Sequences start over there too.
//   - After a gap of ReasonContentChanged, a known version may have other content. So a read of it
//     is news, once in each snapshot of the scope, or of a part of it, that starts after the gap,
//     until a snapshot of the whole scope is completed. The object's chain begins there.
//   - Sweep: when a snapshot is completed, delete each object of its scope that was neither read
//     nor changed since the snapshot was started. A snapshot whose start the Tracker has not seen
//     sweeps nothing. Neither does a snapshot that was interrupted for good; the agent takes
//     another. If the agent continues a snapshot after a restart, it starts the snapshot again
//     under the same id. A snapshot may come at any time, also of a part of the watched objects:
//     then its scope is that part.
//   - An object whose event is a dead letter (a gap of ReasonDeadLetter reports it) exists, and a
//     sweep keeps it. If the dead letter is its deletion, the object is gone. The Tracker does not
//     see the rest of the dead letter.
//   - A name belongs to one object at a time: if another uid has it, the earlier object is gone.
//   - The start and the end of the observation of a scope (TypeScopeStarted, TypeScopeEnded) change
//     no object. Objects that are no longer selected have left events, with the resourceVersion at
//     which the scope ended. If it is selected again, a snapshot of a higher resourceVersion reads
//     objects that have not changed since. Such a read is news, although its sequence is lower.
//   - Progress changes no object: it says how far the stream is complete (Reached). It is news if
//     its Number is above the highest one of the run. Runs of a writer are ordered by epoch, then
//     by the time of their begin. Of a run before the last one, nothing about scopes and progress
//     is news.
//
// An object belongs to a scope by cluster, resource and namespace, and, if the scope has selectors,
// by the scope that its last event names. So several agents may share a stream and observe parts of
// one resource, as agents on nodes do. An object that moves from one scope to another has two
// events of one sequence, left and entered. It exists, whichever comes first: a left event of one
// scope is not news if the object belongs to another. An event that names no scope may be of any.
//
// A Tracker holds about 0.3 KB for each existing object. It keeps a deleted object for Forget, so
// that a late copy does not bring it back. After that, a completed snapshot serves: an event of an
// unknown object is late unless it is above the snapshot's resourceVersion. So a copy counts as
// news only if it comes later than Forget and no snapshot was completed since the deletion. The
// next sweep corrects that.
//
// The zero value is ready for use. A Tracker can be saved as JSON between two events. It belongs to
// one goroutine.
type Tracker struct {
	// Forget is the time for which deleted objects are kept, by the times of the resource's events.
	// 0: DefaultForget.
	Forget time.Duration

	// clock counts started snapshots. An object with a lower clock than a snapshot's start was
	// touched before it.
	clock     uint64
	resources map[resourceKey]*resource
	writers   map[writerKey]*writer
}

type resourceKey struct {
	cluster  ClusterKey
	resource string
}

func resourceOf(e *Event) resourceKey { return resourceKey{e.ClusterKey(), e.GroupResource()} }

// resource is the state of one resource of one cluster. Its API versions (apps/v1, apps/v1beta1)
// share objects and resourceVersions.
type resource struct {
	live   map[string]*liveObject // by uid
	names  map[name]string        // of live ones: the uid
	dead   map[string]deadObject  // by uid; pruned
	scopes map[string]*scope
	// parts are the same scopes by their selectors, which are "" where there are none.
	parts map[string]map[string]*scope

	now    time.Time // the newest time of an event
	pruned time.Time // dead was pruned last
}

type name struct{ namespace, name string }

// point is a version: a sequence in a history. Sequence 0 stands for a resourceVersion that is not
// a number.
type point struct {
	history uint32
	seq     uint64
}

func pointOf(e *Event) point { return point{e.History(), sequence(e.Sequence)} }

func (p point) compare(q point) int {
	return cmp.Or(cmp.Compare(p.history, q.history), cmp.Compare(p.seq, q.seq))
}

// notAbove reports whether p is q or known to be older.
func (p point) notAbove(q point) bool {
	return p.history < q.history || p.history == q.history && p.seq != 0 && p.seq <= q.seq
}

// below reports whether p is known to be older than q.
func (p point) below(q point) bool { return p != q && p.notAbove(q) }

type liveObject struct {
	name    name
	at      point  // the highest seen
	touched uint64 // clock of its last read or change
	part    string // selectors of the scope of its last event; "": any
	left    point  // its left event, if that is later and the scope was selected again since
}

type deadObject struct {
	at      point
	when    time.Time // time of its last event
	deleted bool      // by an event: it is neither swept nor left
	part    string    // as in liveObject
}

// scope is the state of one informer, or of a part of it that has a snapshot of its own.
type scope struct {
	snapshot string // under way; "": none
	started  uint64 // the clock at its start
	version  point  // at which it was taken, or the last one

	// past has the ids of the last snapshots: their starts and ends are copies, and so are those of
	// a lower version.
	past []string
	// floor is the resourceVersion of the last snapshot that was seen from its start to its end.
	floor point
	gaps  []string // the ids of the last ones
	// reformed is the clock at the last gap of ReasonContentChanged, 0 if a snapshot that started
	// after it is complete.
	reformed uint64
	turns    []string // the ids of the last starts and ends of the scope

	progress Reached // what progress says
	reached  point   // the version of progress
}

// pastIDs is the number of snapshots, and of other events, that a scope keeps the ids of.
const pastIDs = 8

// Apply applies e and returns the result. An event of an unknown kind is news. A dead letter is
// not, and changes nothing: it is not part of the stream, and its event may still come, complete.
// The progress of a former release (Event.IsFormerProgress) is no news either, and changes nothing.
func (t *Tracker) Apply(e *Event) Verdict {
	switch {
	case e.DeadLetterReason != "", e.IsFormerProgress():
		return Verdict{}
	case e.Data != nil:
		return t.applyObject(e)
	case e.Stream != nil:
		return t.applyStream(e)
	case e.Progress != nil:
		return t.applyProgress(e)
	}
	return Verdict{News: true}
}

// Len returns the number of existing objects.
func (t *Tracker) Len() int {
	n := 0
	for _, r := range t.resources {
		n += len(r.live)
	}
	return n
}

// All returns the existing objects, in no order.
func (t *Tracker) All() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for key, r := range t.resources {
			for uid, o := range r.live {
				if !yield(key.object(uid, o.name)) {
					return
				}
			}
		}
	}
}

func (k resourceKey) object(uid string, n name) Object {
	return Object{
		Source:     k.cluster.Source,
		ClusterUID: k.cluster.UID,
		Resource:   k.resource,
		Namespace:  n.namespace,
		Name:       n.name,
		UID:        uid,
	}
}

func (t *Tracker) resource(e *Event) (resourceKey, *resource) {
	key := resourceOf(e)
	return key, t.resourceAt(key, e.Time)
}

// resourceAt returns the state of a resource, after an event of that time.
func (t *Tracker) resourceAt(key resourceKey, now time.Time) *resource {
	r := t.resources[key]
	if r == nil {
		r = newResource()
		if t.resources == nil {
			t.resources = map[resourceKey]*resource{}
		}
		t.resources[resourceKey{key.cluster.clone(), strings.Clone(key.resource)}] = r
	}
	if now.After(r.now) {
		r.now = now
	}
	return r
}

func newResource() *resource {
	return &resource{
		live:   map[string]*liveObject{},
		names:  map[name]string{},
		dead:   map[string]deadObject{},
		scopes: map[string]*scope{},
		parts:  map[string]map[string]*scope{},
	}
}

// applyObject applies the event of an object.
func (t *Tracker) applyObject(e *Event) Verdict {
	key, r := t.resource(e)
	r.prune(t.forget())
	at := pointOf(e)
	o := r.live[e.UID]
	touched := r.touched(e, at, t.clock)
	if !r.isNews(e, at, o) && !r.isReformed(e, at, o) {
		if e.Op == Read && o != nil {
			o.touched = max(o.touched, touched) // a new snapshot has read a known object
			if at == o.at && r.reads(e) {
				o.part = r.part(e)
			}
		}
		return Verdict{}
	}
	v := Verdict{News: true}
	if isEnd(e.Op) {
		if o != nil && at.compare(o.at) < 0 {
			at = o.at
		}
		r.retire(e.UID, at, e.Op == Deleted, r.part(e))
		return v
	}
	n := name{e.Namespace, e.Name}
	if other, taken := r.names[n]; taken && other != e.UID {
		v.Gone = []Object{key.object(other, n)}
		last := r.live[other].at
		if last.compare(at) < 0 {
			last = at
		}
		r.retire(other, last, true, r.live[other].part)
	}
	if o == nil {
		o = &liveObject{name: n, left: r.leftBefore(e, at)}
		r.live[e.UID], r.names[n] = o, e.UID
		delete(r.dead, e.UID)
	}
	if o.at.compare(at) < 0 {
		o.at = at
	}
	o.touched, o.part = max(o.touched, touched), r.part(e)
	return v
}

func isEnd(op Op) bool { return op == Deleted || op == Left }

// isNews is the rule of the highest sequence. o is the known object, nil if it does not exist.
func (r *resource) isNews(e *Event, at point, o *liveObject) bool {
	part, again := selectorsOf(e.Scope), false
	if dead, ok := r.dead[e.UID]; ok {
		same := at == dead.at && !dead.deleted
		switch {
		case r.leftBefore(e, at) != point{}: // it has left, and its scope is selected again
			again = true
		case same && e.Op == Read && r.reads(e): // an object that had left a selection, which is wider now
			again = true
		case same && e.Op == Entered && part != dead.part: // it has left another scope for this one
		case at.notAbove(dead.at) || dead.deleted && e.Op == Deleted && at.history == dead.at.history:
			return false
		}
	}
	if o != nil {
		if e.Op == Left && part != o.part && part != "" && o.part != "" {
			return false // it belongs to another scope already
		}
		if e.Op == Left && at.notAbove(o.left) {
			return false // a copy: a snapshot has read it since
		}
		// On some API servers a deletion has the version of the deleted object.
		return !at.notAbove(o.at) || at == o.at && isEnd(e.Op)
	}
	// The object is unknown, or gone.
	if other, taken := r.names[name{e.Namespace, e.Name}]; taken && at.below(r.live[other].at) {
		return false // another object has its name
	}
	if again {
		return true
	}
	if reader := r.readBy(e); reader != "" {
		// It may have an object that an earlier snapshot, perhaps of another scope, did not have.
		return !r.isOutdated(e, at, reader)
	}
	for scope, s := range r.scopesOf(e) {
		// An object that existed at the floor and is unknown is gone.
		if at.notAbove(s.floor) && contains(scope, e.Namespace) {
			return false
		}
	}
	return true
}

// leftBefore returns the left event of an object that a later snapshot reads at a lower version;
// the zero value: there is none.
func (r *resource) leftBefore(e *Event, at point) point {
	dead, ok := r.dead[e.UID]
	if !ok || dead.deleted || !at.below(dead.at) {
		return point{}
	}
	reader := r.readBy(e)
	if reader == "" || r.scopes[reader].version.notAbove(dead.at) {
		return point{}
	}
	return dead.at
}

// isReformed reports whether a read shows the known version of o in another form, or may do so.
func (r *resource) isReformed(e *Event, at point, o *liveObject) bool {
	reader := r.readBy(e)
	if reader == "" || o == nil || at != o.at {
		return false
	}
	started := r.scopes[reader].started
	if o.touched >= started {
		return false // it was read, or changed, since
	}
	for name, s := range r.scopesOf(e) {
		if s.reformed != 0 && s.reformed < started && (name == reader || IsPartOf(reader, name)) {
			return true
		}
	}
	return false
}

// reads reports whether a read belongs to a snapshot under way.
func (r *resource) reads(e *Event) bool { return r.readBy(e) != "" }

// readBy returns the scope of the snapshot under way that a read belongs to; "": there is none.
func (r *resource) readBy(e *Event) string {
	if e.Op != Read || e.Data.Snapshot == "" {
		return ""
	}
	for name, s := range r.scopesOf(e) {
		if s.snapshot == e.Data.Snapshot {
			return name
		}
	}
	return ""
}

// isOutdated reports whether a later snapshot than the one under way is complete, of a part of its
// scope, or of a scope that has it as a part. Then a read of an unknown object is late: the object
// is gone.
func (r *resource) isOutdated(e *Event, at point, reader string) bool {
	began := r.scopes[reader].version
	for name, s := range r.scopesOf(e) {
		isPart := IsPartOf(name, reader) || IsPartOf(reader, name)
		if isPart && contains(name, e.Namespace) && began.below(s.floor) && at.notAbove(s.floor) {
			return true
		}
	}
	return false
}

// touched returns the clock at which an event shows that its object exists or is deleted. It is
// that of the last snapshot under way whose list is older than the event. An older event does not
// count, for example a late one of an earlier agent: if the object still existed, the snapshot
// would read it.
func (r *resource) touched(e *Event, at point, clock uint64) uint64 {
	var last uint64
	reading := false
	for scope, s := range r.scopesOf(e) {
		if s.snapshot == "" || !contains(scope, e.Namespace) {
			continue
		}
		reading = true
		if e.Op == Read && e.Data.Snapshot == s.snapshot || e.Op != Read && !at.notAbove(s.version) {
			last = max(last, s.started)
		}
	}
	if !reading {
		return clock
	}
	return last
}

// retire moves an object to the deleted ones.
func (r *resource) retire(uid string, at point, deleted bool, part string) {
	r.remove(uid)
	r.dead[uid] = deadObject{
		at:      at,
		when:    r.now,
		deleted: deleted,
		part:    part,
	}
}

func (r *resource) remove(uid string) {
	if o := r.live[uid]; o != nil {
		delete(r.live, uid)
		delete(r.names, o.name)
	}
}

func (t *Tracker) forget() time.Duration {
	if t.Forget > 0 {
		return t.Forget
	}
	return DefaultForget
}

// prune removes old deleted objects. Each is kept for at least forget, and at most a quarter
// longer.
func (r *resource) prune(forget time.Duration) {
	if len(r.dead) == 0 || r.now.Sub(r.pruned) < forget/4 {
		return
	}
	r.pruned = r.now
	for uid, d := range r.dead {
		if r.now.Sub(d.when) >= forget {
			delete(r.dead, uid)
		}
	}
}

// applyStream applies an event about the stream.
func (t *Tracker) applyStream(e *Event) Verdict {
	key, r := t.resource(e)
	s := r.scopeOf(e.Scope)
	switch id, at := e.Stream.Snapshot, versionOf(e); e.Type {
	case TypeSnapshotStarted:
		// A copy, or the agent continues the snapshot under way after a restart.
		isKnown := id == s.snapshot || slices.Contains(s.past, id)
		t.observe(e, s, isKnown)
		late := at.below(s.version) && e.Time.Before(r.now)
		if late || isKnown {
			return Verdict{}
		}
		if e.Stream.Continued { // the Tracker has not seen its first start, nor perhaps changes since
			return Verdict{News: true}
		}
		if at.below(s.version) {
			r.rewind(e.Scope)
		}
		s.end()
		t.clock++
		s.snapshot = id
		s.started = t.clock
		s.version = at
	case TypeSnapshotCompleted:
		if id != s.snapshot {
			return Verdict{News: addID(&s.past, id) && !at.below(s.version)} // the start was not seen
		}
		s.floor = s.version
		if s.reformed < s.started {
			s.reformed = 0
		}
		s.end()
		return Verdict{News: true, Gone: r.sweep(key, e.Scope, s)}
	case TypeGap:
		if at.history < s.version.history || !addID(&s.gaps, e.ID) {
			return Verdict{}
		}
		if e.Stream.DeadLetter != "" {
			at.seq = max(at.seq, sequence(e.Stream.ToResourceVersion))
			return Verdict{News: true, Gone: r.letter(key, e.Stream.DeadLetter, at, t.clock)}
		}
		if e.Stream.Reason == ReasonContentChanged {
			t.clock++
			s.reformed = t.clock
		}
	case TypeScopeStarted, TypeScopeEnded:
		isNew := addID(&s.turns, e.ID)
		return Verdict{News: t.observe(e, s, !isNew) && isNew}
	case TypeProgress: // of a former release
	}
	return Verdict{News: true}
}

// end adds the snapshot under way to the past ones.
func (s *scope) end() {
	if s.snapshot != "" {
		addID(&s.past, s.snapshot)
	}
	s.snapshot = ""
}

// addID adds an id to the past ones, and reports whether it was new.
func addID(past *[]string, id string) bool {
	if slices.Contains(*past, id) {
		return false
	}
	if len(*past) == pastIDs {
		*past = slices.Delete(*past, 0, 1)
	}
	*past = append(*past, id)
	return true
}

// sweep removes the objects that the completed snapshot of s shows to be gone. They need not be
// kept as deleted: an event of an unknown object that is not above the floor of s is late.
func (r *resource) sweep(key resourceKey, scope string, s *scope) []Object {
	var gone []Object
	for uid, o := range r.live {
		if o.touched >= s.started || !o.in(scope) {
			continue
		}
		gone = append(gone, key.object(uid, o.name))
		if s.floor.seq > 0 && o.at.compare(s.floor) <= 0 {
			r.remove(uid)
		} else {
			r.retire(uid, o.at, false, o.part)
		}
	}
	slices.SortFunc(gone, func(a, b Object) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(a.UID, b.UID))
	})
	return gone
}

// versionOf returns the version that a stream event names.
func versionOf(e *Event) point {
	return point{e.History(), max(sequence(e.Sequence), sequence(e.Stream.ResourceVersion))}
}

func sequence(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0 // omitted if resourceVersions are not numbers: then versions cannot be compared
	}
	return n
}
