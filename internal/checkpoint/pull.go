package checkpoint

import (
	"maps"
	"reflect"
	"time"
)

// track is the source of one scope's position. The holder of saving alone uses the last fields.
type track struct {
	position func() (Position, bool)
	changes  func() uint64 // nil: it may always have changed

	seen uint64 // changes before the last glance at the position
	of   uint64 // the save that it was compared with
	what change // what had changed since then
}

// change is how much has changed since the last save.
type change int

const (
	unchanged change = iota
	seen             // only LastSeen
	moved            // resourceVersions, without an acknowledgement
	news             // something that a restart would have to repeat
)

// glance returns the greatest change of any scope since the last save, as pull and compare do, but
// asks only for positions that may have changed. It returns false if that is not known.
func (k *Keeper) glance() (what change, known bool) {
	s := &k.saver
	k.mu.Lock()
	isSame := s.durable != nil && len(s.durable) == len(k.positions)
	changed := map[string]*track{}
	for name, t := range k.tracks {
		if t.mayHaveChanged(s.saves) {
			changed[name] = t
		} else {
			what = max(what, t.what)
		}
	}
	k.mu.Unlock()
	if !isSame {
		return news, false
	}
	// Not under mu: see pull.
	for name, t := range changed {
		if t.changes != nil {
			t.seen = t.changes() // before position: a later change counts again
		}
		p, ok := t.position()
		was, saved := s.durable[name]
		switch {
		case !ok:
			t.what = unchanged
		case !saved:
			t.what = news
		default:
			t.what = was.compare(p.clean())
		}
		t.of = s.saves
		what = max(what, t.what)
	}
	return what, true
}

// mayHaveChanged reports whether the position may be another one than at the last glance, or that
// was before the last save.
func (t *track) mayHaveChanged(saves uint64) bool {
	return t.changes == nil || t.of != saves || t.seen != t.changes()
}

// pull collects the positions of all scopes, and numbers the collection.
func (k *Keeper) pull() (number uint64, positions map[string]Position) {
	k.mu.Lock()
	k.pulls++
	number = k.pulls
	tracks := maps.Clone(k.tracks)
	k.mu.Unlock()

	// Not under mu: position takes the scope's lock, under which the scope may call Track.
	reported := make(map[string]Position, len(tracks))
	for name, t := range tracks {
		if p, ok := t.position(); ok {
			reported[name] = p.clean()
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range reported {
		if k.tracks[name] != tracks[name] {
			continue // Forget or Track was called meanwhile: the next pull has the new state
		}
		if was, ok := k.positions[name]; ok && p.ResourceVersion < was.ResourceVersion && p.History == was.History {
			k.log.Warn("the position of a scope moved backward", "scope", name, "from_rv", was.ResourceVersion, "to_rv",
				p.ResourceVersion)
		}
		k.positions[name] = p
	}
	return number, maps.Clone(k.positions)
}

// clean returns the position as it is after a save and a load, for comparison.
func (p Position) clean() Position {
	p.LastSeen = p.LastSeen.UTC().Truncate(time.Second)
	p.SnapshotBegan = p.SnapshotBegan.UTC().Round(0)
	if len(p.Namespaces) == 0 {
		p.Namespaces = nil
	}
	return p
}

// compare returns the greatest change of any scope.
func compare(was, now map[string]Position) change {
	if was == nil || len(was) != len(now) {
		return news
	}
	most := unchanged
	for name, b := range now {
		a, ok := was[name]
		if !ok {
			return news
		}
		most = max(most, a.compare(b))
		if most == news {
			return news
		}
	}
	return most
}

func (p Position) compare(q Position) change {
	what := unchanged
	switch {
	case p.ResourceVersion != q.ResourceVersion, p.State != q.State:
		what = moved
		if p.Acked != q.Acked {
			return news
		}
	case !p.LastSeen.Equal(q.LastSeen):
		what = seen
	}
	a, b := p.Scope, q.Scope
	a.ResourceVersion = b.ResourceVersion
	a.State = b.State
	a.LastSeen = b.LastSeen
	if !reflect.DeepEqual(a, b) {
		return news
	}
	return what
}
