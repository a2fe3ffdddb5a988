package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/audit"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }

// part is a part of the span with scopes that are exact.
func part(since, until int, names ...string) audit.Part {
	var scopes []certainty.Scope
	for _, name := range names {
		resource, _, _ := strings.Cut(name, " ")
		resource, _, _ = strings.Cut(resource, "/")
		resource, _, _ = strings.Cut(resource, "?")
		s := certainty.Scope{Resource: resource, Name: strings.TrimSuffix(name, " ended"), Certainty: certainty.Exact}
		if strings.HasSuffix(name, " ended") {
			s.Ended = &certainty.End{Bound: certainty.Bound{Time: at(since)}, Reason: consume.EndDeselected}
		}
		if strings.HasSuffix(name, " removed") {
			s.Name = strings.TrimSuffix(name, " removed")
			s.Ended = &certainty.End{Bound: certainty.Bound{Time: at(since)}, Reason: consume.EndRemoved}
		}
		scopes = append(scopes, s)
	}
	end := at(until)
	if until < 60 {
		end = end.Add(-1)
	}
	return audit.Part{Since: at(since), Until: end, Answer: certainty.New("", scopes, "")}
}

func kinds(r *audit.Report) string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, string(f.Kind)+" "+f.Resource+" "+f.Since.Format("04")+"-"+f.Until.Format("04"))
	}
	return strings.Join(out, ", ")
}

// The scopes that are observed must have all objects that are asked for, at each moment.
func TestWhatIsNotSelected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked audit.Asked
		parts []audit.Part
		want  string
	}{
		"all of it": {parts: []audit.Part{part(0, 60, "pods")}},
		"a namespace of all": {asked: audit.Asked{Namespace: "shop"}, parts: []audit.Part{
			part(0, 60, "pods"),
		}},
		"its own namespace": {asked: audit.Asked{Namespace: "shop"}, parts: []audit.Part{
			part(0, 60, "pods/shop"),
		}},
		"a pattern": {asked: audit.Asked{Namespace: "team-a"}, parts: []audit.Part{
			part(0, 60, "pods/team-?"),
		}},
		"an excluded namespace": {asked: audit.Asked{Namespace: "team-x"}, parts: []audit.Part{
			part(0, 60, "pods/team-?,!team-x"),
		}, want: "not-selected pods 00-00"},
		"another namespace": {asked: audit.Asked{Namespace: "bank"}, parts: []audit.Part{
			part(0, 60, "pods/shop"),
		}, want: "not-selected pods 00-00"},
		"all namespaces, one is selected": {parts: []audit.Part{
			part(0, 60, "pods/shop"),
		}, want: "not-selected pods 00-00"},
		"labels that nobody asked for": {parts: []audit.Part{
			part(0, 60, "pods?labelSelector=app=web"),
		}, want: "not-selected pods 00-00"},
		"the labels of the scope": {asked: audit.Asked{Required: []string{"app=web"}}, parts: []audit.Part{
			part(0, 60, "pods?labelSelector=app=web"),
		}},
		"more labels than the scope": {asked: audit.Asked{Required: []string{
			"app=web", "tier=x",
		}}, parts: []audit.Part{part(0, 60, "pods?labelSelector=app=web")}},
		"fewer labels than the scope": {asked: audit.Asked{Required: []string{"app=web"}}, parts: []audit.Part{
			part(0, 60, "pods?labelSelector=app=web,tier=x"),
		}, want: "not-selected pods 00-00"},
		"fields": {parts: []audit.Part{
			part(0, 60, "pods?fieldSelector=spec.nodeName=a"),
		}, want: "not-selected pods 00-00"},
		"narrowed": {parts: []audit.Part{
			part(0, 20, "pods"), part(20, 60, "pods ended", "pods/shop"),
		}, want: "not-selected pods 20-00"},
		"taken over by another scope": {asked: audit.Asked{Namespace: "shop"}, parts: []audit.Part{
			part(0, 20, "pods"), part(20, 60, "pods ended", "pods/shop"),
		}},
		"ended, and begun again": {parts: []audit.Part{
			part(0, 20, "pods"), part(20, 30, "pods ended"), part(30, 60, "pods"),
		}, want: "not-selected pods 20-30"},
		"the resource was removed": {parts: []audit.Part{part(0, 20, "pods"), part(20, 60, "pods removed")}},
		"another resource is not selected": {parts: []audit.Part{
			part(0, 60, "pods", "secrets/shop"),
		}, want: "not-selected secrets 00-00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := audit.New(at(0), at(60)).Report(c.asked, c.parts)
			if got := kinds(r); got != c.want || r.IsProven() != (c.want == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for _, of := range r.Resources {
				isLowered := strings.Contains(c.want, " "+of.Resource+" ")
				if (of.Observed == audit.Whole) == isLowered {
					t.Errorf("%s is observed: %s", of.Resource, of.Observed)
				}
			}
		})
	}
}

