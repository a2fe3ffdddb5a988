package store

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// pending are the steps of a key from the version that was sent last to the one that a relist shows. A pending is never changed, only replaced.
type pending struct {
	from    *object.Object // sent last, nil: none
	outside bool           // from was not sent: no rule takes it
	steps   []link         // versions after from, ascending
	last    link           // how the listed version follows them; its object is that of the entry

	// What package backfill needs for a gap that is not announced yet.
	base      *object.Object
	announced int             // steps that belong to announced gaps
	managers  *object.Scanned // of the listed version, nil: not kept
	gap       uint64          // list.gaps when it was made: earlier gaps are announced
}

// link is a version and how it follows the one before it.
type link struct {
	backfill.Step
	linked bool // there was no version in between
}

// latestUID returns the uid of the object that had the name before the list, "" if there was none.
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

// needsVerdictLocked returns the object if the next delta of key is that the list missed it, otherwise nil.
func (s *Store) needsVerdictLocked(key string) *object.Ref {
	d := s.known.pending[key]
	if d == nil || d.from == nil || d.outside || len(d.steps) > 0 || d.last.linked || s.known.objects[key].last != nil {
		return nil
	}
	return d.from.Ref
}

// nextPendingLocked forms the next pending delta of key, nil: there is none, and what is pending after it, nil: nothing. gone is the operation for
// an object that the list missed, if no step shows how.
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

// betweenLocked forms the delta of one link, nil: nothing of it is sent. arrived is false if the delta is only the deletion of another object that
// had the name before.
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
		return s.goneLocked(d, outside, to, gone), to.Object == nil
	case to.Object == nil:
		return nil, true
	}
	d.Ref, d.After = to.Object.Ref, to.Object
	switch {
	case from != nil && from.ResourceVersion == to.Object.ResourceVersion, to.Outside && (from == nil || outside):
		return nil, true
	case to.Outside:
		d.Op, d.After, d.ChangedBy = object.Left, nil, nil
	default:
		d.Op = s.arrival(from, outside, to.linked)
	}
	return d, true
}

// arrival returns the operation that leads from a version to the one that follows it.
func (s *Store) arrival(from *object.Object, outside, linked bool) object.Op {
	switch {
	case from == nil && (s.o.Selector == nil || linked):
		return object.Created
	case from == nil: // it may have been created, or changed to match the selectors
		return object.Entered
	case outside:
		return object.Entered
	}
	return object.Updated
}

// goneLocked completes the delta of the end of an object, nil: it is not sent.
func (s *Store) goneLocked(d *object.Delta, outside bool, to link, gone object.Op) *object.Delta {
	if outside {
		return nil
	}
	d.Op, d.ChangedBy = object.Deleted, nil
	if to.Object == nil {
		d.Op = gone
	}
	if !to.linked {
		d.ResourceVersion = s.list.rv // gone at or before
	}
	return d
}

// settleLocked notes that the delta of nextPendingLocked was sent, and that rest is pending.
func (s *Store) settleLocked(key string, rest *pending) {
	if rest != nil {
		s.known.pending[key] = rest
		return
	}
	delete(s.known.pending, key)
	s.setLocked(key, entry{last: s.known.objects[key].last})
}

// expectAckLocked makes the acknowledgement of a pending delta count for its snapshot and the barrier. cursor is the key up to which the bus then
// has all reads, "" for a delta out of key order. The caller may withdraw the receipts.
func (s *Store) expectAckLocked(cursor string, d *object.Delta) receipts {
	var r receipts
	if d.Op == object.Read {
		r.read = s.snaps.current.reads.Add(cursor)
	}
	if s.pos.barrier != nil { // also of a read: it may be the only delta of what the relist found
		r.barrier = s.pos.barrier.due.Add(struct{}{})
	}
	d.Acker = r
	return r
}

// receipts are those of one pending delta. Either may be nil.
type receipts struct {
	read    *checkpoint.Receipt[string]
	barrier *checkpoint.Receipt[struct{}]
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

// Withdraw takes back what expectAckLocked did.
func (r receipts) Withdraw() {
	if r.read != nil {
		r.read.Withdraw()
	}
	if r.barrier != nil {
		r.barrier.Withdraw()
	}
}

// maxSteps is how many steps of earlier gaps a store keeps, besides one of each object.
const maxSteps = 10_000

// collapseLocked bounds pending steps, which must not grow with each list while there is no room for catch-up. Of the steps of announced gaps at
// most the last one of each key stays. The next gap then also covers the gaps that announced those steps as recovered, and is not
// recovered itself. There must be a Loss.
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
		if d.gap == s.list.gaps { // package backfill continues from the last one
			kept := d.steps[max(0, d.announced-1):d.announced]
			if short.announced = len(kept); short.announced > 0 {
				kept = []link{{Step: backfill.Step{ResourceVersion: kept[0].ResourceVersion, Object: kept[0].Object, Outside: kept[0].Outside}}}
			}
			short.steps = append(kept, d.steps[d.announced:]...)
		} else {
			short.steps, short.last = nil, link{}
		}
		s.known.pending[key] = &short
		if len(short.steps) == 0 && d.from == nil && s.known.objects[key].last == nil { // created and deleted since, and nothing of it was sent
			delete(s.known.pending, key)
			s.setLocked(key, entry{})
		}
	}
}

// LimitSteps sets how many steps of earlier gaps the next list keeps, besides one of each object. The default is 10,000.
func (s *Store) LimitSteps(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.maxSteps = n
}

// PendingSteps returns how many keys have pending steps, and how many steps these are, without the listed version of each.
func (s *Store) PendingSteps() (objects, versions int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, d := range s.known.pending {
		versions += len(d.steps)
	}
	return len(s.known.pending), versions
}
