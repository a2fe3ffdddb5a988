package consume_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// script is a story of events, one in a line, and what a Tracker says of each:
//
//	c web/1 @10            an object's event: op, name/uid, sequence; namespace shop
//	r web/1 @10 S1         read by snapshot S1
//	started S1 @20 · completed S1 @20 · gap rewound · +2h   time passes
//	begin · end            the start and the end of a scope
//	progress 7 pods/shop@20 all:pods@18h1   number 7, of a scope, and of all others of a resource
//	again 3                the event of three lines before, the same once more
//
// by=a/0-1: the writer and its run. h1 on any of the others: its history.
//
// Behind "=>": "-" no news, "news", "gone a/1,b/2" (with "-" before it where it is no news).
func script(t *testing.T, tr *consume.Tracker, lines string) {
	t.Helper()
	now, source := noon, "/kubernetes/a"
	var all []*consume.Event
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		line = strings.TrimSpace(line)
		said, want, _ := strings.Cut(line, "=>")
		f := strings.Fields(said)
		now = now.Add(time.Second)
		e := &consume.Event{Source: source, APIVersion: "v1", Resource: "pods", Time: now, Scope: "pods"}
		writer, run := "", ""
		for _, x := range f {
			switch {
			case strings.HasPrefix(x, "@"):
				e.ResourceVersion = x[1:]
				e.Sequence = fmt.Sprintf("%020s", x[1:])
			case strings.HasPrefix(x, "source="):
				e.Source = x[len("source="):]
			case strings.HasPrefix(x, "cluster="):
				e.ClusterUID = x[len("cluster="):]
			case strings.HasPrefix(x, "scope="):
				e.Scope = x[len("scope="):]
			case strings.HasPrefix(x, "ns="):
				e.Namespace = x[len("ns="):]
			case strings.HasPrefix(x, "by="):
				writer, run, _ = strings.Cut(x[len("by="):], "/")
			case strings.HasPrefix(x, "api="):
				e.APIVersion = x[len("api="):]
			case len(x) == 2 && x[0] == 'h':
				e.ID = "/" + x
			}
		}
		switch f[0] {
		case "started", "completed":
			e.Type = consume.EventType(consume.TypePrefix + "snapshot." + f[0])
			e.Stream = &consume.Stream{Snapshot: f[1], ResourceVersion: e.ResourceVersion, Writer: writer, Run: run}
		case "gap":
			e.Type, e.ID = consume.TypeGap, "gap/"+f[1]+e.ID
			e.Stream = &consume.Stream{Reason: consume.GapReason(f[1])}
		case "begin", "end":
			e.Type = map[string]consume.EventType{
				"begin": consume.TypeScopeStarted,
				"end":   consume.TypeScopeEnded,
			}[f[0]]
			e.ID = fmt.Sprint(e.Scope, "/", f[0], "/", now.UnixNano(), e.ID)
			e.Stream = &consume.Stream{Writer: writer, Run: run}
		case "progress":
			e = progressOf(t, e, writer, run, f[1:])
		case "former":
			e.Type, e.ResourceVersion = consume.TypeProgress, "99"
		case "again":
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			e = all[len(all)-n]
		case "later":
			e.Type = consume.TypePrefix + "unheard-of"
		default:
			if strings.HasPrefix(f[0], "+") {
				d, err := time.ParseDuration(f[0][1:])
				if err != nil {
					t.Fatal(err)
				}
				now = now.Add(d)
				continue
			}
			e.Op = consume.Op(f[0])
			e.Name, e.UID, _ = strings.Cut(f[1], "/")
			if e.Namespace == "" {
				e.Namespace = "shop"
			}
			e.Data = &consume.Data{Op: e.Op}
			if e.Op == consume.Read {
				e.Data.Snapshot = f[3]
			}
		}
		all = append(all, e)
		if got := verdict(tr.Apply(e)); got != strings.TrimSpace(want) {
			t.Errorf("%s\nsays %s", line, got)
		}
		// It may be saved and loaded at any time.
		saved, err := json.Marshal(tr)
		if err != nil {
			t.Fatal(err)
		}
		again := &consume.Tracker{Forget: tr.Forget}
		if err := json.Unmarshal(saved, again); err != nil {
			t.Fatal(err)
		}
		*tr = *again
	}
}

