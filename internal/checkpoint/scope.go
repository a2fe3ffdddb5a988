package checkpoint

import "time"

// Scope is the position of one informer and its selection: all that a restart needs to resume.
type Scope struct {
	Group      string `json:"group,omitempty"` // "" for the core group
	Version    string `json:"version"`         // in which the objects are read; events carry it in apiversion
	Resource   string `json:"resource"`        // plural: "deployments"
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced,omitempty"`
	// Namespaces are the patterns of the selection; none selects all namespaces.
	Namespaces    []string `json:"namespaces,omitempty"`
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`

	// Clauses are the selections of several rules; empty if one rule made the scope.
	Clauses []Clause `json:"clauses,omitempty"`
	// Redact are the paths that any of the rules redacts.
	Redact []string `json:"redact,omitempty"`
	// Content identifies the strip and redact rules; "" if an older release wrote the checkpoint.
	Content string `json:"content,omitempty"`
	// Filtered reports that filters may have withheld versions, whose number is not stored.
	Filtered bool `json:"filtered,omitempty"`
	// Hides reports, if Filtered, that filters had withheld the last version of an object, or its
	// deletion, at ResourceVersion. nil: an older release wrote the checkpoint.
	Hides *bool `json:"hides,omitempty"`
	// Where identifies the filters that withhold whole objects; "" if there are none.
	Where string `json:"where,omitempty"`
	// Aggregated reports that an APIService serves the resource: its objects survive while it is
	// not served.
	Aggregated bool `json:"aggregated,omitempty"`
	// Definition is the uid of the resource's CustomResourceDefinition; "" if none is known.
	Definition string `json:"definition,omitempty"`

	// Etcd is the number of the etcd that has the resource; 0: not known. Resources with the same
	// number are in one etcd.
	Etcd int `json:"etcd,omitempty"`

	// ResourceVersion is the highest one up to which the bus has acknowledged every delta of the
	// scope.
	ResourceVersion uint64 `json:"resourceVersion,string"`
	// History counts the restores of etcd since the scope began.
	History uint32 `json:"history,omitempty"`
	// Rewound reports that etcd was restored, and that the bus has no gap that says so: what
	// follows ResourceVersion is of another history, whatever the API server answers. History
	// counts that restore.
	Rewound bool `json:"rewound,omitempty"`
	// State is a fingerprint of the objects and their versions at ResourceVersion: a restored etcd
	// may use the same resourceVersion for another content.
	State uint64 `json:"state,string"`
	// Forms is a fingerprint of the contents of the same objects, in the form that consumers have:
	// an API server may serve a version in another form later. 0: there are no objects, or an older
	// release wrote the checkpoint.
	Forms uint64 `json:"forms,omitempty,string"`
	// Ignored lists the agent's own objects, as namespace/name, which State leaves out. Empty:
	// none. nil: an older release wrote the checkpoint, or the agent has no objects of this
	// resource.
	Ignored []string `json:"ignored,omitzero"`
	// Log is the number of the last log replacement (Log.Replaced) that the scope has announced; 0
	// if there was none.
	Log uint64 `json:"log,omitempty"`
	// LastSeen is the time of the API server's last answer for the scope, or of the oldest change
	// that the bus has not acknowledged, whichever is earlier.
	LastSeen time.Time `json:"lastSeen,omitzero"`

	// ObservedSince is when the first of the runs began that have observed the scope without an end
	// in between; zero: not known.
	ObservedSince time.Time `json:"observedSince,omitzero"`

	// Retiring is set on a scope that is no longer selected, until the bus has all its records, a
	// `left` for each object included.
	Retiring *Retiring `json:"retiring,omitempty"`

	// Ended is set on a scope that nothing observes any more, until the bus has its end.
	Ended *Ended `json:"ended,omitempty"`

	// Snapshot is the snapshot that the bus does not have completely; nil if there is none.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Sweep reports that a snapshot of the whole scope must follow: consumers may hold objects that
	// no longer exist, or lack some.
	Sweep bool `json:"sweep,omitempty"`
	// Initial reports that the scope began without a position, and the bus does not have its first
	// snapshot completely.
	Initial bool `json:"initial,omitempty"`
	// SnapshotBegan is when the last snapshot of the whole scope began; zero if there was none.
	SnapshotBegan time.Time `json:"snapshotBegan,omitzero"`
}

// Ended is why nothing observes a scope any more.
type Ended struct {
	Reason     string   `json:"reason"`               // an object.EndReason
	Successors []string `json:"successors,omitempty"` // the scopes that have its objects
}

// Retiring is the progress of a scope that is no longer selected.
type Retiring struct {
	Since time.Time `json:"since"`
	// Announced reports that the bus may have a `left` of some objects.
	Announced bool `json:"told,omitempty"`
}

// Clause is the part of a scope's objects that one rule selects.
type Clause struct {
	Namespaces    []string `json:"namespaces,omitempty"` // patterns; none selects all
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
}

// Snapshot is a snapshot in progress. Its objects are sent in the order of their keys.
type Snapshot struct {
	ID string `json:"id"`
	// Announced reports that no change passes the start of the snapshot: the bus has the start, or
	// every change waits for it. If it is false, the snapshot may have been given up since, and
	// another one replaces it.
	Announced bool `json:"announced,omitempty"`
	// Begun reports that the bus has acknowledged its start. If it is false, nothing has passed the
	// start, and the snapshot begins as a new one.
	Begun           bool   `json:"begun,omitempty"`
	ResourceVersion uint64 `json:"resourceVersion,string"`
	// Objects is the total number of objects.
	Objects int `json:"objects"`
	// Namespace limits the snapshot to one namespace; "" means the whole scope.
	Namespace string `json:"namespace,omitempty"`
	// Cursor is the key up to which every `read` is acknowledged; "" if none is.
	Cursor string `json:"cursor,omitempty"`
}

// MayBeGivenUp reports whether changes may have passed the snapshot since the checkpoint. It is
// false for nil.
func (s *Snapshot) MayBeGivenUp() bool { return s != nil && !s.Announced && s.Cursor == "" }

// Position is a Scope with a counter that says if a save is urgent.
type Position struct {
	Scope
	// Acked counts acknowledgements. If it is unchanged, only ResourceVersion can have moved.
	Acked uint64
}
