package selection

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// Two resources of TestSelection, as a rule may name them.
const (
	Leases         = "leases.coordination.k8s.io"
	EndpointSlices = "endpointslices.discovery.k8s.io"
)

// drawn returns the resources from which a configuration is drawn, with the patterns that a rule
// may use.
func drawn() map[string][]string {
	return map[string][]string{
		"configmaps":       {"configmaps", "configmaps.v1"},
		"secrets":          {"secrets"},
		oracle.Widgets:     {oracle.Widgets, "*." + oracle.WidgetsGroup, "widgets.v1." + oracle.WidgetsGroup},
		Leases:             {Leases, "leases.v1.coordination.k8s.io"},
		EndpointSlices:     {EndpointSlices},
		"deployments.apps": {"*.apps", "deployments.apps", "deployments.v1.apps"},
	}
}

// WrittenBeside returns further resources that the pattern *.apps matches and that only controllers
// write.
func WrittenBeside() []string {
	return []string{"replicasets.apps", "statefulsets.apps", "daemonsets.apps", "controllerrevisions.apps"}
}

// Drawer draws configurations.
type Drawer struct {
	*rand.Rand
	Prefix string // That of the names of namespaces.
}

// Luck returns true with a probability in percent.
func (d *Drawer) Luck(percent int) bool { return d.IntN(100) < percent }

func some[T any](d *Drawer, list []T) T { return list[d.IntN(len(list))] }