func verdict(v consume.Verdict) string {
	s := "-"
	if v.News {
		s = "news"
	}
	if len(v.Gone) == 0 {
		return s
	}
	var gone []string
	for _, o := range v.Gone {
		gone = append(gone, o.Name+"/"+o.UID)
	}
	if v.News {
		return "gone " + strings.Join(gone, ",")
	}
	return "- gone " + strings.Join(gone, ",")
}

func TestTracker(t *testing.T) {
	for name, lines := range map[string]string{
		"copies are no news": `
			c web/1 @10 => news
			c web/1 @10 => -
			u web/1 @12 => news
			c web/1 @10 => -
			u web/1 @12 => -
			d web/1 @15 => news
			d web/1 @15 => -
			u web/1 @12 => -
			later => news`,
		"a deletion may carry the version of what it deletes": `
			c web/1 @10 => news
			d web/1 @10 => news
			d web/1 @10 => -
			c web/1 @10 => -`,
		"an object is deleted once, seen or inferred": `
			c web/1 @10 => news
			d web/1 @12 => news
			d web/1 @30 => -`,
		"deleted and never heard of": `
			d web/1 @12 => news
			d web/1 @12 => -
			u web/1 @11 => -`,
		"the sweep": `
			c a/1 @5 => news
			c b/2 @6 => news
			c c/3 @7 => news
			started S1 @20 => news
			r a/1 @5 S1 => -
			u b/2 @21 => news
			completed S1 @20 => gone c/3
			completed S1 @20 => -
			started S1 @20 => -`,
		"created and deleted inside of the snapshot": `
			started S1 @20 => news
			c a/1 @21 => news
			r b/2 @9 S1 => news
			d a/1 @22 => news
			d b/2 @23 => news
			c a/1 @21 => -
			r b/2 @9 S1 => -
			completed S1 @20 => news`,
		"an interrupted snapshot sweeps nothing, nor does it vouch for anything": `
			c a/1 @5 => news
			c b/2 @6 => news
			started S1 @20 => news
			r a/1 @5 S1 => -
			started S2 @30 => news
			r b/2 @6 S2 => -
			started S1 @20 => -
			r a/1 @5 S1 => -
			completed S2 @30 => gone a/1`,
		"a snapshot goes on after a restart": `
			c a/1 @5 => news
			started S1 @20 => news
			r a/1 @5 S1 => -
			started S1 @20 => -
			completed S1 @20 => news`,
		"a start that was not seen": `
			c a/1 @5 => news
			r b/2 @9 S1 => news
			completed S1 @20 => news
			completed S1 @20 => -`,
		"late copies after the sweep": `
			c a/1 @5 => news
			r a/1 @5 S0 => -
			started S1 @20 => news
			completed S1 @20 => gone a/1
			+99h
			r a/1 @5 S0 => -
			started S2 @30 => news
			r a/1 @5 S0 => -
			completed S2 @30 => news
			r a/1 @5 S1 => -
			c a/1 @5 => -
			u a/1 @19 => -
			d a/1 @19 => -`,
		"late from before the list, by an agent that has gone": `
			started S1 @20 => news
			u a/1 @15 => news
			completed S1 @20 => gone a/1`,
		"another scope of the resource ends with an empty snapshot": `
			started S1 @20 scope=pods?labelSelector=a=b => news
			completed S1 @20 scope=pods?labelSelector=a=b => news
			started S2 @20 => news
			r a/1 @10 S2 scope= => news
			completed S2 @20 => news`,
		"left and entered again": `
			e a/1 @5 => news
			l a/1 @9 => news
			e a/1 @5 => -
			l a/1 @9 => -
			e a/1 @12 => news
			started S1 @20 => news
			completed S1 @20 => gone a/1
			e a/1 @25 => news`,
		"a name taken again": `
			c a/1 @5 => news
			d a/1 @6 => news
			c a/2 @7 => news
			u a/1 @5 => -
			+99h
			u a/1 @5 => -`,
		"a name taken again, and the deletion not sent": `
			c a/1 @5 => news
			c a/2 @7 => gone a/1
			d a/1 @7 => -
			u a/1 @6 => -
			u a/2 @8 => news`,
		"clusters apart": `
			c a/1 @5 source=/kubernetes/x => news
			c a/1 @5 source=/kubernetes/y => news
			started S1 @20 source=/kubernetes/x => news
			completed S1 @20 source=/kubernetes/x => gone a/1
			u a/1 @5 source=/kubernetes/y => -
			u a/1 @6 source=/kubernetes/y => news`,
		"two versions of a resource": `
			c a/1 @5 api=apps/v1beta1 => news
			c a/1 @5 api=apps/v1 => -
			u a/1 @6 api=apps/v1 => news
			c a/1 @5 api=batch/v1 => news`,
		"scopes apart": `
			c a/1 @5 ns=x => news
			c b/2 @5 ns=y => news
			c c/3 @5 ns=team-b => news
			started S1 @20 scope=pods/x => news
			started S1 @20 scope=pods/team-?,!team-a?labelSelector=a=b => news
			completed S1 @20 scope=pods/x => gone a/1
			completed S1 @20 scope=pods/team-?,!team-a?labelSelector=a=b => gone c/3
			started S2 @30 scope=pods/team-?,!team-b => news
			completed S2 @30 scope=pods/team-?,!team-b => news`,
		"a scope that several rules make": `
			c a/1 @5 scope=pods?any=shop?labelSelector=a=b|team-* => news
			c b/2 @5 ns=team-x scope=pods?any=shop?labelSelector=a=b|team-* => news
			c c/3 @5 scope=pods?labelSelector=c=d => news
			started S1 @20 scope=pods/shop?any=shop?labelSelector=a=b|team-* => news
			completed S1 @20 scope=pods/shop?any=shop?labelSelector=a=b|team-* => gone a/1
			started S2 @30 scope=pods?any=shop?labelSelector=a=b|team-* => news
			completed S2 @30 scope=pods?any=shop?labelSelector=a=b|team-* => gone b/2`,
		"a snapshot goes on, while another one of a part of it is taken": `
			c a/1 @5 => news
			c b/2 @5 ns=other => news
			c c/3 @6 => news
			started S1 @20 => news
			r a/1 @5 S1 => -
			started S2 @22 scope=pods/shop => news
			r a/1 @5 S2 => -
			started S1 @20 => -
			started S2 @22 scope=pods/shop => -
			r a/1 @5 S2 => -
			completed S2 @22 scope=pods/shop => gone c/3
			r b/2 @5 S1 ns=other => -
			completed S1 @20 => news
			started S2 @22 scope=pods/shop => -
			completed S2 @22 scope=pods/shop => -`,
		"a read that is older than another snapshot": `
			started S1 @20 => news
			started S2 @25 scope=pods/shop => news
			r b/2 @10 S2 => news
			completed S2 @25 scope=pods/shop => news
			r a/1 @10 S1 => -
			r b/2 @10 S1 => -
			r c/3 @10 S1 ns=other => news
			completed S1 @20 => news
			started S3 @30 scope=pods/shop => news
			r a/1 @10 S3 => news
			started S4 @35 => news
			r a/1 @10 S4 => -
			completed S4 @35 => gone c/3,b/2
			r b/2 @10 S3 => -
			completed S3 @30 scope=pods/shop => news`,
		"a snapshot goes on behind its end, which the agent does not remember": `
			started S1 @20 => news
			r a/1 @5 S1 => news
			completed S1 @20 => news
			c b/2 @21 => news
			started S1 @20 => -
			r a/1 @5 S1 => -
			completed S1 @20 => -`,
		"gaps are told once": `
			c a/1 @50 => news
			gap expired => news
			gap expired => -
			u a/1 @49 => -
			gap checkpoint-lost => news
			u a/1 @60 => news`,
		"restored": `
			c a/1 @50 => news
			c b/2 @51 => news
			d b/2 @52 => news
			c c/3 @53 => news
			started S1 @55 => news
			r a/1 @50 S1 => -
			r c/3 @53 S1 => -
			completed S1 @55 => news
			gap rewound h1 => news
			gap rewound h1 => -
			u a/1 @56 => news
			u a/1 @56 => -
			started S2 @25 h1 => news
			r a/1 @20 S2 h1 => news
			u a/1 @56 => -
			r b/2 @21 S2 h1 => news
			d b/2 @52 => -
			d b/2 @26 h1 => news
			d b/2 @26 h1 => -
			started S1 @55 => -`,
		"restored twice": `
			c a/1 @50 => news
			d a/1 @51 => news
			r a/1 @50 S2 h1 => news
			d a/1 @51 h1 => news
			r a/1 @50 S3 h2 => news
			d a/1 @51 h1 => -
			r a/1 @50 S2 h1 => -
			c a/1 @50 => -
			u a/1 @40 h2 => -
			u a/1 @52 h2 => news`,
		"a name, restored": `
			c a/1 @50 => news
			d a/1 @60 => news
			c a/2 @61 => news
			r a/1 @50 S2 h1 => gone a/2
			u a/2 @99 => -
			d a/2 @99 => -`,
		"restored, and what is not known any more": `
			started S2 @20 h1 => news
			completed S2 @20 h1 => news
			u a/1 @90 => -
			c a/1 @19 h1 => -
			c a/1 @21 h1 => news`,
		"restored, with versions that cannot be compared": `
			c a/1 => news
			u a/1 h1 => news
			u a/1 => -
			u a/1 h1 => news`,
		"restored while no agent knew": `
			c a/1 @50 => news
			started S1 @60 => news
			r a/1 @50 S1 => -
			c b/2 @61 => news
			completed S1 @60 => news
			started S2 @20 => news
			r a/1 @10 S2 => news
			r c/3 @5 S2 => news
			completed S2 @20 => gone b/2
			u a/1 @25 => news
			started S1 @60 => -`,
		"two clusters of one name": `
			c a/1 @50 cluster=A => news
			started S1 @60 cluster=A => news
			r a/1 @50 S1 cluster=A => -
			c a/1 @10 cluster=B => news
			started S1 @20 cluster=B => news
			r a/1 @10 S1 cluster=B => -
			c a/2 @21 cluster=B => gone a/1
			completed S1 @20 cluster=B => news
			completed S1 @60 cluster=A => news
			u a/1 @61 cluster=A => news
			gap rewound h1 cluster=B => news
			started S2 @30 cluster=B h1 => news
			completed S2 @30 cluster=B h1 => gone a/2
			u a/1 @62 cluster=A => news`,
		"one uid in two resources": `
			c a/1 @50 => news
			c a/1 @50 api=metrics.example.com/v1 scope=pods.metrics.example.com => news
			d a/1 @51 api=metrics.example.com/v1 scope=pods.metrics.example.com => news
			u a/1 @51 => news`,
		"by an agent that has forgotten how often etcd was restored": `
			started S1 @60 h2 => news
			r a/1 @50 S1 h2 => news
			completed S1 @60 h2 => news
			started S2 @90 => news
			r a/1 @50 S2 => news
			completed S2 @90 => news
			u a/1 @95 => news`,
		"a start that comes later than it is remembered": `
			started S1 @60 => news
			r a/1 @50 S1 => news
			+-2h
			started S0 @20 => -
			completed S0 @20 => -
			+2h
			completed S1 @60 => news`,
		"versions that cannot be compared": `
			c a/1 => news
			u a/1 => news
			d a/1 => news
			d a/1 => -
			started S1 => news
			c b/2 => news
			completed S1 => news`,
	} {
		t.Run(name, func(t *testing.T) { script(t, new(consume.Tracker), lines) })
	}
}

