package timeline

import (
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// ReasonHidden is the reason why a scope is uncertain although the record has no gap. Filters of the
// agent withheld the last version of at least one object, or its deletion.
const ReasonHidden consume.GapReason = "filtered"

// Certainty says how certain the state of a scope is at a moment. The zero value is not one.
type Certainty int

// The certainties, from the best to the worst.
const (
	Exact Certainty = iota + 1
	Late
	Uncertain
	Unknown
)

// String returns the word for c: exact, late, uncertain or unknown.
func (c Certainty) String() string {
	switch c {
	case Exact:
		return "exact"
	case Late:
		return "late"
	case Uncertain:
		return "uncertain"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Certainty(%d)", int(c))
}

// MarshalText implements encoding.TextMarshaler.
func (c Certainty) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Bound is an end of a span: a time and a resourceVersion, each zero if it is not known.
type Bound struct {
	Time            time.Time `json:"time,omitzero"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	History         uint32    `json:"history,omitempty"`
}

// End is the end of the observation of a scope.
type End struct {
	Bound

	Reason     consume.EndReason `json:"reason,omitempty"`
	Successors []string          `json:"successors,omitempty"` // scopes that have its objects now

	at mark
}

// Scope says how certain the state of one scope is at a moment, and counts what the record lacks.
type Scope struct {
	Source     string    `json:"source"`
	ClusterUID string    `json:"clusterUID,omitempty"`
	Resource   string    `json:"resource"` // "deployments.apps"
	Name       string    `json:"scope"`    // as in consume.Event.Scope
	Certainty  Certainty `json:"certainty"`

	// From and To are the ends of the span in which the moment lies.
	//	Exact      up to From and up to To, progress says that the record is complete; by resourceVersion, To is zero
	//	Late       changes in between were observed late
	//	Uncertain  the ends of the gap; To is zero if nothing has made the state right again
	//	Unknown    To is the first snapshot, or the record is complete up to From; the other one is zero
	From Bound `json:"from,omitzero"`
	To   Bound `json:"to,omitzero"`
	// Reason is that of the gap around the moment, or ReasonHidden.
	Reason consume.GapReason `json:"reason,omitempty"`
	// Why says why the scope was not observed at the moment, if it is Late.
	Why consume.InterruptionReason `json:"why,omitempty"`
	// Ended is the end of the scope, if no agent observes it any more at the moment.
	Ended *End `json:"ended,omitempty"`
	// Former: up to From, or up to To, agents of a former release wrote the record. Nothing shows that it is complete there.
	Former bool `json:"former,omitempty"`
	// Recovered reports that every version of the objects that existed at an end of that gap is in the record. At a resourceVersion, only objects
	// that were created and deleted inside the gap may be wrong. They may be missing. If an agent that was killed had sent them, they may be outdated
	// or deleted by then.
	// At a time, the other changes inside the gap may be missing too: they have the time at which they were found.
	Recovered bool `json:"recovered,omitempty"`

	// OtherHistory: the moment is a resourceVersion, and those of the scope are of another etcd, or no numbers. Ask by time.
	OtherHistory bool `json:"otherHistory,omitempty"`

	// EtcdUnknown: the moment is a resourceVersion, and it is not known yet whether those of the scope
	// are of the same etcd. Ask by time.
	EtcdUnknown bool `json:"etcdUnknown,omitempty"`

	// Confined: the source does not have all of the scope's objects that are asked for.
	Confined bool `json:"confined,omitempty"`

	// Again is when to ask again, because the record can say more by then; zero: that is not known, or
	// it says all. The package does not set it.
	Again time.Time `json:"again,omitzero"`

	// Joined: events before To were not read, see Options.
	Joined bool `json:"-"`

	// Skipped counts the versions that filters withheld, as far as events say so. An event counts those since the object's previous
	// event, so some may be later than the moment.
	Skipped int `json:"skipped,omitempty"`
	// Left counts the objects that left the selection and did not come back. They may still exist: no other one has their name.
	Left int `json:"left,omitempty"`
	// Redacted counts the objects that show a redacted value, and Secrets without values.
	Redacted int `json:"redacted,omitempty"`
	// DeadLetters are the ids of events among the dead letters that the state lacks.
	DeadLetters []string `json:"deadLetters,omitempty"`
}

// ClusterKey returns the cluster of the scope.
func (s *Scope) ClusterKey() consume.ClusterKey {
	return consume.ClusterKey{Source: s.Source, UID: s.ClusterUID}
}

// Covers reports whether objects in a namespace ("": cluster-scoped) may belong to the scope.
func (s *Scope) Covers(namespace string) bool { return consume.ScopeCovers(s.Name, namespace) }

// Worst returns the worst certainty of scopes, Unknown if there are none.
func Worst(scopes []Scope) Certainty {
	if len(scopes) == 0 {
		return Unknown
	}
	worst := Exact
	for i := range scopes {
		worst = max(worst, scopes[i].Certainty)
	}
	return worst
}
