package answer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/wording"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Late is the JSON form of a late span: no agent observed a scope, and what changed has the time at
// which it was found.
type Late struct {
	Cluster    string                     `json:"cluster,omitempty"`
	ClusterUID string                     `json:"clusterUID,omitempty"`
	Scope      string                     `json:"scope"`
	From       time.Time                  `json:"from"`
	Until      time.Time                  `json:"until"`
	Why        consume.InterruptionReason `json:"why"`
	Stopped    time.Time                  `json:"stopped,omitzero"` // when the agent ended before, if it said that
}

func newLate(l *timeline.Late) Late {
	c := &l.Cause
	return Late{strings.TrimPrefix(l.Source, "/kubernetes/"), l.UID, l.Scope, c.From.Time, c.To.Time, c.Why, c.Stopped}
}

// FoundLate is what versions inside a late span have.
const FoundLate = "changes in between have the time at which they were found"

// LateGroup is a late span of several scopes.
type LateGroup struct {
	timeline.Late

	scopes []string
}

// groupLate makes late spans of one reason that overlap one.
func groupLate(all []timeline.Late) []LateGroup {
	var out []LateGroup
	for _, l := range all {
		k := slices.IndexFunc(out, func(g LateGroup) bool {
			c := &g.Cause
			return g.ClusterKey == l.ClusterKey && c.Why == l.Cause.Why && c.Stopped.Equal(l.Cause.Stopped) &&
				c.From.Time.Before(l.Cause.To.Time) && l.Cause.From.Time.Before(c.To.Time)
		})
		if k < 0 {
			out = append(out, LateGroup{l, []string{l.Scope}})
			continue
		}
		g := &out[k]
		g.scopes = append(g.scopes, l.Scope)
		if l.Cause.From.Time.Before(g.Cause.From.Time) {
			g.Cause.From = l.Cause.From
		}
		if g.Cause.To.Time.Before(l.Cause.To.Time) {
			g.Cause.To = l.Cause.To
		}
	}
	return out
}

// Names returns the scopes, and the word for them.
func (g *LateGroup) Names() (names, word string) {
	if n := len(g.scopes); n > 1 {
		return wording.Count(n) + " scopes", "them"
	}
	return g.scopes[0], "it"
}

// Breaks are the gaps and the late spans between the ends of an answer about versions.
type Breaks struct {
	Gaps []Gap
	Late []Late

	lates []LateGroup // the same
	spans []timeline.Late
}

func (b *Breaks) addLate(all []timeline.Late) []LateGroup {
	groups := groupLate(all)
	b.lates = append(b.lates, groups...)
	for i := range all {
		b.Late = append(b.Late, newLate(&all[i]))
	}
	b.spans = append(b.spans, all...)
	return groups
}

// lateSince returns the beginning of the late span that ended when a version was found; zero:
// there is none, so the version has the time of its change.
func (b *Breaks) lateSince(v *timeline.Version) time.Time {
	for i := range b.spans {
		l := &b.spans[i]
		isOf := l.ClusterKey == v.ClusterKey() && l.Resource == v.Resource && consume.ScopeCovers(l.Scope, v.Namespace)
		if isOf && l.Cause.From.Time.Before(v.Time) && !v.Time.After(l.Cause.To.Time) {
			return l.Cause.From.Time
		}
	}
	return time.Time{}
}

// dropBefore drops what ended before a time.
func (b *Breaks) dropBefore(before time.Time) {
	isBefore := func(t time.Time) bool { return !t.After(before) }
	b.Gaps = slices.DeleteFunc(b.Gaps, func(g Gap) bool { return isBefore(g.Time) })
	b.Late = slices.DeleteFunc(b.Late, func(l Late) bool { return isBefore(l.Until) })
	b.lates = slices.DeleteFunc(b.lates, func(g LateGroup) bool { return isBefore(g.Cause.To.Time) })
}

// withTime returns an origin. If an agent found its version late, the origin says that the value
// was set by then.
func (b *Breaks) withTime(o *timeline.Origin) *timeline.Origin {
	if o == nil || !o.Exact {
		return o
	}
	since := b.lateSince(o.Version)
	if since.IsZero() {
		return o
	}
	out := *o
	out.Exact, out.Since = false, since
	return &out
}

// takeLate takes late spans of the history.
func (r *SpanReader) takeLate(all []timeline.Late) error {
	groups := r.addLate(all)
	for i := range groups {
		if err := r.shower.ShowLate(&groups[i]); err != nil {
			return err
		}
	}
	return nil
}

// Counts says, a line each, that not all moments between the ends of an answer are exact.
// lateUnknown: late spans were not looked for.
func (b *Breaks) Counts(lateUnknown bool) []string {
	var lines, parts []string
	for _, c := range []struct {
		what string
		n    int
	}{{"gaps", len(b.Gaps)}, {"late spans", len(b.lates)}} {
		if c.n > 0 {
			parts = append(parts, c.what+": "+wording.Count(c.n))
		}
	}
	if len(parts) > 0 {
		lines = append(lines,
			fmt.Sprintf("in between, %s ('kubecdc audit' judges a whole span)", strings.Join(parts, ", ")))
	}
	if lateUnknown {
		lines = append(lines, "late spans in between are not listed: 'kubecdc history --since' lists them")
	}
	return lines
}

// EachLine returns a line for each gap and each late span. name returns the name of the scope of a
// gap.
func (b *Breaks) EachLine(name func(*Gap) string) []string {
	var lines []string
	for i := range b.Gaps {
		g := &b.Gaps[i]
		recovered := ""
		if g.Gap.Recovered {
			recovered = ", recovered"
		}
		lines = append(lines, fmt.Sprintf("%s: gap (%s%s) from %s to %s", name(g), g.Gap.Reason, recovered,
			certainty.Bound{Time: g.Gap.Since, ResourceVersion: g.Gap.FromResourceVersion}.Words(),
			certainty.Bound{Time: g.Time, ResourceVersion: g.Gap.ToResourceVersion}.Words()))
	}
	for i := range b.lates {
		g := &b.lates[i]
		names, word := g.Names()
		lines = append(lines, fmt.Sprintf("%s: late: %s; %s", names, g.Cause.AbsenceWords(word), FoundLate))
	}
	return lines
}
