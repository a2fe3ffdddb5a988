package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var prod = consume.ClusterKey{Source: "/kubernetes/prod"}

// etcds returns a progress event of a run that names etcds: "pods=1 events=unknown".
func etcds(writer, run string, number int, names string) *consume.Event {
	p := &consume.Progress{Writer: writer, Run: run, Number: number}
	names, lost, isLost := strings.Cut(names, " since ")
	if isLost { // minutes after the beginning of the run
		p.Since = consume.RunBegan(run).Add(time.Duration(mustNumber(lost)) * time.Minute)
	}
	for _, one := range strings.Fields(names) {
		resource, name, _ := strings.Cut(one, "=")
		p.Scopes = append(p.Scopes, consume.ScopeProgress{
			Resource:        resource,
			Etcd:            name,
			ResourceVersion: "1000",
			To:              noon,
		})
	}
	return &consume.Event{
		ID: fmt.Sprintf("progress/%s/%s/%d", writer, run, number), Source: prod.Source, Type: consume.TypeProgress,
		Time: consume.RunBegan(run).Add(time.Duration(number) * time.Minute), Progress: p,
	}
}

func mustNumber(s string) int { return int(number(s)) }

func TestEtcds(t *testing.T) {
	const lag = "horizontalpodautoscalers.autoscaling"
	for _, c := range []struct {
		name   string
		events []*consume.Event
		want   map[string]timeline.Etcd
	}{
		{
			"nothing is said",
			[]*consume.Event{etcds("w", "0-1", 1, "pods events "+lag)},
			map[string]timeline.Etcd{
				"pods":   timeline.SameEtcd,
				"events": timeline.UnknownEtcd,
				lag:      timeline.UnknownEtcd,
			},
		},
		{
			"said, and not again",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 events=2 "+lag+"=unknown"), etcds("w", "0-1", 2, "pods events "+lag),
			},
			map[string]timeline.Etcd{
				"pods":   timeline.SameEtcd,
				"events": timeline.OtherEtcd,
				lag:      timeline.UnknownEtcd,
			},
		},
		{
			"known later",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 events=unknown "+lag+"=unknown"),
				etcds("w", "0-1", 2, "events=2 "+lag+"=1"),
			},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, "events": timeline.OtherEtcd, lag: timeline.SameEtcd},
		},
		{
			"in several events",
			[]*consume.Event{
				etcds("w", "0-1", 1, "events=2"), etcds("w", "0-1", 2, "leases.coordination.k8s.io=1"),
				etcds("w", "0-1", 3, "pods=1 secrets=2 services=1"),
			},
			map[string]timeline.Etcd{
				"pods":                       timeline.SameEtcd,
				"events":                     timeline.OtherEtcd,
				"secrets":                    timeline.OtherEtcd,
				"leases.coordination.k8s.io": timeline.SameEtcd,
			},
		},
		{
			"moved between two runs",
			[]*consume.Event{etcds("w", "0-1", 1, "pods=1 "+lag+"=1"), etcds("w", "0-2", 1, "pods=1 "+lag+"=3")},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.OtherEtcd},
		},
		{
			"moved in a run",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 "+lag+"=4"), etcds("w", "0-1", 2, lag+"=unknown"),
				etcds("w", "0-1", 3, lag+"=1"),
			},
			map[string]timeline.Etcd{lag: timeline.OtherEtcd},
		},
		{
			"the names are other ones after a restore",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 "+lag+"=1"), etcds("w", "0-1", 2, "pods=5 "+lag+"=unknown"),
				etcds("w", "0-1", 3, lag+"=5"),
			},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.SameEtcd},
		},
		{
			"so they are, in two events",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 "+lag+"=1"), etcds("w", "0-1", 2, "pods=5"),
				etcds("w", "0-1", 3, lag+"=unknown"),
			},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.UnknownEtcd},
		},
		{
			"two writers have other names",
			[]*consume.Event{etcds("w", "0-1", 1, "pods=1 "+lag+"=2"), etcds("v", "0-1", 1, "pods=2 events=1")},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.OtherEtcd, "events": timeline.OtherEtcd},
		},
		{
			"it is not known any more",
			[]*consume.Event{etcds("w", "0-1", 1, "pods=1 "+lag+"=1"), etcds("w", "0-1", 2, lag+"=unknown")},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.UnknownEtcd},
		},
		{
			"progress is missing that may have said so",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 "+lag+"=1 events=2"), etcds("w", "0-1", 15, "pods "+lag+" since 5"),
			},
			map[string]timeline.Etcd{
				"pods":   timeline.SameEtcd,
				lag:      timeline.UnknownEtcd,
				"events": timeline.OtherEtcd,
			},
		},
		{
			"a later one says it again",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 "+lag+"=1"), etcds("w", "0-1", 15, "pods "+lag+" since 5"),
				etcds("w", "0-1", 60, "pods=1 "+lag+"=1 since 50"),
			},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.SameEtcd},
		},
		{
			"the next one has all that the missing one had",
			[]*consume.Event{
				etcds("w", "0-1", 11, "pods=1 "+lag+"=1 since 1"), etcds("w", "0-1", 15, "pods "+lag+" since 5"),
			},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.SameEtcd},
		},
		{
			"the beginning of the next run is missing",
			[]*consume.Event{
				etcds("w", "0-1", 1, "pods=1 "+lag+"=1"), etcds("w", "0-900000", 15, "pods "+lag+" since 5"),
			},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, lag: timeline.UnknownEtcd},
		},
		{
			"a late run",
			[]*consume.Event{etcds("w", "0-2", 1, "pods=1 events=2"), etcds("w", "0-1", 9, "pods=7 events=7")},
			map[string]timeline.Etcd{"events": timeline.OtherEtcd},
		},
		{
			"the greater name has more resources",
			[]*consume.Event{etcds("w", "0-1", 1, "pods=2 services=2 secrets=1 events=1 "+lag+"=2")},
			map[string]timeline.Etcd{
				"pods":    timeline.SameEtcd,
				"secrets": timeline.OtherEtcd,
				"events":  timeline.OtherEtcd,
				lag:       timeline.SameEtcd,
			},
		},
		{
			"two names have as many resources: the lesser one counts",
			[]*consume.Event{etcds("w", "0-1", 1, "pods=1 secrets=2 events=1 "+lag+"=2")},
			map[string]timeline.Etcd{"pods": timeline.SameEtcd, "secrets": timeline.OtherEtcd, lag: timeline.OtherEtcd},
		},
		{
			"a writer without any resource of the common etcd",
			[]*consume.Event{etcds("w", "0-1", 1, "events=1")},
			map[string]timeline.Etcd{"events": timeline.UnknownEtcd},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h timeline.Etcds
			for _, e := range c.events {
				h.Note(e)
			}
			for range 20 { // each answer is the same, although maps have no order
				for resource, want := range c.want {
					if got := h.Etcd(prod, resource); got != want {
						t.Errorf("%s: %d, want %d", resource, got, want)
					}
				}
			}
		})
	}
}

