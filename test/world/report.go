package world

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// MostShown is the number of faults that Report shows of each kind.
const MostShown = 5

// Report fails the test with the faults, a few of each kind in full.
func Report(t testing.TB, p *Plane, s *Stream, faults []oracle.Fault) {
	t.Helper()
	byKind := make(map[string][]oracle.Fault)
	for _, f := range faults {
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		list := byKind[kind]
		oracle.Fail(t, "%d faults of kind %q", len(list), kind)
		for _, f := range list[:min(MostShown, len(list))] {
			t.Errorf("%.1500s", f)
			if f.Content != "" {
				t.Logf("%s: (-etcd +bus)\n%.3000s", f.Content, explain(t, p, s, f))
			}
		}
	}
}

// explain returns the difference between a record's object and etcd's.
func explain(t testing.TB, p *Plane, s *Stream, f oracle.Fault) string {
	want, err := p.History.Object(t.Context(), f.Key, f.ContentRev)
	if err != nil {
		return err.Error()
	}
	if s == nil || s.Body == nil {
		return "the record cannot be read again"
	}
	body, err := s.Body(t.Context(), f.Lane, f.Position)
	if err != nil {
		return err.Error()
	}
	event, err := oracle.DecodeObject(body)
	if err != nil {
		return err.Error()
	}
	data, _ := event["data"].(map[string]any)
	got, _ := data[f.Content].(map[string]any)
	return cmp.Diff(want, got)
}
