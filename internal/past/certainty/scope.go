package certainty

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Bound is an end of a span: a time and a resourceVersion, each zero if it is not known.
type Bound struct {
	Time            time.Time `json:"time,omitzero"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	History         uint32    `json:"history,omitempty"`
}

// Words returns the bound as people read it, in the time zone of the terminal. "": it is zero.
func (b Bound) Words() string {
	var parts []string
	if !b.Time.IsZero() {
		parts = append(parts, b.Time.Local().Format(time.RFC3339))
	}
	if b.ResourceVersion != "" {
		rv := "rv:" + b.ResourceVersion
		if b.History > 0 {
			rv += fmt.Sprintf("/h%d", b.History)
		}
		parts = append(parts, rv)
	}
	if len(parts) == 2 {
		return parts[0] + " (" + parts[1] + ")"
	}
	return strings.Join(parts, "")
}

// End is the end of the observation of a scope.
type End struct {
	Bound

	Reason     consume.EndReason `json:"reason,omitempty"`
	Successors []string          `json:"successors,omitempty"` // scopes that have its objects now
}

// Words describes the end.
func (e *End) Words() string {
	text := "not observed any more since " + e.Bound.Words()
	switch e.Reason {
	case consume.EndDeselected:
		return text + ": no rule selects it"
	case consume.EndReplaced:
		return text + ": replaced by " + strings.Join(e.Successors, ", ")
	case consume.EndRemoved:
		return text + ": its resource, namespace or node was removed"
	case consume.EndTakenOver:
		return text + ": another agent observes it"
	case consume.EndForgotten:
		return text + ": an operator has ended it"
	}
	return text + ": " + string(e.Reason)
}

// Scope says how certain the state of one scope is at a moment, and counts what the record lacks.
type Scope struct {
	Source     string `json:"source"`
	ClusterUID string `json:"clusterUID,omitempty"`
	Resource   string `json:"resource"` // "deployments.apps"
	Name       string `json:"scope"`    // as in consume.Event.Scope
	Certainty  Level  `json:"certainty"`

	// Causes are what lowers the certainty. Exact: there are none.
	Causes []Cause `json:"causes,omitempty"`
	// From and To enclose the moment, if it is Exact: the record is complete up to each of them. To
	// is zero if the moment is a resourceVersion, or now.
	From Bound `json:"from,omitzero"`
	To   Bound `json:"to,omitzero"`
	// Ended is the end of the scope, if no agent observes it any more at the moment.
	Ended *End `json:"ended,omitempty"`

	// Skipped counts the versions that filters withheld, as far as events say so. An event counts
	// those since the object's previous event, so some may be later than the moment.
	Skipped int `json:"skipped,omitempty"`
	// Left counts the objects that left the selection and did not come back. They may still exist:
	// no other one has their name.
	Left int `json:"left,omitempty"`
	// Redacted counts the objects that show a redacted value, and Secrets and Helm's releases
	// without values.
	Redacted int `json:"redacted,omitempty"`
}

// ClusterKey returns the cluster of the scope.
func (s *Scope) ClusterKey() consume.ClusterKey {
	return consume.ClusterKey{Source: s.Source, UID: s.ClusterUID}
}

// Covers reports whether objects in a namespace ("": cluster-scoped) may belong to the scope.
func (s *Scope) Covers(namespace string) bool { return consume.ScopeCovers(s.Name, namespace) }

// isSelected reports whether the scope has the objects that match selectors alone.
func (s *Scope) isSelected() bool { return strings.Contains(s.Name, "?") }

// Lower adds a cause. The scope is not more certain than it allows.
func (s *Scope) Lower(c Cause) {
	s.Certainty = max(s.Certainty, c.Kind.Level())
	s.Causes = append(slices.Clip(s.Causes), c) // copies of s keep theirs
	s.From, s.To = Bound{}, Bound{}
}

// Find returns the cause of a kind, nil if there is none.
func (s *Scope) Find(k Kind) *Cause {
	for i := range s.Causes {
		if s.Causes[i].Kind == k {
			return &s.Causes[i]
		}
	}
	return nil
}

// IsUndecided reports whether later events of the record can change what is said of the scope.
func (s *Scope) IsUndecided() bool {
	return slices.ContainsFunc(s.Causes, func(c Cause) bool {
		return c.To == Bound{} && c.ScopeEnded.IsZero() && !c.Kind.isFixed()
	})
}

// CompleteUpTo returns up to where, at or before the moment, the record is known to be complete. It
// is zero if nothing shows that.
func (s *Scope) CompleteUpTo() Bound {
	if len(s.Causes) == 0 {
		return s.From
	}
	return s.Causes[0].From
}

// Begin returns where the record of the scope begins, if that is after the moment.
func (s *Scope) Begin() (begin Bound, isLater bool) {
	for i := range s.Causes {
		if c := &s.Causes[i]; c.Kind.Level() == Unknown && c.To != (Bound{}) {
			return c.To, true
		}
	}
	return Bound{}, false
}

// Worst returns the worst level of scopes, Unknown if there are none.
func Worst(scopes []Scope) Level {
	if len(scopes) == 0 {
		return Unknown
	}
	worst := Exact
	for i := range scopes {
		worst = max(worst, scopes[i].Certainty)
	}
	return worst
}
