package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Explanation describes how changes of one resource are handled.
type Explanation struct {
	Resource string `json:"resource"`
	Captured bool   `json:"captured"`
	Why      string `json:"why"`
	File     string `json:"file"`

	ExcludedBy *ruleAt  `json:"excludedBy,omitempty"` // the rule that names the resource but excludes it
	Rules      []taking `json:"rules,omitempty"`      // in order of evaluation
	*fate
}

type ruleAt struct {
	Rule int `json:"rule"` // index in watch
	Line int `json:"line,omitempty"`
}

// taking describes the part of a resource that a rule selects and sends.
type taking struct {
	ruleAt
	Pattern string `json:"pattern"` // that matches the resource

	Namespaces    []string `json:"namespaces,omitempty"` // empty for all
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
	Operations    []string `json:"operations"`
	Where         string   `json:"where,omitempty"`
	OnError       string   `json:"onError,omitempty"`
	Stripped      []string `json:"stripped"`
	Redacted      []string `json:"redacted"`
	Copies        string   `json:"copiesOfSecrets,omitempty"` // what is removed of them, for people
	Noise         []string `json:"noise"`
	Example       string   `json:"example,omitempty"` // a subject or topic
}

// fate has the properties that are the same for all rules.
type fate struct {
	Part      string `json:"part,omitempty"` // the part that the mode selects, for people
	Redaction string `json:"redaction"`      // redaction.mode: remove or hash
	Before    bool   `json:"before"`         // events contain the previous object
	Patch     bool   `json:"patch"`          // events contain the patch from the previous to the new object
	Bus       string `json:"bus"`
	Subject   string `json:"subject,omitempty"` // template
	Topic     string `json:"topic,omitempty"`   // template
	// StreamEvents are those of snapshots, and those of scopes if they differ.
	StreamEvents []string `json:"streamEvents,omitempty"`

	ClusterScoped bool `json:"clusterScoped,omitempty"` // its objects have no namespace
}

func everyNamespace(clusterScoped bool) string {
	if clusterScoped {
		return "none: its objects are cluster-scoped"
	}
	return "all"
}

// Resource explains what a configuration does with a resource, without values that came from the
// environment.
func Resource(f *config.File, r config.Resource) (*Explanation, error) {
	e, err := explained(f, r)
	f.ConcealStrings(e)
	return e, err
}

func explained(f *config.File, r config.Resource) (*Explanation, error) {
	v := f.Explain(r)
	e := Explanation{Resource: r.String(), File: f.Name}
	place := func(rule int) ruleAt { return ruleAt{Rule: rule, Line: f.Line(fmt.Sprintf("watch[%d]", rule))} }
	uncapturable := r.Uncapturable()
	switch {
	case uncapturable != "":
		e.Why = "it " + uncapturable
		return &e, nil
	case len(v.Taking) > 0 && f.Part(r.Group, r.Name, "").None:
		e.Why = "mode " + string(f.Mode) + " excludes it: " + agent.PartInWords(f.Config, r.Group, r.Name)
	case len(v.Taking) > 0:
		if err := e.captured(f.Config, v.Taking, r, place); err != nil {
			return nil, err
		}
	case v.Excluding < 0:
		e.Why = "no rule names it; add it to the resources of one"
	case v.Except >= 0:
		e.Why = fmt.Sprintf("watch[%d] excludes it: %s", v.Excluding, f.Watch[v.Excluding].Except[v.Except])
	default:
		e.Why = fmt.Sprintf("watch[%d] takes some namespaces only, and %s have none; give them a rule of their own",
			v.Excluding, r)
	}
	if v.Excluding >= 0 {
		at := place(v.Excluding)
		e.ExcludedBy = &at
	}
	return &e, nil
}

