package main

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/writers"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// The id of an end has the scope and the time. Two writers of one scope need two ids, and a bus
// drops the second event of an id. An end must not be earlier than other events of its writer.
func TestEndsHaveTimesOfTheirOwn(t *testing.T) {
	now := time.Now()
	var fold writers.Fold
	for i, writer := range []string{"a", "b", "c"} {
		fold.Add(&consume.Event{
			Type:       consume.TypeScopeStarted,
			Source:     "/kubernetes/prod",
			Cluster:    "prod",
			Scope:      "pods",
			APIVersion: "v1",
			Kind:       "Pod",
			Resource:   "pods",
			Time:       now.Add(time.Duration(i-1) * time.Hour),
			Stream:     &consume.Stream{Writer: writer, Run: "0-100", ResourceVersion: "7"},
		})
	}
	asked := writers.Asked{Names: []string{"pods"}}
	choice, err := asked.Choose(fold.Writers(), now.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ends, lines := (&recordEnd{}).ends(choice, now)
	if len(ends) != 3 || len(lines) != 3 {
		t.Fatalf("%d ends and %d lines, want 3", len(ends), len(lines))
	}
	seen := map[time.Time]bool{}
	for _, e := range ends {
		if seen[e.At] || !e.At.After(now.Add(time.Hour)) {
			t.Errorf("the end of writer %s is at %s, %v after now", e.Writer, e.At, e.At.Sub(now))
		}
		seen[e.At] = true
	}
}
