package selection_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// An error in a rule names the rule.
func TestCompileErrors(t *testing.T) {
	for want, spec := range map[string]selection.Spec{
		`strip: `:                   {Strip: []string{"metadata."}},
		`rule 1: labelSelector "="`: {Rules: []selection.Rule{rule(nil), rule(selected("=", ""))}},
		`rule 0: fieldSelector "a"`: {Rules: []selection.Rule{rule(selected("", "a"))}},
		`rule 0: redact: `: {Rules: []selection.Rule{rule(func(r *selection.Rule) {
			r.Redact = []string{"kind"}
		})}},
	} {
		if _, err := selection.Compile(spec); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
}

// A part limits a rule to a namespace, or adds to its selectors.
func TestPart(t *testing.T) {
	for _, test := range []struct {
		part  selection.Part
		rules []selection.Rule
		want  []string
	}{
		{selection.Part{Namespace: "shop"}, []selection.Rule{rule(nil)}, []string{"configmaps/shop"}},
		{selection.Part{Namespace: "shop"}, []selection.Rule{rule(inNamespaces("shop", "other"))}, []string{
			"configmaps/shop",
		}},
		{selection.Part{Namespace: "shop"}, []selection.Rule{rule(inNamespaces("other"))}, nil},
		{selection.Part{FieldSelector: "a=b"}, []selection.Rule{rule(nil)}, []string{"configmaps?fieldSelector=a=b"}},
		{selection.Part{FieldSelector: "a=b"}, []selection.Rule{rule(selected("", "c=d"))}, []string{
			"configmaps?fieldSelector=c=d,a=b",
		}},
	} {
		var got []string
		for _, s := range scopes(t, test.part, test.rules...) {
			got = append(got, s.Name)
		}
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%+v (-want +got):\n%s", test.part, d)
		}
	}
	all := scopes(t, selection.Part{FieldSelector: "spec.nodeName="}, rule(nil))
	if of := all[0].ForNode("n1"); of.Name != "configmaps?fieldSelector=spec.nodeName=n1" ||
		of.FieldSelector != "spec.nodeName=n1" {
		t.Errorf("for a node: %s, %s", of.Name, of.FieldSelector)
	}
}

// An informer continues if the same rules take the same objects with the same content.
func TestIsSame(t *testing.T) {
	redacted := func(r *selection.Rule) { r.Redact = []string{"data"} }
	both := []selection.Rule{rule(selected("a=b", "")), rule(selected("c=d", ""))}
	for name, test := range map[string]struct {
		was, is []selection.Rule
		want    bool
	}{
		"the same":                 {both, both, true},
		"a rule more, unreachable": {[]selection.Rule{rule(nil)}, []selection.Rule{rule(nil), both[0]}, true},
		"another order":            {both, []selection.Rule{both[1], both[0]}, false},
		"another selector":         {both, both[:1], false},
		"redacted":                 {[]selection.Rule{rule(nil)}, []selection.Rule{rule(redacted)}, false},
	} {
		was, is := scopes(t, selection.Part{}, test.was...), scopes(t, selection.Part{}, test.is...)
		if got := was[0].IsSame(&is[0]); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
	was, is := scopes(t, selection.Part{}, both...), scopes(t, selection.Part{}, both...)
	is[0].Resource = &object.Resource{Version: "v2", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}
	if !was[0].IsSame(&is[0]) {
		t.Error("a version that the rules do not ask for begins anew")
	}
	is[0].Resource = &object.Resource{Version: "v1", Name: "configmaps", Kind: "Other", Namespaced: true}
	if was[0].IsSame(&is[0]) {
		t.Error("another kind is the same")
	}
	asks := rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{named("configmaps.v2.")} })
	one, err := compile(t, asks).Scopes(&selection.Choice{
		Resource: object.Resource{Version: "v2", Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
		Rules:    []*selection.Rule{&asks},
	})
	if err != nil {
		t.Fatal(err)
	}
	if was := scopes(t, selection.Part{}, rule(nil)); was[0].IsSame(&one[0]) {
		t.Error("a version that the rules ask for does not begin anew")
	}
}

