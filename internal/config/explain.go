package config

import (
	"fmt"
	"slices"
	"strings"
)

// Resource is one resource as a person names it.
type Resource struct {
	Group   string // "" for the core group
	Version string // "": whichever is served
	Name    string // plural, lower case

	ClusterScoped bool // known to have no namespace; of custom resources that is not known here
}

// String is the resource as kubectl writes it.
func (r Resource) String() string {
	switch {
	case r.Version != "":
		return r.Name + "." + r.Version + "." + r.Group
	case r.Group != "":
		return r.Name + "." + r.Group
	}
	return r.Name
}

// FindResource reads what a person types to mean one resource: what a rule may hold, less the wildcards, and also a kind
// or one of kubectl's short names: "pods", "Deployment", "deploy", "widgets.example.com".
func FindResource(text string) (Resource, error) {
	var p ResourcePattern
	b := builtinNamed(text)
	if b == nil {
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return Resource{}, err
		}
		b = builtinOf(p.Resource)
	}
	r := Resource{Group: p.Group, Version: p.Version, Name: p.Resource}
	switch {
	case p.Resource == "*":
		return Resource{}, fmt.Errorf("must be one resource, got %q", text)
	case b != nil && (p.Resource == "" || p.Group == "" || slices.Contains(b.groups, p.Group)):
		r.Name, r.ClusterScoped = b.resource, b.cluster
		if r.Group == "" {
			r.Group = b.groups[0]
		}
	case p.Group == "" && !p.Core:
		if why := p.doubt(); strings.HasSuffix(why, "?") {
			return Resource{}, fmt.Errorf("%s", why)
		}
		return Resource{}, fmt.Errorf("Kubernetes has no resource %s; write its group behind it, such as %[1]s.example.com", text)
	}
	return r, nil
}

// Verdict is what the rules of a configuration say about one resource.
type Verdict struct {
	Rule    int // index of the rule that takes it; -1: none does
	Pattern int // index in its Resources

	// Where no rule takes it: the first rule that names it and leaves it out all the same, -1 where none names it. Then
	// Except is the index in that rule's Except, or -1 where it is the rule's namespaces that leave it out.
	Excluding int
	Except    int
}

// Explain says which rule takes the resource.
func (c *Config) Explain(r Resource) Verdict {
	v := Verdict{Rule: -1, Pattern: -1, Excluding: -1, Except: -1}
	names := func(p ResourcePattern) bool {
		if r.Version == "" {
			p.Version = "" // whichever version is served may be the pattern's
		}
		return p.Match(r.Group, r.Version, r.Name)
	}
	for i := range c.Watch {
		rule := &c.Watch[i]
		at := slices.IndexFunc(rule.Resources, names)
		if at < 0 {
			continue
		}
		except := slices.IndexFunc(rule.Except, func(p ResourcePattern) bool { return p.Match(r.Group, r.Version, r.Name) })
		if except < 0 && !(r.ClusterScoped && !rule.Namespaces.Match("")) {
			v.Rule, v.Pattern = i, at
			return v
		}
		if v.Excluding < 0 {
			v.Excluding, v.Except = i, except
		}
	}
	return v
}

// Doubts are what is valid and may not be what was meant, each with its place in the file.
func (f *File) Doubts() []*Error {
	var list []*Error
	for i := range f.Watch {
		for name, patterns := range map[string][]ResourcePattern{"resources": f.Watch[i].Resources, "except": f.Watch[i].Except} {
			for j, p := range patterns {
				if why := p.doubt(); why != "" {
					path := fmt.Sprintf("watch[%d].%s[%d]", i, name, j)
					at := f.places[path]
					list = append(list, &Error{File: f.Name, Line: at.line, Column: at.column, Path: path, Message: why})
				}
			}
		}
	}
	Errors(list).sort()
	return list
}
