package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Resource is one resource.
type Resource struct {
	Group   string // "" for the core group
	Version string // "": whichever is served
	Name    string // plural, lower case

	ClusterScoped bool // known to have no namespace; false for custom resources
}

// String returns kubectl's name of the resource.
func (r Resource) String() string {
	switch {
	case r.Version != "":
		return r.Name + "." + r.Version + "." + r.Group
	case r.Group != "":
		return r.Name + "." + r.Group
	}
	return r.Name
}

// Uncapturable returns why the resource cannot be captured: "is served without watch (…)"; "" if it
// is not known to be so.
func (r Resource) Uncapturable() string {
	p := ResourcePattern{Resource: r.Name, Group: r.Group, Core: r.Group == ""}
	_, why := p.uncapturable()
	return why
}

// FindResource parses the name of one resource: a pattern without wildcards, a kind or a short name
// of kubectl. Examples are "pods", "Deployment", "deploy" and "widgets.example.com".
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
	group, uncapturable := p.uncapturable()
	switch {
	case p.Resource == "*":
		return Resource{}, fmt.Errorf("must be one resource, got %q", text)
	case b != nil && (p.Resource == "" || p.Group == "" || slices.Contains(b.groups, p.Group)):
		r.Name, r.ClusterScoped = b.resource, b.cluster
		if r.Group == "" {
			r.Group = b.groups[0]
		}
	case uncapturable != "":
		r.Group = group
	case p.Group == "" && !p.Core:
		if why := p.whyDoubtful(); strings.HasSuffix(why, "?") {
			return Resource{}, fmt.Errorf("%s", why)
		}
		return Resource{}, fmt.Errorf("Kubernetes has no resource %s; add its group, such as %[1]s.example.com", text)
	}
	return r, nil
}

// Verdict is the result of the rules for one resource.
type Verdict struct {
	Taking []Taking // the rules that can take its objects, in their order; none: the resource is not taken

	// If no rule takes the resource, the first rule that names and excludes it, -1 if none names
	// it. Except is the index in that rule's Except, or -1 if the rule's namespaces exclude it.
	Excluding int
	Except    int
}

// Taking is a rule that can take objects of a resource.
type Taking struct {
	Rule    int // index in Watch
	Pattern int // index in its Resources
}

// Explain returns the rules that take the resource.
func (c *Config) Explain(r Resource) Verdict {
	v, o := Verdict{Excluding: -1, Except: -1}, orderOf(c.Watch)
	names := func(p ResourcePattern) bool {
		if r.Version == "" {
			p.Version = "" // any version that is served may be that of the pattern
		}
		return p.Match(r.Group, r.Version, r.Name)
	}
	for i := range c.Watch {
		rule := &c.Watch[i]
		at := slices.IndexFunc(rule.Resources, names)
		if at < 0 {
			continue
		}
		except := slices.IndexFunc(rule.Except, func(p ResourcePattern) bool {
			return p.Match(r.Group, r.Version, r.Name)
		})
		if except < 0 && !(r.ClusterScoped && !rule.Namespaces.Match("")) {
			_, nothing := o.takenBefore(i, span{resource: r.Name, version: r.Version, groups: []string{r.Group}})
			if !nothing {
				v.Taking = append(v.Taking, Taking{Rule: i, Pattern: at})
			}
			continue
		}
		if v.Excluding < 0 {
			v.Excluding, v.Except = i, except
		}
	}
	if len(v.Taking) > 0 {
		v.Excluding, v.Except = -1, -1
	}
	return v
}

// Doubts returns warnings about valid settings that are probably mistakes, each with its position
// in the file. more has those that other packages found.
func (f *File) Doubts(more ...Check) []*yamldoc.Error {
	var list yamldoc.Errors
	doubt := func(path, why string) {
		if why == "" {
			return
		}
		line, column := f.doc.Position(path)
		list = append(list, &yamldoc.Error{
			File:    f.Name,
			Line:    line,
			Column:  column,
			Path:    path,
			Message: f.Conceal(why),
		})
	}
	for i := range f.Watch {
		for j, p := range f.Watch[i].Resources {
			why := p.whyDoubtful()
			if _, uncapturable := p.uncapturable(); uncapturable != "" {
				why = p.String() + " " + uncapturable
			}
			doubt(fmt.Sprintf("watch[%d].resources[%d]", i, j), why)
		}
		for j, p := range f.Watch[i].Except {
			if _, uncapturable := p.uncapturable(); uncapturable == "" {
				doubt(fmt.Sprintf("watch[%d].except[%d]", i, j), p.whyDoubtful())
			}
		}
		for j, p := range f.Watch[i].Redact {
			doubt(fmt.Sprintf("watch[%d].redact[%d]", i, j), f.Watch[i].DoubtPath(p))
		}
		doubt(fmt.Sprintf("watch[%d].fieldSelector", i), f.Watch[i].doubtFields())
	}
	for i, n := range f.Noise {
		if n == NoiseStatusOnly {
			doubt(fmt.Sprintf("noise[%d]", i),
				"status-only withholds changes of the status alone, of every resource: that a Pod has failed, that a "+
					"Deployment is ready, that a Job is done")
		}
	}
	if !f.Redaction.Secrets && f.takesSecrets() {
		doubt("redaction.secrets",
			"the values of Secrets are sent as they are, to everyone who can read the bus; write true to redact them")
	}
	for _, check := range more {
		for _, e := range check(f.Config) {
			doubt(e.Path, e.Message)
		}
	}
	list.Sort()
	return list
}

// DoubtPath returns why a path probably matches nothing in the objects that the rule takes; "": no
// reason is known. Reasons are a key with dots that is not in quotes, and a list without [*].
func (r *Rule) DoubtPath(path string) string {
	if m := dottedKey.FindStringSubmatch(path); m != nil &&
		(r.Takes("", "v1", "configmaps") || r.Takes("", "v1", "secrets")) {
		return fmt.Sprintf(
			`matches nothing in ConfigMaps and Secrets, whose values are strings; a key with dots in it is written %s["%s"]`,
			m[1], m[2])
	}
	if m := podList.FindStringSubmatch(path); m != nil {
		return fmt.Sprintf("matches nothing if %s is a list, as it is in Pods; write %[1]s[*]", m[2])
	}
	return ""
}

// doubtFields warns about a selector by a field that only a few resources have, in a rule for many.
// The API server rejects it for all others.
func (r *Rule) doubtFields() string {
	selector, err := fields.ParseSelector(r.FieldSelector)
	if err != nil || !slices.ContainsFunc(r.Resources, func(p ResourcePattern) bool { return p.Resource == "*" }) {
		return ""
	}
	for _, d := range requirementsOnFields(selector) {
		if d.key != "metadata.name" && d.key != "metadata.namespace" {
			return fmt.Sprintf(
				"most resources cannot be selected by %s: the API server rejects such lists, and none of their objects is sent; name "+
					"the resources that can", d.key)
		}
	}
	return ""
}

// podList matches a path that uses a list of a Pod or a Pod template as a mapping.
var podList = regexp.MustCompile(
	`(^|\.)(containers|initContainers|ephemeralContainers|env|envFrom|volumes|imagePullSecrets)(\.|\[")`)

var dottedKey = regexp.MustCompile(`^(data|stringData|binaryData)\.([^.\[]+\.[^\[]+)$`)

func (c *Config) takesSecrets() bool {
	return slices.ContainsFunc(c.Watch, func(r Rule) bool { return r.Takes("", "v1", "secrets") })
}
