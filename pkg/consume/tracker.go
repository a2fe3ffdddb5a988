package consume

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Object names one object of one cluster.
type Object struct {
	Source    string `json:"source"`   // the cluster, as in Event.Source
	Resource  string `json:"resource"` // "deployments.apps", "pods"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Verdict is what the rules say of an event.
type Verdict struct {
	// News: the event says something that no event before it has said. Else it is a copy, or comes too late, and is to be
	// ignored. Gone counts all the same.
	News bool
	// Gone are objects that exist no more, although no event says so of them: the sweep after a snapshot, another object
	// that has the name now, or a deletion that is among the dead letters. Sorted by namespace, name and uid.
	Gone []Object
}

// DefaultForget is for how long a Tracker remembers deleted objects.
const DefaultForget = time.Hour

// Tracker applies the rules of the stream to events in the order in which they are read:
//
//   - A record may come more than once, and late. Per object (uid) only what is above the highest History and sequence seen
//     is news: when etcd is restored, sequences begin again below, and the History of all that follows is higher. They begin
//     again too after a snapshot that is newer than all before and of a lower History or resourceVersion: etcd was restored,
//     or the cluster made anew, and no agent knew it from before.
//   - Sweep: when a snapshot is completed, what belongs to its scope and was neither read nor changed since the snapshot was
//     started does not exist. A snapshot of which the Tracker has not seen the start sweeps nothing, nor does one that was
//     interrupted for good: the agent takes another. One that the agent goes on with after a restart is started again under
//     the same id, and is the same snapshot. Snapshots may come at any time, also of a part of what is watched: then their
//     scope is that part.
//   - An object whose event is among the dead letters (a gap of ReasonDeadLetter says so) exists, and a sweep spares it,
//     unless that is its deletion: then it is gone. What else the letter says the Tracker does not know.
//   - A name belongs to one object at a time: when another uid has it, the one before is gone.
//
// What belongs to a scope is told by cluster, resource and namespace, and where it has selectors by the scope that the last
// event of the object names. So several agents may share a stream of which each observes a part of a resource, as the agents
// on the nodes of a cluster do. An object that passes from one scope to another has left the one and entered the other with
// the same sequence, and exists whichever of the two comes first: one scope's word that an object has left it is no news where
// the object is another's. (An event that names no scope is taken for one of any.)
//
// A Tracker holds about 0.3 KB for each object that exists. A deleted one it remembers for Forget, so that a late copy does
// not bring it back, and beyond that a completed snapshot does: what it does not know and is not above the snapshot's
// resourceVersion is too late. So a copy is taken for news only if it comes later than Forget and no snapshot has been
// completed since the deletion; the next sweep mends that.
//
// The zero value is ready, and can be saved as JSON between two events. It belongs to one goroutine.
type Tracker struct {
	// Forget is for how long deleted objects are remembered, in the stream's time: that of the events of the same
	// resource. 0: DefaultForget.
	Forget time.Duration

	// clock counts snapshots that have started. What was touched at a clock below that of a snapshot's start was
	// touched before it.
	clock     uint64
	resources map[resourceKey]*resource
}

type resourceKey struct{ source, resource string }

// resource is what is known of one resource of one cluster. Its versions (apps/v1, apps/v1beta1) are one: they share
// objects and resourceVersions.
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

// point is a version: where in which history. A sequence of 0 is one that is no number.
type point struct {
	history uint32
	seq     uint64
}

func pointOf(e *Event) point { return point{e.History(), sequence(e.Sequence)} }

func (p point) compare(q point) int {
	return cmp.Or(cmp.Compare(p.history, q.history), cmp.Compare(p.seq, q.seq))
}

// notAbove tells whether p is q or known to be older.
func (p point) notAbove(q point) bool {
	return p.history < q.history || p.history == q.history && p.seq != 0 && p.seq <= q.seq
}

// below tells whether p is known to be older than q.
func (p point) below(q point) bool { return p != q && p.notAbove(q) }

type liveObject struct {
	name    name
	at      point  // the highest seen
	touched uint64 // the clock when it was read or changed last
	part    string // selectors of the scope that has told of it; "": it may be any
}

type deadObject struct {
	at      point
	when    time.Time // the resource's time when it went
	deleted bool      // not swept or left: it is deleted once
	part    string    // as in liveObject
}

// scope is what is known of one informer, or of the part of it that a snapshot was taken of.
type scope struct {
	snapshot string // under way; "": none
	started  uint64 // the clock at its start
	version  point  // at which it was taken, or the last one

	// past are the ids of the last snapshots: a start or an end of one of them is a copy, as is one of a lower version.
	past []string
	// floor is the resourceVersion of the last one that was seen from its start to its end.
	floor point
	gaps  []string // the ids of the last gaps' events

	progress Progress
	reached  point // the version of progress
}

// Progress is what the last progress event of a scope says.
type Progress struct {
	// Time is when the agent said so: it lives, and so does the watch on this scope. It says so each minute; on Kafka in a quiet
	// topic of a namespace about once an hour.
	Time time.Time
	// ResourceVersion is the highest of which it was said: all changes up to it are in the stream, before that event. On Kafka: all
	// that go to the partition that this event was read from, so keep a Tracker for each.
	ResourceVersion string
	History         uint32 // see Event.History
}

// pastIDs is how many snapshots a scope remembers, and how many gaps.
const pastIDs = 8

// Apply says what e means. Events of a kind that this version does not know are news. A dead letter is none, and tells
// nothing: it is no part of the stream, and its event may come yet, whole.
func (t *Tracker) Apply(e *Event) Verdict {
	switch {
	case e.DeadLetterReason != "":
		return Verdict{}
	case e.Data != nil:
		return t.object(e)
	case e.Stream != nil:
		return t.stream(e)
	}
	return Verdict{News: true}
}

// Len is the number of objects that exist.
func (t *Tracker) Len() int {
	n := 0
	for _, r := range t.resources {
		n += len(r.live)
	}
	return n
}

// All are the objects that exist, in no order.
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

// Progress is the last progress of a scope, as in Event.Source and Event.Scope; false: there was none yet. It tells silence
// from death: where nothing changes the agent still says each minute how far it is, and where it does not, for a few
// minutes of the wall clock, it or the way to it is down. For a topic of a namespace on Kafka wait 65 minutes.
func (t *Tracker) Progress(source, scope string) (Progress, bool) {
	resource := scope
	if i := strings.IndexAny(scope, "/?"); i >= 0 {
		resource = scope[:i]
	}
	r := t.resources[resourceKey{source, resource}]
	if r == nil || r.scopes[scope] == nil {
		return Progress{}, false
	}
	p := r.scopes[scope].progress
	return p, !p.Time.IsZero()
}

func (k resourceKey) object(uid string, n name) Object {
	return Object{Source: k.source, Resource: k.resource, Namespace: n.namespace, Name: n.name, UID: uid}
}

func (t *Tracker) resource(e *Event) (resourceKey, *resource) {
	key := resourceKey{e.Source, e.GroupResource()}
	r := t.resources[key]
	if r == nil {
		r = newResource()
		if t.resources == nil {
			t.resources = map[resourceKey]*resource{}
		}
		t.resources[resourceKey{strings.Clone(key.source), strings.Clone(key.resource)}] = r
	}
	if e.Time.After(r.now) {
		r.now = e.Time
	}
	return key, r
}

func newResource() *resource {
	return &resource{
		live: map[string]*liveObject{}, names: map[name]string{}, dead: map[string]deadObject{}, scopes: map[string]*scope{},
		parts: map[string]map[string]*scope{},
	}
}

// object applies the event of an object.
func (t *Tracker) object(e *Event) Verdict {
	key, r := t.resource(e)
	r.prune(t.forget())
	at := pointOf(e)
	o := r.live[e.UID]
	touched := r.touched(e, at, t.clock)
	if !r.isNews(e, at, o) {
		if e.Op == Read && o != nil {
			o.touched = max(o.touched, touched) // a new snapshot has read what is known already
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
		r.bury(e.UID, at, e.Op == Deleted, r.part(e))
		return v
	}
	n := name{e.Namespace, e.Name}
	if other, taken := r.names[n]; taken && other != e.UID {
		v.Gone = []Object{key.object(other, n)}
		last := r.live[other].at
		if last.compare(at) < 0 {
			last = at
		}
		r.bury(other, last, true, r.live[other].part)
	}
	if o == nil {
		o = &liveObject{name: n}
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

// isNews is the rule of the highest sequence. o is the object as it is known, nil where it is not among those that exist.
func (r *resource) isNews(e *Event, at point, o *liveObject) bool {
	part, again := selectorsOf(e.Scope), false
	if dead, ok := r.dead[e.UID]; ok {
		same := at == dead.at && !dead.deleted
		switch {
		case same && e.Op == Read && r.reads(e): // what had left a selection that is wider now, as it was then
			again = true
		case same && e.Op == Entered && part != dead.part: // it has left another scope for this one
		case at.notAbove(dead.at) || dead.deleted && e.Op == Deleted && at.history == dead.at.history:
			return false
		}
	}
	if o != nil {
		if e.Op == Left && part != o.part && part != "" && o.part != "" {
			return false // it is another scope's already
		}
		// Some API servers let a deletion have the version of what it deletes.
		return !at.notAbove(o.at) || at == o.at && isEnd(e.Op)
	}
	// Not known, or no more.
	if other, taken := r.names[name{e.Namespace, e.Name}]; taken && at.below(r.live[other].at) {
		return false // another object has taken the name since
	}
	if again || e.Op == Read && r.reads(e) { // a snapshot that is under way may hold what one before, perhaps of another scope, did not
		return true
	}
	for scope, s := range r.scopesOf(e) {
		// What was there at the floor and is not known any more has gone since.
		if at.notAbove(s.floor) && contains(scope, e.Namespace) {
			return false
		}
	}
	return true
}

// reads tells whether a read belongs to a snapshot that is under way.
func (r *resource) reads(e *Event) bool {
	for _, s := range r.scopesOf(e) {
		if s.snapshot == e.Data.Snapshot && s.snapshot != "" {
			return true
		}
	}
	return false
}

// touched is the clock at which an event shows that its object exists, or goes: that of the last snapshot under way after
// whose list it does. An event that comes late from before, by an agent that has gone since, say, does not: were the
// object still there, the snapshot would read it.
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

// bury moves an object to the dead.
func (r *resource) bury(uid string, at point, deleted bool, part string) {
	r.remove(uid)
	r.dead[uid] = deadObject{at: at, when: r.now, deleted: deleted, part: part}
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

// prune forgets the dead, now and then: each is kept for at least forget and at most a quarter more.
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

// stream applies an event about the stream.
func (t *Tracker) stream(e *Event) Verdict {
	key, r := t.resource(e)
	s := r.scopes[e.Scope]
	if s == nil {
		s = &scope{}
		r.scope(strings.Clone(e.Scope), s)
	}
	switch id, at := e.Stream.Snapshot, versionOf(e); e.Type {
	case TypeSnapshotStarted:
		// A copy; or, of the one under way, the agent goes on with it after a restart.
		late := at.below(s.version) && e.Time.Before(r.now)
		if late || id == s.snapshot || slices.Contains(s.past, id) {
			return Verdict{}
		}
		if at.below(s.version) {
			r.rewind(e.Scope)
		}
		s.end()
		t.clock++
		s.snapshot, s.started, s.version = id, t.clock, at
	case TypeSnapshotCompleted:
		if id != s.snapshot {
			return Verdict{News: remember(&s.past, id) && !at.below(s.version)} // the start was not seen
		}
		s.floor = s.version
		s.end()
		return Verdict{News: true, Gone: r.sweep(key, e.Scope, s)}
	case TypeGap:
		if at.history < s.version.history || !remember(&s.gaps, e.ID) {
			return Verdict{}
		}
		if e.Stream.DeadLetter != "" {
			at.seq = max(at.seq, sequence(e.Stream.ToResourceVersion))
			return Verdict{News: true, Gone: r.letter(key, e.Stream.DeadLetter, at, t.clock)}
		}
	case TypeProgress:
		if !e.Time.After(s.progress.Time) {
			return Verdict{}
		}
		s.progress.Time = e.Time
		if !at.below(s.reached) { // an agent that was killed may be a little behind what it had said before
			s.reached, s.progress.ResourceVersion, s.progress.History = at, strings.Clone(e.Stream.ResourceVersion), at.history
		}
	}
	return Verdict{News: true}
}

// end puts the snapshot that is under way among the past ones.
func (s *scope) end() {
	if s.snapshot != "" {
		remember(&s.past, s.snapshot)
	}
	s.snapshot = ""
}

// remember puts an id among the past ones, and tells whether it was not there yet.
func remember(past *[]string, id string) bool {
	if slices.Contains(*past, id) {
		return false
	}
	if len(*past) == pastIDs {
		*past = slices.Delete(*past, 0, 1)
	}
	*past = append(*past, id)
	return true
}

// sweep takes away what the snapshot that s has completed shows to be gone. It need not be remembered: what is not above
// the floor of s and not known is too late.
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
			r.bury(uid, o.at, false, o.part)
		}
	}
	slices.SortFunc(gone, func(a, b Object) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return gone
}

// versionOf is the version of which an event about the stream speaks.
func versionOf(e *Event) point {
	return point{e.History(), max(sequence(e.Sequence), sequence(e.Stream.ResourceVersion))}
}

func sequence(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0 // left out where resourceVersions are no numbers: then nothing can be compared
	}
	return n
}
