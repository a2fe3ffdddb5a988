package consume

import (
	"encoding/json"
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
	Entered Op = "e" // began to match a selector that the API server applies
	Left    Op = "l" // ceased to match it; the object still exists
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

// ReasonRewound is the reason of a gap after which resourceVersions begin again below: etcd was restored.
const ReasonRewound = "rewound"

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

	// Extensions are the attributes that this version does not know; nil: there are none.
	Extensions map[string]string

	// Data is set on the event of an object, Stream on one about the stream. Both are nil on an event of a kind that
	// this version does not know.
	Data   *Data
	Stream *Stream

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
	Snapshot  string   `json:"snapshot,omitempty"`  // of a Read
	Inferred  bool     `json:"inferred,omitempty"`  // found by comparing lists, not seen on a watch
	Skipped   int      `json:"skipped,omitempty"`   // versions withheld by filters since the object's last event
	Truncated []string `json:"truncated,omitempty"` // what an oversize event left out
	DataRef   string   `json:"dataref,omitempty"`   // where the whole is
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
	Reason              string    `json:"reason,omitempty"`              // gap: expired, compacted, rewound, …
	Recovered           bool      `json:"recovered,omitempty"`           // gap: all versions inside it were found
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
