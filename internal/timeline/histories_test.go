package timeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var prod = consume.ClusterKey{Source: "/kubernetes/prod"}

// progressOf returns a progress event with the entry of a resource.
func progressOf(resource string, at time.Time, rv int) *consume.Event {
	return &consume.Event{
		ID: fmt.Sprintf("progress/w/%s/%d", resource, at.Unix()), Source: "/kubernetes/prod", Type: consume.TypeProgress, Time: at,
		Progress: &consume.Progress{Writer: "w", Run: "0-1", Scopes: []consume.ScopeProgress{{Resource: resource, ResourceVersion: fmt.Sprint(rv), To: at}}},
	}
}

func TestHistories(t *testing.T) {
	for _, c := range []struct {
		name     string
		resource string
		rv       func(minute int) int // of the resource; that of the common etcd is 1000 + 100 for each minute
		want     bool
	}{
		{"the same etcd", "events", func(m int) int { return 1000 + 100*m }, false},
		{"the same etcd, four minutes behind", "events", func(m int) int { return 600 + 100*m }, false},
		{"the same etcd, silent for a third of the time", "events", func(m int) int { return 1000 + 100*m - max(0, 1000-100*m) }, false},
		{"another etcd that is ahead", "events", func(m int) int { return 50_000 + m }, true},
		{"another etcd that is behind", "events.events.k8s.io", func(m int) int { return 10 + m }, true},
		{"another etcd that passes this one", "leases.coordination.k8s.io", func(m int) int { return 500 * m }, true},
		{"a resource of the common etcd, far ahead", "pods", func(m int) int { return 50_000 + m }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h timeline.Histories
			for m := range 60 {
				h.Note(progressOf("namespaces", noon.Add(time.Duration(m)*time.Minute), 1000+100*m))
				h.Note(progressOf(c.resource, noon.Add(time.Duration(m)*time.Minute+time.Second), c.rv(m)))
			}
			if got := h.Other(prod, c.resource); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
	var alone timeline.Histories
	alone.Note(progressOf("events", noon, 10))
	if alone.Other(prod, "events") || alone.Other(prod, "widgets.example.com") {
		t.Error("a record with nothing to compare with shows another etcd")
	}
	var young timeline.Histories
	young.Note(progressOf("namespaces", noon, 1000))
	young.Note(progressOf("widgets.example.com", noon.Add(20*time.Second), 1100))
	if young.Other(prod, "widgets.example.com") {
		t.Error("the first resource of a young record whose progress is ahead of the others is in another etcd")
	}
}

// A service in an APIService says that a group is aggregated, until a later version says that it is not.
func TestHistoriesOfAggregatedAPIs(t *testing.T) {
	service := func(after string, minute int) *consume.Event {
		return &consume.Event{
			Source: prod.Source, APIVersion: "apiregistration.k8s.io/v1", Resource: "apiservices", Name: "v1.demo.example.com", Time: noon.Add(time.Duration(minute) * time.Minute),
			Data: &consume.Data{After: []byte(after)},
		}
	}
	var h timeline.Histories
	for _, step := range []struct {
		after  string
		minute int
		want   bool
	}{
		{`{"spec":{"group":"demo.example.com","service":null}}`, 1, false},
		{`{"spec":{"group":"demo.example.com","service":{"name":"api"}}}`, 2, true},
		{`{"spec":{"group":"demo.example.com"}}`, 1, true}, // a late copy
		{`null`, 3, true},
		{`{"spec":{"group":"demo.example.com"}}`, 4, false},
	} {
		h.Note(service(step.after, step.minute))
		if got := h.Other(prod, "widgets.demo.example.com"); got != step.want {
			t.Errorf("after %s: got %t", step.after, got)
		}
	}
}

// An aggregated API of one cluster, or an etcd of its own, says nothing about another cluster of
// the same name.
func TestHistoriesOfTwoClusters(t *testing.T) {
	var h timeline.Histories
	for m := range 60 {
		at := noon.Add(time.Duration(m) * time.Minute)
		for cluster, rv := range map[string]int{"uid-of-a": 50_000 + m, "uid-of-b": 1000 + 100*m} {
			for resource, rv := range map[string]int{"namespaces": 1000 + 100*m, "events": rv} {
				e := progressOf(resource, at, rv)
				e.ClusterUID = cluster
				h.Note(e)
			}
		}
	}
	for cluster, want := range map[string]bool{"uid-of-a": true, "uid-of-b": false, "": false} {
		if got := h.Other(consume.ClusterKey{Source: prod.Source, UID: cluster}, "events"); got != want {
			t.Errorf("%q: %t, want %t", cluster, got, want)
		}
	}
}
