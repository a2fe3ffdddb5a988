package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// NodeCheckpoint is where an agent in mode node keeps its checkpoint where the file names no place: on its node.
	NodeCheckpoint = "/var/lib/kubecdc/checkpoint.json"

	// nodeLeases is the namespace in which each node has its Lease.
	nodeLeases = "kube-node-lease"

	byName     = "metadata.name"
	byNodeName = "spec.nodeName"
)

// Part is what an agent of a mode takes of a resource, within what the rules take. The zero value is all of it.
type Part struct {
	None          bool   // nothing of it
	FieldSelector string // beside the rule's own
	Namespace     string // the only one, "": all
}

// Part is what the agent takes of a resource. node is the name of the node that it runs on, in mode node.
//
// An agent on a node takes what has a field by which the API server finds what belongs to the node. The central agent takes
// what no node has yet, of pods, and all of what agents on nodes do not take by default.
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

// nodeField is the field by which the API server finds what belongs to a node, and the one namespace of such objects, "": any.
// Of custom resources it is the one that they should have; whether it is selectable the API server says.
func nodeField(group, resource string) (key, namespace string) {
	switch resource + "." + group {
	case "nodes.", "csinodes.storage.k8s.io":
		return byName, ""
	case "leases.coordination.k8s.io":
		return byName, nodeLeases
	}
	return byNodeName, ""
}

// settleNode gives what depends on the mode its default where the file, which has what written tells, does not have it.
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

// validateNode refuses what belongs to no node, in mode node, and selectors which that of the mode contradicts.
func (c *Config) validateNode(path *field.Path) field.ErrorList {
	var list field.ErrorList
	for i := range c.Watch {
		rule, at := &c.Watch[i], path.Index(i)
		if why := c.selectsNode(rule); why != "" {
			list = append(list, field.Forbidden(at.Child("fieldSelector"), why))
		}
		if c.Mode != ModeNode {
			continue
		}
		for j, p := range rule.Resources {
			if why := p.nowhere(); why != "" {
				list = append(list, field.Forbidden(at.Child("resources").Index(j), why))
			} else if _, ns := nodeField(p.Group, p.Resource); p.Resource == "leases" && !rule.Namespaces.Match(nodeLeases) {
				list = append(list, field.Forbidden(at.Child("resources").Index(j),
					fmt.Sprintf("can never match: of Leases those in namespace %s belong to nodes, which the rule's namespaces leave out", ns)))
			}
		}
	}
	return list
}

// selectsNode says why a rule must not name the node of what it takes; "": it does not, or may.
func (c *Config) selectsNode(rule *Rule) string {
	why := ""
	switch {
	case c.Mode == ModeNode:
		why = "must not name spec.nodeName where mode is node: the agent adds the name of its node by itself"
	case c.Mode == ModeCentral && rule.Takes("", "v1", "pods"):
		why = "must not name spec.nodeName of pods where mode is central: it takes those that no node has yet, and agents on the nodes the others"
	}
	s, err := fields.ParseSelector(rule.FieldSelector)
	if err != nil || !slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool { return r.Field == byNodeName }) {
		return ""
	}
	return why
}

// nodeLocal are the resources of Kubernetes itself that an agent on a node can ask for by the node's name.
func nodeLocal() []string {
	return []string{"pods", "nodes", "csinodes.storage.k8s.io", "leases.coordination.k8s.io", "resourceslices.resource.k8s.io"}
}

// nowhere says why an agent on a node cannot take what the pattern names; "": it can, as far as is known without a cluster.
func (p *ResourcePattern) nowhere() string {
	cure := "; the API server finds by node: " + strings.Join(nodeLocal(), ", ") +
		" and custom resources with the selectable field spec.nodeName. Watch it from a Deployment beside, in mode central"
	b := builtinOf(p.Resource)
	switch {
	case p.Resource == "*" && p.Group == "" && !p.Core:
		return "takes every resource, and most belong to no node" + cure
	case p.Resource == "*" && (p.Core || builtinGroup(p.Group)):
		return "takes every resource of the group, and there are some that belong to no node" + cure
	case p.Resource == "*", b == nil && !builtinGroup(p.Group):
		return ""
	case b == nil, !slices.Contains(nodeLocal(), b.name()):
		return fmt.Sprintf("the API server cannot tell which %s belong to a node%s", p.Resource, cure)
	}
	return ""
}
