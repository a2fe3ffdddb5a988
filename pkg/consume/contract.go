package consume

import "github.com/kubecdc/kubecdc/internal/object"

// Op is what happened to an object, as in the events' attribute op. Op.Word returns the word for
// it.
type Op = object.Op

// The ops. An event about the stream itself has none.
const (
	Created = object.Created // "c"
	Updated = object.Updated // "u"
	Deleted = object.Deleted // "d"
	Read    = object.Read    // "r": existed when a snapshot was taken
	Entered = object.Entered // "e": began to match the selectors of a rule
	Left    = object.Left    // "l": ceased to match them; the object still exists
)

// Ops returns all ops.
func Ops() []Op { return object.Ops() }

// TypePrefix begins the type of every event of kubecdc.
const TypePrefix = object.TypePrefix

// EventType is the type of an event. That of an object's event is TypePrefix, "object." and
// Op.Word.
type EventType = object.EventType

// The types of events that are not about an object.
const (
	TypeSnapshotStarted   = object.TypeSnapshotStarted   // "dev.kubecdc.snapshot.started"
	TypeSnapshotCompleted = object.TypeSnapshotCompleted // "dev.kubecdc.snapshot.completed"
	TypeGap               = object.TypeGap               // "dev.kubecdc.gap"
	TypeScopeStarted      = object.TypeScopeStarted      // "dev.kubecdc.scope.started"
	TypeScopeEnded        = object.TypeScopeEnded        // "dev.kubecdc.scope.ended"
	TypeProgress          = object.TypeProgress          // "dev.kubecdc.progress"
)

// EndReason is why an agent has ended to observe a scope. Later versions may add reasons.
type EndReason = object.EndReason

// The reasons of ends.
const (
	EndDeselected = object.Deselected // "deselected": no rule selects the scope any more
	EndReplaced   = object.Replaced   // "replaced": Stream.Successors have its objects now
	// "removed": its resource, its namespace or its node was removed, and it had no object left
	EndRemoved   = object.Removed
	EndTakenOver = object.TakenOver // "taken-over": another agent observes it
	EndForgotten = object.Forgotten // an operator has ended it, because its agent is gone for good
)

// EndReasons returns all reasons of ends.
func EndReasons() []EndReason { return object.EndReasons() }

// GapReason is why a span of history could not be read. Later versions may add reasons.
type GapReason = object.GapReason

// The reasons of gaps. A gap is followed by the versions inside it, by deltas found by comparing
// lists, or by a snapshot. The rules are the same in each case.
//
// After ReasonContentChanged no version is missing, but known versions have other content. So the
// next Before of an object may differ from its last After. If the gap is recovered, the stripped or
// redacted fields, or the redaction key, have changed, and nothing follows. Otherwise, the API
// server serves known versions in another form (a CustomResourceDefinition or a conversion was
// changed, or it was upgraded), and a snapshot follows. Reads of snapshots after the gap replace
// the known version, also if they have the same one.
const (
	ReasonExpired   = object.Expired   // "expired": the API server no longer had it
	ReasonCompacted = object.Compacted // "compacted": etcd no longer had it
	ReasonRewound   = object.Rewound   // "rewound": etcd was restored: see Event.History
	// "selection-changed": the configuration, or the version in which the resource is served
	ReasonSelectionChanged = object.SelectionChanged
	// "checkpoint-lost": the agent lost its position, or the stream or topic was replaced
	ReasonCheckpointLost = object.CheckpointLost
	// "content-changed": by strip, redaction or its key (recovered), or by the API server
	ReasonContentChanged = object.ContentChanged
	ReasonForbidden      = object.Forbidden // "forbidden": the agent was not allowed to read
	// "dead-letter": one event went to the dead letters: Stream.DeadLetter is its ID
	ReasonDeadLetter = object.DeadLetter
)

// GapReasons returns all reasons of gaps.
func GapReasons() []GapReason { return object.GapReasons() }

// InterruptionReason is why a scope was not observed. Later versions may add reasons.
type InterruptionReason = object.InterruptionReason

// The reasons of interruptions.
const (
	InterruptedStart   = object.InterruptedStart   // "start": the run began
	InterruptedClosed  = object.InterruptedClosed  // "closed": the watch ended, and the next one began late
	InterruptedCut     = object.InterruptedCut     // "cut": the watch ended with an error
	InterruptedSilent  = object.InterruptedSilent  // "silent": the API server sent nothing for too long
	InterruptedBlocked = object.InterruptedBlocked // "blocked": the agent's queue was full
	InterruptedListed  = object.InterruptedListed  // "listed": a list replaced the watch
	InterruptedStopped = object.InterruptedStopped // "stopped": the agent's process stood still
	InterruptedStepped = object.InterruptedStepped // "stepped": the agent's clock was set
)
