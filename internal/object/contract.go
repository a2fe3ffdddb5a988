package object

import "strings"

// This file has the closed sets of the event contract. They are defined here only: pkg/consume
// gives its users the same types and constants, and everything else uses either. A switch over one
// of these types lists all members (the linter exhaustive), and TestContract demands each member of
// the schemas, the AsyncAPI document and the pages.

// Op is what happened to an object, as in the attribute op of an event.
type Op string

// The ops.
const (
	Created Op = "c" // before: null, after: object
	Updated Op = "u" // before and after: objects
	Deleted Op = "d" // before: last known object, after: null
	Read    Op = "r" // snapshot; before: absent, after: object
	Entered Op = "e" // began to match a selector; before: object if known, else absent
	Left    Op = "l" // no longer matches it; before: last known object, after: absent
)

// Ops returns all ops.
func Ops() []Op { return []Op{Created, Updated, Deleted, Read, Entered, Left} }

// ChoosableOps returns the ops that a rule can exclude. The others are always sent, because
// consumers derive from them which objects exist.
func ChoosableOps() []Op { return []Op{Created, Updated, Deleted} }

// Word returns the word for the op: "created". It ends the type of the event. "": the op is
// unknown.
func (o Op) Word() string {
	switch o {
	case Created:
		return "created"
	case Updated:
		return "updated"
	case Deleted:
		return "deleted"
	case Read:
		return "read"
	case Entered:
		return "entered"
	case Left:
		return "left"
	}
	return ""
}

// IsWord reports whether a text is the word of an op.
func IsWord(text string) bool {
	for _, op := range Ops() {
		if text == op.Word() {
			return true
		}
	}
	return false
}

// StreamKind is the kind of a stream event: the end of its CloudEvents type.
type StreamKind string

// The kinds of stream events.
const (
	SnapshotStarted   StreamKind = "snapshot.started"
	SnapshotCompleted StreamKind = "snapshot.completed"
	Gap               StreamKind = "gap"
	ScopeStarted      StreamKind = "scope.started"
	ScopeEnded        StreamKind = "scope.ended"
)

// StreamKinds returns all kinds of stream events.
func StreamKinds() []StreamKind {
	return []StreamKind{SnapshotStarted, SnapshotCompleted, Gap, ScopeStarted, ScopeEnded}
}

const (
	// TypePrefix begins the type of every event.
	TypePrefix = "dev.kubecdc."
	// ObjectTypePrefix begins the type of every event of an object. Op.Word ends it.
	ObjectTypePrefix = TypePrefix + "object."
)

// EventType is the CloudEvents type of an event.
type EventType string

// The types of events that are not about an object. That of an object's event is ObjectTypePrefix
// and Op.Word.
const (
	TypeSnapshotStarted   = TypePrefix + EventType(SnapshotStarted)
	TypeSnapshotCompleted = TypePrefix + EventType(SnapshotCompleted)
	TypeGap               = TypePrefix + EventType(Gap)
	TypeScopeStarted      = TypePrefix + EventType(ScopeStarted)
	TypeScopeEnded        = TypePrefix + EventType(ScopeEnded)
	TypeProgress          = TypePrefix + EventType("progress")
)

// Name returns the type without TypePrefix: "gap", "object.updated".
func (t EventType) Name() string { return strings.TrimPrefix(string(t), TypePrefix) }

// EventTypes returns the types of events that are not about an object.
func EventTypes() []EventType {
	return []EventType{
		TypeSnapshotStarted, TypeSnapshotCompleted, TypeGap, TypeScopeStarted, TypeScopeEnded, TypeProgress,
	}
}

// GapReason is why a span of history was lost. Later releases may add reasons.
type GapReason string

// The reasons of gaps.
const (
	// the API server no longer has it: it restarted, or a CRD was changed
	Expired   GapReason = "expired"
	Compacted GapReason = "compacted" // etcd no longer has it
	Rewound   GapReason = "rewound"   // etcd was restored: its history branched off
	// the configuration, or the version in which the resource is served
	SelectionChanged GapReason = "selection-changed"
	// the bus has more than the checkpoint records, or its log was replaced
	CheckpointLost GapReason = "checkpoint-lost"
	DeadLetter     GapReason = "dead-letter" // the event of a change is in the dead letters
	// ContentChanged: no event is missing, but known versions have other content. Recovered: the
	// stripped or redacted paths, or the key, have changed. Otherwise, the API server serves these
	// versions in another form, and a snapshot follows.
	ContentChanged GapReason = "content-changed"
	Forbidden      GapReason = "forbidden" // the agent was not allowed to read; no agent sends it
)

// GapReasons returns all reasons of gaps.
func GapReasons() []GapReason {
	return []GapReason{
		Expired, Compacted, Rewound, SelectionChanged, CheckpointLost, ContentChanged, Forbidden, DeadLetter,
	}
}

// EndReason is why the observation of a scope has ended. Later releases may add reasons.
type EndReason string

// The reasons of ends.
const (
	Deselected EndReason = "deselected" // no rule selects the scope any more
	Replaced   EndReason = "replaced"   // other scopes of the same resource, which are named, have its objects now
	// its resource, its namespace or its node was removed, and it had no object left
	Removed   EndReason = "removed"
	TakenOver EndReason = "taken-over" // another agent observes it
	Forgotten EndReason = "forgotten"  // an operator has said that nobody observes it any more
)

// EndReasons returns all reasons of ends.
func EndReasons() []EndReason {
	return []EndReason{Deselected, Replaced, Removed, TakenOver, Forgotten}
}

// InterruptionReason is why a scope was not observed. Later releases may add reasons.
type InterruptionReason string

// The reasons of interruptions.
const (
	InterruptedStart   InterruptionReason = "start"   // the run began
	InterruptedClosed  InterruptionReason = "closed"  // the watch ended, and the next one began late
	InterruptedCut     InterruptionReason = "cut"     // the watch ended with an error
	InterruptedSilent  InterruptionReason = "silent"  // a watch with bookmarks sent nothing for more than 65 s
	InterruptedBlocked InterruptionReason = "blocked" // the queue was full
	InterruptedListed  InterruptionReason = "listed"  // the watch could not resume: a list replaced it
	InterruptedStopped InterruptionReason = "stopped" // the process stood still
	InterruptedStepped InterruptionReason = "stepped" // the clock was set
)

// InterruptionReasons returns all reasons of interruptions.
func InterruptionReasons() []InterruptionReason {
	return []InterruptionReason{
		InterruptedStart, InterruptedClosed, InterruptedCut, InterruptedSilent,
		InterruptedBlocked, InterruptedListed, InterruptedStopped, InterruptedStepped,
	}
}
