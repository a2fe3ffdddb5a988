package informers

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Lane is an informer's end of the bounded queue. Deltas of one key leave in the order in which they came.
type Lane interface {
	// Put blocks until there is room, or ctx ends; then d was not taken.
	Put(ctx context.Context, key string, bytes int, d *object.Delta) error
	// TryPut takes d in the room that live deltas leave. It never blocks; false: not taken.
	TryPut(key string, bytes int, d *object.Delta) bool
	// Roomy blocks until a TryPut is likely to succeed, or ctx ends.
	Roomy(ctx context.Context) error
}

// deltaOverhead is about what a queued delta holds besides compressed bytes, in bytes: Delta, Object and queue item.
const deltaOverhead = 320

// due says what of an entry has still to be sent because of a list.
type due uint8

const (
	dueNothing  due = iota
	dueRead         // part of a snapshot, never sent
	dueInferred     // differs from what was sent last (prior), found by comparing lists
)

// entry is what the store knows of one key.
type entry struct {
	last *object.Object // the last-known object, nil where a list has missed it and that is still to be sent
	due  due
}

// store holds the last-known objects of one informer and forms its deltas.
//
// last is written by the reflector's goroutine only (lists and watches follow one another there); due and prior by it
// and by the catch-up cursor, under mu. Who takes something due does so under mu: the cursor puts it into the queue
// before it unlocks (TryPut does not block), the reflector unlocks, and puts it in front of its live delta. In both
// cases no one else can put a delta of that key in between: the reflector is one goroutine, and what is taken is no
// longer due for the cursor.
type store struct {
	lane     Lane
	selected selected
	metrics  *metrics
	resource *object.Resource
	scope    string
	prefix   string // of the keys of all objects
	now      func() time.Time

	mu      sync.Mutex
	objects map[string]entry
	prior   map[string]*object.Object // of entries that are dueInferred: what was sent last; none: nothing was
	held    int                       // compressed bytes of last-known objects
	due     int                       // entries that are due

	listing  bool // a list is being loaded: the cursor rests
	loaded   bool // a list has been loaded once
	unseen   map[string]struct{}
	listRV   uint64
	order    []string // keys that are due, sorted, from next on
	next     int
	announce []*object.StreamEvent // to be acknowledged before what is due behind it
	gate     chan struct{}         // closed: open. Live deltas wait for it.
	open     bool
	snapshot *snapshot // the one in progress
	caughtUp bool      // all that the first list made due is on the bus

	progressed func() // told when caughtUp becomes true, without mu

	interrupt context.CancelFunc // ends what the cursor waits for; nil: it has not begun
	wake      chan struct{}
}

// selected answers what became of an object under a selector. nil: there is no selector, DELETED means deleted. It asks
// until the server answers, or cannot tell any more (told is false); ok is false where ctx ended first. A store call
// blocks meanwhile as it does on a full queue: the watch is ended, and goes on later from there.
type selected interface {
	// before tells what o was right before its version: outside of the selector, or not at all (nil).
	before(ctx context.Context, o *object.Object) (was *object.Object, told, ok bool)
	// exists tells if the object lives on at rv; rv 0: now.
	exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, told, ok bool)
}

func newStore(resource *object.Resource, scope string, lane Lane, sel selected, m *metrics) *store {
	return &store{
		lane: lane, selected: sel, metrics: m, resource: resource, scope: scope, prefix: resource.String() + "/", now: time.Now,
		objects: map[string]entry{}, prior: map[string]*object.Object{},
		gate: make(chan struct{}), wake: make(chan struct{}, 1), progressed: func() {},
	}
}

// ref finds the identity that the store holds for a name and uid, and when its last-known version was managed. Else it
// makes a new one. The arguments are not kept; scratch is reused.
func (s *store) ref(namespace, name, uid []byte, scratch *[]byte) (*object.Ref, object.Stamp) {
	k := append((*scratch)[:0], s.prefix...)
	k = append(k, namespace...)
	if len(namespace) > 0 {
		k = append(k, '/')
	}
	k = append(k, name...)
	*scratch = k
	s.mu.Lock()
	last := s.objects[string(k)].last
	s.mu.Unlock()
	if last != nil && last.Ref.UID == string(uid) {
		return last.Ref, last.Managed
	}
	return object.NewRef(s.resource, string(namespace), string(name), string(uid)), 0
}

