package answer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/history"
	"github.com/kubecdc/kubecdc/internal/terminal"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// certainty is the JSON form of an answer's certainty.
type certainty struct {
	Moment     string             `json:"moment"`
	Certainty  timeline.Certainty `json:"certainty"`
	Scopes     []timeline.Scope   `json:"scopes"`
	Unreadable int                `json:"unreadable,omitempty"` // records
	Incomplete []string           `json:"incomplete,omitempty"` // objects that are not complete in the record
	Only       string             `json:"only,omitempty"`       // what the reader may read, if that is not all that is asked for
	Again      time.Time          `json:"again,omitzero"`       // when to ask again: all of it can be known then
	Since      *certainty         `json:"since,omitempty"`      // of a history: at the beginning of its span

	time time.Time // of the moment; for a resourceVersion, the time of the last event up to it
	upTo time.Time // if the moment is now: the last time at which the record was known to be complete
}

func newCertainty(m timeline.Moment, scopes []timeline.Scope, r *history.Reading) certainty {
	c := certainty{Moment: m.String(), Scopes: scopes, Unreadable: r.Unreadable, Incomplete: r.Incomplete, Only: r.Only}
	if r.Only != "" {
		for i := range scopes {
			confine(&scopes[i])
		}
	}
	for i := range scopes {
		scopes[i].Again = askAgain(m, &scopes[i], r.Began)
		if scopes[i].Again.After(c.Again) {
			c.Again = scopes[i].Again
		}
	}
	c.Certainty = timeline.Worst(scopes)
	if (c.Unreadable > 0 || len(c.Incomplete) > 0) && c.Certainty < timeline.Uncertain {
		c.Certainty = timeline.Uncertain
	}
	if m.IsNow() {
		c.Moment = m.Time().Format(time.RFC3339)
		for i := range scopes {
			if last := scopes[i].From.Time; c.upTo.IsZero() || last.Before(c.upTo) {
				c.upTo = last
			}
		}
	}
	if c.time = m.Time(); c.time.IsZero() {
		c.time = r.Latest
	}
	if c.Scopes == nil {
		c.Scopes = []timeline.Scope{}
	}
	return c
}

// confine makes a scope unknown, because the reader does not have all of its objects.
func confine(s *timeline.Scope) {
	s.Certainty, s.Confined = timeline.Unknown, true
	s.From, s.To = timeline.Bound{}, timeline.Bound{}
}

// Judge prints how certain an answer is on standard error. It returns an error if the record has none of the requested resources, or if the
// answer has to be exact and is not.
func (q *Question) Judge(ctx context.Context, m timeline.Moment, scopes []timeline.Scope, r *history.Reading) error {
	c := newCertainty(m, scopes, r)
	if err := q.known(ctx, &c, 0); err != nil {
		return err
	}
	q.say(&c)
	return q.judge(&c)
}

// Say prints how certain an answer is on standard error.
func (q *Question) Say(m timeline.Moment, scopes []timeline.Scope, r *history.Reading) {
	c := newCertainty(m, scopes, r)
	q.say(&c)
}

// say prints the certainty: one line for all exact scopes, and one for the scopes that share another certainty.
func (q *Question) say(c *certainty) {
	q.saying.Lock()
	defer q.saying.Unlock()
	style := terminal.Yellow
	if c.Certainty == timeline.Exact {
		style = terminal.Dim
	}
	if len(c.Scopes) > 0 {
		text := fmt.Sprintf("at %s: %s", c.Moment, c.Certainty)
		if c.Certainty == timeline.Exact && !c.upTo.IsZero() {
			text += " up to " + c.upTo.Local().Format(time.RFC3339)
		}
		fmt.Fprintf(q.Stderr, "%s\n", q.Stderr.Paint(style, text))
	}
	var texts []string
	clusters := Clusters{}
	clusters.addScopes(c.Scopes)
	of := map[string][]string{}
	add := func(text string, s *timeline.Scope) {
		if of[text] == nil {
			texts = append(texts, text)
		}
		name := cmp.Or(s.Name, s.Resource)
		if len(clusters) > 1 {
			name = clusters.label(s.ClusterKey()) + " " + name
		}
		of[text] = append(of[text], strings.TrimSpace(name))
	}
	for i := range c.Scopes {
		s := &c.Scopes[i]
		if s.Certainty != timeline.Exact {
			add(uncertainty(s), s)
		}
		if s.Ended != nil {
			add(ending(s.Ended), s)
		}
		for text, n := range map[string]int{
			"versions withheld by filters":           s.Skipped,
			"left the selection and may still exist": s.Left,
			"with redacted values":                   s.Redacted,
		} {
			if n > 0 {
				add(text+": "+terminal.Count(n), s)
			}
		}
	}
	slices.Sort(texts)
	for _, text := range texts {
		names := of[text]
		if more := len(names) - 5; more > 1 {
			names = append(names[:5:5], fmt.Sprintf("%d more", more))
		}
		fmt.Fprintf(q.Stderr, "  %s: %s\n", strings.Join(names, ", "), text)
	}
	if c.Unreadable > 0 {
		fmt.Fprintf(q.Stderr, "  records that cannot be read, and may belong to the answer: %d ('kubecdc tail' shows them)\n", c.Unreadable)
	}
	if c.Only != "" {
		fmt.Fprintf(q.Stderr, "  the answer has no other objects: %s\n", c.Only)
	}
	for _, text := range c.Incomplete {
		fmt.Fprintf(q.Stderr, "  too large for the bus, and its store does not have it: %s\n", text)
	}
}

