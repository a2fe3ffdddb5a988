package consume

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Event is one CloudEvent of kubecdc. Fields that an event does not have are zero. An Event owns
// its memory: reading the next one does not change it.
type Event struct {
	ID      string
	Source  string
	Type    EventType // "dev.kubecdc.object.updated", "dev.kubecdc.snapshot.started"
	Subject string    // "/apis/apps/v1/namespaces/shop/deployments/web"
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

	// DataRef is a URI of the complete event if this one was shortened to fit on the bus: see
	// Whole. "": there is none.
	DataRef string
	// DeadLetterReason is why a record is a dead letter; "" if it is not.
	DeadLetterReason string

	// Extensions are attributes that this version does not know; nil: there are none.
	Extensions map[string]string

	// Data is set for events of objects, Stream for stream events, and Progress for the progress of
	// an agent. All are nil for events of an unknown kind, and for IsFormerProgress.
	Data     *Data
	Stream   *Stream
	Progress *Progress

	// Opening: the record begins a new topic of Kafka, and other topics have the event from before.
	Opening bool
	// Position is the place after the event in the log that it was read from; zero if it was not
	// read from a Source.
	Position Position

	raw  []byte // the record, where it was read in structured mode
	data []byte // the data, where it was read in binary mode
}

// OpeningHeader is the header of a record of Kafka that begins a new topic. Its event happened
// before the topic was created, and other topics have it from that time. Its value is "true".
const OpeningHeader = "kubecdc-opening"

// Data is the content of an object's event.
type Data struct {
	Op                      Op     `json:"op"`
	ResourceVersion         string `json:"resourceVersion"`
	PreviousResourceVersion string `json:"previousResourceVersion,omitempty"`

	// Before and After are the object's JSON: "null" if the object does not exist, nil if the state
	// is unknown.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Patch is the RFC 6902 document that turns Before into After; nil: none.
	Patch json.RawMessage `json:"patch,omitempty"`

	ChangedBy []Change `json:"changedBy,omitempty"`
	Snapshot  string   `json:"snapshot,omitempty"` // of a Read
	Inferred  bool     `json:"inferred,omitempty"` // found by comparing lists, not seen on a watch
	// Redacted reports whether values of After were removed or replaced. Nil: no, unless the object
	// is a Secret: then it is not known, because an earlier agent did not say so.
	Redacted *bool `json:"redacted,omitempty"`
	// Skipped is the number of versions that filters have withheld since the object's last event.
	// Before is the last of them, not the After of that event. After a stream event of the scope
	// the count may be missing or too low, because it does not survive a restart.
	Skipped int `json:"skipped,omitempty"`
	// Truncated names the members that were left out to fit the event on the bus: before, after,
	// patch, changedBy. They are nil here, whatever the op.
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
	Snapshot string `json:"snapshot,omitempty"` // snapshot.started, snapshot.completed
	// scope.started, scope.ended, snapshot.started, snapshot.completed
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Objects         int    `json:"objects,omitempty"` // snapshot.started: to be read; snapshot.completed: read
	// Initial, of a started scope or snapshot, reports that the agent had no position of the scope,
	// and did not find one on the bus. If the stream has earlier events of the scope, versions
	// between them and this snapshot may be missing, although no gap says so.
	Initial bool `json:"initial,omitempty"`
	// Continued, of a started scope, reports that nothing is missing since an earlier observation
	// of the scope, which had reached ResourceVersion. Continued, of a started snapshot, reports
	// that an earlier run of the agent began the snapshot, and may have sent a part of it.
	Continued bool `json:"continued,omitempty"`
	// ObservedSince is when the first of the runs began that have observed the scope without an end
	// in between; zero if it is not known.
	ObservedSince time.Time `json:"observedSince,omitzero"` // scope.started, snapshot.started
	// Rules take the objects of the scope, the first that matches. They do not have the limits that
	// the name of the scope has.
	Rules []Rule `json:"rules,omitempty"` // scope.started, snapshot.started
	// scope.started, scope.ended, snapshot.started: names an agent across its restarts
	Writer string `json:"writer,omitempty"`
	// as Writer: names one run of the agent, "<epoch>-<milliseconds since 1970>"
	Run string `json:"run,omitempty"`

	End EndReason `json:"end,omitempty"` // scope.ended
	// Successors are the names of the scopes that have the objects of an ended scope now, if they
	// are known.
	Successors []string `json:"successors,omitempty"`

	FromResourceVersion string    `json:"fromResourceVersion,omitempty"` // gap
	ToResourceVersion   string    `json:"toResourceVersion,omitempty"`   // gap
	Since               time.Time `json:"since,omitzero"`                // gap
	Reason              GapReason `json:"reason,omitempty"`              // gap
	// gap, ReasonDeadLetter: the ID of the event among the dead letters
	DeadLetter string `json:"deadLetter,omitempty"`
	// Recovered of a gap reports that every version inside it follows, of each object that existed
	// at its start or end. An object that was created and deleted inside it remains unknown.
	Recovered bool `json:"recovered,omitempty"`
}

// ClusterKey identifies a cluster. A cluster that is created again under the same name has the same
// source and another UID: it has other objects, and resourceVersions and histories of its own.
type ClusterKey struct {
	Source string // as in Event.Source
	UID    string // as in Event.ClusterUID; "": the record does not say it, and Source alone stands for the cluster
}

// ClusterKey returns the cluster of the event.
func (e *Event) ClusterKey() ClusterKey { return ClusterKey{e.Source, e.ClusterUID} }

// Rule is a rule of the agent's configuration, reduced to what one scope has of the rule.
type Rule struct {
	Namespaces    []string `json:"namespaces,omitempty"` // names and patterns; none: all
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
	// The filters withhold changes of objects that the rule takes.
	Operations []string `json:"operations,omitempty"` // those that are sent; none: all
	Where      string   `json:"where,omitempty"`      // a CEL expression that is true for what is sent; "": none
	OnError    string   `json:"onError,omitempty"`    // send or drop: what happens if Where cannot be evaluated
	Noise      []string `json:"noise,omitempty"`      // names of ready-made filters
}

// IsFormerProgress reports whether the event is the progress of one scope, as agents sent it before
// they sent a Progress. Nobody sends it any more: it may be skipped.
func (e *Event) IsFormerProgress() bool { return e.Type == TypeProgress && e.Scope != "" }

// History returns the number of restores of etcd before the event. It is the end of the ID, "/h1".
// A restore makes resourceVersions start over at a lower number. To find the later of two versions
// of an object, compare History, then Sequence. A Progress has a history for each of its Scopes,
// and its event has none: History returns 0.
func (e *Event) History() uint32 {
	if e.Type == TypeProgress && !e.IsFormerProgress() {
		return 0
	}
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

// Group returns the API group, "" for the core group.
func (e *Event) Group() string {
	group, _, ok := strings.Cut(e.APIVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// GroupResource returns the resource as kubectl writes it: "deployments.apps", "pods".
func (e *Event) GroupResource() string {
	if g := e.Group(); g != "" {
		return e.Resource + "." + g
	}
	return e.Resource
}
