package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
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

	// Of a snapshot of what the store holds, until its start is acknowledged.
	request *request // nil once it is answered
	before  struct { // what holds again if the snapshot is given up
		began time.Time
		sweep bool
	}
}

// snapshotAt begins a snapshot of the whole scope as a list at rv shows it. The notice is that of its start.
func (s *store) snapshotAt(rv uint64) (*snapshot, *notice) {
	snap := newSnapshot(s.o.Scope, "", rv, time.Now())
	s.o.Log.Debug("snapshot started", "scope", s.o.Scope, "snapshot", snap.id, "rv", rv)
	return snap, s.started(snap)
}

// snapshotAgain continues the snapshot that the checkpoint c has: of the scope of that name. The notice is nil if its start is on the bus.
func (s *store) snapshotAgain(scope string, c *checkpoint.Scope) (*snapshot, *notice) {
	snap := resumeSnapshot(scope, c.Snapshot)
	snap.filtered, snap.where = c.Filtered, c.Where
	if snap.cursor == "" { // nobody knows if it was announced
		return snap, s.started(snap)
	}
	return snap, nil
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
	n := &notice{
		prepare: s.adopt, opens: snap,
		event: func() *object.StreamEvent { return snap.event(object.SnapshotStarted, s.o.Resource) },
	}
	if snap.namespace == "" && !snap.resumed {
		n.done = func() { s.log.told = max(s.log.told, s.log.announced) }
	}
	return n
}

