package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Part is a part of the span, with the certainty of an answer about each moment in it.
type Part struct {
	Since, Until time.Time
	Answer       certainty.Answer
}

// Asked is what the audit asks for, as far as scopes go.
type Asked struct {
	Namespace string // the only one; "": several, or all
	// Required are the requirements of the label selector.
	Required []string
}

// Report judges the span. parts are in order, without holes.
func (a *Auditor) Report(asked Asked, parts []Part) *Report {
	r := &Report{
		Since:     a.Since,
		Until:     a.Until,
		Certainty: certainty.Exact,
		Evidence:  a.allEvidence(),
	}
	for _, p := range parts {
		r.Only = cmp.Or(r.Only, p.Answer.Only)
	}
	var findings []Finding
	for i := range parts {
		findings = append(findings, a.judgePart(&parts[i], asked)...)
	}
	findings = append(findings, a.losses()...)
	for _, doubt := range a.doubts {
		isExplained := slices.ContainsFunc(findings, func(f Finding) bool { return explains(&f, &doubt) })
		if !isExplained {
			findings = append(findings, doubt)
		}
	}
	r.Findings = join(findings)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Certainty = f.Kind.Level()
		f.setWords(r.Only)
		r.Certainty = max(r.Certainty, f.Certainty)
	}
	r.Resources = a.resources(parts, r.Findings)
	for i := range r.Findings {
		if f := &r.Findings[i]; !f.Until.Equal(a.Until) {
			f.Until = f.Until.Add(1) // the next part begins there
		}
	}
	r.Verdict = Proven
	if len(r.Findings) > 0 {
		r.Verdict = NotProven
	}
	r.Remarks = a.allRemarks(parts)
	return r
}

// explains reports whether a finding of the record says why a version is missing. An interruption
// explains nothing: no version is missing in it.
func explains(f, doubt *Finding) bool {
	return f.overlaps(doubt) && f.Kind != certainty.Interrupted && f.Kind != certainty.Truncated &&
		f.Kind != certainty.NotSelected
}

// judgePart returns the findings of a part.
func (a *Auditor) judgePart(p *Part, asked Asked) []Finding {
	var out []Finding
	isLowered := map[string]bool{}
	for i := range p.Answer.Scopes {
		s := &p.Answer.Scopes[i]
		for _, c := range s.Causes {
			isLowered[s.Resource] = true
			out = append(out, Finding{
				Since:    p.Since,
				Until:    p.Until,
				Resource: s.Resource,
				Scope:    s.Name,
				Cause:    c,
			})
		}
	}
	if n := p.Answer.Outside(); n > 0 {
		out = append(out, Finding{Since: p.Since, Until: p.Until, Cause: certainty.Cause{
			Kind:    certainty.Unreadable,
			Records: n,
		}})
	}
	if isLowered[""] {
		return out
	}
	for _, resource := range resourcesOf([]Part{*p}) {
		detail := asked.uncovered(p.Answer.Scopes, resource)
		if detail != "" && !isLowered[resource] {
			f := Finding{
				Since:    p.Since,
				Until:    p.Until,
				Resource: resource,
				detail:   detail,
			}
			f.Kind = certainty.NotSelected
			out = append(out, f)
		}
	}
	return out
}

// losses returns the findings about versions without their object, one for those of a resource that
// follow each other.
func (a *Auditor) losses() []Finding {
	for _, key := range slices.SortedFunc(maps.Keys(a.objects), compareObjects) {
		a.endLoss(key, a.objects[key], a.Until.Add(1))
	}
	byStart := func(x, y Finding) int {
		return cmp.Or(strings.Compare(x.Resource, y.Resource), x.Since.Compare(y.Since))
	}
	slices.SortStableFunc(a.lost, byStart)
	var out []Finding
	for _, f := range a.lost {
		n := len(out) - 1
		if n < 0 || out[n].Resource != f.Resource || f.Since.After(out[n].Until) {
			f.Records = 1
			out = append(out, f)
			continue
		}
		last := &out[n]
		last.Until = later(last.Until, f.Until)
		last.Records++
		if len(last.Objects) < mostObjects && !slices.Contains(last.Objects, f.Objects[0]) {
			last.Objects = append(last.Objects, f.Objects[0])
		}
	}
	return out
}

func compareObjects(a, b objectKey) int {
	return cmp.Or(strings.Compare(a.cluster.UID, b.cluster.UID), strings.Compare(a.resource, b.resource),
		strings.Compare(a.uid, b.uid))
}

