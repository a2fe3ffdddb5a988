package certainty_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// kinds are all kinds of causes, with the level that each allows.
var kinds = map[certainty.Kind]certainty.Level{
	certainty.Interrupted:     certainty.Late,
	certainty.Gap:             certainty.Uncertain,
	certainty.RecoveredGap:    certainty.Uncertain,
	certainty.DeadLetter:      certainty.Uncertain,
	certainty.Filtered:        certainty.Uncertain,
	certainty.Unreadable:      certainty.Uncertain,
	certainty.BeforeRecord:    certainty.Unknown,
	certainty.AfterRecord:     certainty.Unknown,
	certainty.NoSnapshot:      certainty.Unknown,
	certainty.NotRead:         certainty.Unknown,
	certainty.FormerRelease:   certainty.Unknown,
	certainty.EndedByOperator: certainty.Unknown,
	certainty.OtherEtcd:       certainty.Unknown,
	certainty.EtcdNotKnown:    certainty.Unknown,
	certainty.NotPermitted:    certainty.Unknown,
	certainty.Selected:        certainty.Uncertain,
	certainty.Withheld:        certainty.Uncertain,
	certainty.Unplaced:        certainty.Uncertain,
	certainty.CapturedUntil:   certainty.Unknown,
	certainty.NotSelected:     certainty.Unknown,
	certainty.Contradicted:    certainty.Uncertain,
	certainty.Truncated:       certainty.Uncertain,
}

func rv(version string) certainty.Bound { return certainty.Bound{ResourceVersion: version} }

// kindsOfSource returns the names of the constants of the type Kind.
func kindsOfSource(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "cause.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isConst := n.(*ast.ValueSpec)
		if !isConst {
			return true
		}
		of, isNamed := spec.Type.(*ast.Ident)
		if isNamed && of.Name == "Kind" {
			names = append(names, strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`))
		}
		return false
	})
	return names
}

// Each reason has words of its own: those of ends, and those of interruptions.
func TestReasons(t *testing.T) {
	for _, why := range object.InterruptionReasons() {
		c := certainty.Cause{Kind: certainty.Interrupted, From: rv("5"), Why: why}
		if text := c.Words(); strings.Contains(text, "("+string(why)+")") {
			t.Errorf("interruption %s: %s", why, text)
		}
	}
	for _, reason := range object.EndReasons() {
		end := certainty.End{Bound: rv("5"), Reason: reason, Successors: []string{"pods/shop"}}
		if text := end.Words(); strings.HasSuffix(text, ": "+string(reason)) {
			t.Errorf("end %s: %s", reason, text)
		}
	}
}

// A table of the guides has each kind with its certainty, and no two kinds have the same words.
func TestKinds(t *testing.T) {
	var guide []byte
	for _, name := range []string{"time-travel", "audit"} { // the latter has the kinds that only an audit finds
		text, err := os.ReadFile("../../../docs/guides/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		guide = append(guide, text...)
	}
	for _, name := range kindsOfSource(t) {
		if kinds[certainty.Kind(name)] == 0 {
			t.Errorf("the test does not know the kind %s", name)
		}
	}
	words := map[string]certainty.Kind{}
	for kind, level := range kinds {
		c := certainty.Cause{
			Kind:   kind,
			From:   rv("5"),
			To:     rv("7"),
			Reason: consume.ReasonExpired,
			Why:    consume.InterruptedCut,
		}
		text := c.Words()
		if other := words[text]; other != "" || !strings.HasPrefix(text, level.String()+": ") {
			t.Errorf("%s (%s) and %q: %s", kind, level, other, text)
		}
		words[text] = kind
		row := false
		for line := range strings.Lines(string(guide)) {
			cells := strings.Split(line, "|")
			row = row || len(cells) > 3 && strings.Contains(cells[1], "`"+string(kind)+"`") &&
				strings.TrimSpace(cells[2]) == "`"+level.String()+"`"
		}
		if !row {
			t.Errorf("the guide has no row for %s, %s", kind, level)
		}
	}
}

// A scope is as certain as the worst cause allows, in any order. Only an exact one has bounds.
func TestLower(t *testing.T) {
	for first, a := range kinds {
		for second, b := range kinds {
			s := certainty.Scope{Certainty: certainty.Exact, From: rv("5")}
			s.Lower(certainty.Cause{Kind: first})
			s.Lower(certainty.Cause{Kind: second})
			if s.Certainty != max(a, b) || s.From != rv("") || len(s.Causes) != 2 {
				t.Errorf("%s, then %s: %+v", first, second, s)
			}
		}
	}
}

func TestAnswer(t *testing.T) {
	at := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	exact := certainty.Scope{Name: "pods", Certainty: certainty.Exact, From: certainty.Bound{Time: at}}
	gap := certainty.Scope{Name: "secrets", Certainty: certainty.Exact, Skipped: 1234}
	gap.Lower(certainty.Cause{Kind: certainty.Gap, Reason: consume.ReasonExpired, From: rv("5"), To: rv("7")})
	other := gap
	other.Name = "services"
	name := func(s *certainty.Scope) string { return s.Name }

	a := certainty.New("rv:6", []certainty.Scope{exact, gap, other}, "")
	want := []string{
		"secrets, services: uncertain: the record has a gap (expired) from rv:5 to rv:7; ask for a moment before or after it",
		"secrets, services: versions withheld by filters: 1,234",
	}
	if diff := gocmp.Diff(want, a.Lines(name)); diff != "" || a.Certainty != certainty.Uncertain {
		t.Errorf("%s: -want +got\n%s", a.Certainty, diff)
	}
	text, err := json.Marshal(a.Scopes[1])
	if err != nil {
		t.Fatal(err)
	}
	const wantJSON = `{"source":"","resource":"","scope":"secrets","certainty":"uncertain","causes":[{"kind":"gap",` +
		`"from":{"resourceVersion":"5"},"to":{"resourceVersion":"7"},"reason":"expired"}],"skipped":1234}`
	if string(text) != wantJSON {
		t.Errorf("got %s, want %s", text, wantJSON)
	}

	selected := exact
	selected.Name = "pods?labelSelector=app=x"
	a = certainty.New("rv:6", []certainty.Scope{exact, selected}, "")
	want = []string{"pods?labelSelector=app=x: the record has no objects outside of the selection"}
	if diff := gocmp.Diff(want, a.Lines(name)); diff != "" || a.Certainty != certainty.Exact {
		t.Errorf("%s: -want +got\n%s", a.Certainty, diff)
	}

	a = certainty.New("rv:6", []certainty.Scope{exact}, "")
	if a.Certainty != certainty.Exact || !a.UpTo().Equal(at) || len(a.Lines(name)) != 0 {
		t.Errorf("exact: got %+v", a)
	}
	a.AddIncomplete("pods a/b", "existed")
	a.AddIncomplete("pods a/b", "fetch: not found")
	if a.Certainty != certainty.Uncertain || len(a.Incomplete) != 1 {
		t.Errorf("incomplete: got %+v", a)
	}
	a = certainty.New("rv:6", []certainty.Scope{exact, gap}, "only shop")
	if a.Certainty != certainty.Unknown || a.Scopes[0].Find(certainty.NotPermitted) == nil ||
		gap.Find(certainty.Gap) == nil {
		t.Errorf("confined: got %+v", a)
	}
	a = certainty.New("now", nil, "")
	if a.Certainty != certainty.Unknown || a.IsExact() {
		t.Errorf("no scopes: got %+v", a)
	}
}
