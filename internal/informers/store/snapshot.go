package store

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// snapshot is one that is being sent. snapshot.completed must follow the last of its reads: a consumer then deletes every object of the scope that
// was neither read nor changed since snapshot.started.
type snapshot struct {
	id        string
	scope     string
	namespace string // the only one, "": all of the scope
	rv        uint64
	began     time.Time
	objects   int // to be read in all; needs the store's mu

	reads *checkpoint.Ledger[string] // its mark is the key up to which the bus has acknowledged all
	done  chan struct{}              // closed when it has acknowledged all

	// resumed: an earlier run began it. The bus has the objects up to cursor, and those that changed since the snapshot began: the delta of
	// a change is acknowledged below the checkpoint, and the read of that object before it.
	resumed bool
	cursor  string
	// filtered: a change may have been withheld before the bus had the read of that object.
	filtered bool
	withheld []string // keys of reads that were withheld, and may be withheld again after a restart
	where    string   // the condition under which objects as a whole are sent, see SetFilter

	// Of a snapshot of the last-known objects, until the bus has acknowledged its start.
	request *request // nil once it is answered
	before  struct { // restored if the snapshot is given up
		began time.Time
		sweep bool
	}
}

// snapshots are the snapshot that is being sent, and those that follow.
type snapshots struct {
	current   *snapshot    // the one of which the bus has not acknowledged everything
	due       bool         // another one has to follow
	began     time.Time    // of the last snapshot of the whole scope
	lastAsked time.Time    // in the id of the last one that was asked for
	orphan    acknowledged // closed when the bus has the start of the last snapshot that was given up, nil: there is none
	where     string       // the condition under which the last one was made
}

// NewSnapshot returns a snapshot of the whole scope at the list of resourceVersion rv, for EndList.
func (s *Store) NewSnapshot(rv uint64) *Notice {
	snap := newSnapshot(s.o.Scope, "", rv, time.Now())
	s.o.Log.Debug("snapshot started", "scope", s.o.Scope, "snapshot", snap.id, "rv", rv)
	return s.started(snap)
}

// ResumeSnapshot returns the unfinished snapshot of the checkpoint c, for EndList. Nothing is announced if the bus has its start. scope is the name of the
// part of the scope that it reads.
func (s *Store) ResumeSnapshot(scope string, c *checkpoint.Scope) *Notice {
	snap := &snapshot{
		id: c.Snapshot.ID, scope: scope, namespace: c.Snapshot.Namespace, rv: c.Snapshot.ResourceVersion, objects: c.Snapshot.Objects,
		reads: newCursor(c.Snapshot.Cursor), done: make(chan struct{}), resumed: true, cursor: c.Snapshot.Cursor,
		filtered: c.Filtered, where: c.Where,
	}
	if snap.cursor == "" { // it may not have been announced
		return s.started(snap)
	}
	return &Notice{opens: snap}
}

// newSnapshot returns a snapshot with an id of its own. The ids of its reads contain it, and the bus drops records with known ids. Therefore it
// has milliseconds: another scope of the resource may begin a snapshot at the same resourceVersion within the same second.
func newSnapshot(scope, namespace string, rv uint64, began time.Time) *snapshot {
	return &snapshot{
		id: began.UTC().Format("20060102T150405.000Z") + "-" + object.FormatVersion(rv), scope: scope, namespace: namespace, rv: rv, began: began,
		reads: newCursor(""), done: make(chan struct{}),
	}
}

// newCursor returns a ledger of keys. A read out of key order has the mark "", which does not move it.
func newCursor(at string) *checkpoint.Ledger[string] {
	return checkpoint.NewLedger(at, func(a, b string) string { return max(a, b) })
}

// takes reports whether an object is to be read.
func (s *snapshot) takes(o *object.Object) bool {
	switch {
	case s.namespace != "" && o.Ref.Namespace() != s.namespace:
		return false
	case s.resumed:
		return o.Ref.Key > s.cursor && (s.filtered || o.ResourceVersion <= s.rv)
	}
	return true
}

func (s *snapshot) event(kind object.StreamKind, r *object.Resource) *object.StreamEvent {
	return &object.StreamEvent{
		Kind: kind, Resource: r, Scope: s.scope, Snapshot: s.id, ResourceVersion: s.rv, Objects: s.objects,
	}
}

// answer answers the request, if that is still open, with the snapshot. It needs the store's mu.
func (s *snapshot) answer() {
	if r := s.request; r != nil {
		s.request = nil
		r.answer <- begun{started: s.status(false)}
	}
}

func (s *snapshot) status(running bool) Started {
	return Started{Scope: s.scope, Snapshot: s.id, Objects: s.objects, Running: running}
}

// started returns the notice of the start of snap. The position is saved before: otherwise a restart would begin another snapshot, and
// neither of the two would have what changed in between.
func (s *Store) started(snap *snapshot) *Notice {
	return &Notice{
		prepare: s.adopt, opens: snap,
		event: func() *object.StreamEvent { return snap.event(object.SnapshotStarted, s.o.Resource) },
	}
}

// complete sends snapshot.completed, unless the snapshot was given up.
func (s *Store) complete(ctx context.Context, snap *snapshot) error {
	s.mu.Lock()
	s.noteReplacementLocked()
	current := s.snaps.current == snap && !s.log.owes()
	ev := snap.event(object.SnapshotCompleted, s.o.Resource)
	ev.History = s.pos.history
	s.mu.Unlock()
	if !current {
		return nil // another one replaces it, because history or the log was lost
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

// SendEmptySnapshot sends a snapshot without objects at resourceVersion rv, after which consumers have nothing of the scope any more. It waits
// for acknowledgements. The only error is the cause of ctx.
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

// Adopt returns a notice that sends nothing: the store takes its own position, and saves it. It is for scopes without snapshots.
func (s *Store) Adopt() *Notice { return &Notice{prepare: s.adopt} }

// adopt makes the ledger the position, and saves it.
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
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.snaps.due || s.snaps.current != nil
}
