package store

import (
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Loss is a span of history that is lost and that no gap event covers yet.
type Loss struct {
	From            uint64    // resourceVersion up to which history is complete
	Since           time.Time // last sign of life of the API server at From
	Reason          object.GapReason
	Unrecoverable   bool // package backfill cannot find all of it
	SkipIfRecovered bool // no gap is announced if every version is found
}

// loseLocked notes that history is lost. An earlier loss that is not announced becomes a part of it.
func (s *Store) loseLocked(l Loss) {
	if l.Reason == object.Rewound {
		s.pos.history++
	}
	if was := s.list.lost; was != nil {
		if was.Unrecoverable && l.Reason != object.Rewound { // the worse of both
			l.Reason = was.Reason
		}
		l.From, l.Since, l.Unrecoverable, l.SkipIfRecovered = was.From, was.Since, l.Unrecoverable || was.Unrecoverable, l.SkipIfRecovered && was.SkipIfRecovered
	}
	s.list.lost = &l
}

// Lose notes that history is lost. An earlier loss that is not announced becomes a part of it.
func (s *Store) Lose(l Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(l)
}

// Loss returns the history that is lost and not announced, nil: none. It must not be changed.
func (s *Store) Loss() *Loss {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.list.lost
}

// Gap returns the notice that history from the Loss up to rv is lost. The cursor calls find first, and again after each new list; nil: nothing is
// recovered. recovered: every version was found, except of objects that were created and deleted inside. whole: of those as well; no gap is announced then if
// the Loss has SkipIfRecovered and nothing else was lost.
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
		s.snaps.due = s.snaps.due || n.sweeps
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

// Sweep makes a snapshot follow what is pending after a gap, if that is announced.
func (n *Notice) Sweep() { n.sweeps = true }

// Changes returns what Gap's find has to recover: the loss, and each key that differs between its ends. There must be a Loss.
func (s *Store) Changes() (Loss, []backfill.Change) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []backfill.Change
	for key, d := range s.known.pending {
		if d.gap == s.list.gaps {
			out = append(out, backfill.Change{Key: key, Before: d.base, After: s.known.objects[key].last, Managers: d.managers})
		}
	}
	return *s.list.lost, out
}

// AddSteps adds the steps that backfill.Walk found to the pending deltas, and returns the number of versions.
func (s *Store) AddSteps(byKey map[string]backfill.Result) (versions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range byKey {
		d := s.known.pending[key]
		if d == nil || d.gap != s.list.gaps {
			continue
		}
		steps := slices.Clone(d.steps[:d.announced]) // those of a walk whose gap was not announced are replaced
		for n, st := range w.Steps {
			steps = append(steps, link{Step: st, linked: w.Complete || n > 0})
		}
		versions += len(w.Steps)
		s.known.pending[key] = &pending{
			from: d.from, outside: d.outside, steps: steps, base: d.base, announced: d.announced, gap: d.gap,
			last: link{Step: backfill.Step{ChangedBy: w.ChangedBy}, linked: w.Complete || len(w.Steps) > 0},
		}
	}
	return versions
}

// AddAllSteps adds the steps that backfill.EveryRevision found to the pending deltas, and returns the number of versions. It returns false, and
// changes nothing, if the steps do not lead from the objects before the last list to those that it shows.
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
			return 0, false // contradicts what is pending
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
