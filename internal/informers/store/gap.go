package store

import (
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Loss is history that is gone and of which no gap event tells yet.
type Loss struct {
	From            uint64    // resourceVersion up to which there is no hole
	Since           time.Time // the last sign of life then
	Reason          object.GapReason
	Unrecoverable   bool // walking back cannot tell all of it
	SkipIfRecovered bool // nobody has to hear of it where all of it is found
}

// loseLocked notes that history is gone. What was lost before, and not announced, is a part of it. The caller holds mu.
func (s *Store) loseLocked(l Loss) {
	if l.Reason == object.Rewound {
		s.pos.history++
	}
	if was := s.list.lost; was != nil {
		if was.Unrecoverable && l.Reason != object.Rewound { // the graver of both
			l.Reason = was.Reason
		}
		l.From, l.Since, l.Unrecoverable, l.SkipIfRecovered = was.From, was.Since, l.Unrecoverable || was.Unrecoverable, l.SkipIfRecovered && was.SkipIfRecovered
	}
	s.list.lost = &l
}

// Lose is lose for those who do not hold mu.
func (s *Store) Lose(l Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(l)
}

// Loss is the history that is lost and not announced, nil: none.
func (s *Store) Loss() *Loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list.lost
}

// Gap is the notice that history up to rv was lost. find looks for what it can of it, nil: nothing. recovered: every change was
// found, but for objects that came and went. whole: those as well; if nothing else was lost, no gap is announced. find is called again
// where a new list has come between.
func (s *Store) Gap(rv uint64, find func(ctx context.Context) (whole, recovered bool, err error)) *Notice {
	whole, recovered := false, false
	n := &Notice{gap: true}
	if find != nil {
		n.prepare = func(ctx context.Context) (err error) {
			whole, recovered, err = find(ctx)
			return err
		}
	}
	n.event = func() *object.StreamEvent {
		l := s.list.lost
		if whole && l.SkipIfRecovered && !l.Unrecoverable {
			return nil
		}
		return &object.StreamEvent{
			Kind: object.Gap, Resource: s.o.Resource, Scope: s.o.Scope, From: l.From, To: rv, Since: l.Since, Reason: l.Reason,
			Recovered: recovered && !l.Unrecoverable,
		}
	}
	n.done = func() {
		switch b := s.pos.barrier; {
		case b == nil:
		case recovered && !s.list.lost.Unrecoverable && b.from == 0:
			b.from, b.since = s.list.lost.From, s.list.lost.Since
		case s.list.lost.Unrecoverable && s.list.lost.From <= b.from: // it covers the earlier ones, too
			b.from = 0
		}
		s.list.lost = nil
		s.list.gaps++
		s.pos.own, s.pos.previous = true, nil
	}
	return n
}

// SweepAfter has a snapshot follow what is due behind a gap, if that is announced.
func (s *Store) SweepAfter(gap *Notice) {
	event := gap.event
	gap.event = func() *object.StreamEvent { // under mu
		ev := event()
		s.snaps.due = s.snaps.due || ev != nil
		return ev
	}
}

// Changes are the names to walk back for the gap that is about to be announced.
func (s *Store) Changes() (Loss, []backfill.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []backfill.Change
	for key, d := range s.known.pending {
		if d.gap == s.list.gaps {
			out = append(out, backfill.Change{Key: key, Before: d.base, After: s.known.objects[key].last, Managers: d.managers})
		}
	}
	return *s.list.lost, out
}

// AddSteps adds to the debts what walking back has found, and counts the versions.
func (s *Store) AddSteps(byKey map[string]backfill.Result) (versions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range byKey {
		d := s.known.pending[key]
		if d == nil || d.gap != s.list.gaps {
			continue
		}
		way := slices.Clone(d.steps[:d.announced]) // an earlier walk, whose gap was not announced, counts for nothing
		for n, st := range w.Steps {
			way = append(way, link{Step: st, linked: w.Complete || n > 0})
		}
		versions += len(w.Steps)
		s.known.pending[key] = &pending{
			from: d.from, outside: d.outside, steps: way, base: d.base, announced: d.announced, gap: d.gap,
			last: link{Step: backfill.Step{ChangedBy: w.ChangedBy}, linked: w.Complete || len(w.Steps) > 0},
		}
	}
	return versions
}

// AddAllSteps makes due what was found of each name at each revision, and counts the versions; false: it does not lead from what the
// lists before have to what the last one has, and nothing is changed.
func (s *Store) AddAllSteps(byKey map[string][]backfill.Step) (versions int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, d := range s.known.pending {
		if d.gap == s.list.gaps && !backfill.Leads(d.base, byKey[key], s.known.objects[key].last) {
			return 0, false
		}
	}
	for key, way := range byKey {
		if d := s.known.pending[key]; d != nil && d.gap == s.list.gaps {
			continue
		}
		if _, known := s.known.objects[key]; known || !backfill.Leads(nil, way, nil) {
			return 0, false // what is due of it tells another story
		}
	}
	for key, way := range byKey {
		d, e := &pending{gap: s.list.gaps}, s.known.objects[key]
		if was := s.known.pending[key]; was != nil {
			d.from, d.outside, d.base, d.announced = was.from, was.outside, was.base, was.announced
			d.steps = slices.Clone(was.steps[:was.announced])
		}
		for _, st := range way {
			d.steps = append(d.steps, link{Step: st, linked: true})
			if st.Object != nil {
				versions++
			}
		}
		d.last = link{linked: true}
		if n := len(d.steps); e.last != nil {
			d.last, d.steps = d.steps[n-1], d.steps[:n-1]
		}
		s.known.pending[key] = d
		s.setLocked(key, entry{last: e.last, pending: pendingInferred})
	}
	s.sortPendingLocked()
	return versions, true
}
