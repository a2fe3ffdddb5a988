package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
)

// snapshot is a snapshot in progress. snapshot.completed must follow the last of its reads: a
// consumer then deletes every object of the scope that was neither read nor changed since
// snapshot.started.
type snapshot struct {
	id        string
	scope     string
	namespace string // the only one, "" for the whole scope
	rv        uint64
	named     time.Time // time in the id
	began     time.Time
	initial   bool                       // see snapshots
	objects   int                        // total number to read; guarded by the store's mu
	reads     *checkpoint.Ledger[string] // its mark is the key up to which all reads are acknowledged
	phase     snapshotPhase              // guarded by the store's mu
	done      <-chan struct{}            // closed when all reads are acknowledged; nil before snapshotSent
	// resumed: an earlier run began it. The bus has the objects up to cursor, and those that
	// changed since. The deltas of changes below the checkpoint are acknowledged, and the reads of
	// those objects before them.
	resumed  bool
	begun    bool // the bus has its start. Otherwise nothing has passed it, and a resumed one begins as a new one
	cursor   string
	filtered bool     // a change may have been withheld before the bus had the read of that object
	withheld []string // keys of reads that were withheld, and may be withheld again after a restart
	gone     int      // hiding.gone at its start

	// Used by a snapshot that was asked for.
	request *request // nil after its answer
	before  struct { // restored if the snapshot is given up
		began time.Time
		sweep bool
	}
}

type snapshots struct {
	current *snapshot // the one that the bus has not acknowledged completely
	due     bool      // another one must follow
	after   uint64    // see AwaitReplay; 0 if none
	// the scope began without a position, and has no complete snapshot: the bus may have records of
	// an earlier run
	initial bool
	began   time.Time // of the last snapshot of the whole scope
	// when the last snapshot of the whole scope began that the bus has completely; zero: not known
	completed time.Time
	lastAsked time.Time    // time in the id of the last requested one
	orphan    acknowledged // closed when the bus has the start of the last one that was given up; nil if there is none
}

// NewSnapshot returns a snapshot of the whole scope at the list of resourceVersion rv, for EndList.
// initial: the scope has no position.
func (s *Store) NewSnapshot(rv uint64, initial bool) *Notice {
	snap := newSnapshot(s.o.Scope, "", rv, time.Now(), s.o.Now())
	snap.initial = initial
	s.o.Log.Debug("snapshot started", "scope", s.o.Scope, "snapshot", snap.id, "rv", rv)
	return s.started(snap)
}

// ResumeSnapshot returns the unfinished snapshot of the checkpoint c, of the part named scope, for
// EndList.
func (s *Store) ResumeSnapshot(scope string, c *checkpoint.Scope) *Notice {
	snap := &snapshot{
		id:        c.Snapshot.ID,
		scope:     scope,
		namespace: c.Snapshot.Namespace,
		rv:        c.Snapshot.ResourceVersion,
		objects:   c.Snapshot.Objects,
		phase:     snapshotBound,
		reads:     newCursor(c.Snapshot.Cursor),
		resumed:   true,
		begun:     c.Snapshot.Begun,
		cursor:    c.Snapshot.Cursor,
		filtered:  c.Filtered,
	}
	if snap.cursor == "" { // it may not have been announced
		return s.started(snap)
	}
	return &Notice{opens: snap}
}

// AwaitReplay makes snapshots of the last-known objects wait until the watch has sent everything up
// to rv; 0 ends the wait. The bus may have events up to rv of an earlier run. An older read would
// follow them, and consumers would sweep what was created in between.
func (s *Store) AwaitReplay(rv uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snaps.after = rv
	broadcast.Wake(s.kick)
}

// RequireSnapshot makes a snapshot of the whole scope follow the replay. It replaces the one of the
// checkpoint, whose reads filters may have withheld.
func (s *Store) RequireSnapshot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snaps.due = true
	if p := s.pos.previous; p != nil && p.Filtered && p.Snapshot != nil && !s.hidden.any() {
		s.inheritHiddenLocked(&p.Scope)
	}
}