// sendEmptySnapshot sends a snapshot of no objects at rv: nothing of the scope is known any more.
func (s *store) sendEmptySnapshot(ctx context.Context, rv uint64) error {
	snap := newSnapshot(s.o.Scope, "", rv, time.Now())
	for _, kind := range []object.StreamKind{object.SnapshotStarted, object.SnapshotCompleted} {
		ev := snap.event(kind, s.o.Resource)
		ev.History = s.historyNow()
		if err := s.sendStream(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// adoption is the notice that what the store holds is what a restart goes on from. Nothing is sent.
func (s *store) adoption() *notice { return &notice{prepare: s.adopt} }

// adopt makes what the store holds what a restart goes on from, and has it saved.
func (s *store) adopt(ctx context.Context) error {
	s.mu.Lock()
	s.adopted, s.previous = true, nil
	s.mu.Unlock()
	if s.o.Save == nil {
		return nil
	}
	return s.o.Save(ctx)
}

// awaitAcknowledged waits until every delta up to rv is on the bus.
func (s *store) awaitAcknowledged(ctx context.Context, rv uint64) error {
	err := s.mu.Wait(ctx, func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		m, _ := s.ledger.Mark()
		return m.rv >= rv
	})
	if err != nil {
		return fmt.Errorf("the bus has not acknowledged the changes before it: %w", err)
	}
	return nil
}

// clearTheWay waits, while live deltas pass, for what a snapshot has to wait for once the gate is shut: that the bus acknowledges and
// that the checkpoint can be saved. What is left to wait for then is what has come since.
func (s *store) clearTheWay(ctx context.Context) error {
	s.mu.Lock()
	rv, orphan, err := s.rv, s.orphan, s.busy()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if orphan != nil {
		select {
		case <-orphan:
		case <-ctx.Done():
			return fmt.Errorf("the bus has not acknowledged the start of the snapshot before it: %w", context.Cause(ctx))
		}
	}
	if err := s.awaitAcknowledged(ctx, rv); err != nil || s.o.Save == nil {
		return err
	}
	return s.o.Save(ctx)
}

// complete says that a snapshot is on the bus.
func (s *store) complete(ctx context.Context, snap *snapshot) error {
	s.mu.Lock()
	s.noteLog()
	current := s.snapshot == snap && !s.log.owes()
	ev := snap.event(object.SnapshotCompleted, s.o.Resource)
	ev.History = s.history
	s.mu.Unlock()
	if !current {
		return nil // history, or the log, was lost meanwhile, and another one has taken its place
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

const (
	// beginWithin is how long a snapshot of what the store holds waits for the bus and the checkpoint while live deltas pass.
	beginWithin = 20 * time.Second
	// gateWithin is how long live deltas wait for a snapshot that begins. It is then given up.
	gateWithin = 5 * time.Second
)

// ErrNotBegun says that a snapshot was given up because it could not begin in time. No change waits for it.
var ErrNotBegun = errors.New("the snapshot cannot begin")

var (
	errStoreEnded = errors.New("its informer has ended")
	errNotLoaded  = errors.New("its first list is not loaded yet: try again when it is")
	errCatchUp    = errors.New("it is still catching up after a gap: try again in a moment")
)

// busy is why no snapshot of what the store holds can begin now, nil: it can. The caller holds mu.
func (s *store) busy() error {
	switch {
	case !s.loaded || s.listing != notListing:
		return errNotLoaded
	case s.due > 0 || len(s.announce) > 0 || s.barrier != nil:
		return errCatchUp
	}
	return nil
}

// begin begins a snapshot of what the store holds, all of it or (the request's scope names it) one namespace. The request is answered
// when the start is acknowledged, or the snapshot given up.
func (s *store) begin(r *request) {
	// With the turn, every live delta of what the store holds is in the queue.
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap := s.snapshot; snap != nil {
		r.answer <- begun{started: Started{Scope: snap.scope, Snapshot: snap.id, Objects: snap.objects, Running: true}}
		return
	}
	if err := s.busy(); err != nil {
		r.answer <- begun{err: err}
		return
	}
	// Ids of one scope differ by the second, should nothing else have happened.
	began := time.Now()
	if next := s.lastSnapshot.Add(time.Second); began.Before(next) {
		began = next
	}
	snap := newSnapshot(r.scope, r.namespace, s.rv, began)
	snap.request, snap.before.began, snap.before.sweep = r, s.began, s.sweep
	s.send(snap)
	s.shutGate()
	n := s.started(snap)
	n.begins = snap
	n.prepare = func(ctx context.Context) error {
		// A restart from below the snapshot's resourceVersion would complete it before it has sent again what lies between:
		// a consumer would sweep what was created there.
		if err := s.awaitAcknowledged(ctx, snap.rv); err != nil {
			return err
		}
		return s.adopt(ctx)
	}
	told := n.done
	n.done = func() {
		if told != nil {
			told()
		}
		snap.answer()
	}
	s.announce = append(s.announce, n)
}

// answer says that the snapshot has begun, unless that was said already. The caller holds the store's mu.
func (s *snapshot) answer() {
	if r := s.request; r != nil {
		s.request = nil
		r.answer <- begun{started: Started{Scope: s.scope, Snapshot: s.id, Objects: s.objects}}
	}
}

// giveUp withdraws a snapshot that is about to begin: none of its reads was sent. The caller holds mu.
func (s *store) giveUp(n *notice, err error) {
	for key, e := range s.objects {
		if e.due == dueRead {
			s.set(key, entry{last: e.last})
		}
	}
	s.line()
	s.announce = slices.DeleteFunc(s.announce, func(other *notice) bool { return other == n })
	snap := n.begins
	n.begins, s.snapshot, s.began, s.sweep = nil, nil, snap.before.began, snap.before.sweep
	snap.request.answer <- begun{err: fmt.Errorf("%w: %w", ErrNotBegun, err)}
}

// beginning is the notice of a snapshot that can still be given up, nil: there is none. The caller holds mu.
func (s *store) beginning() *notice {
	for _, n := range s.announce {
		if n.begins != nil {
			return n
		}
	}
	return nil
}

// sendStart sends the start of a snapshot; sent: the bus has acknowledged it. If limit ends first, the snapshot is given up, unless a
// list has begun meanwhile: that compares with the objects that are to be read, and the snapshot stays.
func (s *store) sendStart(ctx, limit context.Context, n *notice, ev *object.StreamEvent) (sent bool, err error) {
	acked, err := s.putStream(limit, ev)
	if err == nil {
		select {
		case <-acked:
			return true, nil
		case <-limit.Done():
			err = context.Cause(limit)
		}
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	s.mu.Lock()
	given := n.begins != nil && s.listing == notListing
	if given {
		s.giveUp(n, fmt.Errorf("the bus has not acknowledged its start: %w", err))
		if acked != nil {
			// A start that is in the queue cannot be taken back: it comes late, and no end follows it.
			s.orphan = acked
		}
	}
	s.mu.Unlock()
	if given || acked == nil {
		return false, nil
	}
	select {
	case <-acked:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Snapshot has the objects of a resource ("pods", "deployments.apps"; "": all resources) in a namespace ("": all) read and
// sent once more, while changes go on. It returns once each has begun, was in progress, or was given up (ErrNotBegun).
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
	// All at once: each waits for a save of the checkpoint, and shares it with the others.
	begun, errs := make([]Started, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for n, i := range all {
		wg.Go(func() {
			var err error
			if begun[n], err = i.snapshot(ctx, namespace); err != nil {
				errs[n] = fmt.Errorf("%s: %w", i.scope, err)
			}
		})
	}
	wg.Wait()
	var out []Started
	for n, started := range begun {
		if errs[n] == nil {
			out = append(out, started)
		}
	}
	return out, errors.Join(errs...)
}

// observes tells if the scope has, or may have, objects in a namespace ("": asks for none).
func (i *informer) observes(namespace string) bool {
	return namespace == "" || i.selection.Takes(namespace)
}

// snapshot asks for one of a namespace ("": of all).
func (i *informer) snapshot(ctx context.Context, namespace string) (Started, error) {
	if i.selection.Namespace == namespace {
		namespace = "" // the scope has no other
	}
	scope := i.scope
	if namespace != "" {
		scope = i.selection.NameIn(namespace)
	}
	return i.store.takeSnapshot(ctx, scope, namespace)
}

// takeSnapshot asks the cursor for a snapshot of a namespace ("": of all). scope is the name of that part. It returns once it has
// begun, or is in progress already. One that cannot begin is given up (ErrNotBegun) and logged.
func (s *store) takeSnapshot(ctx context.Context, scope, namespace string) (Started, error) {
	started, err := s.askSnapshot(ctx, &request{scope: scope, namespace: namespace, answer: make(chan begun, 1)})
	if errors.Is(err, ErrNotBegun) {
		s.o.Log.Warn("a snapshot cannot begin and is given up, changes go on", "scope", s.o.Scope, "err", err)
	}
	return started, err
}

func (s *store) askSnapshot(ctx context.Context, r *request) (Started, error) {
	s.mu.Lock()
	if snap := s.snapshot; snap != nil { // the cursor may be busy with it for long
		defer s.mu.Unlock()
		return Started{Scope: snap.scope, Snapshot: snap.id, Objects: snap.objects, Running: true}, nil
	}
	s.mu.Unlock()
	within, cancel := context.WithTimeoutCause(ctx, beginWithin, fmt.Errorf("waited for %v", beginWithin))
	defer cancel()
	err := s.clearTheWay(within)
	if err == nil {
		select {
		case s.requests <- r:
		case <-s.ended:
			return Started{}, errStoreEnded
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
		return Started{}, errStoreEnded
	case <-ctx.Done():
		return Started{}, context.Cause(ctx)
	}
}

// takeSnapshots takes those that are due, until ctx ends: after every, measured from the start of the last one (0: never), and those that have to follow a gap or a changed
// condition. One that cannot begin is tried again.
func (s *store) takeSnapshots(ctx context.Context, every time.Duration) {
	again := newAlarm(every)
	defer again.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.c:
			again.rang()
			_, _ = s.takeSnapshot(ctx, s.o.Scope, "") // refused while there is other work: then a minute later
		case <-s.owed:
			for s.owesSnapshot() {
				if _, err := s.takeSnapshot(ctx, s.o.Scope, ""); err != nil && !retry.Sleep(ctx, beginWithin) {
					return
				}
			}
		}
		if began := s.snapshotBegan(); !began.IsZero() {
			again.at(began.Add(every))
		}
	}
}

// owesSnapshot reports whether a snapshot has to begin.
func (s *store) owesSnapshot() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot == nil && s.busy() == nil && (s.sweep || s.retells())
}

// snapshotPending reports whether a snapshot is being sent, or has to follow.
func (s *store) snapshotPending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweep || s.snapshot != nil
}

// snapshotBegan is when the last snapshot of the whole scope began, zero: none has.
func (s *store) snapshotBegan() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began
}