// A field selector compares text: of a string, a number or nothing.
func TestFieldValues(t *testing.T) {
	for _, test := range []struct{ selector, value, want string }{
		{"data.x=1", `"1"`, "taken"},
		{"data.x=1", `1`, "taken"},
		{"data.x=true", `true`, "taken"},
		{"data.x=1", `"2"`, "outside"},
		{"data.x!=1", `"2"`, "taken"},
		{"data.x=ü", `"\u00fc"`, "taken"},
		{"data.x=", `null`, "taken"},
		{"data.x=null", `null`, "outside"},
		{"data.y=", `1`, "taken"},
		{"data.y!=1", `1`, "taken"},
	} {
		all := scopes(t, selection.Part{}, rule(selected("", test.selector)), rule(selected("none=here", "")))
		got, err := all[0].Match([]byte(`{"metadata":{"name":"a","namespace":"shop"},"data":{"x":` + test.value + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if taken := got.Clause == 0; taken != (test.want == "taken") {
			t.Errorf("%s of %s: clause %d, want %s", test.selector, test.value, got.Clause, test.want)
		}
	}
}

// Deleted Nodes are matched as their own agents would have matched them. The name is the only field
// that counts.
func TestMatchOnly(t *testing.T) {
	nodes := &object.Resource{Version: "v1", Name: "nodes", Kind: "Node"}
	onNodes := func(labels, fields string) selection.Rule {
		r := rule(selected(labels, fields))
		r.Resources = []selection.Pattern{named("nodes")}
		return r
	}
	for _, test := range []struct {
		rules []selection.Rule
		want  uint16
	}{
		{[]selection.Rule{onNodes("", "metadata.name=other"), onNodes("", "metadata.name=n1")}, 1},
		{[]selection.Rule{onNodes("a=b", ""), onNodes("", "spec.unschedulable=true")}, 1},
		{[]selection.Rule{onNodes("a=b", "")}, selection.Outside},
	} {
		s, err := compile(t, test.rules...).MatchOnly(nodes)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Match([]byte(`{"metadata":{"name":"n1","labels":{"c":"d"}}}`))
		if err != nil || got.Clause != test.want {
			t.Errorf("clause %d, %v, want %d", got.Clause, err, test.want)
		}
		if _, err := s.Match([]byte(`{"metadata":`)); err == nil {
			t.Error("half an object is matched")
		}
	}
	if s, err := compile(t, rule(nil)).MatchOnly(nodes); s != nil || err != nil {
		t.Errorf("no rule takes nodes: %v, %v", s, err)
	}
}

// Secrets are redacted in each of their scopes, also in one that an agent recorded before it
// redacted any.
func TestSecretsAreRedacted(t *testing.T) {
	secrets := &object.Resource{Version: "v1", Name: "secrets", Kind: "Secret", Namespaced: true}
	all := rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{named("secrets")} })
	s, err := selection.Compile(selection.Spec{Rules: []selection.Rule{all}, Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	scopes, err := s.Scopes(&selection.Choice{Resource: *secrets, Rules: []*selection.Rule{&all}})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := s.ScopeOfAll(secrets)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.FromCheckpoint(secrets, "secrets", &checkpoint.Scope{}, match)
	if err != nil {
		t.Fatal(err)
	}
	for name, scope := range map[string]*selection.Scope{
		"selected":          &scopes[0],
		"whole":             &whole,
		"from a checkpoint": &old,
	} {
		out, _, _, err := scope.NewScanner().
			Scan(nil, []byte(`{"metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"1",`+
				`"annotations":{"example.com/backup":"c2VjcmV0"}},"data":{"key":"c2VjcmV0"}}`))
		if err != nil || strings.Contains(string(out), "c2VjcmV0") {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}

// Copies of Secrets are removed from the objects of every resource, by default.
func TestCopiesOfSecretsAreRemoved(t *testing.T) {
	works := &object.Resource{
		Group:      "work.karmada.io",
		Version:    "v1alpha1",
		Name:       "works",
		Kind:       "Work",
		Namespaced: true,
	}
	const in = `{"kind":"Work","apiVersion":"work.karmada.io/v1alpha1","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"1",` +
		`"annotations":{"openshift.io/token-secret.value":"c2VjcmV0"}},"spec":{"a":[{"apiVersion":"v1","kind":"Secret","data":{"key":"c2VjcmV0"}}]}}`
	all := rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{named("works")} })
	for _, on := range []bool{true, false} {
		s, err := selection.Compile(selection.Spec{Rules: []selection.Rule{all}, Secrets: on})
		if err != nil {
			t.Fatal(err)
		}
		scopes, err := s.Scopes(&selection.Choice{Resource: *works, Rules: []*selection.Rule{&all}})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := s.ScopeOfAll(works)
		if err != nil {
			t.Fatal(err)
		}
		old, err := s.FromCheckpoint(works, "works.work.karmada.io", &checkpoint.Scope{}, match)
		if err != nil {
			t.Fatal(err)
		}
		for name, scope := range map[string]*selection.Scope{
			"selected":          &scopes[0],
			"whole":             &whole,
			"from a checkpoint": &old,
		} {
			out, _, _, err := scope.NewScanner().Scan(nil, []byte(in))
			if err != nil || strings.Contains(string(out), "c2VjcmV0") == on {
				t.Errorf("%s, redaction.secrets %t: %s, %v", name, on, out, err)
			}
		}
	}
}

// A redacted path that has matched nothing for a day is reported. A changed selection continues the
// record of a rule that stays.
func TestUnmatchedPaths(t *testing.T) {
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	compile := func(previous *selection.Selection, redact ...string) *selection.Selection {
		t.Helper()
		all := rule(func(r *selection.Rule) { r.Resources, r.Redact = []selection.Pattern{named("pods")}, redact })
		s, err := selection.Compile(selection.Spec{Rules: []selection.Rule{all}, Secrets: true})
		if err != nil {
			t.Fatal(err)
		}
		if previous != nil {
			s.Continue(previous)
		}
		return s
	}
	read := func(s *selection.Selection, spec string) {
		t.Helper()
		scopes, err := s.Scopes(&selection.Choice{Resource: *pods, Rules: []*selection.Rule{&s.Rules[0]}})
		if err != nil {
			t.Fatal(err)
		}
		raw := `{"metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"1"},"spec":` + spec + `}`
		if _, _, _, err := scopes[0].NewScanner().Scan(nil, []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	unmatched := func(s *selection.Selection, after time.Duration) string {
		text := ""
		for _, u := range s.Unmatched(time.Now().Add(after)) {
			text += fmt.Sprintf("%d %s ", u.Rule, u.Path)
		}
		return text
	}
	const hours = time.Hour
	s := compile(nil, "spec.a", "spec.b", "spec.b")
	if got := unmatched(s, 25*hours); got != "" {
		t.Errorf("without an object: %s", got)
	}
	read(s, `{"c":1}`)
	if got := unmatched(s, 23*hours); got != "" {
		t.Errorf("before a day has passed: %s", got)
	}
	if got := unmatched(s, 25*hours); got != "0 spec.a 0 spec.b " {
		t.Errorf("nothing has matched: %s", got)
	}
	next := compile(s, "spec.a", "spec.b", "spec.b")
	read(s, `{"b":1}`) // a scope that did not change
	if got := unmatched(next, 25*hours); got != "0 spec.a " {
		t.Errorf("after a reload: %s", got)
	}
	if got := unmatched(compile(next, "spec.c"), 25*hours); got != "" {
		t.Errorf("another path, and no object: %s", got)
	}
	more := rule(func(r *selection.Rule) {
		r.Resources, r.Redact = []selection.Pattern{named("pods"), named("jobs")}, []string{"spec.a", "spec.b"}
	})
	wider, err := selection.Compile(selection.Spec{Rules: []selection.Rule{more}, Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	wider.Continue(next)
	if got := unmatched(wider, 25*hours); got != "0 spec.a " {
		t.Errorf("the rule has another resource: %s", got)
	}
}

type withholds string

func (w withholds) Withholds(*object.Delta) string { return string(w) }

// The filter of the rule that takes the object decides.
func TestFilters(t *testing.T) {
	filtered := func(f selection.Filter, where string) func(*selection.Rule) {
		return func(r *selection.Rule) {
			r.Filter, r.Where = func(*object.Resource) selection.Filter { return f }, where
		}
	}
	none := scopes(t, selection.Part{}, rule(filtered(nil, "")))
	if f := none[0].Filters(); f != nil || f.WithholdsAs(0, &object.Delta{}) != "" {
		t.Error("there is a filter of nothing")
	}
	first := rule(selected("a=b", ""))
	filtered(withholds("noise"), "")(&first)
	by := scopes(t, selection.Part{}, first, rule(filtered(nil, "")))
	f := by[0].Filters()
	for clause, want := range map[uint16]string{0: "noise", 1: "", selection.Outside: ""} {
		o := &object.Object{Ref: &object.Ref{Clause: clause}}
		if got := f.Withholds(&object.Delta{After: o}); got != want {
			t.Errorf("clause %d: %q, want %q", clause, got, want)
		}
		if got := f.Withholds(&object.Delta{Before: o}); got != want {
			t.Errorf("clause %d, deleted: %q, want %q", clause, got, want)
		}
	}
	where := func(condition string) string {
		all := scopes(t, selection.Part{}, rule(filtered(withholds("where"), condition)))
		return all[0].Filters().Where
	}
	if where("") != "" || where("a") == "" || where("a") == where("b") {
		t.Errorf("conditions are named %q, %q, %q", where(""), where("a"), where("b"))
	}
}