// Findings of adjacent parts are one. An interruption alone leaves no change missing.
func TestSummary(t *testing.T) {
	t.Parallel()
	lowered := func(since, until int, c certainty.Cause) audit.Part {
		p := part(since, until, "pods")
		p.Answer.Scopes[0].Lower(c)
		return p
	}
	away := certainty.Cause{Kind: certainty.Interrupted, Why: consume.InterruptedCut}
	gap := certainty.Cause{Kind: certainty.Gap, Reason: consume.ReasonExpired}
	r := audit.New(at(0), at(60)).Report(audit.Asked{}, []audit.Part{
		part(0, 10, "pods"), lowered(10, 20, away), lowered(20, 30, away), part(30, 60, "pods"),
	})
	if got := kinds(r); got != "interrupted pods 10-30" || !strings.Contains(r.Summary(), "no change is missing") ||
		r.Resources[0].Observed != audit.Partly {
		t.Errorf("%s: %s, %+v", got, r.Summary(), r.Resources)
	}
	r = audit.New(at(0), at(60)).Report(audit.Asked{}, []audit.Part{lowered(0, 10, away), lowered(10, 60, gap)})
	if got := kinds(r); got != "interrupted pods 00-10, gap pods 10-00" || !strings.Contains(r.Summary(), "may lack") ||
		r.Resources[0].Observed != audit.None {
		t.Errorf("%s: %s, %+v", got, r.Summary(), r.Resources)
	}
}

// Each version must follow from the object's previous one.
func TestContradictions(t *testing.T) {
	t.Parallel()
	version := func(minute int, op consume.Op, rv, previous string) *timeline.Version {
		v := &timeline.Version{
			ID:                      "x",
			Op:                      op,
			Time:                    at(minute),
			ResourceVersion:         rv,
			PreviousResourceVersion: previous,
		}
		v.Resource = "pods"
		v.Name = "web"
		v.UID = "u"
		if !v.Gone() {
			v.After = []byte(`{}`)
		}
		return v
	}
	swept := version(30, consume.Deleted, "9", "")
	swept.ID = ""
	again := version(30, consume.Read, "9", "")
	again.Again = true
	for name, c := range map[string]struct {
		versions []*timeline.Version
		want     string
	}{
		"a chain": {versions: []*timeline.Version{
			version(-5, consume.Read, "5", ""), version(10, consume.Updated, "6", "5"),
			version(20, consume.Deleted, "7", "6"),
		}},
		"created": {versions: []*timeline.Version{
			version(10, consume.Created, "5", ""), version(20, consume.Updated, "6", "5"),
		}},
		"read again": {versions: []*timeline.Version{
			version(-5, consume.Read, "5", ""), version(20, consume.Read, "5", ""),
		}},
		"read in another form": {versions: []*timeline.Version{version(-5, consume.Read, "5", ""), again}},
		"a version is missing": {versions: []*timeline.Version{
			version(-5, consume.Read, "5", ""), version(10, consume.Updated, "7", "6"),
		}, want: "contradicted pods 00-10"},
		"missing before the span": {versions: []*timeline.Version{
			version(-5, consume.Read, "5", ""), version(-4, consume.Updated, "7", "6"),
			version(10, consume.Updated, "8", "7"),
		}},
		"the first is missing": {versions: []*timeline.Version{
			version(10, consume.Updated, "7", "6"),
		}, want: "contradicted pods 00-10"},
		"a snapshot knows more": {versions: []*timeline.Version{
			version(-5, consume.Read, "5", ""), version(10, consume.Read, "7", ""),
		}, want: "contradicted pods 00-10"},
		"gone without a deletion": {versions: []*timeline.Version{
			version(10, consume.Created, "5", ""), swept,
		}, want: "contradicted pods 10-30"},
		"entered the selection": {versions: []*timeline.Version{
			version(-5, consume.Left, "5", "4"), version(10, consume.Entered, "8", "7"),
		}},
		"created under a new name": {versions: []*timeline.Version{
			version(-5, consume.Read, "5", ""), version(10, consume.Deleted, "6", "5"),
			version(20, consume.Created, "7", ""),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := audit.New(at(0), at(60))
			for _, v := range c.versions {
				a.TakeEvent(&consume.Event{Time: v.Time}, []*timeline.Version{v})
			}
			r := a.Report(audit.Asked{}, []audit.Part{part(0, 60, "pods")})
			if got := kinds(r); got != c.want {
				t.Errorf("got %q, want %q: %+v", got, c.want, r.Findings)
			}
		})
	}
}

// A gap says why a version is missing: then that is no finding of its own.
func TestGapExplainsWhatIsMissing(t *testing.T) {
	t.Parallel()
	for kind, isExplained := range map[certainty.Kind]bool{
		certainty.Gap:         true,
		certainty.Filtered:    true,
		certainty.Interrupted: false,
	} {
		a := audit.New(at(0), at(60))
		v := &timeline.Version{
			ID:                      "x",
			Op:                      consume.Updated,
			Time:                    at(10),
			ResourceVersion:         "7",
			PreviousResourceVersion: "6",
			After:                   []byte(`{}`),
		}
		v.Resource = "pods"
		v.Name = "web"
		v.UID = "u"
		a.TakeEvent(&consume.Event{Time: v.Time}, []*timeline.Version{v})
		p := part(0, 60, "pods")
		p.Answer.Scopes[0].Lower(certainty.Cause{Kind: kind})
		if r := a.Report(audit.Asked{}, []audit.Part{p}); strings.Contains(kinds(r), "contradicted") == isExplained {
			t.Errorf("%s: %s", kind, kinds(r))
		}
	}
}
