package consume

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Op is what happened to an object, as in the events' attribute op.
type Op string

// The ops. An event about the stream itself has none.
const (
	Created Op = "c"
	Updated Op = "u"
	Deleted Op = "d"
	Read    Op = "r" // existed when a snapshot was taken
	Entered Op = "e" // began to match the selectors of a rule
	Left    Op = "l" // ceased to match them; the object still exists
)

// TypePrefix begins the type of every event of kubecdc.
const TypePrefix = "dev.kubecdc."

// The types of events about the stream.
const (
	TypeSnapshotStarted   = TypePrefix + "snapshot.started"
	TypeSnapshotCompleted = TypePrefix + "snapshot.completed"
	TypeGap               = TypePrefix + "gap"
	TypeProgress          = TypePrefix + "progress"
)

// GapReason is why a span of history could not be read. Later versions may know more of them.
type GapReason string

// The reasons of gaps. What follows a gap depends on what could be done about it: the versions inside it, deltas found by
// comparing lists, or a snapshot; the rules are the same behind each of them.
//
// Behind ReasonContentChanged nothing is missing, and nothing follows because of it: what is stripped or redacted of the
// objects, or the key of the redaction, is not what it was, so the next Before of an object may differ from the After that came
// last.
const (
	ReasonExpired          GapReason = "expired"           // the API server no longer had it
	ReasonCompacted        GapReason = "compacted"         // etcd no longer had it
	ReasonRewound          GapReason = "rewound"           // etcd was restored: see Event.History
	ReasonSelectionChanged GapReason = "selection-changed" // the configuration, or the version in which the resource is served
	ReasonCheckpointLost   GapReason = "checkpoint-lost"   // the agent did not know any more where it had been, or the stream or topic was replaced
	ReasonContentChanged   GapReason = "content-changed"   // objects read otherwise: strip, redaction or its key was changed
	ReasonForbidden        GapReason = "forbidden"         // the agent was not allowed to read
	ReasonDeadLetter       GapReason = "dead-letter"       // one event went to the dead letters: Stream.DeadLetter is its ID
)

// Event is one CloudEvent of kubecdc. What an event does not have is zero. An Event owns its memory: it stays as it is
// when the next one is read.
type Event struct {
	ID      string
	Source  string
	Type    string // "dev.kubecdc.object.updated", "dev.kubecdc.snapshot.started"
	Subject string // "/apis/apps/v1/namespaces/shop/deployments/web"
	Time    time.Time

	DataContentType string
	DataSchema      string

	Cluster    string
	ClusterUID string
	APIVersion string // "apps/v1"
	Kind       string
	Resource   string // "deployments"
	Namespace  string // "": cluster-scoped, or a stream event
	Name       string
	UID        string

	Op              Op
	ResourceVersion string
	Sequence        string // the resourceVersion, 20 digits
	PartitionKey    string
	Scope           string // of a stream event
	Epoch           string
	TraceParent     string

	// DataRef is a URI of the whole event, where this one was shortened to fit on the bus: see Whole. "": there is none.
	DataRef string
	// DeadLetterReason is why a record among the dead letters is one; "" on the bus.
	DeadLetterReason string

	// Extensions are the attributes that this version does not know; nil: there are none.
	Extensions map[string]string

	// Data is set on the event of an object, Stream on one about the stream. Both are nil on an event of a kind that
	// this version does not know.
	Data   *Data
	Stream *Stream

	// Position is the place after the event in the log that it was read from; zero if it was not read from a Source.
	Position Position

	raw  []byte // the record, where it was read in structured mode
	data []byte // the data, where it was read in binary mode
}

// Data is the content of an object's event.
type Data struct {
	Op                      Op     `json:"op"`
	ResourceVersion         string `json:"resourceVersion"`
	PreviousResourceVersion string `json:"previousResourceVersion,omitempty"`

	// Before and After are the object's JSON, "null" where it does not exist, nil where it is not known.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Patch is the RFC 6902 document that makes After of Before; nil: none.
	Patch json.RawMessage `json:"patch,omitempty"`

	ChangedBy []Change `json:"changedBy,omitempty"`
	Snapshot  string   `json:"snapshot,omitempty"` // of a Read
	Inferred  bool     `json:"inferred,omitempty"` // found by comparing lists, not seen on a watch
	// Skipped counts the versions that filters have withheld since the object's last event: Before is the last of them, not
	// the After that came last. Behind a stream event of the scope the count may be missing or too low: an agent that starts
	// anew does not know what was withheld before.
	Skipped int `json:"skipped,omitempty"`
	// Truncated is what was left out so that the bus would take the event: of before, after, patch and changedBy. What is
	// named there is nil here, whatever the table of ops says.
	Truncated []string `json:"truncated,omitempty"`
	DataRef   string   `json:"dataref,omitempty"` // as Event.DataRef
}

// Change says who changed an object, from its managedFields.
type Change struct {
	Manager   string    `json:"manager"`
	Operation string    `json:"operation"`     // Update or Apply
	Time      time.Time `json:"time,omitzero"` // a change by way of a subresource may have none
}

// Stream is the content of an event about the stream of one scope.
type Stream struct {
	Snapshot        string `json:"snapshot,omitempty"`        // snapshot.started, snapshot.completed
	ResourceVersion string `json:"resourceVersion,omitempty"` // snapshot.started, snapshot.completed, progress
	Objects         int    `json:"objects,omitempty"`         // started: to be read; completed: read

	FromResourceVersion string    `json:"fromResourceVersion,omitempty"` // gap
	ToResourceVersion   string    `json:"toResourceVersion,omitempty"`   // gap
	Since               time.Time `json:"since,omitzero"`                // gap
	Reason              GapReason `json:"reason,omitempty"`              // gap
	DeadLetter          string    `json:"deadLetter,omitempty"`          // gap, ReasonDeadLetter: the ID of the event among the dead letters
	// Recovered, of a gap: of each object that existed at one of its ends, every version inside it was found and follows.
	// Of what both came and went inside it, nobody can tell.
	Recovered bool `json:"recovered,omitempty"`
}

// History counts the restores of etcd that lie before the event: 1 behind the first one, when resourceVersions begin again
// below, and 0 before. It is the end of the ID, "/h1". Between two versions of an object, the higher History is the later
// one; where it is the same, the higher Sequence.
func (e *Event) History() uint32 {
	i := strings.LastIndex(e.ID, "/h")
	if i < 0 {
		return 0
	}
	n, err := strconv.ParseUint(e.ID[i+len("/h"):], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// Group is the API group, "" for the core group.
func (e *Event) Group() string {
	group, _, ok := strings.Cut(e.APIVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// GroupResource is the resource as kubectl writes it: "deployments.apps", "pods".
func (e *Event) GroupResource() string {
	if g := e.Group(); g != "" {
		return e.Resource + "." + g
	}
	return e.Resource
}
