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
// A second label that looks like a version (v1, v2beta1) is one; the groups of Kubernetes and of its extensions do not
// begin so.
//
// A name without a group means what Kubernetes itself serves under it: services is the core group's, also where Knative
// is installed. Names that Kubernetes does not serve are taken in every group. events means both groups in which they
// are served, for they are the same objects.
type ResourcePattern struct {
	Resource string // plural, lower case, or "*"
	Version  string // "": whichever is served
	Group    string // "": see Core
	Core     bool   // the core group was asked for, as in "pods.v1."
}

var (
	resourceName  = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	resourceGroup = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	apiVersion    = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
)

// UnmarshalText reads the written form. What Kubernetes is known not to serve is refused with what may have been meant:
// a pattern that never matches would lose changes in silence.
func (p *ResourcePattern) UnmarshalText(text []byte) error {
	name, rest, dotted := strings.Cut(string(text), ".")
	q := ResourcePattern{Resource: name}
	if version, group, _ := strings.Cut(rest, "."); apiVersion.MatchString(version) {
		q.Version, rest = version, group
	}
	q.Group, q.Core = rest, dotted && rest == ""
	if why := q.wrong(string(text)); why != "" {
		return fmt.Errorf("must be a resource as kubectl writes it, got %s: %s", yamldoc.Quote(string(text)), why)
	}
	*p = q
	return nil
}

// MarshalText is String.
func (p ResourcePattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the written form.
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

// Groups are those that the pattern can match in; nil: every one.
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

// span is what a pattern, or what two patterns both, can match.
type span struct {
	resource string   // or "*"
	version  string   // "": every one
	groups   []string // nil: every one
}

func (p ResourcePattern) span() span {
	return span{resource: p.Resource, version: p.Version, groups: p.Groups()}
}

// intersect returns what both can match, and false where that is nothing. Versions do not part spans: the same object
// is served in each of them.
func (s span) intersect(t span) (span, bool) {
	x := s
	switch {
	case s.resource == "", t.resource == "": // of a pattern that could not be read
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

// anyVersion is s in all versions.
func (s span) anyVersion() span {
	s.version = ""
	return s
}

// covers reports whether everything that t can match is matched by s.
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

// String is a pattern that matches the span, without its version.
func (s span) String() string {
	if len(s.groups) == 1 && !slices.Equal(builtinGroups(s.resource), s.groups) {
		return s.resource + "." + s.groups[0]
	}
	return s.resource
}
