package consume

import (
	"path"
	"strings"
)

// contains tells whether objects of the scope's resource in the namespace ("": cluster-scoped) belong to the scope, as far
// as its name tells: "pods", "pods/shop", "pods/team-?,!team-x?labelSelector=app=web". Selectors only the API server can
// apply.
func contains(scope, namespace string) bool {
	_, patterns, ok := strings.Cut(strings.TrimSuffix(scope, selectorsOf(scope)), "/")
	if !ok {
		return true
	}
	included := false
	for p := range strings.SplitSeq(patterns, ",") {
		glob, excludes := strings.CutPrefix(p, "!")
		if ok, err := path.Match(glob, namespace); err != nil || !ok {
			continue
		}
		if excludes {
			return false
		}
		included = true
	}
	return included
}

// selectorsOf is what of a scope's name only the API server can apply, with the question mark: "?labelSelector=app=web". "":
// nothing.
func selectorsOf(scope string) string {
	if eq := strings.IndexByte(scope, '='); eq >= 0 { // there is none in patterns of namespaces
		return scope[max(strings.LastIndexByte(scope[:eq], '?'), 0):]
	}
	return ""
}

// in tells whether the object belongs to a scope, as far as it is known.
func (o *liveObject) in(scope string) bool {
	part := selectorsOf(scope)
	return (part == "" || o.part == "" || o.part == part) && contains(scope, o.name.namespace)
}

// scope adds a scope. The name is kept.
func (r *resource) scope(name string, s *scope) {
	r.scopes[name] = s
	part := selectorsOf(name)
	if r.parts[part] == nil {
		r.parts[part] = map[string]*scope{}
	}
	r.parts[part][name] = s
}

// scopesOf are those that the object of an event may belong to, its namespace aside.
func (r *resource) scopesOf(e *Event) map[string]*scope {
	if part := selectorsOf(e.Scope); part != "" {
		return r.parts[part]
	}
	return r.scopes
}

// part is the selectors of the scope of an event, in a text of its own.
func (r *resource) part(e *Event) string {
	part := selectorsOf(e.Scope)
	for scope := range r.parts[part] {
		return selectorsOf(scope) // all objects share it
	}
	return strings.Clone(part)
}