// subset draws at least one element of a list, in its order.
func subset[T any](d *Drawer, list []T) []T {
	for {
		var out []T
		for _, x := range list {
			if d.Luck(50) {
				out = append(out, x)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
}

// Config draws a configuration, and returns the resources that it names.
func (d *Drawer) Config() (c *Config, written []string) {
	c = &Config{}
	var all []string
	for resource := range drawn() {
		all = append(all, resource)
	}
	slices.Sort(all)
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	written = all[:3+d.IntN(2)]
	// All rules use the same name for a resource, because the agent reads it in one version.
	called := make(map[string]string)
	labels := make(map[string][]labelSelector)
	for _, resource := range written {
		called[resource] = some(d, drawn()[resource])
		list := labelSelectors()
		d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		labels[resource] = list
	}
	if d.Luck(40) { // A rule for several resources, before the rules for each.
		selector := labels[written[0]][0]
		rule := Rule{Namespaces: d.globs(), Labels: &selector}
		for _, resource := range written[:2] {
			rule.Resources = append(rule.Resources, called[resource])
			labels[resource] = slices.DeleteFunc(labels[resource], func(l labelSelector) bool {
				return l.Text == selector.Text
			})
		}
		d.send(&rule, written[:2]...)
		c.Rules = append(c.Rules, rule)
	}
	for _, resource := range written {
		literal := d.Luck(30)
		n := 1 + d.IntN(3)
		for i := range n {
			rule := Rule{Resources: []string{called[resource]}}
			if rule.Resources[0] == "*.apps" && d.Luck(50) {
				rule.Except = []string{"controllerrevisions.apps", "replicasets.v1.apps"}
			}
			rule.Namespaces = d.globs()
			if literal {
				rule.Namespaces = d.literals()
			}
			// Only the last rule may match all objects: later ones would never match.
			last := i == n-1
			if !last || d.Luck(50) {
				rule.Labels = &labels[resource][i]
			}
			if d.Luck(25) {
				selector := some(d, fieldSelectors(resource))
				rule.Fields = &selector
			}
			d.send(&rule, resource)
			c.Rules = append(c.Rules, rule)
		}
	}
	c.fit(written)
	d.drop(c)
	c.fit(written) // a resource may have fewer rules now
	if d.Luck(60) {
		c.Noise = subset(d, noisy())
		d.Shuffle(len(c.Noise), func(i, j int) { c.Noise[i], c.Noise[j] = c.Noise[j], c.Noise[i] })
	}
	switch d.IntN(5) {
	case 0:
		c.Strip = []string{}
	case 1:
		c.Strip = []string{
			"metadata.managedFields", "metadata.labels.tier", `metadata.annotations["e2e.kubecdc.dev/note"]`,
		}
	case 2:
		c.Strip = slices.Concat(defaultStrip, []string{"status", "spec.list[*].keep"})
	}
	switch n := d.IntN(10); {
	case n < 4:
		c.Redaction.Key = []byte("0123456789abcdef-" + d.Prefix)
		c.Redaction.AcrossObjects = d.Luck(30)
	case n == 4:
		c.Redaction.Off = true
	}
	return c, written
}

// fit removes field selectors that the API server would have to evaluate, but does not support.
func (c *Config) fit(written []string) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Fields == nil || !r.Fields.Plain {
			continue
		}
		for _, resource := range written {
			if r.of(resource) && (len(c.Clauses(resource)) < 2 || c.Scopes(resource)[0] != "") {
				r.Fields = nil
				break
			}
		}
	}
}

// drop removes rules that can never match, because an earlier rule matches all of their objects:
// the agent rejects these.
func (d *Drawer) drop(c *Config) {
	var kept []Rule
	for i := range c.Rules {
		if !slices.ContainsFunc(kept, func(earlier Rule) bool { return d.covers(&earlier, &c.Rules[i]) }) {
			kept = append(kept, c.Rules[i])
		}
	}
	c.Rules = kept
}

// covers reports whether a rule matches all objects that another one could match.
func (d *Drawer) covers(r, other *Rule) bool {
	within := func(some, all []string) bool {
		return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
	}
	// The namespaces of the test, and two that distinguish its patterns.
	namespaces := append(d.Namespaces(), d.Prefix+"x", d.Prefix+"tx")
	wider := !slices.ContainsFunc(namespaces, func(ns string) bool {
		return takesNamespace(other.Namespaces, ns) && !takesNamespace(r.Namespaces, ns)
	})
	return wider && within(other.Resources, r.Resources) && within(r.Except, other.Except) &&
		within(r.terms(), other.terms())
}

// terms returns the requirements of a rule's selectors as text.
func (r *Rule) terms() (list []string) {
	if r.Labels != nil {
		for _, term := range strings.Split(r.Labels.Text, ",") {
			list = append(list, "label "+term)
		}
	}
	if r.Fields != nil {
		for _, term := range strings.Split(r.Fields.Text, ",") {
			list = append(list, "field "+term)
		}
	}
	return list
}

// send draws how a rule treats the objects that it matches.
func (d *Drawer) send(r *Rule, resources ...string) {
	if d.Luck(35) {
		r.Operations = subset(d, []string{"created", "updated", "deleted"})
	}
	if d.Luck(40) {
		where := some(d, conditions())
		r.Where, r.Drop = &where, d.Luck(50)
	}
	if !d.Luck(40) {
		return
	}
	paths := map[string][]string{
		"configmaps": {"data[*]", "data.secret", `data["a.b"]`},
		"secrets":    {`metadata.annotations["e2e.kubecdc.dev/note"]`},
		oracle.Widgets: {
			"spec.token", "spec.list[*].value", "spec.deep[*].env[*].value", "spec.number",
			"status.conditions[*].message",
		},
		Leases:             {"spec.holderIdentity"},
		EndpointSlices:     {"endpoints[*].nodeName"},
		"deployments.apps": {"spec.template.spec.containers[*].env[*].value"},
	}
	for _, resource := range resources {
		r.Redact = append(r.Redact, subset(d, paths[resource])...)
	}
}

// globs draws patterns of namespaces. They match only namespaces of the test.
func (d *Drawer) globs() []string {
	p := d.Prefix
	return some(d, [][]string{
		{p + "*"},
		{p + "*", "!" + p + "b"},
		{p + "a", p + "t*"},
		{p + "?"},
		{"!" + p + "tmp", p + "*"},
	})
}

// literals draws names of namespaces. The test deletes and creates the namespace tmp while it runs.
func (d *Drawer) literals() []string {
	p := d.Prefix
	return some(d, [][]string{{p + "a"}, {p + "a", p + "b"}, {p + "tmp", p + "c"}})
}

// Namespaces returns the namespaces in which the test writes objects.
func (d *Drawer) Namespaces() []string {
	return []string{d.Prefix + "a", d.Prefix + "b", d.Prefix + "c", d.Prefix + "tmp"}
}