// apply takes one live event. It blocks until everything it makes due is in the queue, or ctx ends.
func (s *store) apply(ctx context.Context, typ watch.EventType, o *observed) {
	if !s.passGate(ctx) {
		return
	}
	key := o.object.Ref.Key
	s.mu.Lock()
	last := s.objects[key].last
	s.mu.Unlock()
	same := last != nil && last.Ref.UID == o.object.Ref.UID
	if same && (o.object.ResourceVersion < last.ResourceVersion || o.object.ResourceVersion == last.ResourceVersion && typ != watch.Deleted) {
		// A server that replays: this version, or a later one, is on its way already. A deletion may carry the version of
		// what it deletes, where a server does not give it one of its own.
		s.metrics.skippedKnown.Inc()
		return
	}
	live, ok := s.live(ctx, typ, last, o)
	if !ok {
		return
	}

	s.mu.Lock()
	deltas := s.takeDue(key, o.object.Ref.UID, live)
	switch {
	case typ != watch.Deleted:
		s.set(key, entry{last: o.object})
	case same || last == nil:
		s.set(key, entry{})
	}
	s.mu.Unlock()

	for _, d := range deltas {
		s.metrics.count(d)
		if s.lane.Put(ctx, key, heldBytes(d), d) != nil {
			return // the agent stops: what was not taken is read again from the checkpoint or a list
		}
	}
}

// live forms the deltas of one live event against the last-known object; false: ctx ended before they could be told.
func (s *store) live(ctx context.Context, typ watch.EventType, last *object.Object, o *observed) ([]*object.Delta, bool) {
	now := o.object
	d := &object.Delta{Ref: now.Ref, ResourceVersion: now.ResourceVersion, Observed: o.at, ChangedBy: o.changedBy}
	if typ == watch.Deleted {
		d.Op, d.Before, d.ChangedBy = object.Deleted, now, nil
		if last != nil && last.Ref.UID == now.Ref.UID {
			d.Before, d.Previous = last, last.ResourceVersion
		}
		if s.selected != nil {
			exists, told, ok := s.selected.exists(ctx, now.Ref, now.ResourceVersion)
			if !ok {
				return nil, false
			}
			if exists || !told {
				d.Op, d.Inferred = object.Left, !told
			}
		}
		return []*object.Delta{d}, true
	}

	d.After = now
	switch {
	case last != nil && last.Ref.UID == now.Ref.UID:
		d.Op, d.Before, d.Previous = object.Updated, last, last.ResourceVersion
	case last != nil:
		// The name was taken again and the deletion in between not shown. Two facts, two deltas.
		gone := &object.Delta{
			Op: object.Deleted, Inferred: true, Ref: last.Ref, Before: last,
			ResourceVersion: now.ResourceVersion, Previous: last.ResourceVersion, Observed: o.at,
		}
		d.Op = object.Created
		return []*object.Delta{gone, d}, true
	case s.selected == nil:
		d.Op = object.Created
	default:
		was, told, ok := s.selected.before(ctx, now)
		if !ok {
			return nil, false
		}
		switch {
		case !told:
			// Whether it was created or changed into the selector is gone from history. Entered claims less.
			d.Op, d.Inferred = object.Entered, true
		case was == nil:
			d.Op = object.Created
		default:
			d.Op, d.Before, d.Previous = object.Entered, was, was.ResourceVersion
			d.ChangedBy = nil // what it holds is compared with no version before: all managers there ever were
		}
	}
	return []*object.Delta{d}, true
}

// takeDue puts what catch-up still owes for key in front of its live deltas, and owes it no longer. uid is that of the
// live object. The caller holds mu.
func (s *store) takeDue(key, uid string, live []*object.Delta) []*object.Delta {
	e := s.objects[key]
	if e.due == dueNothing {
		return live
	}
	gone := object.Deleted
	if p := s.prior[key]; s.selected != nil && p != nil && p.Ref.UID == uid {
		gone = object.Left // the list missed it, and it is here again: it had left the selector
	}
	var out []*object.Delta
	for {
		d := s.nextDue(key, gone)
		s.settle(key, d)
		if d == nil {
			return append(out, live...)
		}
		out = append(out, d)
	}
}

// nextDue forms the next delta that a key owes because of a list, nil where it owes nothing (more). The caller holds mu.
func (s *store) nextDue(key string, gone object.Op) *object.Delta {
	e, prior := s.objects[key], s.prior[key]
	d := &object.Delta{Observed: s.now().UnixNano(), After: e.last}
	switch {
	case e.due == dueNothing || e.last == nil && prior == nil:
		return nil
	case e.due == dueRead:
		d.Op, d.Ref, d.ResourceVersion = object.Read, e.last.Ref, e.last.ResourceVersion
		d.Snapshot, d.Acker = s.snapshot.id, s.snapshot
		return d
	case e.last == nil || prior != nil && prior.Ref.UID != e.last.Ref.UID:
		d.Op, d.Ref, d.Before, d.After = object.Deleted, prior.Ref, prior, nil
		d.ResourceVersion, d.Previous = s.listRV, prior.ResourceVersion
		if e.last == nil {
			d.Op = gone
		}
	case prior == nil:
		d.Op, d.Ref, d.ResourceVersion = object.Created, e.last.Ref, e.last.ResourceVersion
		if s.selected != nil {
			d.Op = object.Entered
		}
	case prior.ResourceVersion == e.last.ResourceVersion:
		return nil
	default:
		d.Op, d.Ref, d.Before = object.Updated, e.last.Ref, prior
		d.ResourceVersion, d.Previous = e.last.ResourceVersion, prior.ResourceVersion
	}
	d.Inferred = true
	return d
}