// uncertainty describes why a scope is not exact.
func uncertainty(s *timeline.Scope) string {
	from, to := bound(s.From), bound(s.To)
	switch s.Certainty {
	case timeline.Late:
		text := "late: the agent did not observe it from " + from
		if to != "" {
			text += " to " + to
		}
		if words := interruption(s.Why); words != "" {
			text += " (" + words + ")"
		}
		return text + "; changes in between were observed late; ask for a moment before or after, or for a resourceVersion (rv:N)"
	case timeline.Uncertain:
		if s.Reason == timeline.ReasonHidden {
			return hidden(from, to)
		}
		text := fmt.Sprintf("uncertain: the record has a gap (%s) from %s", s.Reason, from)
		if to == "" {
			return text + ", and nothing has closed it yet; ask for a moment before it, or again later ('kubecdc status' shows what the agent does)"
		}
		text += " to " + to
		if s.Reason == consume.ReasonContentChanged {
			text += "; no version is missing, but the API server has begun to serve known versions in another form"
		}
		if s.Recovered {
			text += "; its versions were found later, except those of objects that were created and deleted inside it"
		}
		if s.Reason == consume.ReasonDeadLetter {
			return text + "; ask for a moment before these dead letters, or after the next event of each of their objects: " + strings.Join(s.DeadLetters, ", ")
		}
		text += "; ask for a moment before or after it"
		if len(s.DeadLetters) > 0 {
			text += "; dead letters: " + strings.Join(s.DeadLetters, ", ")
		}
		return text
	case timeline.Unknown:
		switch {
		case s.Confined:
			return "unknown: the reader does not have all of its objects"
		case s.EtcdUnknown:
			return "unknown: it is not known yet whether its resourceVersions are of the same etcd: use a time"
		case s.OtherHistory:
			return "unknown: its resourceVersions are of another etcd, or not numbers: use a time"
		case s.Former && to != "":
			return "unknown: the record of a former release ends at " + to + ", and nothing shows that it is complete before: ask for a later moment"
		case s.Former:
			return "unknown: the record of a former release ends at " + from + ", and nothing shows that it is complete"
		case s.Joined && to != "":
			return "unknown: nothing shows that the record is complete there; the first progress that was read is at " + to + ": ask for a later moment"
		case to != "":
			return "unknown: the record begins later, at " + to + ": ask for a later moment"
		case !s.Again.IsZero():
			return notFinal(s)
		case from != "":
			return "unknown: the record ends earlier, at " + from + ": ask for an earlier moment, or again later ('kubecdc status' shows whether the agent runs)"
		}
		return "unknown: the record has no complete snapshot of the resource by then: check that the agent captures it ('kubecdc status')"
	}
	return s.Certainty.String()
}

// hidden describes a span in which filters withheld versions.
func hidden(from, to string) string {
	text := "uncertain: filters may have withheld versions"
	if from != "" {
		text += " since " + from
	}
	if to == "" {
		return text + "; ask for a moment before it, or after the next snapshot"
	}
	return text + ", until " + to + "; ask for a moment before or after it"
}

// interruption describes why a scope was not observed.
func interruption(why consume.InterruptionReason) string {
	switch why {
	case consume.InterruptedStart:
		return "the agent was not running"
	case consume.InterruptedClosed, consume.InterruptedCut:
		return "the watch had ended"
	case consume.InterruptedSilent:
		return "the API server sent nothing"
	case consume.InterruptedBlocked:
		return "the agent's queue was full"
	case consume.InterruptedListed:
		return "a list replaced the watch"
	case consume.InterruptedStopped:
		return "the agent's process stood still"
	case consume.InterruptedStepped:
		return "the agent's clock was set"
	case timeline.InterruptedUnheard:
		return "the record has no progress of the agent"
	case timeline.InterruptedEnded:
		return "the observation ended"
	}
	return string(why)
}

// ending describes the end of a scope.
func ending(e *timeline.End) string {
	text := "not observed any more since " + bound(e.Bound)
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

// otherHistory reports whether the resource of an object has no answer at the moment, because its
// resourceVersions belong to another etcd.
func (c *certainty) otherHistory(v *timeline.Version) bool {
	return slices.ContainsFunc(c.Scopes, func(s timeline.Scope) bool {
		return s.OtherHistory && s.Resource == v.Resource && s.ClusterKey() == v.ClusterKey()
	})
}

// knows reports whether the record can decide that an object existed. It cannot before the first snapshot of the object's scope, and at a
// resourceVersion of another etcd.
func (c *certainty) knows(v *timeline.Version) bool {
	return !slices.ContainsFunc(c.Scopes, func(s timeline.Scope) bool {
		later := s.Certainty == timeline.Unknown && s.To != timeline.Bound{}
		return s.ClusterKey() == v.ClusterKey() && s.Resource == v.Resource && s.Covers(v.Namespace) && (later || s.OtherHistory)
	})
}

func bound(b timeline.Bound) string {
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
