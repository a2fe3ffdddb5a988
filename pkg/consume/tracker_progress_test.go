package consume_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// progressOf returns the progress of a line of a script. Its words are a number, and the entries:
// "pods/shop@20h1" is one scope, "all:pods@20" the other ones of a resource, "pods" without a
// version. Everything up to half a minute before the event is in the stream.
func progressOf(t *testing.T, e *consume.Event, writer, run string, words []string) *consume.Event {
	t.Helper()
	number, err := strconv.Atoi(words[0])
	if err != nil {
		t.Fatal(err)
	}
	p := &consume.Progress{Writer: writer, Run: run, Number: number, Since: e.Time.Add(-10 * time.Minute)}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "by=") || strings.HasPrefix(w, "source=") || strings.HasPrefix(w, "cluster=") {
			continue
		}
		name, version, ok := strings.Cut(w, "@")
		var s consume.ScopeProgress
		if ok {
			version, history, _ := strings.Cut(version, "h")
			s.ResourceVersion = version
			s.History = uint32(number32(t, history))
			s.To = e.Time.Add(-30 * time.Second)
		}
		if resource, all := strings.CutPrefix(name, "all:"); all {
			s.Resource = resource
		} else {
			s.Resource, s.Scope = name, name
			if i := strings.IndexAny(name, "/?"); i >= 0 {
				s.Resource = name[:i]
			}
		}
		p.Scopes = append(p.Scopes, s)
	}
	return &consume.Event{
		ID: fmt.Sprintf("progress/%s/%s/%d", writer, run, number), Source: e.Source, ClusterUID: e.ClusterUID,
		Type: consume.TypeProgress, Time: e.Time, Progress: p,
	}
}

// number32 is 0 for "".
func number32(t *testing.T, s string) uint64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// reached describes what a Tracker has of a scope: the time of the last progress, its writer and
// run, and up to where the stream is complete.
func reached(tr *consume.Tracker, scope string) string {
	r, ok := tr.Reached(consume.ClusterKey{Source: "/kubernetes/a"}, scope)
	if !ok {
		if r != (consume.Reached{}) {
			return fmt.Sprintf("not reached, and %v", r)
		}
		return "none"
	}
	out := fmt.Sprintf("%s by %s/%s", r.Time.Format("04:05"), r.Writer, r.Run)
	if r.ResourceVersion != "" || !r.To.IsZero() {
		out += fmt.Sprintf(" @%sh%d to %s", r.ResourceVersion, r.History, r.To.Format("04:05"))
	}
	if r.Ended {
		out += " ended"
	}
	return out
}