// settle notes that d, formed by nextDue, is on its way (nil: there was nothing to send). The caller holds mu.
func (s *store) settle(key string, d *object.Delta) {
	e := s.objects[key]
	delete(s.prior, key)
	if d != nil && d.Op == object.Read {
		s.snapshot.sent++
	}
	if d != nil && d.Op == object.Deleted && e.last != nil {
		return // the object that has the name now is still due
	}
	e.due = dueNothing
	s.set(key, e)
}

// set writes an entry, and forgets a key that has neither an object nor anything due. The caller holds mu.
func (s *store) set(key string, e entry) {
	old := s.objects[key]
	if old.last != nil {
		s.held -= old.last.HeldBytes()
	}
	if e.last != nil {
		s.held += e.last.HeldBytes()
	}
	if old.due != dueNothing {
		s.due--
	}
	if e.due != dueNothing {
		s.due++
	}
	if e.last == nil && e.due == dueNothing {
		delete(s.objects, key)
	} else {
		s.objects[key] = e
	}
	s.metrics.objects.Set(float64(len(s.objects)))
	s.metrics.heldBytes.Set(float64(s.held))
}

// passGate waits until the stream event that announces the last list is acknowledged.
func (s *store) passGate(ctx context.Context) bool {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	select {
	case <-gate:
		return true
	default:
	}
	select {
	case <-gate:
		return true
	case <-ctx.Done():
		return false
	}
}

// beginList prepares for a list: from here on until endList, load is called for each object of it. A list that failed
// half-way is begun again.
func (s *store) beginList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing = true
	if s.interrupt != nil {
		s.interrupt()
	}
	if s.open {
		s.gate, s.open = make(chan struct{}), false
	}
	s.unseen = make(map[string]struct{}, len(s.objects))
	for key := range s.objects {
		s.unseen[key] = struct{}{}
	}
}

// load takes one object of a list. read: a snapshot of objects that were never sent.
func (s *store) load(o *object.Object, read bool) {
	key := o.Ref.Key
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unseen, key)
	e, known := s.objects[key]
	switch {
	case !s.loaded && read:
		s.set(key, entry{last: o, due: dueRead})
	case !s.loaded:
		s.set(key, entry{last: o})
	case !known:
		s.set(key, entry{last: o, due: dueInferred})
	case e.last != nil && e.last.Ref.UID == o.Ref.UID && e.last.ResourceVersion == o.ResourceVersion:
		// nothing new
	case e.due == dueNothing:
		s.prior[key] = e.last
		s.set(key, entry{last: o, due: dueInferred})
	default:
		s.set(key, entry{last: o, due: e.due})
	}
}

// endList completes a list at resourceVersion rv: what it missed is gone, what it changed is due. announce is the
// stream event that has to be acknowledged first, made of the number of objects that are due; nil: none.
func (s *store) endList(rv uint64, announce func(objects int) *object.StreamEvent, snap *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.unseen {
		switch e := s.objects[key]; {
		case !s.loaded || e.due == dueRead:
			s.set(key, entry{}) // never sent: nobody has to hear that it is gone
		case e.due == dueNothing:
			s.prior[key] = e.last
			s.set(key, entry{due: dueInferred})
		case s.prior[key] == nil:
			s.set(key, entry{})
		default:
			s.set(key, entry{due: dueInferred})
		}
	}
	s.unseen, s.listing, s.loaded, s.listRV = nil, false, true, rv
	if snap != nil {
		s.snapshot = snap
	}
	s.order, s.next = s.order[:0], 0
	for key, e := range s.objects {
		if e.due != dueNothing {
			s.order = append(s.order, key)
		}
	}
	slices.SortFunc(s.order, strings.Compare)
	if announce != nil {
		s.announce = append(s.announce, announce(len(s.order)))
	}
	select {
	case s.wake <- struct{}{}:
	default: // it is awake: it looks at the state, not at the number of wakes
	}
}

// heldBytes is what a delta holds while it waits, in bytes. before is usually shared with the delta in front of it or
// with the store, so this is an upper bound.
func heldBytes(d *object.Delta) int {
	n := deltaOverhead + len(d.ChangedBy)
	if d.Before != nil {
		n += d.Before.HeldBytes()
	}
	if d.After != nil {
		n += d.After.HeldBytes()
	}
	return n
}
