package object

import "time"

// Report is the content of a progress event: how far an agent has come with each of its scopes, and
// when it did not observe them.
type Report struct {
	Number uint64 // of the events of the run, from 1
	// Since: the event has all interruptions and hidden spans whose end was noted at Since or
	// later.
	Since time.Time
	Ends  bool // the run ends
	// APIServerVersion is the version of the API server, as it says it itself; "": nothing is said.
	APIServerVersion string
	// To and SnapshotBegan hold for each scope that has a resourceVersion and none of its own.
	To            time.Time
	SnapshotBegan time.Time
	// Etcd holds for each resource of Scopes that has none of its own; "": nothing is said.
	Etcd   string
	Scopes []ScopeReport
}

// ScopeReport is what a progress event says about one scope, or about several of one resource.
type ScopeReport struct {
	Resource *Resource
	// Scope is the name of the scope. "" stands for all scopes of the resource that the run has
	// started and not ended, and that no other entry names; Count is their number.
	Scope string
	Count int
	// ResourceVersion is the one up to which the bus has everything, 0: nothing is claimed.
	ResourceVersion uint64
	History         uint32 // as in Delta
	// To is the time up to which the bus has everything that the API server had sent.
	To            time.Time
	SnapshotBegan time.Time // of the last snapshot of the whole scope that the bus has completely
	// Etcd is a name for the etcd of the resource, or UnknownEtcd; "": nothing is said.
	Etcd          string
	Interruptions []Interruption
	Hidden        []HiddenSpan
	// FormerHidden are earlier ones. An event lists those that reach above the version that it
	// claims.
	FormerHidden []HiddenSpan
}

// UnknownEtcd is the name of an etcd that is not known yet.
const UnknownEtcd = "unknown"

// Interruption is a span of time in which an agent did not observe a scope, or is not known to
// have. Changes inside it may have later times.
type Interruption struct {
	From  time.Time
	Until time.Time // zero: not over yet
	Why   InterruptionReason
}

// HiddenSpan is a span in which the last version of at least one object, or its deletion, was
// withheld by filters.
type HiddenSpan struct {
	From  Point
	Until Point // zero: not over yet
}

// Point is a moment in the history of a scope.
type Point struct {
	ResourceVersion uint64
	Time            time.Time
}

// IsZero reports whether p is no point.
func (p Point) IsZero() bool { return p.ResourceVersion == 0 && p.Time.IsZero() }
