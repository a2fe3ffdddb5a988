package answer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/wording"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// late is the JSON form of a late span: no agent observed a scope, and what changed has the time at
// which it was found.
type late struct {
	Cluster    string                     `json:"cluster,omitempty"`
	ClusterUID string                     `json:"clusterUID,omitempty"`
	Scope      string                     `json:"scope"`
	From       time.Time                  `json:"from"`
	Until      time.Time                  `json:"until"`
	Why        consume.InterruptionReason `json:"why"`
	Stopped    time.Time                  `json:"stopped,omitzero"` // when the agent ended before, if it said that
}

func newLate(l *timeline.Late) late {
	c := &l.Cause
	return late{strings.TrimPrefix(l.Source, "/kubernetes/"), l.UID, l.Scope, c.From.Time, c.To.Time, c.Why, c.Stopped}
}

// foundLate is what versions inside a late span have.
const foundLate = "changes in between have the time at which they were found"

// lateGroup is a late span of several scopes.
type lateGroup struct {
	timeline.Late

	scopes []string
}

// groupLate makes late spans of one reason that overlap one.
func groupLate(all []timeline.Late) []lateGroup {
	var out []lateGroup
	for _, l := range all {
		k := slices.IndexFunc(out, func(g lateGroup) bool {
			c := &g.Cause
			return g.ClusterKey == l.ClusterKey && c.Why == l.Cause.Why && c.Stopped.Equal(l.Cause.Stopped) &&
				c.From.Time.Before(l.Cause.To.Time) && l.Cause.From.Time.Before(c.To.Time)
		})
		if k < 0 {
			out = append(out, lateGroup{l, []string{l.Scope}})
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

// names returns the scopes, and the word for them.
func (g *lateGroup) names() (names, word string) {
	if n := len(g.scopes); n > 1 {
		return wording.Count(n) + " scopes", "them"
	}
	return g.scopes[0], "it"
}

// breaks are the gaps and the late spans between the ends of an answer about versions.
type breaks struct {
	gaps  []gap
	late  []late
	lates []lateGroup // the same
	spans []timeline.Late
}

func (b *breaks) addLate(all []timeline.Late) []lateGroup {
	groups := groupLate(all)
	b.lates = append(b.lates, groups...)
	for i := range all {
		b.late = append(b.late, newLate(&all[i]))
	}
	b.spans = append(b.spans, all...)
	return groups
}

// lateSince returns the beginning of the late span that ended when a version was found; zero:
// there is none, so the version has the time of its change.
func (b *breaks) lateSince(v *timeline.Version) time.Time {
	for i := range b.spans {
		l := &b.spans[i]
		isOf := l.ClusterKey == v.ClusterKey() && l.Resource == v.Resource && consume.ScopeCovers(l.Scope, v.Namespace)
		if isOf && l.Cause.From.Time.Before(v.Time) && !v.Time.After(l.Cause.To.Time) {
			return l.Cause.From.Time
		}
	}
	return time.Time{}
}

// drop drops what ended before a time.
func (b *breaks) drop(before time.Time) {
	isBefore := func(t time.Time) bool { return !t.After(before) }
	b.gaps = slices.DeleteFunc(b.gaps, func(g gap) bool { return isBefore(g.Time) })
	b.late = slices.DeleteFunc(b.late, func(l late) bool { return isBefore(l.Until) })
	b.lates = slices.DeleteFunc(b.lates, func(g lateGroup) bool { return isBefore(g.Cause.To.Time) })
}

// withTime returns an origin. If an agent found its version late, the origin says that the value
// was set by then.
func (b *breaks) withTime(o *timeline.Origin) *timeline.Origin {
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
func (h *historian) takeLate(all []timeline.Late) error {
	for _, g := range h.addLate(all) {
		if h.q.Format.Name == printer.JSON || h.gapsApart() {
			continue
		}
		names, word := g.names()
		line := &console.Late{Time: g.Cause.To.Time, Scopes: names, Parts: []string{
			g.Cause.AbsenceWords(word), foundLate,
		}}
		if len(h.clusters) > 1 {
			line.Cluster = h.clusters.label(g.ClusterKey)
		}
		if err := h.printer.PrintLate(line); err != nil {
			return err
		}
	}
	return nil
}

// sayCounts says on standard error that not all moments between the ends of an answer are exact.
// lateUnknown: late spans were not looked for.
func (b *breaks) sayCounts(out *terminal.Output, lateUnknown bool) {
	var parts []string
	for _, c := range []struct {
		what string
		n    int
	}{{"gaps", len(b.gaps)}, {"late spans", len(b.lates)}} {
		if c.n > 0 {
			parts = append(parts, c.what+": "+wording.Count(c.n))
		}
	}
	if len(parts) > 0 {
		fmt.Fprintf(out, "  in between, %s ('kubecdc audit' judges a whole span)\n", strings.Join(parts, ", "))
	}
	if lateUnknown {
		fmt.Fprintln(out, "  late spans in between are not listed: 'kubecdc history --since' lists them")
	}
}

// sayEach prints the gaps and the late spans on standard error. name returns the name of the scope
// of a gap.
func (b *breaks) sayEach(out *terminal.Output, name func(*gap) string) {
	for i := range b.gaps {
		g := &b.gaps[i]
		recovered := ""
		if g.Gap.Recovered {
			recovered = ", recovered"
		}
		fmt.Fprintf(out, "  %s: gap (%s%s) from %s to %s\n", name(g), g.Gap.Reason, recovered,
			certainty.Bound{Time: g.Gap.Since, ResourceVersion: g.Gap.FromResourceVersion}.Words(),
			certainty.Bound{Time: g.Time, ResourceVersion: g.Gap.ToResourceVersion}.Words())
	}
	for i := range b.lates {
		g := &b.lates[i]
		names, word := g.names()
		fmt.Fprintf(out, "  %s: late: %s; %s\n", names, g.Cause.AbsenceWords(word), foundLate)
	}
}
