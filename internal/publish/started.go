package publish

// StartedScope is a scope that a run has started and not ended, as far as its stream events say.
type StartedScope struct {
	Name string
	// BySnapshot: only the start of a snapshot shows it, which may be one of a part of a scope.
	BySnapshot bool
}
