package consume

// Touch notes that the object of e is there, or was until then, so that a snapshot under way does not sweep it, and takes
// nothing else from e. A reader of the state at an earlier moment calls it, in place of Apply, for the events of objects after that
// moment.
func (t *Tracker) Touch(e *Event) {
	if e.DeadLetterReason != "" || e.Data == nil {
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
