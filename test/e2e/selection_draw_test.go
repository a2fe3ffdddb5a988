package e2e_test

import (
	"math/rand/v2"
	"slices"
)

// The resources of TestSelection, as a rule may name them. Those of apps come by themselves: the controllers write them.
const (
	leases         = "leases.coordination.k8s.io"
	endpointSlices = "endpointslices.discovery.k8s.io"
)

// drawn is the resources that a configuration is drawn over, with the ways to name them.
func drawn() map[string][]string {
	return map[string][]string{
		"configmaps":       {"configmaps", "configmaps.v1"},
		"secrets":          {"secrets"},
		widgets:            {widgets, "*." + widgetsGroup, "widgets.v1." + widgetsGroup},
		leases:             {leases, "leases.v1.coordination.k8s.io"},
		endpointSlices:     {endpointSlices},
		"deployments.apps": {"*.apps", "deployments.apps", "deployments.v1.apps"},
	}
}

// writtenBeside are the resources of a pattern that nobody but controllers writes.
func writtenBeside() []string {
	return []string{"replicasets.apps", "statefulsets.apps", "daemonsets.apps", "controllerrevisions.apps"}
}

// drawer draws configurations.
type drawer struct {
	*rand.Rand
	prefix string // Of the namespaces.
}

func (d *drawer) luck(percent int) bool { return d.IntN(100) < percent }

func some[T any](d *drawer, list []T) T { return list[d.IntN(len(list))] }

// subset is some of a list, in its order, at least one.
func subset[T any](d *drawer, list []T) []T {
	for {
		var out []T
		for _, x := range list {
			if d.luck(50) {
				out = append(out, x)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
}

// config draws a configuration and the resources that it is about.
func (d *drawer) config() (c *picked, written []string) {
	c = &picked{}
	var all []string
	for resource := range drawn() {
		all = append(all, resource)
	}
	slices.Sort(all)
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	written = all[:3+d.IntN(2)]
	// A resource is read in one version: all rules call it by one name.
	called := make(map[string]string)
	labels := make(map[string][]labelSelector)
	for _, resource := range written {
		called[resource] = some(d, drawn()[resource])
		list := labelSelectors()
		d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		labels[resource] = list
	}
	if d.luck(40) { // A rule over several resources, before those of each.
		selector := labels[written[0]][0]
		rule := pickedRule{Namespaces: d.globs(), Labels: &selector}
		for _, resource := range written[:2] {
			rule.Resources = append(rule.Resources, called[resource])
			labels[resource] = slices.DeleteFunc(labels[resource], func(l labelSelector) bool { return l.Text == selector.Text })
		}
		d.send(&rule, written[:2]...)
		c.Rules = append(c.Rules, rule)
	}
	for _, resource := range written {
		literal := d.luck(30)
		n := 1 + d.IntN(3)
		for i := range n {
			rule := pickedRule{Resources: []string{called[resource]}}
			if rule.Resources[0] == "*.apps" && d.luck(50) {
				rule.Except = []string{"controllerrevisions.apps", "replicasets.v1.apps"}
			}
			if rule.Namespaces = d.globs(); literal {
				rule.Namespaces = d.literals()
			}
			// A rule that takes all leaves nothing for those behind it.
			last := i == n-1
			if !last || d.luck(50) {
				rule.Labels = &labels[resource][i]
			}
			if d.luck(25) {
				selector := some(d, fieldSelectors(resource))
				rule.Fields = &selector
			}
			d.send(&rule, resource)
			c.Rules = append(c.Rules, rule)
		}
	}
	c.fit(written)
	if d.luck(60) {
		c.Noise = subset(d, noisy())
		d.Shuffle(len(c.Noise), func(i, j int) { c.Noise[i], c.Noise[j] = c.Noise[j], c.Noise[i] })
	}
	switch d.IntN(5) {
	case 0:
		c.Strip = []string{}
	case 1:
		c.Strip = []string{"metadata.managedFields", "metadata.labels.tier", `metadata.annotations["e2e.kubecdc.dev/note"]`}
	case 2:
		c.Strip = slices.Concat(defaultStrip, []string{"status", "spec.list[*].keep"})
	}
	switch n := d.IntN(10); {
	case n < 4:
		c.Redaction.Key = []byte("0123456789abcdef-" + d.prefix)
		c.Redaction.AcrossObjects = d.luck(30)
	case n == 4:
		c.Redaction.Off = true
	}
	return c, written
}

// fit takes out what the API server would have to know and does not.
func (c *picked) fit(written []string) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Fields == nil || !r.Fields.Plain {
			continue
		}
		for _, resource := range written {
			if r.of(resource) && (len(c.clauses(resource)) < 2 || c.scopes(resource)[0] != "") {
				r.Fields = nil
				break
			}
		}
	}
}

// send draws what a rule does with what it takes.
func (d *drawer) send(r *pickedRule, resources ...string) {
	if d.luck(35) {
		r.Operations = subset(d, []string{"created", "updated", "deleted"})
	}
	if d.luck(40) {
		where := some(d, conditions())
		r.Where, r.Drop = &where, d.luck(50)
	}
	if !d.luck(40) {
		return
	}
	paths := map[string][]string{
		"configmaps":       {"data[*]", "data.secret", `data["a.b"]`},
		"secrets":          {`metadata.annotations["e2e.kubecdc.dev/note"]`},
		widgets:            {"spec.token", "spec.list[*].value", "spec.deep[*].env[*].value", "spec.number", "status.conditions[*].message"},
		leases:             {"spec.holderIdentity"},
		endpointSlices:     {"endpoints[*].nodeName"},
		"deployments.apps": {"spec.template.spec.containers[*].env[*].value"},
	}
	for _, resource := range resources {
		r.Redact = append(r.Redact, subset(d, paths[resource])...)
	}
}

// globs is patterns of namespaces: those of the test, however else the rule is limited.
func (d *drawer) globs() []string {
	p := d.prefix
	return some(d, [][]string{
		{p + "*"},
		{p + "*", "!" + p + "b"},
		{p + "a", p + "t*"},
		{p + "?"},
		{"!" + p + "tmp", p + "*"},
	})
}

// literals is names of namespaces, one of which comes and goes.
func (d *drawer) literals() []string {
	p := d.prefix
	return some(d, [][]string{{p + "a"}, {p + "a", p + "b"}, {p + "tmp", p + "c"}})
}

// namespaces are those in which objects are written.
func (d *drawer) namespaces() []string {
	return []string{d.prefix + "a", d.prefix + "b", d.prefix + "c", d.prefix + "tmp"}
}