// resourcesOf returns the resources of the scopes of parts, sorted.
func resourcesOf(parts []Part) []string {
	all := map[string]bool{}
	for _, p := range parts {
		for i := range p.Answer.Scopes {
			all[p.Answer.Scopes[i].Resource] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// uncovered says why the scopes of a part did not have all objects of a resource that are asked
// for; "": they had.
func (a *Asked) uncovered(scopes []certainty.Scope, resource string) string {
	var ended *certainty.Scope
	var partial []string
	for i := range scopes {
		s := &scopes[i]
		switch {
		case s.Resource != resource:
		case s.Ended != nil && s.Ended.Reason == consume.EndRemoved && a.isIn(s.Name, resource):
			return "" // there is nothing to observe
		case s.Ended != nil:
			if ended == nil || ended.Ended.Time.Before(s.Ended.Time) {
				ended = s
			}
		case a.isIn(s.Name, resource):
			return ""
		default:
			partial = append(partial, s.Name)
		}
	}
	switch {
	case len(partial) > 0:
		names := partial
		if more := len(names) - 4; more > 1 {
			names = append(slices.Clone(names[:4]), fmt.Sprintf("%d more", more))
		}
		return "the record has no objects outside of the selection of the agent: " + strings.Join(names, ", ")
	case ended != nil:
		return ended.Name + ": " + ended.Ended.Words()
	}
	return "no agent observed it"
}

// isIn reports whether all objects that are asked for are in a scope of their resource.
func (a *Asked) isIn(scope, resource string) bool {
	namespaces, selectors := scope, ""
	if at := strings.IndexByte(scope, '='); at >= 0 { // a pattern of a namespace may have a question mark
		mark := max(strings.LastIndexByte(scope[:at], '?'), 0)
		namespaces, selectors = scope[:mark], scope[mark+1:]
	}
	switch {
	case namespaces == resource:
	case a.Namespace == "" || !consume.ScopeCovers(namespaces, a.Namespace):
		return false
	}
	if selectors == "" {
		return true
	}
	wanted, isLabels := strings.CutPrefix(selectors, "labelSelector=")
	if !isLabels || strings.Contains(wanted, "&") || len(a.Required) == 0 {
		return false
	}
	for one := range strings.SplitSeq(wanted, ",") {
		if !slices.Contains(a.Required, one) {
			return false
		}
	}
	return true
}

// resources returns what the record has of each resource.
func (a *Auditor) resources(parts []Part, findings []Finding) []Resource {
	out := []Resource{}
	for _, name := range resourcesOf(parts) {
		of := Resource{Resource: name, Certainty: certainty.Exact, Scopes: []string{}}
		if c := a.changes[name]; c != nil {
			of.Changes, of.Objects = c.versions, c.objects
			of.Created, of.Deleted = c.created, c.deleted
			of.Updated = c.versions - c.created - c.deleted
		}
		for _, f := range findings {
			if f.Resource == name || f.Resource == "" {
				of.Certainty = max(of.Certainty, f.Certainty)
			}
		}
		of.Observed, of.Proven = observed(parts, findings, name), a.proven(findings, name)
		for _, p := range parts {
			for i := range p.Answer.Scopes {
				s := &p.Answer.Scopes[i]
				if s.Resource == name && s.Name != "" && s.Name != s.Resource || s.Resource == name && s.Name == name {
					of.Scopes = append(of.Scopes, s.Name)
				}
			}
		}
		slices.Sort(of.Scopes)
		of.Scopes = slices.Compact(of.Scopes)
		out = append(out, of)
	}
	return out
}

// observed returns for how much of the span the record proves that it has a resource.
func observed(parts []Part, findings []Finding, resource string) Observed {
	proven := 0
	for _, p := range parts {
		isLowered := slices.ContainsFunc(findings, func(f Finding) bool {
			return f.overlaps(&Finding{Since: p.Since, Until: p.Until, Resource: resource})
		})
		if !isLowered {
			proven++
		}
	}
	switch proven {
	case 0:
		return None
	case len(parts):
		return Whole
	}
	return Partly
}

// proven returns the parts of the span without a finding about a resource. findings are sorted.
func (a *Auditor) proven(findings []Finding, resource string) []Span {
	out, from := []Span{}, a.Since
	for i := range findings {
		f := &findings[i]
		if f.Resource != "" && f.Resource != resource {
			continue
		}
		if f.Since.After(from) {
			out = append(out, Span{from, f.Since})
		}
		from = later(from, f.Until.Add(1))
	}
	if from.Before(a.Until) {
		out = append(out, Span{from, a.Until})
	}
	return out
}

// AddRemark adds a remark of the caller.
func (r *Report) AddRemark(m Remark) { r.Remarks = append(r.Remarks, m) }

// allRemarks returns what does not change the verdict.
func (a *Auditor) allRemarks(parts []Part) []Remark {
	out := append([]Remark{}, a.remarks...)
	for _, resource := range slices.Sorted(maps.Keys(a.changes)) {
		of := a.changes[resource]
		for _, r := range []Remark{
			{
				Kind:  "redacted",
				Count: of.redacted,
				What:  "objects with redacted values: that they changed is recorded, and their values are withheld",
			},
			{
				Kind:  "inferred",
				Count: of.inferred,
				What:  "versions that were found by comparing lists: some stand for several changes",
			},
			{
				Kind:  "dead-letter",
				Count: of.deadDeletions,
				What:  "deletions among the dead letters: the record shows them without the object's last state",
			},
			{
				Kind:  "truncated",
				Count: a.truncated[resource],
				What:  "events without the earlier object or the patch, which were too large: the objects are in the record",
			},
		} {
			if r.Count > 0 {
				r.Resource = resource
				out = append(out, r)
			}
		}
	}
	return append(out, ends(parts)...)
}

// ends returns the remarks about scopes that have ended by the end of the span, or whose objects
// left the selection.
func ends(parts []Part) []Remark {
	var out []Remark
	if len(parts) == 0 {
		return nil
	}
	last := parts[len(parts)-1].Answer.Scopes
	for i := range last {
		s := &last[i]
		if s.Ended != nil {
			out = append(out, Remark{
				Kind:     "ended",
				Resource: s.Resource,
				Scope:    s.Name,
				What:     s.Ended.Words(),
			})
		}
		if s.Left > 0 {
			out = append(out, Remark{
				Kind:     "left",
				Resource: s.Resource,
				Scope:    s.Name,
				Count:    s.Left,
				What:     "objects left the selection of the agent, and may still exist",
			})
		}
	}
	return out
}

// allEvidence returns what identifies the record, in order.
func (a *Auditor) allEvidence() Evidence {
	v := a.evidence
	slices.Sort(v.Logs)
	slices.Sort(v.APIServers)
	v.Agents = []Agent{}
	for _, of := range slices.SortedFunc(maps.Keys(a.agents),
		func(x, y writer) int { return strings.Compare(x.name, y.name) }) {
		v.Agents = append(v.Agents, a.agents[of])
	}
	return v
}
