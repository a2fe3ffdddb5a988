package debezium

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// The operations of Debezium (Debezium's reference, "Change event values").
const (
	create = "c"
	update = "u"
	remove = "d"
	read   = "r"
)

// row is the value of a record, with the members that Debezium's connectors write.
type row struct {
	Before json.RawMessage `json:"before"` // the object, or null
	After  json.RawMessage `json:"after"`  // the object; null after a delete
	Source source          `json:"source"`
	Op     string          `json:"op"`
	TSMs   int64           `json:"ts_ms"` // when the relay made the row, in milliseconds since 1970
}

// source says where a row comes from. Flink reads all members as texts.
type source struct {
	Version   string `json:"version"`   // of this format
	Connector string `json:"connector"` // kubecdc
	Name      string `json:"name"`      // the cluster's name
	TSMs      int64  `json:"ts_ms"`     // the event's time, in milliseconds since 1970
	Snapshot  string `json:"snapshot"`  // "true" of a read, otherwise "false"
	DB        string `json:"db"`        // the cluster's name
	Schema    string `json:"schema"`    // the namespace; "" without one
	Table     string `json:"table"`     // "deployments.apps"

	EventID         string `json:"event_id,omitempty"`
	EventSource     string `json:"event_source"`
	ClusterUID      string `json:"cluster_uid"`
	APIVersion      string `json:"api_version"`
	Kind            string `json:"kind"`
	ObjectName      string `json:"object_name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resource_version,omitempty"`
	History         uint32 `json:"history,omitempty"`
	Scope           string `json:"scope,omitempty"`       // of an object in a scope with selectors
	SnapshotID      string `json:"snapshot_id,omitempty"` // of a read
	Inferred        string `json:"inferred,omitempty"`    // "true": found by comparing lists, or by a snapshot
	Truncated       string `json:"truncated,omitempty"`   // "before" or "after": the identity stands for the object
	DataRef         string `json:"dataref,omitempty"`
}

const (
	formatVersion = "1"
	connector     = "kubecdc"
	yes, no       = "true", "false"
)

func sourceOf(e *consume.Event) source {
	s := source{
		Version:         formatVersion,
		Connector:       connector,
		Name:            e.Cluster,
		TSMs:            e.Time.UnixMilli(),
		Snapshot:        no,
		DB:              e.Cluster,
		Schema:          e.Namespace,
		Table:           e.GroupResource(),
		EventID:         e.ID,
		EventSource:     e.Source,
		ClusterUID:      e.ClusterUID,
		APIVersion:      e.APIVersion,
		Kind:            e.Kind,
		ObjectName:      e.Name,
		UID:             e.UID,
		ResourceVersion: e.ResourceVersion,
		History:         e.History(),
		Scope:           e.Scope,
		DataRef:         e.DataRef,
	}
	if d := e.Data; d != nil {
		s.SnapshotID = d.Snapshot
		if d.Inferred {
			s.Inferred = yes
		}
	}
	if e.Op == consume.Read {
		s.Snapshot = yes
	}
	return s
}

// Row returns the value of an event of an object, and whether the object is gone from the table:
// then a tombstone follows. noBefore leaves out the object before. at is the time of the row.
//
//	event           op   before                     after
//	created         c    null                       the object
//	entered         c    null                       the object
//	read            r    null                       the object
//	updated         u    the object                 the object
//	  before absent r    null                       the object
//	deleted, left   d    the object, or identity    null
//
// A u without before would end a job of Flink. An r says the same about the table: the object has
// this state now.
//
// If an event has no object after, although there is one, its identity stands for it: the former
// state would be wrong.
func Row(e *consume.Event, noBefore bool, at time.Time) (value []byte, gone bool, err error) {
	r := row{Source: sourceOf(e), TSMs: at.UnixMilli()}
	before, after := objectOf(e.Data.Before), objectOf(e.Data.After)
	if noBefore {
		before = nil
	}
	orIdentity := func(name string, object json.RawMessage) json.RawMessage {
		if object != nil {
			return object
		}
		r.Source.Truncated = name
		return identityOf(&r.Source)
	}
	switch e.Op {
	case consume.Deleted, consume.Left:
		r.Op = remove
		r.Before = orIdentity("before", before)
		gone = true
	case consume.Created, consume.Entered:
		r.Op, r.After = create, orIdentity("after", after)
	case consume.Read:
		r.Op, r.After = read, orIdentity("after", after)
	case consume.Updated:
		r.Op = update
		r.Before = before
		r.After = orIdentity("after", after)
		if before == nil {
			r.Op = read
		}
	}
	value, err = marshal(&r)
	return value, gone, err
}

// objectOf returns an object of an event; nil: it is null or unknown.
func objectOf(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return raw
}

// identity is the part of an object that is known without its content.
type identity struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

type metadata struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace,omitempty"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

func identityOf(s *source) json.RawMessage {
	text, err := marshal(&identity{
		APIVersion: s.APIVersion,
		Kind:       s.Kind,
		Metadata: metadata{
			Name:            s.ObjectName,
			Namespace:       s.Schema,
			UID:             s.UID,
			ResourceVersion: s.ResourceVersion,
		},
	})
	if err != nil {
		return json.RawMessage("{}") // texts can always be marshaled
	}
	return text
}

// deletion returns the row that deletes an object whose row in the topic has this source, because
// of a stream event.
func deletion(of *source, because *consume.Event, at time.Time) ([]byte, error) {
	s := *of
	s.EventID = because.ID
	s.TSMs = because.Time.UnixMilli()
	s.Snapshot, s.SnapshotID = no, ""
	s.Inferred, s.Truncated = yes, "before"
	s.DataRef = ""
	s.ResourceVersion = "" // nobody saw the version of the deletion
	return marshal(&row{
		Before: identityOf(of),
		Source: s,
		Op:     remove,
		TSMs:   at.UnixMilli(),
	})
}

// streamRow is the value of a record about the stream.
type streamRow struct {
	Event      string          `json:"event"` // "gap", "snapshot.completed": the type without its prefix
	ID         string          `json:"id"`
	Time       string          `json:"time"`
	Source     string          `json:"event_source"`
	Cluster    string          `json:"cluster"`
	ClusterUID string          `json:"cluster_uid"`
	Resource   string          `json:"resource,omitempty"` // "deployments.apps"; progress has none
	Scope      string          `json:"scope,omitempty"`
	Data       json.RawMessage `json:"data"` // as in the event
	TSMs       int64           `json:"ts_ms"`
}

// streamValue returns the value of a stream event. body is the event in structured mode.
func streamValue(e *consume.Event, body []byte, at time.Time) ([]byte, error) {
	var whole struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, err
	}
	r := streamRow{
		Event:      e.Type.Name(),
		ID:         e.ID,
		Time:       e.Time.UTC().Format(time.RFC3339Nano),
		Source:     e.Source,
		Cluster:    e.Cluster,
		ClusterUID: e.ClusterUID,
		Scope:      e.Scope,
		Data:       whole.Data,
		TSMs:       at.UnixMilli(),
	}
	if e.Stream != nil {
		r.Resource = e.GroupResource()
	}
	return marshal(&r)
}

// marshal is json.Marshal without HTML escapes, so that objects stay unchanged, and without the
// final newline.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// version is a version of an object: resourceVersions of another history are not comparable.
// Sequence 0: not known.
type version struct {
	history  uint32
	sequence uint64
}

func versionOf(resourceVersion string, history uint32) version {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		n = 0
	}
	return version{history, n}
}

func (v version) below(w version) bool {
	return v.history < w.history || v.history == w.history && v.sequence < w.sequence
}