// newSnapshot returns a snapshot with a unique id, because the bus drops reads with known ids.
// Another scope of the resource may begin a snapshot at the same resourceVersion within the same
// second. The id has the time of the wall clock: that of the run may stand still.
func newSnapshot(scope, namespace string, rv uint64, named, began time.Time) *snapshot {
	return &snapshot{
		id:        named.UTC().Format("20060102T150405.000Z") + "-" + object.FormatVersion(rv),
		scope:     scope,
		namespace: namespace,
		rv:        rv,
		named:     named,
		began:     began,
		phase:     snapshotBound,
		reads:     newCursor(""),
	}
}

func newCursor(at string) *checkpoint.Ledger[string] {
	return checkpoint.NewLedger(at, func(a, b string) string { return max(a, b) })
}

func (s *snapshot) takes(o *object.Object) bool {
	if s.namespace != "" && o.Ref.Namespace() != s.namespace {
		return false
	}
	return !s.resumed || !s.begun || o.Ref.Key > s.cursor && (s.filtered || o.ResourceVersion <= s.rv)
}

func (s *snapshot) event(kind object.StreamKind, r *object.Resource) *object.StreamEvent {
	return &object.StreamEvent{
		Kind:            kind,
		Resource:        r,
		Scope:           s.scope,
		Snapshot:        s.id,
		ResourceVersion: s.rv,
		Objects:         s.objects,
		Initial:         s.initial && kind == object.SnapshotStarted,
	}
}

// mayBeGivenUp reports whether changes may still pass the snapshot. It is false for nil.
func (s *snapshot) mayBeGivenUp() bool { return s != nil && s.phase.mayBeGivenUp() }

// answer answers the request, if that is still open. It must be called with the store's mu held.
func (s *snapshot) answer() {
	if r := s.request; r != nil {
		s.request = nil
		r.answer <- begun{started: s.status(false)}
	}
}

func (s *snapshot) status(running bool) Started {
	return Started{
		Scope:    s.scope,
		Snapshot: s.id,
		Objects:  s.objects,
		Running:  running,
	}
}

// started returns the notice of the start of snap. The position is saved before it: otherwise a
// restart would begin another snapshot, and changes in between would be missing from both.
func (s *Store) started(snap *snapshot) *Notice {
	return &Notice{
		prepare: s.adopt, opens: snap,
		event: func() *object.StreamEvent {
			ev := snap.event(object.SnapshotStarted, s.o.Resource)
			ev.Continued, ev.Observation = snap.resumed && snap.begun, s.observationLocked()
			return ev
		},
	}
}

// complete sends snapshot.completed, unless the snapshot was given up: then another one replaces
// it, because history or the log was lost.
func (s *Store) complete(ctx context.Context) error {
	s.mu.Lock()
	s.noteReplacementLocked()
	snap := s.snaps.current
	if snap == nil || snap.phase != snapshotSent || snap.reads.Outstanding() > 0 || s.log.owes() {
		s.mu.Unlock()
		return nil
	}
	ev := snap.event(object.SnapshotCompleted, s.o.Resource)
	ev.History = s.pos.history
	s.mu.Unlock()
	if err := s.SendStream(ctx, ev); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snaps.current == snap {
		s.enterLocked(snap, snapshotCompleted)
		s.snaps.current = nil
		s.completeHiddenLocked(snap)
		if snap.namespace == "" {
			s.snaps.completed = s.snaps.began
		}
		s.snaps.initial = s.snaps.initial && snap.namespace != ""
	}
	return nil
}

