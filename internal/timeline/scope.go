package timeline

import (
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// MaxSilence is how far apart the stream events of a scope may be around a time for the state at that time to be exact. An agent
// sends a progress event each minute.
const MaxSilence = 2 * time.Minute

// ReasonSilence is the reason of a gap that no event announces: a snapshot begins after more than MaxSilence without a stream
// event of the scope. In records of agents that did not send consume.Stream.Initial, versions may be missing before it.
const ReasonSilence consume.GapReason = "silence"

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

// Scope says how certain the state of one scope is at a moment, and counts what the record lacks.
type Scope struct {
	Source     string    `json:"source"`
	ClusterUID string    `json:"clusterUID,omitempty"`
	Resource   string    `json:"resource"` // "deployments.apps"
	Name       string    `json:"scope"`    // as in consume.Event.Scope
	Certainty  Certainty `json:"certainty"`

	// From and To are the ends of the span in which the moment lies.
	//	Exact      From is the last stream event at or before the moment, To the next one; by resourceVersion, the last complete one
	//	Late       changes in between were observed late
	//	Uncertain  the ends of the gap; To is zero if nothing has made the state right again
	//	Unknown    To is the first snapshot, or From the last progress; the other one is zero
	From Bound `json:"from,omitzero"`
	To   Bound `json:"to,omitzero"`
	// Reason is that of the gap around the moment.
	Reason consume.GapReason `json:"reason,omitempty"`
	// Recovered reports that every version of the objects that existed at an end of that gap is in the record. At a resourceVersion, only objects
	// that were created and deleted inside the gap may be wrong. They may be missing. If an agent that was killed had sent them, they may be outdated
	// or deleted by then.
	// At a time, the other changes inside the gap may be missing too: they have the time at which they were found.
	Recovered bool `json:"recovered,omitempty"`

	// OtherHistory: the moment is a resourceVersion, and those of the scope are of another etcd, or no numbers. Ask by time.
	OtherHistory bool `json:"otherHistory,omitempty"`

	// Confined: the source does not have all of the scope's objects that are asked for.
	Confined bool `json:"confined,omitempty"`

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
