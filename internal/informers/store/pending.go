package store

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// pending is what a key owes because of a relist: the way from the version that was sent last to the one that the list shows.
// It is not changed but for the walk back, which adds to it.
type pending struct {
	from    *object.Object // sent last, nil: there was none
	outside bool           // from was not sent: it is not in the selection
	steps   []link         // versions behind from, ascending
	last    link           // how the list's version follows them; its object and version are the entry's and the list's

	// What the walk back has still to be made from, for a gap that is not announced yet.
	base      *object.Object
	announced int             // links of way that belong to gaps which are announced
	managers  *object.Scanned // of the list's version, nil: not kept
	gap       uint64          // store.gaps when it was made: the gap before that one is announced
}

// link is a version and how it follows the one before it.
type link struct {
	backfill.Step
	linked bool // without a hole: there was no version in between
}

// needsVerdictLocked tells if the next that the key owes is that the list missed it. The caller holds mu.
func (s *Store) needsVerdictLocked(key string) *object.Ref {
	d := s.known.pending[key]
	if d == nil || d.from == nil || d.outside || len(d.steps) > 0 || d.last.linked || s.known.objects[key].last != nil {
		return nil
	}
	return d.from.Ref
}

// nextPendingLocked forms the next delta that a key owes because of a list, nil where it owes none (any more), and what it owes then,
// nil: nothing. gone is what became of an object that the list missed, as far as walking back has not told. The caller
// holds mu.
func (s *Store) nextPendingLocked(key string, gone object.Op) (*object.Delta, *pending) {
	e := s.known.objects[key]
	switch e.pending {
	case pendingNothing:
		return nil, nil
	case pendingRead:
		return &object.Delta{
			Op: object.Read, Ref: e.last.Ref, After: e.last, ResourceVersion: e.last.ResourceVersion, Snapshot: s.snaps.current.id,
			History: s.pos.history, Observed: time.Now().UnixNano(), Scope: s.o.Scope,
		}, nil
	case pendingInferred:
	}
	rest := *s.known.pending[key]
	for {
		to, op, final := rest.last, gone, len(rest.steps) == 0
		if final {
			to.Object, to.ResourceVersion = e.last, s.list.rv
			if e.last != nil {
				to.ResourceVersion = e.last.ResourceVersion
			}
		} else {
			to, op = rest.steps[0], object.Deleted
		}
		d, arrived := s.betweenLocked(rest.from, rest.outside, to, op)
		switch {
		case !arrived:
			rest.from, rest.outside = nil, false
		case final:
			return d, nil
		default:
			rest.from, rest.outside, rest.steps = to.Object, to.Outside, rest.steps[1:]
		}
		if d != nil {
			return d, &rest
		}
	}
}

// betweenLocked forms the delta of one link, nil where nothing of it is to be sent. arrived is false where it leads to the
// deletion before a creation only: another object had the name.
func (s *Store) betweenLocked(from *object.Object, outside bool, to link, gone object.Op) (d *object.Delta, arrived bool) {
	d = &object.Delta{
		Inferred: !to.linked, ResourceVersion: to.ResourceVersion, ChangedBy: to.ChangedBy, Scope: s.o.Scope, History: s.pos.history,
		Observed: time.Now().UnixNano(),
	}
	if from != nil {
		d.Ref, d.Before, d.Previous = from.Ref, from, from.ResourceVersion
	}
	switch {
	case from != nil && (to.Object == nil || to.Object.Ref.UID != from.Ref.UID):
		d.Op, d.ChangedBy = gone, nil
		arrived = to.Object == nil
		if !arrived {
			d.Op = object.Deleted
		}
		if !to.linked {
			d.ResourceVersion = s.list.rv // gone at or before
		}
		if outside {
			d = nil
		}
		return d, arrived
	case to.Object == nil:
		return nil, true
	}
	d.Ref, d.After = to.Object.Ref, to.Object
	switch {
	case from != nil && from.ResourceVersion == to.Object.ResourceVersion, to.Outside && (from == nil || outside):
		return nil, true
	case to.Outside:
		d.Op, d.After, d.ChangedBy = object.Left, nil, nil
	case from == nil:
		d.Op = object.Created
		if s.o.Selector != nil && !to.linked {
			d.Op = object.Entered // whether it was created or changed into the selector is not known
		}
	case outside:
		d.Op = object.Entered
	default:
		d.Op = object.Updated
	}
	return d, true
}

