package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// snapshot is one that is being sent. completed must follow the last of its reads: it is what lets a consumer sweep.
type snapshot struct {
	id        string
	scope     string
	namespace string // the only one, "": all of the scope
	rv        uint64
	began     time.Time
	objects   int // to be read in all, under the store's mu

	reads *checkpoint.Ledger[string] // its mark is the key up to which all are acknowledged
	done  chan struct{}              // closed when all are

	// resumed tells that an earlier run began it: what lies up to its cursor, and what has changed since it was begun, is on
	// the bus. (The delta of what has changed is acknowledged below the checkpoint, and the read of that object before it.)
	resumed bool
	cursor  string
	// filtered: a change may have been withheld, before the read of that object was on the bus.
	filtered bool
	withheld []string // keys of reads that were withheld, and may be once more by a restart
	where    string   // the condition by which it tells of objects as a whole
}

// newSnapshot begins one. Its id is in those of its reads: another scope of the resource may have begun one at the same resourceVersion
// within the same second, and the bus knows what it has by its id.
func newSnapshot(scope, namespace string, rv uint64, began time.Time) *snapshot {
	return &snapshot{
		id: began.UTC().Format("20060102T150405.000Z") + "-" + object.FormatVersion(rv), scope: scope, namespace: namespace, rv: rv, began: began,
		reads: newCursor(""), done: make(chan struct{}),
	}
}

func resumeSnapshot(scope string, c *checkpoint.Snapshot) *snapshot {
	return &snapshot{
		id: c.ID, scope: scope, namespace: c.Namespace, rv: c.ResourceVersion, objects: c.Objects,
		reads: newCursor(c.Cursor), done: make(chan struct{}), resumed: true, cursor: c.Cursor,
	}
}

// newCursor is a ledger of keys. A read that comes out of turn has the mark "", which leads nowhere.
func newCursor(at string) *checkpoint.Ledger[string] {
	return checkpoint.NewLedger(at, func(a, b string) string { return max(a, b) })
}

// takes tells if an object is to be read.
func (s *snapshot) takes(o *object.Object) bool {
	switch {
	case s.namespace != "" && o.Ref.Namespace() != s.namespace:
		return false
	case s.resumed:
		return o.Ref.Key > s.cursor && (s.filtered || o.ResourceVersion <= s.rv)
	}
	return true
}

// seal says that all reads are sent.
func (s *snapshot) seal() { s.reads.Seal(func() { close(s.done) }) }

func (s *snapshot) event(kind object.StreamKind, r *object.Resource) *object.StreamEvent {
	return &object.StreamEvent{
		Kind: kind, Resource: r, Scope: s.scope, Snapshot: s.id, ResourceVersion: s.rv, Objects: s.objects,
	}
}

// started is the notice that snap begins. Where it begins is saved first: of a snapshot that nobody remembers, a restart
// would begin another one, and what has changed in between would be told by none of the two.
func (s *store) started(snap *snapshot) *notice {
	return &notice{
		prepare: s.adopt,
		event:   func() *object.StreamEvent { return snap.event(object.SnapshotStarted, s.resource) },
	}
}

// adopt makes what the store holds what a restart goes on from, and has it saved.
func (s *store) adopt(ctx context.Context) error {
	s.mu.Lock()
	s.adopted, s.previous = true, nil
	s.mu.Unlock()
	if s.save == nil {
		return nil
	}
	return s.save(ctx)
}

// acknowledgedTo tells if every delta up to rv is on the bus.
func (s *store) acknowledgedTo(rv uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, _ := s.ledger.Mark()
	return m.rv >= rv
}

// complete says that a snapshot is on the bus.
func (s *store) complete(ctx context.Context, snap *snapshot) error {
	s.mu.Lock()
	current := s.snapshot == snap
	ev := snap.event(object.SnapshotCompleted, s.resource)
	ev.History = s.history
	s.mu.Unlock()
	if !current {
		return nil // history was lost meanwhile, and another one has taken its place
	}
	if err := s.sendStream(ctx, ev); err != nil {
		return err
	}
	s.mu.Lock()
	if s.snapshot == snap {
		s.snapshot = nil
		if snap.namespace == "" {
			s.toldWhere = snap.where
		}
	}
	s.mu.Unlock()
	return nil
}

// Started is a snapshot that was asked for.
type Started struct {
	Scope    string
	Snapshot string
	Objects  int
	Running  bool // it was in progress already
}

