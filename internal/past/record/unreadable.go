package record

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Unreadable counts records that cannot be read, by the object or resource that their subjects or
// keys name. Such a record may be an event about that object or resource, and about no other one.
// If its subject or key names nothing, it may be any event.
//
// A progress that cannot be read counts as missing: later ones repeat what it said for ten minutes,
// and an answer from fewer of them is never more certain. So it is not counted.
type Unreadable map[consume.About]int

// mostAbout limits how many subjects or keys are distinguished.
const mostAbout = 256

// Add counts n records.
func (u *Unreadable) Add(about consume.About, n int) {
	if *u == nil {
		*u = Unreadable{}
	}
	(*u)[about] += n
	for _, forget := range []func(*consume.About){
		func(a *consume.About) { a.Name = "" },
		func(a *consume.About) { a.Namespace = "" },
		func(a *consume.About) { *a = consume.About{} },
	} {
		if len(*u) > mostAbout {
			u.widen(forget)
		}
	}
}

// widen makes records of several subjects or keys one.
func (u *Unreadable) widen(forget func(*consume.About)) {
	wider := Unreadable{}
	for about, n := range *u {
		forget(&about)
		wider[about] += n
	}
	*u = wider
}

// Total returns the number of records.
func (u Unreadable) Total() int {
	total := 0
	for _, n := range u {
		total += n
	}
	return total
}

// Of returns how many of the records may be about objects of a scope.
func (u Unreadable) Of(s *certainty.Scope) int {
	total := 0
	for about, n := range u {
		if mayBeIn(about, s) {
			total += n
		}
	}
	return total
}

// Outside returns how many of the records can be about none of the scopes.
func (u Unreadable) Outside(scopes []certainty.Scope) int {
	total := 0
	for about, n := range u {
		isInside := false
		for i := range scopes {
			isInside = isInside || mayBeIn(about, &scopes[i])
		}
		if !isInside {
			total += n
		}
	}
	return total
}

func mayBeIn(about consume.About, s *certainty.Scope) bool {
	cluster, isNamed := strings.CutPrefix(s.Source, "/kubernetes/")
	switch {
	case isNamed && about.Cluster != "" && about.Cluster != cluster:
		return false
	case about.Resource != "" && about.Resource != s.Resource:
		return false
	}
	return about.Namespace == "" || s.Covers(namespaceOf(about))
}

// namespaceOf returns the known namespace of a record, as events have it.
func namespaceOf(about consume.About) string {
	if about.Namespace == consume.NoNamespace {
		return ""
	}
	return about.Namespace
}

// MayTake reports whether a record that cannot be read may be an event that Takes accepts.
func (s *Selection) MayTake(about consume.About) bool {
	switch {
	case about.Progress, s.Cluster != "" && about.Cluster != "" && about.Cluster != s.Cluster:
		return false
	case about.Resource != "" && len(s.Resources) > 0 && !s.Has(about.Resource):
		return false
	case about.Namespace == "":
		return true
	case !s.mayBeIn(namespaceOf(about)):
		return false
	}
	return about.Resource == "" || about.Name == "" || s.TakesObject(about.Resource, namespaceOf(about), about.Name)
}

// mayBeIn reports whether the selection may have objects in a namespace.
func (s *Selection) mayBeIn(namespace string) bool {
	isElsewhere := func(r Resource) bool {
		return slices.Contains(r.Namespaces, namespace) || r.clusterScoped && namespace == ""
	}
	return s.Namespace == "" || match(s.Namespace, namespace) || slices.ContainsFunc(s.Resources, isElsewhere)
}
