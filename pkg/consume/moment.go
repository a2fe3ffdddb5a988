package consume

import "strings"

// Touch notes that the object of e was there until then, so that a snapshot under way does not sweep it, and takes nothing else
// from e. A reader of the state at an earlier moment calls it, in place of Apply, for the events of objects after that moment.
func (t *Tracker) Touch(e *Event) {
	if e.DeadLetterReason != "" || e.Data == nil || e.Op == Created || e.Op == Entered {
		return
	}
	r := t.resources[resourceKey{e.Source, e.GroupResource()}]
	if r == nil {
		return
	}
	if o := r.live[e.UID]; o != nil {
		o.touched = max(o.touched, r.touched(e, pointOf(e), t.clock))
	}
}

// ScopeCovers reports whether objects in a namespace ("": cluster-scoped) may belong to a scope, as in Event.Scope of a stream
// event. Its selectors are not looked at.
func ScopeCovers(scope, namespace string) bool { return contains(scope, namespace) }

// IsPartOf reports whether part is the scope of a snapshot of one namespace of a scope.
func IsPartOf(part, scope string) bool {
	selectors := selectorsOf(part)
	resource, namespace, ok := strings.Cut(strings.TrimSuffix(part, selectors), "/")
	if !ok || part == scope || selectors != selectorsOf(scope) || strings.ContainsAny(namespace, "*?[,!") {
		return false
	}
	of, _, _ := strings.Cut(strings.TrimSuffix(scope, selectors), "/")
	return of == resource && contains(scope, namespace)
}