// The limit that the documentation names, and how a snapshot corrects it.
func TestTrackerForgets(t *testing.T) {
	tr := &consume.Tracker{Forget: 10 * time.Minute}
	script(t, tr, `
		c a/1 @5 => news
		d a/1 @6 => news
		+9m
		u a/1 @5 => -
		+30m
		c b/2 @9 => news
		u a/1 @5 => news
		started S1 @20 => news
		r b/2 @9 S1 => -
		completed S1 @20 => gone a/1
		+99h
		u a/1 @5 => -`)
	want := []consume.Object{{Source: "/kubernetes/a", Resource: "pods", Namespace: "shop", Name: "b", UID: "2"}}
	if diff := gocmp.Diff(want, slices.Collect(tr.All())); diff != "" || tr.Len() != 1 {
		t.Errorf("%d objects, -want +got\n%s", tr.Len(), diff)
	}
}

func TestTrackerState(t *testing.T) {
	var tr consume.Tracker
	script(t, &tr, "c a/1 @5 => news")
	type state struct {
		Position uint64
		Rules    consume.Tracker
	}
	saved, err := json.Marshal(state{7, tr}) // by value: the zero value would be silently saved otherwise
	if err != nil {
		t.Fatal(err)
	}
	var back state
	if err := json.Unmarshal(saved, &back); err != nil || back.Rules.Len() != 1 {
		t.Errorf("%d objects in %s: %v", back.Rules.Len(), saved, err)
	}
	for saved, want := range map[string]string{
		`{"version":1}`: "read the state of a tracker: its version is 1, want 4: start over from a snapshot",
		`[]`:            "read the state of a tracker: json: cannot unmarshal array",
		`{"version":3}`: "its version is 3, want 4: start over from a snapshot",
		`{"version":4,"resources":[{"resource":"pods","live":[{"uid":"1","name":"a"},{"uid":"2","name":"a"}]}]}`: "two objects of pods have one name",
	} {
		var tr consume.Tracker
		if err := json.Unmarshal([]byte(saved), &tr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", saved, err, want)
		}
	}
}

