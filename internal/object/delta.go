package object

import "time"

// Delta is an observed change of one object, or (if Stream is set) a notice about the stream of one
// scope, or (if Report is set) the progress of the agent. Immutable after it was handed to the
// queue.
type Delta struct {
	Op       Op
	Inferred bool // found by comparing lists, not seen on a watch
	// History counts earlier restores of etcd: a restored etcd assigns resourceVersions a second
	// time.
	History uint32
	Ref     *Ref
	Before  *Object // nil: null or absent, as Op says
	After   *Object // nil: null or absent, as Op says

	// ResourceVersion of the change: that of After, of the deletion, or of the list that lacks the
	// object.
	ResourceVersion uint64
	// Previous is the resourceVersion observed before, 0 if there is none.
	Previous uint64
	// Skipped counts the versions of the object that filters suppressed since the last delta sent.
	// An informer keeps the count in memory only: it restarts with 0.
	Skipped uint32
	// Observed is when the agent observed the change, in nanoseconds since 1970.
	Observed int64
	// ChangedBy is a JSON array of {manager, operation, time}, nil if not known.
	ChangedBy []byte
	// Snapshot is the id of the snapshot that a Read belongs to.
	Snapshot string

	// Scope names the scope that the delta belongs to, as in StreamEvent: the gap that follows a
	// dead letter carries it.
	Scope string

	// Stream is set on a stream event, which of the fields above has only Observed.
	Stream *StreamEvent
	// Report is set on a progress event of the agent, which of the fields above has only Observed.
	Report *Report

	// Acker receives the delta after the bus has acknowledged it; nil if no one waits.
	Acker Acker
}

// Size returns the length of the JSON of both objects, in bytes: about the size of an event.
func (d *Delta) Size() int {
	n := len(d.ChangedBy)
	if d.Before != nil {
		n += d.Before.Size()
	}
	if d.After != nil {
		n += d.After.Size()
	}
	return n
}

// Acker receives acknowledged deltas. Acked is called once per delta, from any goroutine, and does
// not block.
type Acker interface {
	Acked(d *Delta)
}

// Observation says by which rules, and since when, an agent observes a scope.
type Observation struct {
	// Rules is a JSON array of the rules that take the scope's objects, in order, with the filters
	// of each; nil: not known.
	Rules []byte
	// Since is when the first of the runs began that have observed the scope without an end in
	// between; zero if an earlier release began it.
	Since time.Time
}

// StreamEvent is a notice to consumers about the stream itself.
type StreamEvent struct {
	Kind     StreamKind
	Resource *Resource
	// Scope names resource, namespaces and selectors of the informer: "pods",
	// "pods/shop?labelSelector=team=payments".
	Scope string
	// History is as in Delta.
	History uint32

	Snapshot        string // started, completed
	ResourceVersion uint64 // of all but gaps
	Objects         int    // snapshot.started: objects to read; snapshot.completed: objects read
	Initial         bool   // started: the agent had no position of the scope, and did not find one on the bus
	// Continued: scope.started: nothing is missing since an earlier observation of the scope, which
	// had reached ResourceVersion. snapshot.started: an earlier run began this snapshot, and may
	// have sent a part of it.
	Continued   bool
	Observation *Observation // scope.started, snapshot.started; nil: not known
	End         EndReason    // scope.ended
	Successors  []string     // scope.ended: the scopes that have its objects now, if they are known

	From, To  uint64    // gap: the resourceVersions between which history was lost
	Since     time.Time // gap: when the last message before it was received
	Reason    GapReason // gap
	Recovered bool      // gap: all versions inside it were found, of every object that exists at one of its ends
	Letter    string    // gap, DeadLetter: the id of the event that is in the dead letters
}

// IsOfSnapshot reports whether the event is the start or the end of a snapshot, and not one about
// the observation of a scope.
func (e *StreamEvent) IsOfSnapshot() bool {
	return e.Kind == SnapshotStarted || e.Kind == SnapshotCompleted
}
