package timeline_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// The first snapshot of one resource can be complete before the record has anything of another one.
// At their common resourceVersion, reading does not end between them.
func TestDoneBetweenFirstSnapshots(t *testing.T) {
	t.Parallel()
	s := timeline.NewState(timeline.AtVersion(286, 0), timeline.Options{})
	for n, e := range record(`
		0 started S @286 resource=limitranges
		1 completed S @286 resource=limitranges
		2 started S @286
		3 completed S @286
		4 progress @290 resource=limitranges
		4 progress @290`) {
		if s.Done() {
			t.Errorf("done before record %d", n)
		}
		s.Add(e)
	}
	if !s.Done() {
		t.Error("not done after the progress of both")
	}
}

// One writer that observed the scope around the moment is enough. Otherwise reading continues until
// each writer has reported: the next one may have observed the scope.
func TestDoneWithTwoWriters(t *testing.T) {
	t.Parallel()
	const both = `
		0 begin @10 initial writer=v
		0 begin @10 initial
		0 started S1 @10 initial
		0.1 completed S1 @10
		1 progress @20
		1 progress @20 writer=v
		2 progress @30
		2 progress @30 writer=v`
	for _, c := range []struct {
		name, record string
		want         bool
	}{
		{"before the moment", both, false},
		{"one has observed the scope", both + "\n3 progress @40", true},
		{"one has not observed it", both + "\n3 progress @40 away=cut/2.2-2.8", false},
		{"one has withheld versions", both + "\n3 progress @40 hidden=2.2/31-2.8/35", false},
		{"one withholds versions still", both + "\n3 progress @40 hidden=2.2/31", false},
		{"neither has observed it", both + `
			3 progress @40 away=cut/2.2-2.8
			3 progress @40 away=cut/2.2-2.8 writer=v`, true},
		{"no writer is known", `
			0 started S1 @10 writer=
			0.1 completed S1 @10 writer=
			3 u web/1 @40`, false},
	} {
		s := timeline.NewState(timeline.At(minute("2.5")), timeline.Options{})
		for _, e := range record(c.record) {
			s.Add(e)
		}
		if got := s.Done(); got != c.want {
			t.Errorf("%s: done is %t, want %t", c.name, got, c.want)
		}
	}
}