// request asks the cursor for a snapshot.
type request struct {
	scope, namespace string
	answer           chan begun // buffered
}

type begun struct {
	started Started
	err     error
}

var (
	errNotLoaded = errors.New("its first list is not loaded yet: try again when it is")
	errCatchUp   = errors.New("it is still catching up after a gap: try again in a moment")
)

// begin begins a snapshot of what the store holds, all of it or (scope names it) one namespace.
func (s *store) begin(scope, namespace string) begun {
	// With the turn, every live delta of what the store holds is in the queue.
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.snapshot != nil:
		return begun{started: Started{Scope: s.snapshot.scope, Snapshot: s.snapshot.id, Objects: s.snapshot.objects, Running: true}}
	case !s.loaded || s.listing != notListing:
		return begun{err: errNotLoaded}
	case s.due > 0 || len(s.announce) > 0 || s.barrier != nil:
		return begun{err: errCatchUp}
	}
	// Ids of one scope differ by the second, should nothing else have happened.
	began := s.now()
	if next := s.lastSnapshot.Add(time.Second); began.Before(next) {
		began = next
	}
	snap := newSnapshot(scope, namespace, s.rv, began)
	s.send(snap)
	s.shutGate()
	n := s.started(snap)
	n.prepare = func(ctx context.Context) error {
		// A restart from below the snapshot's resourceVersion would complete it before it has sent again what lies between:
		// a consumer would sweep what was created there.
		for wait := time.Millisecond; !s.acknowledgedTo(snap.rv); wait = min(2*wait, 100*time.Millisecond) {
			if !sleep(ctx, wait) {
				return context.Cause(ctx)
			}
		}
		return s.adopt(ctx)
	}
	s.announce = append(s.announce, n)
	return begun{started: Started{Scope: scope, Snapshot: snap.id, Objects: snap.objects}}
}

// Snapshot has the objects of a resource ("pods", "deployments.apps"; "": all resources) in a namespace ("": all) read and
// sent once more, while changes go on. It returns once each has begun, or was in progress.
func (s *Set) Snapshot(ctx context.Context, resource, namespace string) ([]Started, error) {
	s.mu.Lock()
	var all []*running
	names := map[string]bool{}
	for _, i := range s.informers {
		if i.silent {
			continue
		}
		names[i.resource.String()] = true
		if (resource == "" || resource == i.resource.String()) && i.observes(namespace) {
			all = append(all, i)
		}
	}
	s.mu.Unlock()
	if len(all) == 0 {
		what := resource
		if what == "" {
			what = "nothing"
		}
		if namespace != "" {
			what += " of namespace " + namespace
		}
		var known []string
		for n := range names {
			known = append(known, n)
		}
		slices.Sort(known)
		return nil, fmt.Errorf("%s is not captured; captured are: %v", what, known)
	}
	slices.SortFunc(all, func(a, b *running) int { return strings.Compare(a.scope, b.scope) })
	var out []Started
	var errs []error
	for _, i := range all {
		started, err := i.snapshot(ctx, namespace)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", i.scope, err))
			continue
		}
		out = append(out, started)
	}
	return out, errors.Join(errs...)
}

// observes tells if the scope has, or may have, objects in a namespace ("": asks for none).
func (i *informer) observes(namespace string) bool {
	return namespace == "" ||
		i.resource.Namespaced && (i.namespace == "" || i.namespace == namespace) && i.namespaces(namespace)
}

// snapshot asks the cursor for one.
func (i *informer) snapshot(ctx context.Context, namespace string) (Started, error) {
	r := &request{scope: i.scope, namespace: namespace, answer: make(chan begun, 1)}
	if i.namespace == namespace {
		r.namespace = "" // the scope has no other
	}
	if r.namespace != "" {
		r.scope = i.nameIn(i.resource, namespace)
	}
	i.store.mu.Lock()
	snap, objects := i.store.snapshot, 0
	if snap != nil {
		objects = snap.objects
	}
	i.store.mu.Unlock()
	if snap != nil { // the cursor may be busy with it for long
		return Started{Scope: snap.scope, Snapshot: snap.id, Objects: objects, Running: true}, nil
	}
	select {
	case i.store.requests <- r:
	case <-i.ended:
		return Started{}, errEnded
	case <-ctx.Done():
		return Started{}, context.Cause(ctx)
	}
	select {
	case b := <-r.answer:
		return b.started, b.err
	case <-ctx.Done(): // it waits for a live event that waits for room
		return Started{}, context.Cause(ctx)
	}
}
