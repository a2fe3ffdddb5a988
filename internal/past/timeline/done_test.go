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
