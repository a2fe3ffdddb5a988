package store

import (
	"slices"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// The scope of a removed resource is kept until a replaced log has the gap and the snapshot that
// follow the replacement.
func TestResourceIsGoneAndLogIsReplaced(t *testing.T) {
	staysWhileItOwes(t, func(s *Store) bool { return s.View().Finished })
}

// The scope of a deleted node is kept for as long.
func TestDeletedNodeAndLogIsReplaced(t *testing.T) {
	staysWhileItOwes(t, func(s *Store) bool { return s.View().Empty })
}

func staysWhileItOwes(t *testing.T, ends func(*Store) bool) {
	t.Helper()
	s := New(Options{Resource: &object.Resource{
		Version:    "v1",
		Name:       "configmaps",
		Kind:       "ConfigMap",
		Namespaced: true,
	}, Scope: "configmaps", Now: time.Now})
	s.gone = true
	s.pos.own = true
	s.caughtUp = true
	asIs := ends(s)
	s.log.owed++
	replaced := ends(s)
	s.log.announced, s.snaps.due = s.log.owed, true
	if sweeping := ends(s); !asIs || replaced || sweeping {
		t.Errorf("ends as it is: %t, while its log was replaced: %t, while a snapshot is to follow: %t", asIs, replaced,
			sweeping)
	}
}

// The observation continues only from a position after which nothing is lost. It is initial only if
// there was no other.
func TestBeginning(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	before := now.Add(-time.Hour)
	previous := &checkpoint.Position{}
	lost := &Loss{}
	for _, c := range []struct {
		at       ListState
		previous *checkpoint.Position
		lost     *Loss
		since    time.Time

		continued, initial bool
		want               time.Time
	}{
		{at: Fresh, initial: true, want: now},
		{at: Fresh, since: before, initial: true, want: before},
		{at: Fresh, lost: lost, want: now},
		{at: Fresh, previous: previous, initial: true, want: now},
		{at: AtCheckpoint, previous: previous, since: before, continued: true, want: before},
		{at: AtCheckpoint, previous: previous, continued: true}, // an earlier release did not record it
		{at: AtCheckpoint, previous: previous, lost: lost},
		{at: AtCheckpoint, want: now},
	} {
		s := &Store{o: Options{Now: func() time.Time { return now }}}
		s.list.at, s.list.lost = c.at, c.lost
		s.pos.previous = c.previous
		s.begins.since = c.since
		s.beginLocked()
		b := s.begins
		if b.continued != c.continued || b.initial != c.initial || !b.since.Equal(c.want) {
			t.Errorf("%+v: continued %t, initial %t, since %s", c, b.continued, b.initial, b.since)
		}
	}
}

// scope.started follows the gaps and the replaced logs that precede it, and precedes what is said
// of the scope afterwards. It is said once.
func TestStartIsAnnouncedAfterGaps(t *testing.T) {
	gap, rebase := &Notice{gap: true}, &Notice{rebase: true}
	forms, snapshot := &Notice{reform: &reform{}}, &Notice{opens: &snapshot{}}
	for _, c := range []struct {
		notices []*Notice
		want    int // the place of scope.started
	}{
		{nil, 0},
		{[]*Notice{gap}, 1},
		{[]*Notice{gap, rebase, forms}, 3},
		{[]*Notice{gap, snapshot, gap}, 1},
		{[]*Notice{snapshot}, 0},
	} {
		s := &Store{}
		s.list.at = listed
		s.gate.notices = slices.Clone(c.notices)
		s.announceBeginLocked()
		s.announceBeginLocked()
		at := slices.IndexFunc(s.gate.notices, func(n *Notice) bool { return n.begins })
		if at != c.want || len(s.gate.notices) != len(c.notices)+1 {
			t.Errorf("of %d notices, it is number %d, want %d of %d", len(s.gate.notices), at, c.want, len(c.notices)+1)
		}
	}
	unread := &Store{}
	unread.announceBeginLocked()
	if len(unread.gate.notices) > 0 {
		t.Error("it is announced before the first list")
	}
}