func TestTrackerReached(t *testing.T) {
	const other = "pods/team-?,!team-a?labelSelector=a=b"
	for name, steps := range map[string][]any{
		"a scope by its name, and others by their start": {
			"pods", "none", `
			begin by=a/0-1 => news
			begin by=a/0-1 scope=` + other + ` => news
			begin by=a/0-1 scope=pods/shop => news`,
			"pods", "none", `
			+1m
			progress 1 pods/shop@7 all:pods@20 by=a/0-1 => news`,
			"pods", "01:02 by a/0-1 @20h0 to 00:32", other, "01:02 by a/0-1 @20h0 to 00:32", "pods/shop",
			"01:02 by a/0-1 @7h0 to 00:32",
			"pods/bank", "none", "nodes", "none",
		},
		"a scope that is started while a progress is on its way": {
			`
			begin by=a/0-1 => news
			+1m
			begin by=a/0-1 scope=pods/shop => news
			+-10s
			progress 1 all:pods@20 by=a/0-1 => news`,
			"pods", "00:55 by a/0-1 @20h0 to 00:25", "pods/shop", "none", `
			+2m
			begin by=a/0-1 scope=pods/shop => news
			started S1 @9 by=a/0-1 scope=pods/shop => news
			+-10s
			progress 2 all:pods@30 by=a/0-1 => news`,
			"pods", "01:55 by a/0-1 @30h0 to 01:25", "pods/shop", "01:55 by a/0-1 @30h0 to 01:25",
		},
		"a scope that the run has not started": {
			`
			begin by=a/0-1 => news
			begin by=b/0-1 scope=pods/b => news
			begin by=a/0-1 scope=pods/a source=/kubernetes/b => news
			begin by=a/0-1 scope=pods/a cluster=other => news
			progress 1 all:pods@20 all:nodes@30 by=a/0-1 => news`,
			"pods", "00:05 by a/0-1 @20h0 to 59:35", "pods/a", "none", "pods/b", "none", "nodes", "none",
		},
		"a snapshot shows an observation, but no part of one": {
			`
			started S1 @10 by=a/0-1 => news
			started S2 @10 scope=pods/shop by=a/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news`,
			"pods", "00:03 by a/0-1 @20h0 to 59:33", "pods/shop", "none",
		},
		"a part whose scope becomes known later": {
			`
			started S2 @10 scope=pods/shop by=a/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news
			started S1 @10 by=a/0-1 => news
			progress 2 all:pods@30 by=a/0-1 => news`,
			"pods", "00:04 by a/0-1 @30h0 to 59:34", "pods/shop", "00:02 by a/0-1 @20h0 to 59:32",
		},
		"a part whose scope has an entry of its own": {
			`
			started S2 @10 scope=pods/shop by=a/0-1 => news
			started S1 @10 scope=pods/bank by=a/0-1 => news
			progress 1 pods@5 all:pods@20 by=a/0-1 => news`,
			"pods/shop", "none", "pods", "00:03 by a/0-1 @5h0 to 59:33",
		},
		"a part whose scope has ended": {
			`
			started S1 @10 scope=pods/a,b by=a/0-1 => news
			begin scope=pods/c by=a/0-1 => news
			started S2 @10 scope=pods/a by=a/0-1 => news
			end scope=pods/a,b by=a/0-1 => news
			again 2 => -
			progress 1 all:pods@20 by=a/0-1 => news`,
			"pods/c", "00:06 by a/0-1 @20h0 to 59:36", "pods/a", "none", "pods/a,b", "none",
		},
		"an observed scope is no part": {
			`
			begin by=a/0-1 => news
			begin scope=pods/shop by=a/0-1 => news
			started S1 @10 scope=pods/shop by=a/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news`,
			"pods/shop", "00:04 by a/0-1 @20h0 to 59:34",
		},
		"copies and late records": {
			`
			begin by=a/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news
			again 1 => -
			progress 2 all:pods@30 by=a/0-1 => news
			again 3 => -
			begin by=a/0-1 scope=pods/shop => news
			again 3 => -`,
			"pods", "00:04 by a/0-1 @30h0 to 59:34", "pods/shop", "none",
		},
		"nothing of a run after the first record of a later one": {
			`
			begin by=a/0-900 => news
			progress 1 all:pods@20 by=a/0-900 => news
			begin by=a/0-1000 => news
			progress 2 all:pods@30 by=a/0-900 => -
			begin scope=pods/shop by=a/0-900 => -
			end by=a/0-900 => -
			progress 1 all:pods@40 by=a/0-1000 => news
			begin by=a/1-7 => news
			progress 2 all:pods@50 by=a/0-1000 => -
			progress 1 all:pods@60 by=a/1-7 => news
			begin by=a/2-7 => news
			progress 2 all:pods@70 by=a/1-9 => -`,
			"pods", "00:10 by a/1-7 @60h0 to 59:40", "pods/shop", "none",
		},
		"a progress is the first record of a run": {
			`
			begin by=a/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news
			progress 1 all:pods@30 by=a/0-2 => news
			progress 2 all:pods@40 by=a/0-1 => -`,
			"pods", "00:02 by a/0-1 @20h0 to 59:32",
		},
		"a run whose name has another form": {
			`
			begin by=a/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news
			begin by=a/x => news
			progress 1 all:pods@30 by=a/x => news`,
			"pods", "00:04 by a/x @30h0 to 59:34",
		},
		"an end, and a start again": {
			`
			begin by=a/0-1 => news
			begin scope=pods/shop by=a/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news
			end by=a/0-1 => news
			again 4 => -
			progress 2 all:pods@30 by=a/0-1 => news`,
			"pods", "00:03 by a/0-1 @20h0 to 59:33 ended", "pods/shop", "00:06 by a/0-1 @30h0 to 59:36", `
			+5m
			begin by=a/0-1 => news`,
			"pods", "00:03 by a/0-1 @20h0 to 59:33", `
			+6m
			progress 3 all:pods@40 by=a/0-1 => news`,
			"pods", "06:02 by a/0-1 @40h0 to 05:32",
		},
		"a late copy of an end": {
			`
			begin by=a/0-1 => news
			end by=a/0-1 => news
			begin by=a/0-1 => news
			again 2 => -
			progress 1 all:pods@20 by=a/0-1 => news`,
			"pods", "00:05 by a/0-1 @20h0 to 59:35",
		},
		"the times of a run stand still": {
			`
			begin by=a/0-1 => news
			begin scope=pods/shop by=a/0-1 => news
			+-2s
			end scope=pods/shop by=a/0-1 => news
			again 2 => -
			progress 1 all:pods@20 by=a/0-1 => news`,
			"pods", "00:04 by a/0-1 @20h0 to 59:34", "pods/shop", "none",
		},
		"the end of another writer": {
			`
			begin by=a/0-1 => news
			begin by=b/0-1 => news
			progress 1 all:pods@20 by=a/0-1 => news
			progress 1 all:pods@30 by=b/0-1 => news
			end by=a/0-1 => news`,
			"pods", "00:04 by b/0-1 @30h0 to 59:34", `
			+1m
			progress 2 all:pods@40 by=a/0-1 => news`,
			"pods", "00:04 by b/0-1 @30h0 to 59:34",
		},
		"an entry without a version claims nothing": {
			`
			progress 1 pods/shop by=a/0-1 => news`,
			"pods/shop", "00:01 by a/0-1", `
			+1m
			progress 2 pods/shop@20 by=a/0-1 => news`,
			"pods/shop", "01:02 by a/0-1 @20h0 to 00:32", `
			+2m
			progress 3 pods/shop by=a/0-1 => news`,
			"pods/shop", "02:02 by a/0-1 @20h0 to 00:32",
		},
		"an agent that was killed reports less than before": {
			`
			+1m
			progress 7 pods@20 by=a/0-1 => news
			+-45s
			progress 1 pods@18 by=a/0-2 => news`,
			"pods", "01:02 by a/0-1 @20h0 to 00:32", `
			+2m
			progress 2 pods@19 by=a/0-2 => news`,
			"pods", "02:02 by a/0-2 @20h0 to 01:32",
		},
		"a restored etcd": {
			`
			progress 1 pods@20 by=a/0-1 => news
			gap rewound h1 => news
			progress 2 pods@10h1 by=a/0-1 => news
			progress 3 pods@30 by=a/0-1 => news`,
			"pods", "00:04 by a/0-1 @10h1 to 59:34",
		},
		"etcd was restored while no agent watched": {
			`
			begin by=a/0-1 => news
			started S1 @10 by=a/0-1 => news
			progress 1 pods@20 by=a/0-1 => news
			started S2 @5 by=a/0-2 => news`,
			"pods", "00:03 by a/0-1", `
			+1m
			progress 1 pods@6 by=a/0-2 => news`,
			"pods", "01:02 by a/0-2 @6h0 to 00:32",
		},
		"versions that cannot be compared": {
			`
			progress 1 pods@zz by=a/0-1 => news
			progress 2 pods@aa by=a/0-1 => news`,
			"pods", "00:02 by a/0-1 @aah0 to 59:32",
		},
		"of a former release": {
			`
			former => -
			former scope=pods/shop => -`,
			"pods", "none", "pods/shop", "none",
		},
		"ends are forgotten": {
			`
			begin by=a/0-1 => news
			begin scope=pods/shop by=a/0-1 => news
			end by=a/0-1 => news
			again 3 => -
			progress 1 all:pods@20 by=a/0-1 => news
			+2h
			progress 2 all:pods@30 by=a/0-1 => news`,
			"pods", "none", "pods/shop", "00:07 by a/0-1 @30h0 to 59:37",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var tr consume.Tracker
			for len(steps) > 0 {
				first := steps[0].(string)
				if strings.Contains(first, "=>") {
					script(t, &tr, first)
					steps = steps[1:]
					continue
				}
				if got, want := reached(&tr, first), steps[1].(string); got != want {
					t.Errorf("progress of %s: %s, want %s", first, got, want)
				}
				steps = steps[2:]
			}
		})
	}
}