// captured fills in the explanation of a resource that rules select.
func (e *Explanation) captured(
	c *config.Config, rules []config.Taking, r config.Resource, place func(int) ruleAt,
) error {
	_, settings := c.Bus.Chosen()
	summary := settings.Summary()
	e.Captured = true
	e.fate = &fate{
		Part:          agent.PartInWords(c, r.Group, r.Name),
		Redaction:     string(c.Redaction.Mode),
		Before:        c.Event.Before,
		Patch:         c.Event.Patch,
		Bus:           summary.Text,
		Subject:       summary.Subject,
		Topic:         summary.Topic,
		ClusterScoped: r.ClusterScoped,
	}
	e.Why = fmt.Sprintf("watch[%d] names it as %s", rules[0].Rule,
		c.Watch[rules[0].Rule].Resources[rules[0].Pattern])
	if len(rules) > 1 {
		e.Why = fmt.Sprintf("by the first of %d rules that matches the object", len(rules))
	}
	resource := &object.Resource{Group: r.Group, Name: r.Name}
	example, err := e.names(c, resource)
	if err != nil {
		return err
	}
	for _, t := range rules {
		rule := &c.Watch[t.Rule]
		x := taking{
			ruleAt:        place(t.Rule),
			Pattern:       rule.Resources[t.Pattern].String(),
			Namespaces:    namespaces(rule.Namespaces),
			LabelSelector: rule.LabelSelector,
			FieldSelector: rule.FieldSelector,
			Operations:    e.operations(c, rules, rule),
			Where:         rule.Where,
			OnError:       string(rule.OnError),
		}
		x.Stripped, x.Redacted = withheldOf(c, rule, r)
		x.Copies = copiesInWords(c, r)
		x.Noise, err = noiseOf(c, rule, resource)
		if err != nil {
			return err
		}
		namespace := exampleNamespace(rule)
		if r.ClusterScoped {
			namespace = ""
		}
		x.Example = example(namespace)
		e.Rules = append(e.Rules, x)
	}
	return nil
}

// operations returns the operations that can be sent for the objects of a rule.
func (e *Explanation) operations(c *config.Config, rules []config.Taking, rule *config.Rule) []string {
	var list []string
	for _, o := range config.Choosable() {
		if len(rule.Operations) == 0 || slices.Contains(rule.Operations, o) {
			list = append(list, string(o))
		}
	}
	if c.Snapshot.Mode != config.SnapshotNever {
		list = append(list, object.Read.Word())
	}
	selects := func(r *config.Rule) bool { return r.LabelSelector != "" || r.FieldSelector != "" }
	stays := slices.ContainsFunc(rules, func(t config.Taking) bool {
		// another rule still selects it after it ceases to match this one
		other := &c.Watch[t.Rule]
		return !selects(other) && (other.Namespaces.All() || slices.Equal(other.Namespaces, rule.Namespaces))
	})
	if e.Part != "" || selects(rule) && !stays {
		list = append(list, object.Entered.Word(), object.Left.Word())
	}
	return list
}

// names sets the subject or topic of stream events. It returns a function for the one of an object
// in a namespace, "" if the bus has none.
func (e *Explanation) names(c *config.Config, r *object.Resource) (example func(namespace string) string, err error) {
	_, settings := c.Bus.Chosen()
	bus, ok := settings.(driver.Named)
	if !ok {
		return func(string) string { return "" }, nil
	}
	name, err := bus.Destinations(cmp.Or(c.Cluster, "CLUSTER-UID"))
	if err != nil {
		return nil, err
	}
	for _, kind := range []object.StreamKind{object.SnapshotStarted, object.ScopeStarted} {
		e.StreamEvents = append(e.StreamEvents, name(&object.Delta{Stream: &object.StreamEvent{
			Kind:     kind,
			Resource: r,
			Scope:    "SCOPE",
		}}))
	}
	e.StreamEvents = slices.Compact(e.StreamEvents)
	return func(namespace string) string {
		return name(&object.Delta{Ref: object.NewRef(r, namespace, "example", "")})
	}, nil
}

// exampleNamespace returns a namespace that the rule selects, or a placeholder.
func exampleNamespace(rule *config.Rule) string {
	if names, ok := rule.Namespaces.Literal(); ok {
		return names[0]
	}
	if rule.Namespaces.Match("default") {
		return "default"
	}
	return "NAMESPACE"
}

