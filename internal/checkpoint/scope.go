package checkpoint

import "time"

// Scope is where one informer stands, and what it observes: all that a restart needs to go on behind it.
type Scope struct {
	Group      string `json:"group,omitempty"` // "" for the core group
	Version    string `json:"version"`         // in which the objects are read; events carry it in apiversion
	Resource   string `json:"resource"`        // plural: "deployments"
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced,omitempty"`
	// Namespaces are the patterns of the selection, none: all.
	Namespaces    []string `json:"namespaces,omitempty"`
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`

	// Clauses are what each of several rules takes; none: there is one, and the above is all of it.
	Clauses []Clause `json:"clauses,omitempty"`
	// Redact are the paths that any of the rules redacts.
	Redact []string `json:"redact,omitempty"`
	// Content names what is cut and redacted, and how; "": an older release has written this.
	Content string `json:"content,omitempty"`
	// Filtered tells that some of what happened may have been withheld, and that how much it was is not kept.
	Filtered bool `json:"filtered,omitempty"`
	// Where names what withholds objects as a whole, "": nothing does.
	Where string `json:"where,omitempty"`
	// Aggregated tells that another server serves the resource, by an APIService: where it is not served, its objects live on.
	Aggregated bool `json:"aggregated,omitempty"`
	// Definition is the uid of the CustomResourceDefinition of the resource. "": the resource is not known to have one.
	Definition string `json:"definition,omitempty"`

	// ResourceVersion is the highest below or at which every delta of the scope is acknowledged by the bus.
	ResourceVersion uint64 `json:"resourceVersion,string"`
	// History counts the restores of etcd that the scope has lived through.
	History uint32 `json:"history,omitempty"`
	// State is a fingerprint of which objects there were at ResourceVersion, in which versions: a restored etcd may know the
	// same resourceVersion with another content.
	State uint64 `json:"state,string"`
	// Ignored are the objects, as namespace/name, that State leaves out because they are the agent's own. Empty: none. nil: an
	// older release wrote this, or the agent has no objects of this resource.
	Ignored []string `json:"ignored,omitzero"`
	// Log is the number of the last replacement of a log (Log.Replaced) that the scope has announced, 0: there was none.
	Log uint64 `json:"log,omitempty"`
	// LastSeen is when the API server last gave a sign of life for the scope.
	LastSeen time.Time `json:"lastSeen,omitzero"`

	// Retiring is set on a scope that is no longer selected, until the bus has all that was sent of it, and that its objects left.
	Retiring *Retiring `json:"retiring,omitempty"`

	// Snapshot is the one that is not on the bus to its end, nil: none.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Sweep reports that a snapshot of the whole scope has to begin, since consumers may have objects that no longer exist.
	Sweep bool `json:"sweep,omitempty"`
	// SnapshotBegan is when the last snapshot of the whole scope was begun, zero: there was none.
	SnapshotBegan time.Time `json:"snapshotBegan,omitzero"`
}

// Retiring is how far a scope that is no longer selected has been retired.
type Retiring struct {
	Since time.Time `json:"since"`
	// Told reports that the bus may have some of what says that the objects left.
	Told bool `json:"told,omitempty"`
}

// Clause is what one rule takes of the objects of a scope.
type Clause struct {
	Namespaces    []string `json:"namespaces,omitempty"` // patterns, none: all
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
}

// Snapshot is one that is being sent, in the order of keys.
type Snapshot struct {
	ID              string `json:"id"`
	ResourceVersion uint64 `json:"resourceVersion,string"`
	// Objects is how many there are to read in all.
	Objects int `json:"objects"`
	// Namespace is the only one that it is of, "": all of the scope.
	Namespace string `json:"namespace,omitempty"`
	// Cursor is the key up to which every read is acknowledged, "": none yet.
	Cursor string `json:"cursor,omitempty"`
}

// Position is a Scope with what tells if it is worth saving soon.
type Position struct {
	Scope
	// Acked counts what was acknowledged. While it stands still, at most ResourceVersion moves.
	Acked uint64
}
