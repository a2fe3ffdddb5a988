package e2e_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// most is how many faults are shown of each kind.
const most = 5

// report fails the test with the faults, a few of each kind in full.
func report(t testing.TB, p *plane, s *stream, faults []fault) {
	t.Helper()
	byKind := make(map[string][]fault)
	for _, f := range faults {
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		list := byKind[kind]
		t.Errorf("VERDICT: %d faults of kind %q", len(list), kind) // CI never runs a test with a verdict again.
		for _, f := range list[:min(most, len(list))] {
			t.Errorf("%.1500s", f)
			if f.Content != "" {
				t.Logf("%s: (-etcd +bus)\n%.3000s", f.Content, explain(t, p, s, f))
			}
		}
	}
}

// explain shows in what a record's object differs from etcd's.
func explain(t testing.TB, p *plane, s *stream, f fault) string {
	want, err := p.history.object(t.Context(), f.Key, f.ContentRev)
	if err != nil {
		return err.Error()
	}
	if s == nil || s.body == nil {
		return "the record cannot be read again"
	}
	body, err := s.body(t.Context(), f.Lane, f.Position)
	if err != nil {
		return err.Error()
	}
	event, err := decodeObject(body)
	if err != nil {
		return err.Error()
	}
	data, _ := event["data"].(map[string]any)
	got, _ := data[f.Content].(map[string]any)
	return cmp.Diff(want, got)
}