// Write prints the explanation for people.
func (e *Explanation) Write(w io.Writer) {
	what := "not captured"
	if e.Captured {
		what = "captured"
	}
	fmt.Fprintf(w, "%s: %s, %s%s\n", e.Resource, what, e.Why, e.place())
	for i := range e.Rules {
		t := &e.Rules[i]
		table := newFacts(w)
		if len(e.Rules) > 1 {
			fmt.Fprintf(w, "\nwatch[%d] names it as %s (%s:%d)\n", t.Rule, t.Pattern, e.File, t.Line)
		}
		t.add(table, e.fate)
		if len(e.Rules) > 1 {
			t.exemplify(table)
		} else {
			e.add(table, t.exemplify)
		}
		table.flush()
	}
	if len(e.Rules) > 1 {
		fmt.Fprintln(w, "\nwhichever takes it")
		table := newFacts(w)
		e.add(table, func(facts) {})
		table.flush()
	}
}

// place returns the location of the deciding rule, if there is exactly one.
func (e *Explanation) place() string {
	at := e.ExcludedBy
	if len(e.Rules) == 1 {
		at = &e.Rules[0].ruleAt
	}
	if at == nil || at.Line == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s:%d)", e.File, at.Line)
}

func (t *taking) add(table facts, f *fate) {
	table.add("namespaces", cmp.Or(strings.Join(t.Namespaces, ", "), everyNamespace(f.ClusterScoped)))
	if t.LabelSelector != "" {
		table.add("labels", t.LabelSelector)
	}
	if t.FieldSelector != "" {
		table.add("fields", t.FieldSelector)
	}
	table.add("operations", strings.Join(t.Operations, ", "))
	if t.Where != "" {
		table.add("where", strings.Join(strings.Fields(t.Where), " "))
		table.add("on error", t.OnError)
	}
	table.add("stripped", cmp.Or(strings.Join(t.Stripped, ", "), "nothing"))
	redacted := "nothing"
	if len(t.Redacted) > 0 {
		redacted = strings.Join(t.Redacted, ", ") + " (" + redactionInWords(f.Redaction) + ")"
	}
	table.add("redacted", redacted)
	if t.Copies != "" {
		table.add("copies", t.Copies)
	}
	table.add("noise", cmp.Or(strings.Join(t.Noise, ", "), "none is left out"))
}

// exemplify adds the subject or topic of an example object of the rule.
func (t *taking) exemplify(table facts) {
	if t.Example != "" {
		table.add("for example", t.Example)
	}
}

// add adds the properties that are the same for all rules, with the example after the subject or
// topic.
func (f *fate) add(table facts, exemplify func(facts)) {
	if f.Part != "" {
		table.add("part", f.Part)
	}
	table.add("events", f.carried())
	table.add("to", f.Bus)
	switch {
	case f.Subject != "":
		table.add("subject", f.Subject)
	case f.Topic != "":
		table.add("topic", f.Topic)
	}
	exemplify(table)
	for _, name := range f.StreamEvents {
		table.add("stream events", name)
	}
}

// carried describes the forms of the object that events contain unless they are too large.
func (f *fate) carried() string {
	switch {
	case f.Before && f.Patch:
		return "with before, after and patch"
	case f.Before:
		return "with before and after, without patch"
	case f.Patch:
		return "with after and patch, without before"
	}
	return "with after, without before and patch"
}

// redactionInWords describes the treatment of redacted values.
func redactionInWords(mode string) string {
	if mode == string(config.RedactHash) {
		return "replaced by a keyed hash"
	}
	return "removed"
}

// copiesInWords describes the copies of Secrets that are removed from the objects of a resource, ""
// for none.
func copiesInWords(c *config.Config, r config.Resource) string {
	if !c.Redaction.Secrets {
		return ""
	}
	if r.Group == "" && r.Name == "secrets" {
		return "annotations are removed, except those of a list (docs/guides/redact.md)"
	}
	what := []string{"values of Secrets in annotations and embedded manifests"}
	for _, carrier := range object.Carriers() {
		if carrier.Group == r.Group && carrier.Resource == r.Name {
			what = append(what, strings.Join(carrier.Paths, ", ")+" of "+carrier.By)
		}
	}
	return strings.Join(what, "; ") + " (removed)"
}

// facts prints aligned lines, each with a name and a value.
type facts struct{ table *tabwriter.Writer }

func newFacts(w io.Writer) facts { return facts{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (f facts) add(name, value string) { fmt.Fprintf(f.table, "  %s\t%s\n", name, value) }

func (f facts) flush() { _ = f.table.Flush() } // an error of standard output cannot be reported
