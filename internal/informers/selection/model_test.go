package selection_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// match returns a function that reports whether any pattern matches a namespace. A pattern may end
// in a star. No patterns match everything.
func match(patterns []string) func(string) bool {
	return func(ns string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
			prefix, glob := strings.CutSuffix(p, "*")
			return p == ns || glob && strings.HasPrefix(ns, prefix)
		})
	}
}

// drawRule makes a rule over ConfigMaps. It redacts the key of its own index in data, or nothing.
func drawRule(t *rapid.T, n int, redacts bool) selection.Rule {
	r := selection.Rule{
		Resources: []selection.Pattern{named("configmaps")},
		LabelSelector: rapid.SampledFrom([]string{"", "", "colour=red", "colour!=red", "colour"}).
			Draw(t, "labelSelector"),
		FieldSelector: rapid.SampledFrom([]string{"", "", "metadata.name=a", "metadata.name!=a", "data.size=l"}).
			Draw(t, "fieldSelector"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "namespaces") {
	case 0:
		r.AllNamespaces = true
	case 1:
		r.Names = rapid.SampledFrom([][]string{{"team-a"}, {"team-a", "shop"}, {"shop"}}).Draw(t, "names")
	default:
		r.Patterns = rapid.SampledFrom([][]string{{"team-*"}, {"shop*", "team-a"}}).Draw(t, "patterns")
	}
	r.Namespaces = match(append(slices.Clone(r.Names), r.Patterns...))
	if redacts {
		r.Redact = []string{fmt.Sprintf("data.r%d", n)}
	}
	return r
}

// item is an object of the model.
type item struct{ name, namespace, colour, size string }

func (o item) json(rules int) string {
	meta := fmt.Sprintf(`{"name":%q,"namespace":%q,"uid":"u","resourceVersion":"7"`, o.name, o.namespace)
	if o.colour != "" {
		meta += fmt.Sprintf(`,"labels":{"colour":%q}`, o.colour)
	}
	data := fmt.Sprintf(`"size":%q`, o.size)
	for n := range rules {
		data += fmt.Sprintf(`,"r%d":"x"`, n)
	}
	return fmt.Sprintf(`{"metadata":%s},"data":{%s}}`, meta, data)
}

// selects applies selectors as the API server does.
func (o item) selects(t *rapid.T, labelSelector, fieldSelector string) bool {
	selector, err := labels.Parse(labelSelector)
	if err != nil {
		t.Fatal(err)
	}
	set := labels.Set{}
	if o.colour != "" {
		set["colour"] = o.colour
	}
	is := true
	switch fieldSelector {
	case "":
	case "metadata.name=a":
		is = o.name == "a"
	case "metadata.name!=a":
		is = o.name != "a"
	case "data.size=l":
		is = o.size == "l"
	default:
		t.Fatalf("unexpected field selector %q", fieldSelector)
	}
	return is && selector.Matches(set)
}

var namespaces = []string{"team-a", "team-b", "shop", "shop-2", "other"}

// model has the scopes of rules, and a selection that reads their checkpoints.
type model struct {
	rules      []selection.Rule
	redacts    bool // each rule redacts the key of its own index
	sel, later *selection.Selection
	scopes     []selection.Scope
}

func compiled(t *rapid.T, rules []selection.Rule) *selection.Selection {
	s, err := selection.Compile(selection.Spec{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func drawModel(t *rapid.T) *model {
	m := &model{
		redacts: rapid.Bool().Draw(t, "redacts"),
		rules:   make([]selection.Rule, rapid.IntRange(1, 4).Draw(t, "rules")),
	}
	for n := range m.rules {
		m.rules[n] = drawRule(t, n, m.redacts)
	}
	later := slices.Clone(m.rules)
	for n := range later {
		later[n].Redact = nil
	}
	m.sel, m.later = compiled(t, m.rules), compiled(t, later)
	if rapid.Bool().Draw(t, "same rules later") {
		m.later = m.sel
	}
	m.drawScopes(t)
	return m
}

// drawScopes makes the scopes of ConfigMaps. Their names differ.
func (m *model) drawScopes(t *rapid.T) {
	chosen, _ := m.sel.Choose([]selection.APIResource{servedAs("", "configmaps", "ConfigMap", true, "v1")}, nil, nil)
	all, err := m.sel.Scopes(&chosen[0])
	if spans := chosen[0].SpansNamespaces(); spans != (len(all) == 1 && all[0].Namespace == "") {
		t.Fatalf("one scope spans namespaces: %t", spans)
	} else if spans && rapid.Bool().Draw(t, "split") {
		all, err = m.sel.InNamespaces(&chosen[0], namespaces...)
		if taken := slices.DeleteFunc(slices.Clone(namespaces), func(ns string) bool {
			return !chosen[0].Takes(ns)
		}); len(all) != len(taken) {
			t.Fatalf("%d scopes for %v", len(all), taken)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for n := range all {
		if names[all[n].Name] {
			t.Fatalf("two scopes %s", all[n].Name)
		}
		names[all[n].Name] = true
	}
	m.scopes = all
}

func drawItem(t *rapid.T) item {
	return item{
		name:      rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"),
		namespace: rapid.SampledFrom(namespaces).Draw(t, "namespace"),
		colour:    rapid.SampledFrom([]string{"", "red", "blue"}).Draw(t, "colour"),
		size:      rapid.SampledFrom([]string{"s", "l"}).Draw(t, "size"),
	}
}

// check scans an object in all scopes.
func (m *model) check(t *rapid.T, o item) {
	want := slices.IndexFunc(m.rules, func(r selection.Rule) bool {
		return r.Namespaces(o.namespace) && o.selects(t, r.LabelSelector, r.FieldSelector)
	})
	raw, found := o.json(len(m.rules)), 0
	for n := range m.scopes {
		scope := &m.scopes[n]
		out, taken := scan(t, scope, o, raw)
		old := m.checkpointed(t, scope, o, raw, taken)
		if taken {
			found++
			m.checkRedaction(t, o, want, out, old)
		}
	}
	if want >= 0 && found != 1 || want < 0 && found != 0 {
		t.Fatalf("rule %d takes %+v, which is in %d of %d scopes", want, o, found, len(m.scopes))
	}
}

// checkpointed scans an object in a scope that is read from a checkpoint. That must take the same
// objects.
func (m *model) checkpointed(t *rapid.T, scope *selection.Scope, o item, raw string, taken bool) string {
	var c checkpoint.Scope
	scope.Describe(&c)
	was, err := m.later.FromCheckpoint(scope.Resource, scope.Name, &c, match)
	if err != nil {
		t.Fatal(err)
	}
	if was.Name != scope.Name || was.Namespace != scope.Namespace {
		t.Fatalf("a checkpoint of %s, %q is of %s, %q", scope.Name, scope.Namespace, was.Name, was.Namespace)
	}
	old, again := scan(t, &was, o, raw)
	if again != taken {
		t.Fatalf("%+v in %s: %t, in its checkpoint %+v: %t", o, scope.Name, taken, c, again)
	}
	return old
}

// checkRedaction checks the redaction of an object that rule want takes: out is read with the
// rules, old for a checkpoint.
func (m *model) checkRedaction(t *rapid.T, o item, want int, out, old string) {
	for n := range m.rules {
		key := fmt.Sprintf(`"r%d"`, n)
		if is := strings.Contains(out, key); is == (m.redacts && n == want) {
			t.Fatalf("rule %d takes %+v, rule %d redacts: %s", want, o, n, out)
		}
		if m.redacts && (n == want || m.later == m.sel) && strings.Contains(old, key) {
			t.Fatalf("rule %d does not redact what is read for a checkpoint: %s", n, old)
		}
	}
}

// Every object that a rule takes is in one scope, every other one in none. The first rule that
// matches decides what is redacted. A checkpoint of a scope brings the same objects back, and still
// redacts.
func TestScopesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		for range 20 {
			m.check(t, drawItem(t))
		}
	})
}

// scan reads an object as it would be listed in a scope. It returns false if the object is not in
// the scope.
func scan(t *rapid.T, s *selection.Scope, o item, raw string) (string, bool) {
	if s.Namespace != "" && s.Namespace != o.namespace || !o.selects(t, s.LabelSelector, s.FieldSelector) {
		return "", false
	}
	out, m, match, err := s.NewScanner().Scan(nil, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Name) != o.name {
		t.Fatalf("name %q of %s", m.Name, raw)
	}
	if match.Excluded == s.Takes(o.namespace) {
		t.Fatalf("%s in %s: excluded %t, takes its namespace %t", raw, s.Name, match.Excluded, s.Takes(o.namespace))
	}
	return string(out), !match.Excluded && match.Clause != selection.Outside
}
