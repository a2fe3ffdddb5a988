package object

import "time"

// Op is what happened to an object; its value is the `op` of the event contract.
type Op byte

// The ops of the event contract.
const (
	Created Op = 'c' // before: null, after: object
	Updated Op = 'u' // before and after: objects
	Deleted Op = 'd' // before: last known object, after: null
	Read    Op = 'r' // snapshot; before: absent, after: object
	Entered Op = 'e' // began to match a selector; before: object where it can be told, else absent
	Left    Op = 'l' // ceased to match it; before: last known object, after: absent
)

// Delta is a change of one object as observed, or (where Stream is set) a notice about the stream of one scope.
// Immutable once it has been handed to the queue.
type Delta struct {
	Op       Op
	Inferred bool // found by comparing lists, not seen on a watch
	// History counts the restores of etcd before: a restored etcd gives resourceVersions a second time.
	History uint32
	Ref     *Ref
	Before  *Object // nil: null or absent, as Op says
	After   *Object // nil: null or absent, as Op says

	// ResourceVersion of the change: that of After, of the deletion, or of the list that missed the object.
	ResourceVersion uint64
	// Previous is the resourceVersion observed before, 0 where there was none.
	Previous uint64
	// Skipped counts the versions of the object that filters withheld since its last delta that was sent, 0 where none were. An
	// informer knows it for its own lifetime only.
	Skipped uint32
	// Observed is when the agent saw it, in nanoseconds since 1970.
	Observed int64
	// ChangedBy is a ready JSON array of {manager, operation, time}, nil where not known.
	ChangedBy []byte
	// Snapshot is the id of the snapshot that a Read belongs to.
	Snapshot string

	// Scope names the scope that the delta belongs to, as in StreamEvent: a gap behind a dead letter is told of it.
	Scope string

	// Stream is set on a stream event; then of the above only Observed is.
	Stream *StreamEvent

	// Acker is told once the bus has acknowledged the delta; nil: nobody waits for it.
	Acker Acker
}

// Size is the length of the JSON of both objects, in bytes: about that of an event.
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

// Acker hears of acknowledged deltas. Acked is called once per delta, from any goroutine, and does not block.
type Acker interface {
	Acked(d *Delta)
}

// StreamKind is the kind of a stream event: the end of its CloudEvents type.
type StreamKind string

// The kinds of stream events.
const (
	SnapshotStarted   StreamKind = "snapshot.started"
	SnapshotCompleted StreamKind = "snapshot.completed"
	Gap               StreamKind = "gap"
	Progress          StreamKind = "progress"
)

// GapReason is why a span of history could not be read.
type GapReason string

// The reasons of gaps.
const (
	Expired          GapReason = "expired"           // the API server no longer had it: restarted, or a CRD was changed
	Compacted        GapReason = "compacted"         // etcd no longer had it
	Rewound          GapReason = "rewound"           // etcd was restored: history went on elsewhere
	SelectionChanged GapReason = "selection-changed" // the configuration, or the version in which the resource is served
	CheckpointLost   GapReason = "checkpoint-lost"   // the bus has more than the agent remembers, or its log was replaced
	DeadLetter       GapReason = "dead-letter"       // the event of a change is in the dead letters
	// ContentChanged: what is stripped or redacted, or the key, is not what it was. Nothing is missing; an object reads otherwise.
	ContentChanged GapReason = "content-changed"
)

// StreamEvent tells consumers about the stream itself.
type StreamEvent struct {
	Kind     StreamKind
	Resource *Resource
	// Scope names resource, namespaces and selectors of the informer: "pods", "pods/shop?labelSelector=team=payments".
	Scope string
	// History is as in Delta.
	History uint32

	Snapshot        string // started, completed
	ResourceVersion uint64 // started, completed, progress
	Objects         int    // started: objects to be read; completed: objects read

	From, To  uint64    // gap: resourceVersions between which history could not be read
	Since     time.Time // gap: when the last sign of life before it was seen
	Reason    GapReason // gap
	Recovered bool      // gap: of every object that there was at one of its ends, all versions inside it were found
	Letter    string    // gap, DeadLetter: the id of the event that is in the dead letters
}
