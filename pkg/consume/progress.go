package consume

import (
	"encoding/json"
	"time"
)

// Progress says how far one agent has come with its scopes, and when it did not observe them. The
// agent sends one each minute, in as many events as the bus needs. Each of these counts by itself.
type Progress struct {
	Writer string `json:"writer"` // names an agent across its restarts
	Run    string `json:"run"`    // names one run of the agent, "<epoch>-<milliseconds since 1970>"
	Number int    `json:"number"` // of the events of the run, from 1
	// Checkpoint and Node say what names the writer: where it keeps its positions, and its node.
	Checkpoint string `json:"checkpoint,omitempty"`
	Node       string `json:"node,omitempty"`
	// APIServerVersion is the version of the API server ("v1.37.1"). The first progress of a run
	// has it, and each that follows a change, and one in an hour; "": as before.
	APIServerVersion string `json:"apiServerVersion,omitempty"`
	// Since: the event has all interruptions and hidden spans whose end was noted at Since or
	// later. Two events of a run have all of them if Since of
	// the later one is not after the time of the earlier one. An entry also has earlier hidden
	// spans that reach above its ResourceVersion.
	Since time.Time `json:"since"`
	Ends  bool      `json:"ends,omitempty"` // the run ends
	// To and SnapshotBegan hold for each of Scopes that has a ResourceVersion and none of its own.
	// Parse copies them there.
	To            time.Time `json:"to,omitzero"`
	SnapshotBegan time.Time `json:"snapshotBegan,omitzero"`
	// Etcd holds for each of Scopes that has none of its own. Parse copies it there.
	Etcd   string          `json:"etcd,omitempty"`
	Scopes []ScopeProgress `json:"scopes"`
}

// ScopeProgress is the progress of one scope, or of several of one resource.
type ScopeProgress struct {
	Resource string `json:"resource"` // "deployments.apps", "pods"
	// Scope is the name of the scope. "": all scopes of the resource that the run has started
	// (TypeScopeStarted) before the time of the event and not ended, and that no other of
	// Progress.Scopes names. Count is their number; 0 is one.
	Scope string `json:"scope,omitempty"`
	Count int    `json:"count,omitempty"`
	// Etcd names the etcd of the resource among those of the writer, or is EtcdUnknown; "": as
	// before. Progress has it in the first ten minutes of a run, for ten minutes after a change,
	// and once an hour. Resources with the same name are in one etcd: their resourceVersions are of
	// one order. Those of two names cannot be compared.
	Etcd string `json:"etcd,omitempty"`
	// ResourceVersion is the one up to which the log has everything before this event; "": nothing
	// is known. On Kafka, the log is the partition that has the event.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	History         uint32 `json:"history,omitempty"` // as in Event.History
	// To is the time up to which the log has everything that the API server had sent to the agent,
	// except inside Interruptions; zero: nothing is known.
	To time.Time `json:"to,omitzero"`
	// SnapshotBegan is when the last snapshot of the whole scope began that the log has completely;
	// zero: there is none, or it is not known.
	SnapshotBegan time.Time      `json:"snapshotBegan,omitzero"`
	Interruptions []Interruption `json:"interruptions,omitempty"`
	Hidden        []HiddenSpan   `json:"hidden,omitempty"`
}

// EtcdUnknown is ScopeProgress.Etcd of a resource whose etcd is not known yet.
const EtcdUnknown = "unknown"

// Interruption is a span of time in which an agent did not observe a scope, or is not known to
// have. A change inside it may have a later time.
type Interruption struct {
	Why   InterruptionReason `json:"why"`
	From  time.Time          `json:"from,omitzero"`
	Until time.Time          `json:"until,omitzero"` // zero: it was not over
}

// HiddenSpan is a span in which the last version of at least one object, or its deletion, was
// withheld by filters. Each end has a time and a ResourceVersion. Either may be unknown.
type HiddenSpan struct {
	From                 time.Time `json:"from,omitzero"`
	FromResourceVersion  string    `json:"fromResourceVersion,omitempty"`
	Until                time.Time `json:"until,omitzero"` // zero: it was not over
	UntilResourceVersion string    `json:"untilResourceVersion,omitempty"`
}

// IsOpen reports whether the span was not over when the event was sent.
func (h *HiddenSpan) IsOpen() bool { return h.Until.IsZero() && h.UntilResourceVersion == "" }

func (d *rawData) parseProgress() (*Progress, error) {
	var dec decoder
	p := &Progress{
		Writer:     dec.text("writer", d.writer),
		Run:        dec.text("run", d.run),
		Number:     dec.number("number", d.number),
		Checkpoint: dec.text("checkpoint", d.checkpoint),
		Node:       dec.text("node", d.node),

		APIServerVersion: dec.text("apiServerVersion", d.apiServerVersion),

		Since:         dec.time("since", d.since),
		Ends:          dec.boolean("ends", d.ends),
		To:            dec.time("to", d.to),
		SnapshotBegan: dec.time("snapshotBegan", d.snapshotBegan),
		Etcd:          dec.text("etcd", d.etcd),
	}
	if !null(d.scopes) && json.Unmarshal(d.scopes, &p.Scopes) != nil {
		dec.wrong("scopes", "an array of scopes")
	}
	p.share()
	return p, dec.err
}

// share copies what holds for all scopes to those that have none of their own.
func (p *Progress) share() {
	for i := range p.Scopes {
		s := &p.Scopes[i]
		if s.Etcd == "" {
			s.Etcd = p.Etcd
		}
		if s.ResourceVersion == "" {
			continue
		}
		if s.To.IsZero() {
			s.To = p.To
		}
		if s.SnapshotBegan.IsZero() {
			s.SnapshotBegan = p.SnapshotBegan
		}
	}
}
