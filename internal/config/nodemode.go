package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
)

const (
	// NodeCheckpoint is the default path of the checkpoint in mode node, on the node.
	NodeCheckpoint = "/var/lib/kubecdc/checkpoint.json"

	// nodeLeases is the namespace in which each node has its Lease.
	nodeLeases = "kube-node-lease"

	byName     = "metadata.name"
	byNodeName = "spec.nodeName"
)

// Part is the part of a resource that an agent takes in its mode, in addition to the selection by
// rules. The zero value is the whole.
type Part struct {
	None          bool   // the agent takes nothing
	FieldSelector string // in addition to the rule's own
	Namespace     string // the only one, "": all
}

// Part returns the part of a resource that the agent takes. node is the name of its node in mode
// node.
//
// An agent on a node takes objects with a field by which the API server selects those of the node.
// The central agent takes the pods without a node, and all objects that agents on nodes do not take
// by default.
func (c *Config) Part(group, resource, node string) Part {
	switch c.Mode {
	case ModeNode:
		key, namespace := nodeField(group, resource)
		return Part{FieldSelector: fields.OneTermEqualSelector(key, node).String(), Namespace: namespace}
	case ModeCentral:
		switch {
		case group == "" && resource == "pods":
			return Part{FieldSelector: fields.OneTermEqualSelector(byNodeName, "").String()}
		case group == "" && resource == "nodes":
			return Part{None: true}
		}
	case ModeCluster:
	}
	return Part{}
}

// nodeField returns the field by which the API server selects the objects of a node, and the only
// namespace of these objects, "": any. For custom resources it returns the usual field, which the
// API server may not support.
func nodeField(group, resource string) (key, namespace string) {
	switch resource + "." + group {
	case "nodes.", "csinodes.storage.k8s.io":
		return byName, ""
	case "leases.coordination.k8s.io":
		return byName, nodeLeases
	}
	return byNodeName, ""
}

// settleNode sets the defaults that depend on the mode. written reports whether the file has a key.
func (c *Config) settleNode(written func(path string) bool) {
	if c.Mode != ModeNode {
		return
	}
	if !written("watch") {
		c.Watch = []Rule{{Resources: []ResourcePattern{{Resource: "pods"}, {Resource: "nodes"}}}}
	}
	if !written("checkpoint") && !c.Bus.Stdout() {
		c.Checkpoint.File = &CheckpointFile{Path: NodeCheckpoint}
	}
}

// validateNode rejects, in mode node, resources that belong to no node, and selectors that
// contradict that of the mode.
func (c *Config) validateNode(path *field.Path) field.ErrorList {
	var list field.ErrorList
	for i := range c.Watch {
		rule, at := &c.Watch[i], path.Index(i)
		if why := c.whyNodeSelector(rule); why != "" {
			list = append(list, field.Forbidden(at.Child("fieldSelector"), why))
		}
		if c.Mode != ModeNode {
			continue
		}
		for j, p := range rule.Resources {
			if why := p.whyNowhere(); why != "" {
				list = append(list, field.Forbidden(at.Child("resources").Index(j), why))
			} else if _, ns := nodeField(p.Group, p.Resource); p.Resource == "leases" &&
				!rule.Namespaces.Match(nodeLeases) {
				list = append(list, field.Forbidden(at.Child("resources").Index(j),
					fmt.Sprintf(
						"can never match: Leases of nodes are in namespace %s, which the rule's namespaces exclude",
						ns)))
			}
		}
	}
	return list
}

// whyNodeSelector returns why a rule must not select by node; "": it does not, or is permitted to.
func (c *Config) whyNodeSelector(rule *Rule) string {
	why := ""
	switch {
	case c.Mode == ModeNode:
		why = "must not name spec.nodeName if mode is node: the agent adds the name of its node"
	case c.Mode == ModeCentral && rule.Takes("", "v1", "pods"):
		why = "must not name spec.nodeName of pods if mode is central: the agent captures Pods that have no node yet, and the agents on the nodes capture the others"
	}
	s, err := fields.ParseSelector(rule.FieldSelector)
	if err != nil ||
		!slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool { return r.Field == byNodeName }) {
		return ""
	}
	return why
}

// nodeLocal returns the built-in resources that the API server can select by the node's name.
func nodeLocal() []string {
	return []string{
		"pods", "nodes", "csinodes.storage.k8s.io", "leases.coordination.k8s.io", "resourceslices.resource.k8s.io",
	}
}

// whyNowhere returns why an agent on a node cannot take the resources of the pattern; "": it can,
// as far as is known without a cluster.
func (p *ResourcePattern) whyNowhere() string {
	cure := "; the API server can select by node: " + strings.Join(nodeLocal(), ", ") +
		" and custom resources with the selectable field spec.nodeName. Watch it from a separate Deployment, in mode central"
	b := builtinOf(p.Resource)
	switch {
	case p.Resource == "*" && p.Group == "" && !p.Core:
		return "takes every resource, and most belong to no node" + cure
	case p.Resource == "*" && (p.Core || kinds.IsGroup(p.Group)):
		return "takes every resource of the group, and there are some that belong to no node" + cure
	case p.Resource == "*", b == nil && !kinds.IsGroup(p.Group):
		return ""
	case b == nil, !slices.Contains(nodeLocal(), b.name()):
		return fmt.Sprintf("the API server cannot select %s by node%s", p.Resource, cure)
	}
	return ""
}
