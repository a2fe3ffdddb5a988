package writers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/writers"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// event returns an event of a writer at a second: "w1 2-100 started pods 7", "w1 2-100 progress 3
// pods=9,pods/shop=8 ends".
func event(t interface{ Fatalf(string, ...any) }, second int, text string) *consume.Event {
	f := strings.Fields(text)
	e := &consume.Event{
		Source:     "/kubernetes/prod",
		Cluster:    "prod",
		ClusterUID: "uid-1",
		Time:       noon.Add(time.Duration(second) * time.Second),
		ID:         text,
	}
	if f[2] == "progress" {
		p := &consume.Progress{Writer: f[0], Run: f[1], Checkpoint: "configMap cdc " + f[0]}
		if _, err := fmt.Sscan(f[3], &p.Number); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for entry := range strings.SplitSeq(f[4], ",") {
			scope, version, _ := strings.Cut(entry, "=")
			resource, _, part := strings.Cut(scope, "/")
			s := consume.ScopeProgress{Resource: resource, ResourceVersion: version}
			if part {
				s.Scope = scope
			}
			p.Scopes = append(p.Scopes, s)
		}
		p.Ends = len(f) > 5
		e.Type, e.Progress = consume.TypeProgress, p
		return e
	}
	e.Type = map[string]consume.EventType{
		"started":   consume.TypeScopeStarted,
		"ended":     consume.TypeScopeEnded,
		"forgotten": consume.TypeScopeEnded,
		"snapshot":  consume.TypeSnapshotStarted,
	}[f[2]]
	e.Scope = f[3]
	e.APIVersion = "v1"
	e.Kind = "Pod"
	e.Resource, _, _ = strings.Cut(f[3], "/")
	e.Stream = &consume.Stream{Writer: f[0], Run: f[1], ResourceVersion: f[4]}
	switch f[2] {
	case "ended":
		e.Stream.End = consume.EndDeselected
	case "forgotten":
		e.Stream.End = consume.EndForgotten
	}
	return e
}

func fold(t interface{ Fatalf(string, ...any) }, texts ...string) *writers.Fold {
	f := &writers.Fold{}
	for second, text := range texts {
		f.Add(event(t, second, text))
	}
	return f
}

// shown lists the scopes without an end: "w1: pods@9".
func shown(f *writers.Fold) (lines []string) {
	for _, w := range f.Writers() {
		for _, s := range w.Scopes() {
			lines = append(lines, fmt.Sprintf("%s: %s@%d", w.Name, s.Name, s.ResourceVersion))
		}
	}
	return lines
}

func TestScopesWithoutAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   []string
	}{
		"started": {[]string{"w1 0-100 started pods 7"}, []string{"w1: pods@7"}},
		"ended":   {[]string{"w1 0-100 started pods 7", "w1 0-100 ended pods 9"}, nil},
		"started again": {[]string{
			"w1 0-100 started pods 7", "w1 0-100 ended pods 9", "w1 0-200 started pods 9",
		}, []string{"w1: pods@9"}},
		"ended by another one": {[]string{
			"w1 0-100 started pods 7", "w2 0-100 started pods 8", "w2 0-100 ended pods 9",
		}, []string{"w1: pods@7"}},
		"of a former run": {[]string{"w1 0-100 started pods/a 7", "w1 0-200 started pods/b 8"}, []string{
			"w1: pods/a@7", "w1: pods/b@8",
		}},
		"the start comes late, as from another partition": {[]string{
			"w1 0-200 ended pods 9", "w1 0-100 started pods 7",
		}, nil},
		"the end comes late": {[]string{
			"w1 0-200 started pods 9", "w1 0-100 ended pods 7",
		}, []string{"w1: pods@9"}},
		"only a snapshot": {[]string{"w1 0-100 snapshot pods 7"}, []string{"w1: pods@7"}},
		"snapshot of a part": {[]string{
			"w1 0-100 started pods 7", "w1 0-100 snapshot pods/a 8",
		}, []string{"w1: pods@7"}},
		"progress of all": {[]string{
			"w1 0-100 started pods 7", "w1 0-100 progress 1 pods=9",
		}, []string{"w1: pods@9"}},
		"progress of another": {[]string{
			"w1 0-100 started pods 7", "w1 0-100 started pods/a 7", "w1 0-100 progress 1 pods=9,pods/a=8",
		}, []string{"w1: pods@9", "w1: pods/a@8"}},
		"progress of a run that does not have the scope": {[]string{
			"w1 0-100 started pods 7", "w1 0-200 progress 1 pods=9",
		}, []string{"w1: pods@7"}},
		"late progress": {[]string{
			"w1 0-200 started pods 7", "w1 0-100 progress 1 pods=9",
		}, []string{"w1: pods@7"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(fold(t, c.events...)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Logs are read one after another, and records may come twice. The result must be that of the true
// order.
func TestOrderOfLogsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*consume.Event
		observed := map[string]bool{}
		began := 100
		for second := range rapid.IntRange(1, 20).Draw(t, "events") {
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				began++
			}
			scope := rapid.SampledFrom([]string{"pods/a", "pods/b", "nodes/c"}).Draw(t, "scope")
			what := rapid.SampledFrom([]string{"started", "ended"}).Draw(t, "what")
			observed[scope] = what == "started"
			all = append(all, event(t, second, fmt.Sprintf("w1 0-%d %s %s %d", began, what, scope, second+1)))
		}
		var want []string
		for scope, is := range observed {
			if is {
				want = append(want, scope)
			}
		}
		slices.Sort(want)
		read := rapid.Permutation(append(all, all...)).Draw(t, "read")
		var f writers.Fold
		for _, e := range read {
			f.Add(e)
		}
		var got []string
		for _, s := range f.Writers()[0].Scopes() {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestChoose(t *testing.T) {
	gone, alive := noon.Add(writers.Silence+time.Minute), noon.Add(5*time.Minute)
	one := []string{"w1 0-100 started pods 7", "w1 0-100 progress 1 pods=8"}
	for name, c := range map[string]struct {
		events  []string
		asked   writers.Asked
		now     time.Time
		want    []string // scopes that end
		refused []string // writers
		left    []string
		fails   string
	}{
		"a writer that is gone": {events: one, asked: writers.Asked{Names: []string{
			"w1",
		}}, now: gone, want: []string{"w1: pods"}},
		"a writer that may work": {events: one, asked: writers.Asked{Names: []string{
			"w1",
		}}, now: alive, refused: []string{"w1"}},
		"a scope of one that is gone": {events: one, asked: writers.Asked{Names: []string{
			"pods",
		}}, now: gone, want: []string{"w1: pods"}},
		"a scope of one that works": {events: one, asked: writers.Asked{Names: []string{
			"pods",
		}}, now: alive, left: []string{"w1"}},
		"one that has said that it ends": {
			events: append(one, "w1 0-100 progress 2 pods=8 ends"), asked: writers.Asked{Names: []string{
				"w1",
			}}, now: alive, want: []string{"w1: pods"},
		},
		"its next run works": {
			events: append(one, "w1 0-100 progress 2 pods=8 ends", "w1 0-200 started pods 8"), asked: writers.Asked{
				Names: []string{"w1"},
			}, now: alive, refused: []string{"w1"},
		},
		"a scope that the next run does not have": {
			events: append(one, "w1 0-200 started pods/a 8"), asked: writers.Asked{Names: []string{
				"pods",
			}}, now: alive, want: []string{"w1: pods"},
		},
		"again, after some have ended": {
			events: append(one, "w1 0-100 started nodes 8", "w1 0-100 progress 3 pods=8 ends",
				"w1 0-100 forgotten nodes 8"), asked: writers.Asked{Names: []string{"w1"}}, now: alive,
			want: []string{"w1: pods"},
		},
		"a scope of one that is gone and of one that works": {
			events: append(one, "w1 0-100 progress 3 pods=8 ends", "w2 0-100 started pods 9"), asked: writers.Asked{
				Names: []string{"pods"},
			}, now: alive, want: []string{"w1: pods"},
			left: []string{"w2"},
		},
		"places, and the agent of one works": {
			events: append(one, "w1 0-100 progress 3 pods=8 ends", "w2 0-100 started pods 9",
				"w2 0-100 progress 1 pods=9"), asked: writers.Asked{Checkpoints: []string{"*"}},
			now: alive, want: []string{"w1: pods"}, left: []string{"w2"},
		},
		"by the checkpoint": {events: one, asked: writers.Asked{Checkpoints: []string{
			"configMap * w[0-9]",
		}}, now: gone, want: []string{"w1: pods"}},
		"another checkpoint": {events: one, asked: writers.Asked{Checkpoints: []string{"configMap cdc w2"}}, now: gone},
		"nothing left": {events: append(one, "w1 0-100 ended pods 9"), asked: writers.Asked{Names: []string{
			"pods",
		}}, now: gone},
		"an unknown name": {
			events: one, asked: writers.Asked{Names: []string{"w3"}},
			now:   gone,
			fails: "no writer and no scope w3; its writers:\n  w1 (configMap cdc w1) of cluster prod, last event at 2026-11-20T12:00:01Z",
		},
		"another cluster": {events: one, asked: writers.Asked{Names: []string{
			"w1",
		}, Cluster: "dev"}, now: gone, fails: "no writers at all"},
		"another uid": {events: one, asked: writers.Asked{Names: []string{
			"w1",
		}, ClusterUID: "uid-2"}, now: gone, fails: "no writers at all"},
	} {
		t.Run(name, func(t *testing.T) {
			choice, err := c.asked.Choose(fold(t, c.events...).Writers(), c.now)
			if c.fails != "" {
				if unknown := new(writers.UnknownError); !errors.As(err, &unknown) ||
					!strings.Contains(err.Error(), c.fails) {
					t.Fatalf("got %v, want %q", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range choice.Ends {
				for _, s := range e.Scopes {
					got = append(got, e.Writer.Name+": "+s.Name)
				}
			}
			if refused := names(choice.Refused); !slices.Equal(refused, c.refused) {
				t.Errorf("refused: %q, want %q", refused, c.refused)
			}
			if left := names(choice.Left); !slices.Equal(left, c.left) {
				t.Errorf("left: %q, want %q", left, c.left)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("ends %q, want %q", got, c.want)
			}
		})
	}
}

func names(all []*writers.Writer) (out []string) {
	for _, w := range all {
		out = append(out, w.Name)
	}
	return out
}

// One name may mean the agents of two clusters.
func TestChooseOfSeveralClusters(t *testing.T) {
	var f writers.Fold
	for _, uid := range []string{"uid-1", "uid-2"} {
		e := event(t, 0, "w1 0-100 started pods 7")
		e.ClusterUID = uid
		f.Add(e)
	}
	asked := writers.Asked{Names: []string{"pods"}}
	later := noon.Add(time.Hour)
	if _, err := asked.Choose(f.Writers(), later); err == nil ||
		!strings.Contains(err.Error(), "several clusters, such as prod (uid uid-1) and prod (uid uid-2)") {
		t.Errorf("got %v", err)
	}
	asked.ClusterUID = "uid-2"
	choice, err := asked.Choose(f.Writers(), later)
	if err != nil || len(choice.Ends) != 1 || choice.Ends[0].Writer.ClusterUID != "uid-2" {
		t.Errorf("got %+v, %v", choice, err)
	}
}
