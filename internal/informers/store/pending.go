package store

import (
	"cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// pending has the versions of a key, from the one sent last to the one that a relist shows. A
// pending is never changed, only replaced.
type pending struct {
	from     *object.Object // sent last; nil if none was
	outside  bool           // from was not sent: no rule takes it
	versions []link         // versions after from, ascending
	last     link           // link to the listed version; its object is that of the entry

	base      *object.Object  // at the start of a gap that is not announced yet
	announced int             // versions that belong to announced gaps
	managers  *object.Scanned // of the listed version; nil if not kept
	gap       uint64          // list.gaps at its creation: earlier gaps are announced
	missed    uint64          // resourceVersion of the first list without the object, if it is still missing
}

// link is a version and its relation to the previous one.
type link struct {
	backfill.Version
	linked bool // there was no version in between
}

// latest returns the last version before the listed one, nil if the object did not exist then.
func (p *pending) latest() *object.Object {
	if n := len(p.versions); n > 0 {
		return p.versions[n-1].Object
	}
	return p.from
}

func (p *pending) latestUID() string {
	latest := p.latest()
	if latest == nil {
		return ""
	}
	return latest.Ref.UID
}

// listed returns the link to the version that the lists show, or to the end of the object: that was
// at or before the first list without it.
func (p *pending) listed(last *object.Object) link {
	to := p.last
	to.Object, to.ResourceVersion = last, p.missed
	if last != nil {
		to.ResourceVersion = last.ResourceVersion
	}
	return to
}

// needsVerdictLocked returns the object if the next delta of key is the end of an object that the
// list missed.
func (s *Store) needsVerdictLocked(key string) *object.Ref {
	d := s.known.pending[key]
	e := s.known.objects[key]
	isNext := e.pending == pendingInferred && e.last == nil
	if !isNext || d.from == nil || d.outside || len(d.versions) > 0 || d.last.linked {
		return nil
	}
	return d.from.Ref
}

// nextPendingLocked returns the next pending delta of key and the rest, nil: none. gone is the
// operation if the list missed the object.
func (s *Store) nextPendingLocked(key string, gone object.Op) (*object.Delta, *pending) {
	e := s.known.objects[key]
	switch e.pending {
	case pendingNothing:
		return nil, nil
	case pendingRead:
		last, changed := e.last, s.known.pending[key]
		if changed != nil {
			last = changed.from
		}
		return &object.Delta{
			Op:              object.Read,
			Ref:             last.Ref,
			After:           last,
			ResourceVersion: last.ResourceVersion,
			Snapshot:        s.snaps.current.id,
			History:         s.pos.history,
			Observed:        s.o.Now().UnixNano(),
			Scope:           s.o.Scope,
		}, changed
	case pendingInferred:
	}
	rest := *s.known.pending[key]
	for {
		to := rest.last
		op := gone
		final := len(rest.versions) == 0
		if final {
			to = rest.listed(e.last)
		} else {
			to, op = rest.versions[0], object.Deleted
		}
		d, arrived := s.betweenLocked(rest.from, rest.outside, to, op)
		switch {
		case !arrived:
			rest.from, rest.outside = nil, false
		case final:
			return d, nil
		default:
			rest.from = to.Object
			rest.outside = to.Outside
			rest.versions = rest.versions[1:]
		}
		if d != nil {
			return d, &rest
		}
	}
}

// betweenLocked forms the delta of one link, or nil. arrived is false if the delta only deletes an
// earlier object of that name.
func (s *Store) betweenLocked(
	from *object.Object, outside bool, to link, gone object.Op,
) (d *object.Delta, arrived bool) {
	d = &object.Delta{
		Inferred:        !to.linked,
		ResourceVersion: to.ResourceVersion,
		ChangedBy:       to.ChangedBy,
		Scope:           s.o.Scope,
		History:         s.pos.history,
		Observed:        s.o.Now().UnixNano(),
	}
	s.known.found = max(s.known.found, d.Observed)
	if from != nil {
		d.Ref = from.Ref
		d.Before = from
		d.Previous = from.ResourceVersion
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
		d.Op = object.Left
		d.After = nil
		d.ChangedBy = nil
	default:
		d.Op = s.arrival(from, outside, to.linked)
	}
	return d, true
}

func (s *Store) arrival(from *object.Object, outside, linked bool) object.Op {
	switch {
	case from == nil && (s.o.Selector == nil || linked):
		return object.Created
	case from == nil, outside: // if nil, it may have been created, or changed to match the selectors
		return object.Entered
	}
	return object.Updated
}

// goneLocked completes the delta of the end of an object, or returns nil if it is not sent.
func (s *Store) goneLocked(d *object.Delta, outside bool, to link, gone object.Op) *object.Delta {
	if outside {
		return nil
	}
	d.Op, d.ChangedBy = object.Deleted, nil
	if to.Object == nil {
		d.Op = gone
	}
	return d
}

func (s *Store) settleLocked(key string, rest *pending) {
	next := entry{last: s.known.objects[key].last}
	if rest != nil {
		s.known.pending[key] = rest
		next.pending = pendingInferred
	} else {
		delete(s.known.pending, key)
	}
	s.setLocked(key, next)
}

// expectAckLocked makes the acknowledgement of d count for its snapshot and the barrier. cursor is
// its key, "" if it is out of key order.
func (s *Store) expectAckLocked(cursor string, d *object.Delta) receipts {
	var r receipts
	if d.Op == object.Read {
		r.read = s.snaps.current.reads.Add(cursor)
	} else if s.pos.barrier != nil {
		r.barrier = s.pos.barrier.due.Add(struct{}{})
	}
	d.Acker = r
	return r
}

// receipts are the receipts of one pending delta. Either may be nil.
type receipts struct {
	read    *checkpoint.Receipt[string]
	barrier *checkpoint.Receipt[struct{}]
}

func (r receipts) Acked(d *object.Delta) {
	if r.read != nil {
		r.read.Acked(d)
	}
	if r.barrier != nil {
		r.barrier.Acked(d)
	}
}

func (r receipts) Withdraw() {
	if r.read != nil {
		r.read.Withdraw()
	}
	if r.barrier != nil {
		r.barrier.Withdraw()
	}
}

const maxVersions = 10_000 // see Options.MaxVersions

// collapseLocked bounds pending versions while catch-up has no room. It keeps at most the last
// version of each key for announced gaps. If those gaps were announced as recovered, the next gap
// covers them, and is not recovered itself. There must be a Loss.
func (s *Store) collapseLocked() {
	versions := 0
	for _, d := range s.known.pending {
		versions += len(d.versions)
	}
	if versions <= cmp.Or(s.o.MaxVersions, maxVersions) {
		return
	}
	if b := s.pos.barrier; b.from != 0 {
		s.list.lost.From = b.from
		s.list.lost.Since = b.since
		s.list.lost.Unrecoverable = true
		s.list.lost.SkipIfRecovered = false
	}
	for key, d := range s.known.pending {
		short := *d
		if d.gap == s.list.gaps { // package backfill continues from the last one
			kept := d.versions[max(0, d.announced-1):d.announced]
			short.announced = len(kept)
			if short.announced > 0 {
				kept = []link{{Version: backfill.Version{
					ResourceVersion: kept[0].ResourceVersion,
					Object:          kept[0].Object,
					Outside:         kept[0].Outside,
				}}}
			}
			short.versions = append(kept, d.versions[d.announced:]...)
		} else {
			short.versions, short.last = nil, link{}
		}
		s.known.pending[key] = &short
		if len(short.versions) == 0 && d.from == nil && s.known.objects[key].last == nil {
			// created and deleted since, and never sent
			delete(s.known.pending, key)
			s.setLocked(key, entry{})
		}
	}
}
