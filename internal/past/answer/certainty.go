package answer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// assessment says how certain an answer about a moment is.
type assessment struct {
	certainty.Answer

	isNow bool
	time  time.Time // of the moment; for a resourceVersion, the time of the last event up to it
}

// assess joins the certainty of scopes with what the reading has left out.
func assess(m timeline.Moment, scopes []certainty.Scope, r *record.Reading) assessment {
	scopes = slices.Clone(scopes)
	for i := range scopes {
		lower(&scopes[i], m, r)
	}
	a := assessment{Answer: certainty.New(m.String(), scopes, r.Only), isNow: m.IsNow(), time: m.Time()}
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

// lower adds to a scope what lowers its certainty beside what the record shows, and when to ask
// again.
func lower(s *certainty.Scope, m timeline.Moment, r *record.Reading) {
	s.Causes = slices.Clone(s.Causes)
	if c := s.Find(certainty.AfterRecord); c != nil {
		c.AskAgain = askAgain(m, c, r.Began)
	}
	if n := r.Unreadable.Of(s); n > 0 {
		s.Lower(certainty.Cause{Kind: certainty.Unreadable, Records: n})
	}
}

// Judge prints how certain an answer is on standard error. It returns an error if the record has
// none of the requested resources, or if the answer has to be exact and is not.
func (q *Question) Judge(ctx context.Context, m timeline.Moment, scopes []certainty.Scope, r *record.Reading) error {
	a := assess(m, scopes, r)
	if err := q.known(ctx, &a, 0); err != nil {
		return err
	}
	q.say(&a)
	return q.judge(&a)
}

// Say prints how certain an answer is on standard error.
func (q *Question) Say(m timeline.Moment, scopes []certainty.Scope, r *record.Reading) {
	a := assess(m, scopes, r)
	q.say(&a)
}

// say prints the certainty, and what lowers it.
func (q *Question) say(a *assessment) {
	q.saying.Lock()
	defer q.saying.Unlock()
	style := terminal.Yellow
	if a.Certainty == certainty.Exact {
		style = terminal.Dim
	}
	if len(a.Scopes) > 0 {
		text := fmt.Sprintf("at %s: %s", a.Moment, a.Certainty)
		if upTo := a.UpTo(); a.isNow && a.Certainty == certainty.Exact && !upTo.IsZero() {
			text += " up to " + upTo.Local().Format(time.RFC3339)
		}
		fmt.Fprintf(q.Stderr, "%s\n", q.Stderr.Paint(style, text))
	}
	clusters := Clusters{}
	clusters.addScopes(a.Scopes)
	lines := a.Lines(func(s *certainty.Scope) string {
		name := cmp.Or(s.Name, s.Resource)
		if len(clusters) > 1 {
			name = clusters.label(s.ClusterKey()) + " " + name
		}
		return strings.TrimSpace(name)
	})
	for _, line := range lines {
		fmt.Fprintf(q.Stderr, "  %s\n", line)
	}
}

// isOfOtherEtcd reports whether the resource of an object has no answer at the moment, because its
// resourceVersions belong to another etcd.
func (a *assessment) isOfOtherEtcd(v *timeline.Version) bool {
	return slices.ContainsFunc(a.Scopes, func(s certainty.Scope) bool {
		return s.Find(certainty.OtherEtcd) != nil && s.Resource == v.Resource && s.ClusterKey() == v.ClusterKey()
	})
}

// knows reports whether the record can decide that an object existed. It cannot before the first
// snapshot of the object's scope, and at a resourceVersion of another etcd.
func (a *assessment) knows(v *timeline.Version) bool {
	return !slices.ContainsFunc(a.Scopes, func(s certainty.Scope) bool {
		isOf := s.ClusterKey() == v.ClusterKey() && s.Resource == v.Resource && s.Covers(v.Namespace)
		_, later := s.Begins()
		return isOf && (later || s.Find(certainty.OtherEtcd) != nil)
	})
}
