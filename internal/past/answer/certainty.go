package answer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// Assessment says how certain an answer about a moment is.
type Assessment struct {
	certainty.Answer

	isNow bool
	time  time.Time
}

// Time returns the time of the moment; for a resourceVersion, that of the last event up to it.
func (a *Assessment) Time() time.Time { return a.time }

// Assess joins the certainty of scopes with what the reading has left out.
func Assess(m timeline.Moment, scopes []certainty.Scope, r *record.Reading) Assessment {
	scopes = slices.Clone(scopes)
	for i := range scopes {
		Lower(&scopes[i], m, r)
	}
	a := Assessment{Answer: certainty.New(m.String(), scopes, r.Only), isNow: m.IsNow(), time: m.Time()}
	a.NoteAgain()
	a.AddUnreadable(r.Unreadable.Total(), r.Unreadable.Outside(scopes))
	for _, object := range r.Incomplete {
		a.AddIncomplete(object.Name, object.Err.Error())
	}
	if a.isNow {
		a.Moment = m.Time().Format(time.RFC3339)
	}
	if a.time.IsZero() {
		a.time = r.Latest
	}
	return a
}

// Lower adds to a scope what lowers its certainty beside what the record shows, and when to ask
// again.
func Lower(s *certainty.Scope, m timeline.Moment, r *record.Reading) {
	s.Causes = slices.Clone(s.Causes)
	if c := s.Find(certainty.AfterRecord); c != nil {
		c.AskAgain = askAgain(m, c, r.Began)
	}
	if n := r.Unreadable.Of(s); n > 0 {
		s.Lower(certainty.Cause{Kind: certainty.Unreadable, Records: n})
	}
}

// Head returns the certainty in one line, "" if the answer is about no scope.
func (a *Assessment) Head() string {
	if len(a.Scopes) == 0 {
		return ""
	}
	text := fmt.Sprintf("at %s: %s", a.Moment, a.Certainty)
	if upTo := a.UpTo(); a.isNow && a.Certainty == certainty.Exact && !upTo.IsZero() {
		text += " up to " + upTo.Local().Format(time.RFC3339)
	}
	return text
}

// Reasons returns what lowers the certainty, a line each.
func (a *Assessment) Reasons() []string {
	clusters := Clusters{}
	clusters.AddScopes(a.Scopes)
	return a.Lines(func(s *certainty.Scope) string {
		name := cmp.Or(s.Name, s.Resource)
		if len(clusters) > 1 {
			name = clusters.Label(s.ClusterKey()) + " " + name
		}
		return strings.TrimSpace(name)
	})
}

// isOfOtherEtcd reports whether the resource of an object has no answer at the moment, because its
// resourceVersions belong to another etcd.
func (a *Assessment) isOfOtherEtcd(v *timeline.Version) bool {
	return slices.ContainsFunc(a.Scopes, func(s certainty.Scope) bool {
		return s.Find(certainty.OtherEtcd) != nil && s.Resource == v.Resource && s.ClusterKey() == v.ClusterKey()
	})
}

// knows reports whether the record can decide that an object existed. It cannot before the first
// snapshot of the object's scope, and at a resourceVersion of another etcd.
func (a *Assessment) knows(v *timeline.Version) bool {
	return !slices.ContainsFunc(a.Scopes, func(s certainty.Scope) bool {
		isOf := s.ClusterKey() == v.ClusterKey() && s.Resource == v.Resource && s.Covers(v.Namespace)
		_, later := s.Begin()
		return isOf && (later || s.Find(certainty.OtherEtcd) != nil)
	})
}