func byName(a, b consume.Object) int {
	return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}

// After a gap of reason content-changed, reads of later snapshots replace known versions, once in
// each.
func TestTrackerReplacesOtherForms(t *testing.T) {
	script(t, &consume.Tracker{}, `
		started S1 @20 => news
		r a/1 @10 S1 => news
		r b/2 @11 S1 => news
		r c/3 @12 S1 => news
		gap content-changed @30 => news
		again 1 => -
		r c/3 @12 S1 => -
		completed S1 @20 => news
		u b/2 @31 => news
		r a/1 @10 S1 => -
		started S2 @35 => news
		r a/1 @10 S2 => news
		again 1 => -
		u b/2 @36 => news
		r b/2 @31 S2 => -
		r b/2 @36 S2 => -
		r c/3 @12 S2 => news
		completed S2 @35 => news
		started S3 @40 => news
		r a/1 @10 S3 => -
		r b/2 @36 S3 => -
		r c/3 @12 S3 => -
		completed S3 @40 => news
	`)
	// A snapshot of a part has the new form too. It is of no use to the rest.
	script(t, &consume.Tracker{}, `
		started S1 @20 => news
		r a/1 @10 S1 => news
		r b/2 @11 S1 ns=web => news
		completed S1 @20 => news
		gap content-changed @30 => news
		started P1 @35 scope=pods/shop => news
		r a/1 @10 P1 => news
		completed P1 @35 scope=pods/shop => news
		started S2 @36 => news
		r a/1 @10 S2 => news
		r b/2 @11 S2 ns=web => news
		completed S2 @36 => news
		started P2 @37 scope=pods/shop => news
		r a/1 @10 P2 => -
	`)
	// Another resource, and another cluster, have nothing to do with it.
	script(t, &consume.Tracker{}, `
		started S1 @20 => news
		r a/1 @10 S1 => news
		completed S1 @20 => news
		gap content-changed @30 cluster=other => news
		gap content-changed @30 api=example.com/v1 => news
		started S2 @35 => news
		r a/1 @10 S2 => -
	`)
	// An interrupted snapshot is followed by another one.
	script(t, &consume.Tracker{}, `
		started S1 @20 => news
		r a/1 @10 S1 => news
		r b/2 @11 S1 => news
		completed S1 @20 => news
		gap content-changed @30 => news
		started S2 @35 => news
		r a/1 @10 S2 => news
		started S3 @36 => news
		r a/1 @10 S3 => news
		r b/2 @11 S3 => news
		completed S3 @36 => news
	`)
}
