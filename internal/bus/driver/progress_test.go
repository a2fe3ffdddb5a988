package driver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var began = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)

// said is the progress number n of a run, at the minute n: entries as "pods", "pods pods/a".
func said(run string, n int, scopes ...string) *consume.Event {
	p := &consume.Progress{Writer: "w", Run: run, Number: n}
	for _, s := range scopes {
		resource, scope, _ := strings.Cut(s, " ")
		p.Scopes = append(p.Scopes, consume.ScopeProgress{
			Resource:        resource,
			Scope:           scope,
			ResourceVersion: fmt.Sprint(n),
			History:         2,
		})
	}
	return &consume.Event{Type: consume.TypeProgress, Time: began.Add(time.Duration(n) * time.Minute), Progress: p}
}

func ending(e *consume.Event) *consume.Event {
	e.Progress.Ends = true
	return e
}

func TestLastProgressOfEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []*consume.Event
		want   string // run, and each entry with its number
	}{
		"none": {nil, ""},
		"others": {[]*consume.Event{{Type: consume.TypeGap, Stream: &consume.Stream{}}, {
			Progress: &consume.Progress{Writer: "v"},
		}}, ""},
		"one": {[]*consume.Event{said("0-5", 1, "pods", "pods pods/a")}, "0-5: pods=1 pods/a=1"},
		"split": {[]*consume.Event{
			said("0-5", 1, "pods"), said("0-5", 2, "services"),
		}, "0-5: services=2 pods=1"},
		"split, named": {[]*consume.Event{
			said("0-5", 1, "pods pods/a"), said("0-5", 2, "pods pods/b"),
		}, "0-5: pods/b=2 pods/a=1"},
		"the newer": {[]*consume.Event{
			said("0-5", 1, "pods", "nodes"), said("0-5", 2, "pods"),
		}, "0-5: pods=2 nodes=1"},
		"too old":      {[]*consume.Event{said("0-5", 1, "nodes"), said("0-5", 5, "pods")}, "0-5: pods=5"},
		"just in time": {[]*consume.Event{said("0-5", 2, "nodes"), said("0-5", 5, "pods")}, "0-5: pods=5 nodes=2"},
		"named before": {[]*consume.Event{said("0-5", 1, "pods pods/a"), said("0-5", 2, "pods")}, "0-5: pods=2"},
		"all before": {[]*consume.Event{
			said("0-5", 1, "pods", "pods pods/b"), said("0-5", 2, "pods pods/a"),
		}, "0-5: pods/a=2 pods/b=1"},
		"an end": {[]*consume.Event{
			said("0-5", 1, "pods"), ending(said("0-5", 2, "services")),
		}, "0-5 ends: services=2 pods=1"},
		"a former end":   {[]*consume.Event{ending(said("0-5", 2, "pods")), said("0-6", 1, "pods")}, "0-6: pods=1"},
		"a later run":    {[]*consume.Event{said("0-9", 7, "nodes"), said("0-10", 1, "pods")}, "0-10: pods=1"},
		"a higher epoch": {[]*consume.Event{said("9-90", 7, "nodes"), said("10-80", 1, "pods")}, "10-80: pods=1"},
		"copies": {
			[]*consume.Event{
				said("0-5", 2, "pods", "pods pods/a"), said("0-5", 2, "pods", "pods pods/b"),
				said("0-5", 1, "pods pods/c", "nodes"),
			},
			"0-5: pods=2 pods/a=2 pods/b=2 nodes=1",
		},
	} {
		for _, order := range []string{"in order", "backwards"} {
			t.Run(name+" "+order, func(t *testing.T) {
				t.Parallel()
				events := slices.Clone(c.events)
				if order == "backwards" && name != "copies" { // their order among each other is that of the logs
					slices.Reverse(events)
				}
				p, ok := driver.LastProgress("w", events)
				got := ""
				if ok {
					got = p.Run
					if p.Ends {
						got += " ends"
					}
					got += ":"
					for _, s := range p.Scopes {
						n := int(s.ResourceVersion)
						name := s.Scope
						if name == "" {
							name = s.Resource
						}
						got += fmt.Sprintf(" %s=%d", name, n)
						if at := began.Add(time.Duration(n) * time.Minute); !s.At.Equal(at) || s.History != 2 ||
							s.Count != 1 {
							t.Errorf("%+v, want the time %v", s, at)
						}
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}
