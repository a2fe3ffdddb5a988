package consume

import "strings"

// Touch records only that the object of e existed before e, so that a snapshot under way does not
// sweep it. A reader of the state at an earlier moment calls it instead of Apply for the events of
// objects after that moment.
func (t *Tracker) Touch(e *Event) {
	if e.DeadLetterReason != "" || e.Data == nil {
		return
	}
	r := t.resources[resourceOf(e)]
	if r == nil || r.live[e.UID] == nil {
		return
	}
	o, before := r.live[e.UID], point{e.History(), sequence(e.Data.PreviousResourceVersion)}
	for scope, s := range r.scopesOf(e) {
		if s.snapshot != "" && before.notAbove(s.version) && contains(scope, e.Namespace) {
			o.touched = max(o.touched, s.started)
		}
	}
}

// Highest returns the highest History and sequence seen of an object, zero if the object is
// unknown.
func (t *Tracker) Highest(cluster ClusterKey, resource, uid string) (history uint32, sequence uint64) {
	r := t.resources[resourceKey{cluster, resource}]
	if r == nil {
		return 0, 0
	}
	if o := r.live[uid]; o != nil {
		return o.at.history, o.at.seq
	}
	at := r.dead[uid].at
	return at.history, at.seq
}

// Has reports whether an object exists.
func (t *Tracker) Has(cluster ClusterKey, resource, uid string) bool {
	r := t.resources[resourceKey{cluster, resource}]
	return r != nil && r.live[uid] != nil
}

// ScopeCovers reports whether objects in a namespace ("": cluster-scoped) may belong to a scope, as
// in Event.Scope of a stream event. It ignores selectors.
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
