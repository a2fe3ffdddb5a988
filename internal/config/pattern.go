package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// ResourcePattern names resources as kubectl does:
//
//	pods                     the resource of that name
//	deployments.apps         with its group
//	deployments.v1.apps      with its version and group
//	pods.v1.                 with its version, in the core group
//	*.networking.k8s.io      all resources of a group
//	*                        all resources
//
// A second label that looks like a version (v1, v2beta1) is one: no group of Kubernetes or its
// extensions begins with such a label.
//
// A name without a group is that of the resource that Kubernetes itself serves: services is in the
// core group, even if Knative is installed. A name that Kubernetes does not serve matches in every
// group. events matches in both groups that serve it, because they have the same objects.
type ResourcePattern struct {
	Resource string // plural, lower case, or "*"
	Version  string // "": any that is served
	Group    string // "": see Core
	Core     bool   // the pattern names the core group, as in "pods.v1."
}

var (
	resourceName  = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	resourceGroup = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	apiVersion    = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
)

// UnmarshalText parses the written form. It rejects resources that Kubernetes is known not to
// serve, with a suggestion: a pattern that never matches would lose changes silently.
func (p *ResourcePattern) UnmarshalText(text []byte) error {
	name, rest, dotted := strings.Cut(string(text), ".")
	q := ResourcePattern{Resource: name}
	if version, group, _ := strings.Cut(rest, "."); apiVersion.MatchString(version) {
		q.Version, rest = version, group
	}
	q.Group, q.Core = rest, dotted && rest == ""
	if why := q.whyWrong(string(text)); why != "" {
		return fmt.Errorf("must be a resource as kubectl writes it, got %s: %s", yamldoc.Quote(string(text)), why)
	}
	*p = q
	return nil
}

// MarshalText returns String.
func (p ResourcePattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String returns the written form.
func (p ResourcePattern) String() string {
	s := p.Resource
	if p.Version != "" {
		s += "." + p.Version
	}
	if p.Group != "" || p.Core {
		s += "." + p.Group
	}
	return s
}

// Match reports whether the pattern names the resource; group is "" for the core group.
func (p ResourcePattern) Match(group, version, resource string) bool {
	if p.Resource != "*" && p.Resource != resource || p.Version != "" && p.Version != version {
		return false
	}
	groups := p.Groups()
	return groups == nil || slices.Contains(groups, group)
}

// Groups returns the groups in which the pattern can match; nil: all.
func (p ResourcePattern) Groups() []string {
	switch {
	case p.Core:
		return []string{""}
	case p.Group != "":
		return []string{p.Group}
	case p.Resource == "*":
		return nil
	}
	return builtinGroups(p.Resource)
}

// span is the set of resources that a pattern matches, or that two patterns both match.
type span struct {
	resource string   // or "*"
	version  string   // "": every one
	groups   []string // nil: every one
}

func (p ResourcePattern) span() span {
	return span{resource: p.Resource, version: p.Version, groups: p.Groups()}
}

// intersect returns the resources that both match, and false if there are none. It ignores
// different versions: the same object is served in each of them.
func (s span) intersect(t span) (span, bool) {
	x := s
	switch {
	case s.resource == "", t.resource == "": // of a malformed pattern
		return span{}, false
	case s.resource == "*":
		x.resource = t.resource
	case t.resource != "*" && t.resource != s.resource:
		return span{}, false
	}
	if x.version == "" {
		x.version = t.version
	}
	switch {
	case s.groups == nil:
		x.groups = t.groups
	case t.groups != nil:
		x.groups = nil
		for _, g := range s.groups {
			if slices.Contains(t.groups, g) {
				x.groups = append(x.groups, g)
			}
		}
		if x.groups == nil {
			return span{}, false
		}
	}
	return x, true
}

// anyVersion returns s in all versions.
func (s span) anyVersion() span {
	s.version = ""
	return s
}

// covers reports whether s matches everything that t matches.
func (s span) covers(t span) bool {
	if s.resource != "*" && s.resource != t.resource || s.version != "" && s.version != t.version {
		return false
	}
	if s.groups == nil {
		return true
	}
	if t.groups == nil {
		return false
	}
	for _, g := range t.groups {
		if !slices.Contains(s.groups, g) {
			return false
		}
	}
	return true
}

// String returns a pattern that matches the span, without its version.
func (s span) String() string {
	if len(s.groups) == 1 && !slices.Equal(builtinGroups(s.resource), s.groups) {
		return s.resource + "." + s.groups[0]
	}
	return s.resource
}
