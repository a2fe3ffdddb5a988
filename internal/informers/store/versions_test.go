package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Lists that follow each other while catch-up has no room keep a bounded number of objects and of
// their versions.
func TestPendingVersionsAreBounded(t *testing.T) {
	const most, lists = 12, 30
	s := New(Options{
		Resource:    configMaps,
		Scope:       "configmaps",
		Metrics:     testMetrics(),
		Now:         time.Now,
		MaxVersions: most,
	})
	s.BeginList(Fresh)
	s.Load(at("a", "1", 1), nil)
	s.EndList(1)
	highest := 0
	for n := range lists {
		rv := uint64(10 * (n + 2))
		made := string(rune('A' + n)) // replaces that of the list before
		s.BeginList(Relist)
		s.Compare(at("a", "1", rv-1), new(object.Scanned))
		s.Compare(at(made, made, rv-2), new(object.Scanned))
		s.Lose(Loss{From: rv - 10, Reason: object.Expired})
		gap := s.Gap(rv, nil)
		s.EndList(rv, gap)
		s.AddVersions(map[string]backfill.Result{
			at("a", "1", rv-1).Ref.Key: {Versions: versionsOf("a", fmt.Sprint(rv-3, " 1")), Complete: true},
			at(made, made, rv).Ref.Key: {Complete: true},
		})
		s.gate.notices = nil
		gap.done()
		versions := 0
		for _, d := range s.known.pending {
			versions += len(d.versions)
		}
		highest = max(highest, versions)
		if versions > most+10 || len(s.known.pending) > most+10 {
			t.Fatalf("after %d lists, %d objects are pending, and %d versions of them; want %d of either at most", n+1,
				len(s.known.pending), versions, most+10)
		}
	}
	if highest < most {
		t.Errorf("at most %d versions were pending, want the limit of %d to be reached", highest, most)
	}
}