// SendEmptySnapshot sends a snapshot without objects at rv, and waits for acknowledgements. The
// only error is the cause of ctx.
func (s *Store) SendEmptySnapshot(ctx context.Context, rv uint64) error {
	snap := newSnapshot(s.o.Scope, "", rv, time.Now(), s.o.Now())
	for _, kind := range []object.StreamKind{object.SnapshotStarted, object.SnapshotCompleted} {
		ev := snap.event(kind, s.o.Resource)
		ev.History = s.View().History
		if err := s.SendStream(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// Adopt returns a notice that sends nothing. It makes the store use its own position, and saves it.
// It is for scopes without snapshots.
func (s *Store) Adopt() *Notice { return &Notice{prepare: s.adopt} }

// adopt makes the store use its own position, and saves it. If a list has begun meanwhile, it has
// ended ctx: a gap must come first.
func (s *Store) adopt(ctx context.Context) error {
	s.mu.Lock()
	isValid := ctx.Err() == nil
	if isValid {
		s.pos.own, s.pos.previous = true, nil
	}
	s.mu.Unlock()
	if !isValid {
		return context.Cause(ctx)
	}
	return s.o.Save(ctx)
}

// Started is the answer to TakeSnapshot.
type Started struct {
	Scope    string // name of the part that is read
	Snapshot string // id
	Objects  int    // to be read
	Running  bool   // the snapshot was in progress before
}

// request asks for a snapshot of a namespace ("": of all). scope is the name of that part.
type request struct {
	scope, namespace string
	answer           chan begun // buffered
}

type begun struct {
	started Started
	err     error
}

const (
	beginWithin = 20 * time.Second // limit of a snapshot's wait for the bus and the checkpoint while live deltas pass
	gateWithin  = 5 * time.Second  // limit of live deltas' wait for a snapshot that begins. It is given up then
)

// ErrNotBegun means that a snapshot was given up because it could not begin in time. No change
// waits for it.
var ErrNotBegun = errors.New("the snapshot cannot begin")

var (
	errEnded     = errors.New("informer has ended")
	errNotLoaded = errors.New("its first list is not loaded yet: try again later")
	errCatchUp   = errors.New("it is still catching up: try again in a minute")
)

// TakeSnapshot starts a snapshot of the last-known objects in a namespace ("": of all). scope is
// the name of that part. It returns once the bus has acknowledged the start, or at once if a
// snapshot is in progress. If the snapshot cannot begin within 25 s, it is given up, logged, and
// ErrNotBegun is returned. Other errors say why no snapshot can begin now, or are the cause of ctx.
func (s *Store) TakeSnapshot(ctx context.Context, scope, namespace string) (_ Started, err error) {
	defer func() {
		if errors.Is(err, ErrNotBegun) {
			s.o.Log.Warn("a snapshot cannot begin and is canceled; changes are still captured", "scope", s.o.Scope,
				"err", err)
		}
	}()
	s.mu.Lock()
	refusal := s.refusalLocked()
	rv := s.known.rv
	orphan := s.snaps.orphan
	s.mu.Unlock()
	if refusal != nil { // the cursor may be busy for long
		return refusal.started, refusal.err
	}
	within, cancel := context.WithTimeoutCause(ctx, beginWithin, fmt.Errorf("waited for %v", beginWithin))
	defer cancel()
	r := &request{scope: scope, namespace: namespace, answer: make(chan begun, 1)}
	if err = s.clearTheWay(within, rv, orphan); err == nil {
		select {
		case s.requests <- r:
		case <-s.ended:
			return Started{}, errEnded
		case <-within.Done():
			err = errCatchUp
		}
	}
	switch {
	case ctx.Err() != nil:
		return Started{}, context.Cause(ctx)
	case within.Err() != nil && err != nil:
		return Started{}, fmt.Errorf("%w: %w", ErrNotBegun, err)
	case err != nil:
		return Started{}, err
	}
	select {
	case b := <-r.answer:
		return b.started, b.err
	case <-s.ended:
		return Started{}, errEnded
	case <-ctx.Done():
		return Started{}, context.Cause(ctx)
	}
}

// clearTheWay waits, with the gate open, until the bus has acknowledged everything up to rv and the
// position is saved. A snapshot then waits only for later changes while the gate is closed.
func (s *Store) clearTheWay(ctx context.Context, rv uint64, orphan acknowledged) error {
	if orphan != nil {
		if err := orphan.wait(ctx); err != nil {
			return fmt.Errorf("the bus has not acknowledged the start of the previous snapshot: %w", err)
		}
	}
	if err := s.awaitAcknowledged(ctx, rv); err != nil {
		return err
	}
	return s.o.Save(ctx)
}

func (s *Store) awaitAcknowledged(ctx context.Context, rv uint64) error {
	if err := s.mu.Wait(ctx, func() bool { return s.View().Acknowledged >= rv }); err != nil {
		return fmt.Errorf("the bus has not acknowledged the changes before it: %w", err)
	}
	return nil
}

// refusalLocked returns the answer to a request for a snapshot of the last-known objects, or nil if
// one can begin now.
func (s *Store) refusalLocked() *begun {
	switch {
	case s.snaps.current != nil:
		return &begun{started: s.snaps.current.status(true)}
	case s.list.at != listed:
		return &begun{err: errNotLoaded}
	case s.known.pendingKeys > 0 || len(s.gate.notices) > 0 || s.pos.barrier != nil || s.known.rv < s.snaps.after:
		return &begun{err: errCatchUp}
	}
	return nil
}

// begin begins a snapshot of the last-known objects, and closes the gate. It answers r once the
// start is acknowledged or given up.
func (s *Store) begin(ctx context.Context, r *request) {
	// The reads must not pass a live delta of the last-known objects that is not in the lane yet.
	s.mu.Lock()
	s.closeGateLocked()
	s.mu.Unlock()
	limit, cancel := context.WithTimeoutCause(ctx, gateWithin, fmt.Errorf("waited for %v", gateWithin))
	defer cancel()
	err := s.mu.Wait(limit, func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return !s.applying
	})
	if err != nil {
		r.answer <- begun{err: fmt.Errorf("%w: the queue has no room for the change before it: %w", ErrNotBegun, err)}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if refusal := s.refusalLocked(); refusal != nil {
		r.answer <- *refusal
		return
	}
	// Ids of one scope differ by at least a second, even if nothing changed in between.
	named := time.Now()
	if next := s.snaps.lastAsked.Add(time.Second); named.Before(next) {
		named = next
	}
	snap := newSnapshot(r.scope, r.namespace, s.known.rv, named, s.o.Now())
	snap.phase, snap.request = snapshotOffered, r
	snap.before.began, snap.before.sweep = s.snaps.began, s.snaps.due
	s.startReadsLocked(snap)
	s.closeGateLocked()
	n := s.started(snap)
	n.prepare = func(ctx context.Context) error {
		// A restart from below the snapshot's resourceVersion would complete the snapshot before it
		// repeats the changes in between. A consumer would then delete objects that were created
		// there.
		if err := s.awaitAcknowledged(ctx, snap.rv); err != nil {
			return err
		}
		return s.adopt(ctx)
	}
	s.gate.notices = append(s.gate.notices, n)
}

// giveUpLocked withdraws the snapshot that is about to begin. None of its reads was sent.
func (s *Store) giveUpLocked(err error) {
	snap := s.snaps.current
	s.enterLocked(snap, snapshotGivenUp)
	s.removeSnapshotLocked()
	s.snaps.began, s.snaps.due = snap.before.began, s.snaps.due || snap.before.sweep
	snap.request.answer <- begun{err: fmt.Errorf("%w: %w", ErrNotBegun, err)}
	snap.request = nil
}

// dropSnapshotLocked drops the snapshot, if there is one, and its pending reads.
func (s *Store) dropSnapshotLocked() {
	if snap := s.snaps.current; snap != nil {
		s.enterLocked(snap, snapshotDropped)
		s.removeSnapshotLocked()
	}
}

func (s *Store) removeSnapshotLocked() {
	snap := s.snaps.current
	s.snaps.current = nil
	s.gate.notices = slices.DeleteFunc(s.gate.notices, func(n *Notice) bool { return n.opens == snap })
	for key, e := range s.known.objects {
		if e.pending == pendingRead {
			s.settleLocked(key, s.known.pending[key])
		}
	}
	s.sortPendingLocked()
}

// runSchedule takes the snapshots of Run that are not requested, until ctx ends. It retries one
// that cannot begin.
func (s *Store) runSchedule(ctx context.Context, every time.Duration) {
	var last time.Time
	var again <-chan time.Time // fires when the next snapshot is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			again = nil
			_, _ = s.TakeSnapshot(ctx, s.o.Scope, "") // if it is refused, the next attempt follows a minute later
		case <-s.kick:
			for due, _ := s.due(); due; due, _ = s.due() {
				if _, err := s.TakeSnapshot(ctx, s.o.Scope, ""); err != nil && pause.For(ctx, beginWithin) != nil {
					return
				}
			}
		}
		_, began := s.due()
		if every > 0 && !began.IsZero() && (again == nil || !began.Equal(last)) {
			// An overdue snapshot, as at a start, or one that could not begin, waits up to a
			// minute.
			last, again = began, time.After(max(began.Add(every).Sub(s.o.Now()), min(every, time.Minute)))
		}
	}
}

// due reports whether a snapshot must begin now, and when the last one of the whole scope began
// (zero: never).
func (s *Store) due() (now bool, began time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.snaps.due && s.refusalLocked() == nil, s.snaps.began
}