func TestEventHistory(t *testing.T) {
	for id, want := range map[string]uint32{
		"pods/7c0e/48211":          0,
		"pods/7c0e/48211/h1":       1,
		"pods/7c0e/d/h12":          12,
		"pods/7c0e/5/r/S-5/h3":     3,
		"pods/gap/7-5/h2":          2,
		"pods/h5/7":                0,
		"pods/7c0e/5/h":            0,
		"":                         0,
		"pods/7c0e/5/h99999999999": 0,
	} {
		if got := (&consume.Event{ID: id}).History(); got != want {
			t.Errorf("%s: %d, want %d", id, got, want)
		}
	}
	// The parts of a progress's id are no history, whatever a copy of the record names its writer.
	for _, id := range []string{
		"progress/3f0a5c1e9b7d2846/0-1795186799000/7", "progress/h2/h3/7", "progress/copy/0-1/h7",
	} {
		if got := (&consume.Event{Type: consume.TypeProgress, ID: id}).History(); got != 0 {
			t.Errorf("%s: %d, want 0", id, got)
		}
	}
	former := &consume.Event{Type: consume.TypeProgress, ID: "pods/progress/7/1795186800/h2", Scope: "pods"}
	if got := former.History(); got != 2 {
		t.Errorf("%s: %d, want 2", former.ID, got)
	}
}