// settleLocked notes that what nextPendingLocked formed is on its way, and that the key owes rest. The caller holds mu.
func (s *Store) settleLocked(key string, rest *pending) {
	if rest != nil {
		s.known.pending[key] = rest
		return
	}
	delete(s.known.pending, key)
	s.setLocked(key, entry{last: s.known.objects[key].last})
}

// expectAckLocked has the acknowledgement of something due noted where it belongs. cursor is the key up to which all reads are on
// the bus then, "" where it comes out of turn. The caller holds mu, and may take it back.
func (s *Store) expectAckLocked(cursor string, d *object.Delta) receipts {
	var r receipts
	if d.Op == object.Read {
		r.read = s.snaps.current.reads.Add(cursor)
	}
	if s.pos.barrier != nil { // also of a read: it may be all that tells of what the relist found
		r.barrier = s.pos.barrier.due.Add(struct{}{})
	}
	d.Acker = r
	return r
}

// receipts are where the acknowledgement of something due is noted; either may be nil.
type receipts struct {
	read    *checkpoint.Receipt[string]
	barrier *checkpoint.Receipt[struct{}]
}

// maxSteps is how many versions a store keeps because of earlier gaps, beside one of each object.
const maxSteps = 10_000

// collapseLocked bounds the debts: they must not grow with each list while there is no room for catch-up. Of the versions that earlier gaps have
// announced, at most the last one of each key stays. The gap that is announced next then also covers those gaps that promised their versions,
// and promises none. The caller holds mu, and lost is set.
func (s *Store) collapseLocked() {
	versions := 0
	for _, d := range s.known.pending {
		versions += len(d.steps)
	}
	if versions <= s.known.maxSteps {
		return
	}
	if b := s.pos.barrier; b.from != 0 {
		s.list.lost.From, s.list.lost.Since, s.list.lost.Unrecoverable, s.list.lost.SkipIfRecovered = b.from, b.since, true, false
	}
	for key, d := range s.known.pending {
		short := *d
		if d.gap == s.list.gaps { // the walk back goes on from the last one
			told := d.steps[max(0, d.announced-1):d.announced]
			if short.announced = len(told); short.announced > 0 {
				told = []link{{Step: backfill.Step{ResourceVersion: told[0].ResourceVersion, Object: told[0].Object, Outside: told[0].Outside}}}
			}
			short.steps = append(told, d.steps[d.announced:]...)
		} else {
			short.steps, short.last = nil, link{}
		}
		s.known.pending[key] = &short
		if len(short.steps) == 0 && d.from == nil && s.known.objects[key].last == nil { // it came and went, and nothing of it was sent
			delete(s.known.pending, key)
			s.setLocked(key, entry{})
		}
	}
}

// LimitSteps bounds how many versions are kept for catch-up, beside the last one of each object. More are collapsed by the next list.
func (s *Store) LimitSteps(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.maxSteps = n
}

// PendingSteps is how many objects have deltas that are still to be sent because of lists, and of how many versions beside the last one.
func (s *Store) PendingSteps() (objects, versions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.known.pending {
		versions += len(d.steps)
	}
	return len(s.known.pending), versions
}

// latestUID is the uid of the object that had the name before the list, "" where there was none.
func (d *pending) latestUID() string {
	latest := d.from
	if n := len(d.steps); n > 0 {
		latest = d.steps[n-1].Object
	}
	if latest == nil {
		return ""
	}
	return latest.Ref.UID
}

// Acked implements object.Acker.
func (r receipts) Acked(d *object.Delta) {
	if r.read != nil {
		r.read.Acked(d)
	}
	if r.barrier != nil {
		r.barrier.Acked(d)
	}
}

// Withdraw takes back that an acknowledgement is expected.
func (r receipts) Withdraw() {
	if r.read != nil {
		r.read.Withdraw()
	}
	if r.barrier != nil {
		r.barrier.Withdraw()
	}
}
