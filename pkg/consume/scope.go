package consume

import (
	"path"
	"strings"
)

// contains reports whether objects of the scope's resource in the namespace ("": cluster-scoped)
// may belong to the scope, by its name: "pods", "pods/shop",
// "pods/team-?,!team-x?labelSelector=app=web". Only the API server can apply selectors.
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

// selectorsOf returns the selectors in a scope's name, with the question mark:
// "?labelSelector=app=web". "": it has none.
func selectorsOf(scope string) string {
	if eq := strings.IndexByte(scope, '='); eq >= 0 { // patterns of namespaces have none
		return scope[max(strings.LastIndexByte(scope[:eq], '?'), 0):]
	}
	return ""
}

// in reports whether the object belongs to a scope, or may belong to it.
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

// scopeOf returns the scope of that name. The name is not kept.
func (r *resource) scopeOf(name string) *scope {
	s := r.scopes[name]
	if s == nil {
		s = &scope{}
		r.scope(strings.Clone(name), s)
	}
	return s
}

// scopesOf returns the scopes that the object of an event may belong to, whatever its namespace.
func (r *resource) scopesOf(e *Event) map[string]*scope {
	if part := selectorsOf(e.Scope); part != "" {
		return r.parts[part]
	}
	return r.scopes
}

// part returns the selectors of an event's scope, in a string of its own.
func (r *resource) part(e *Event) string {
	part := selectorsOf(e.Scope)
	for scope := range r.parts[part] {
		return selectorsOf(scope) // all objects share it
	}
	return strings.Clone(part)
}
