package store

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Snapshot is one that is being sent. completed must follow the last of its reads: it is what lets a consumer sweep.
type Snapshot struct {
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

	// Of a snapshot of what the store holds, until its start is acknowledged.
	request *request // nil once it is answered
	before  struct { // what holds again if the snapshot is given up
		began time.Time
		sweep bool
	}
}

// snapshots are the snapshot that is being sent, and those that follow.
type snapshots struct {
	current   *Snapshot    // the one of which the bus has not acknowledged everything
	due       bool         // another one has to follow
	began     time.Time    // of the last snapshot of the whole scope
	lastAsked time.Time    // in the id of the last one that was asked for
	orphan    acknowledged // closed when the bus has the start of the last snapshot that was given up, nil: there is none
	where     string       // the condition under which the last one was made
}

// NewSnapshot begins a snapshot of the whole scope as a list at rv shows it. The notice is that of its start.
func (s *Store) NewSnapshot(rv uint64) (*Snapshot, *Notice) {
	snap := newSnapshot(s.o.Scope, "", rv, time.Now())
	s.o.Log.Debug("snapshot started", "scope", s.o.Scope, "snapshot", snap.id, "rv", rv)
	return snap, s.started(snap)
}

// ResumeSnapshot continues the snapshot that the checkpoint c has: of the scope of that name. The notice is nil if its start is on the bus.
func (s *Store) ResumeSnapshot(scope string, c *checkpoint.Scope) (*Snapshot, *Notice) {
	snap := resumeSnapshot(scope, c.Snapshot)
	snap.filtered, snap.where = c.Filtered, c.Where
	if snap.cursor == "" { // nobody knows if it was announced
		return snap, s.started(snap)
	}
	return snap, nil
}

// newSnapshot begins one. Its id is in those of its reads: another scope of the resource may have begun one at the same resourceVersion
// within the same second, and the bus knows what it has by its id.
func newSnapshot(scope, namespace string, rv uint64, began time.Time) *Snapshot {
	return &Snapshot{
		id: began.UTC().Format("20060102T150405.000Z") + "-" + object.FormatVersion(rv), scope: scope, namespace: namespace, rv: rv, began: began,
		reads: newCursor(""), done: make(chan struct{}),
	}
}

func resumeSnapshot(scope string, c *checkpoint.Snapshot) *Snapshot {
	return &Snapshot{
		id: c.ID, scope: scope, namespace: c.Namespace, rv: c.ResourceVersion, objects: c.Objects,
		reads: newCursor(c.Cursor), done: make(chan struct{}), resumed: true, cursor: c.Cursor,
	}
}

// newCursor is a ledger of keys. A read that comes out of turn has the mark "", which leads nowhere.
func newCursor(at string) *checkpoint.Ledger[string] {
	return checkpoint.NewLedger(at, func(a, b string) string { return max(a, b) })
}

// started is the notice that snap begins. Where it begins is saved first: of a snapshot that nobody remembers, a restart
// would begin another one, and what has changed in between would be told by none of the two.
func (s *Store) started(snap *Snapshot) *Notice {
	n := &Notice{
		prepare: s.adopt, opens: snap,
		event: func() *object.StreamEvent { return snap.event(object.SnapshotStarted, s.o.Resource) },
	}
	if snap.namespace == "" && !snap.resumed {
		n.done = func() { s.log.snapshotted = max(s.log.snapshotted, s.log.announced) }
	}
	return n
}

// complete says that a snapshot is on the bus.
func (s *Store) complete(ctx context.Context, snap *Snapshot) error {
	s.mu.Lock()
	s.noteReplacementLocked()
	current := s.snaps.current == snap && !s.log.owes()
	ev := snap.event(object.SnapshotCompleted, s.o.Resource)
	ev.History = s.pos.history
	s.mu.Unlock()
	if !current {
		return nil // history, or the log, was lost meanwhile, and another one has taken its place
	}
	if err := s.SendStream(ctx, ev); err != nil {
		return err
	}
	s.mu.Lock()
	if s.snaps.current == snap {
		s.snaps.current = nil
		if snap.namespace == "" {
			s.snaps.where = snap.where
		}
	}
	s.mu.Unlock()
	return nil
}

// SendEmptySnapshot sends a snapshot of no objects at rv: nothing of the scope is known any more.
func (s *Store) SendEmptySnapshot(ctx context.Context, rv uint64) error {
	snap := newSnapshot(s.o.Scope, "", rv, time.Now())
	for _, kind := range []object.StreamKind{object.SnapshotStarted, object.SnapshotCompleted} {
		ev := snap.event(kind, s.o.Resource)
		ev.History = s.History()
		if err := s.SendStream(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// Adopt is the notice that what the store holds is what a restart goes on from. Nothing is sent.
func (s *Store) Adopt() *Notice { return &Notice{prepare: s.adopt} }

// adopt makes what the store holds what a restart goes on from, and has it saved.
func (s *Store) adopt(ctx context.Context) error {
	s.mu.Lock()
	s.pos.own, s.pos.previous = true, nil
	s.mu.Unlock()
	if s.o.Save == nil {
		return nil
	}
	return s.o.Save(ctx)
}

// SnapshotPending reports whether a snapshot is being sent, or has to follow.
func (s *Store) SnapshotPending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snaps.due || s.snaps.current != nil
}

// snapshotBegan is when the last snapshot of the whole scope began, zero: none has.
func (s *Store) snapshotBegan() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snaps.began
}

// takes tells if an object is to be read.
func (s *Snapshot) takes(o *object.Object) bool {
	switch {
	case s.namespace != "" && o.Ref.Namespace() != s.namespace:
		return false
	case s.resumed:
		return o.Ref.Key > s.cursor && (s.filtered || o.ResourceVersion <= s.rv)
	}
	return true
}

// seal says that all reads are sent.
func (s *Snapshot) seal() { s.reads.Seal(func() { close(s.done) }) }

func (s *Snapshot) event(kind object.StreamKind, r *object.Resource) *object.StreamEvent {
	return &object.StreamEvent{
		Kind: kind, Resource: r, Scope: s.scope, Snapshot: s.id, ResourceVersion: s.rv, Objects: s.objects,
	}
}

// answer says that the snapshot has begun, unless that was said already. The caller holds the store's mu.
func (s *Snapshot) answer() {
	if r := s.request; r != nil {
		s.request = nil
		r.answer <- begun{started: Started{Scope: s.scope, Snapshot: s.id, Objects: s.objects}}
	}
}