// A resource without changes may be far behind the others, and yet be in the same etcd.
func TestEtcdsOfAQuietResource(t *testing.T) {
	var h timeline.Etcds
	for m := range 30 {
		e := etcds("w", "0-1", m+1, "pods poddisruptionbudgets.policy")
		if m == 0 {
			e = etcds("w", "0-1", 1, "pods=1 poddisruptionbudgets.policy=1")
		}
		e.Progress.Scopes[0].ResourceVersion = fmt.Sprint(1000 + 1000*m)
		e.Progress.Scopes[0].To = noon.Add(time.Duration(m) * time.Minute)
		h.Note(e)
	}
	if got := h.Etcd(prod, "poddisruptionbudgets.policy"); got != timeline.SameEtcd {
		t.Errorf("got %d", got)
	}
}

// A service in an APIService says that a group is aggregated, until a later version says that it is
// not. A CustomResourceDefinition says that an API server stores the objects.
func TestEtcdsOfAggregatedAPIs(t *testing.T) {
	service := func(after string, minute int) *consume.Event {
		return &consume.Event{
			Source:     prod.Source,
			APIVersion: "apiregistration.k8s.io/v1",
			Resource:   "apiservices",
			Name:       "v1.demo.example.com",
			Time:       noon.Add(time.Duration(minute) * time.Minute),
			Data:       &consume.Data{After: []byte(after)},
		}
	}
	var h timeline.Etcds
	for _, step := range []struct {
		after  string
		minute int
		want   timeline.Etcd
	}{
		{`{"spec":{"group":"demo.example.com","service":null}}`, 1, timeline.UnknownEtcd},
		{`{"spec":{"group":"demo.example.com","service":{"name":"api"}}}`, 2, timeline.OtherEtcd},
		{`{"spec":{"group":"demo.example.com"}}`, 1, timeline.OtherEtcd}, // a late copy
		{`null`, 3, timeline.OtherEtcd},
		{`{"spec":{"group":"demo.example.com"}}`, 4, timeline.UnknownEtcd},
	} {
		h.Note(service(step.after, step.minute))
		if got := h.Etcd(prod, "widgets.demo.example.com"); got != step.want {
			t.Errorf("after %s: got %d", step.after, got)
		}
	}
	h.Note(&consume.Event{
		Source:     prod.Source,
		APIVersion: "apiextensions.k8s.io/v1",
		Resource:   "customresourcedefinitions",
		Name:       "widgets.demo.example.com",
		Data:       &consume.Data{After: []byte(`{}`)},
	})
	if got := h.Etcd(prod, "widgets.demo.example.com"); got != timeline.SameEtcd {
		t.Errorf("a custom resource: got %d", got)
	}
}

// An aggregated API of one cluster, or an etcd of its own, says nothing about another cluster of
// the same name.
func TestEtcdsOfTwoClusters(t *testing.T) {
	var h timeline.Etcds
	for cluster, names := range map[string]string{"uid-of-a": "pods=1 events=2", "uid-of-b": "pods=1 events=1"} {
		e := etcds("w", "0-1", 1, names)
		e.ClusterUID = cluster
		h.Note(e)
	}
	for cluster, want := range map[string]timeline.Etcd{
		"uid-of-a": timeline.OtherEtcd,
		"uid-of-b": timeline.SameEtcd,
		"":         timeline.UnknownEtcd,
	} {
		if got := h.Etcd(consume.ClusterKey{Source: prod.Source, UID: cluster}, "events"); got != want {
			t.Errorf("%q: %d, want %d", cluster, got, want)
		}
	}
}
