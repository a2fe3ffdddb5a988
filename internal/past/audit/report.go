package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
)

// Verdict says whether the record has every change in the span.
type Verdict string

// The verdicts.
const (
	Proven    Verdict = "proven"
	NotProven Verdict = "not-proven"
)

// Report is the answer of an audit, and its JSON form.
type Report struct {
	Verdict   Verdict         `json:"verdict"`
	Certainty certainty.Level `json:"certainty"` // at the worst moment of the span
	Since     time.Time       `json:"since"`
	Until     time.Time       `json:"until"`
	Question  Question        `json:"question"`
	Evidence  Evidence        `json:"record"`
	Resources []Resource      `json:"resources"`
	Findings  []Finding       `json:"findings"` // why the verdict is not Proven
	Remarks   []Remark        `json:"remarks"`  // that do not change the verdict
	Only      string          `json:"only,omitempty"`
}

// Span is a part of the audited span.
type Span struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Question is what the audit was asked for, in the words of the command.
type Question struct {
	Objects   []string `json:"objects"` // arguments
	Namespace string   `json:"namespace,omitempty"`
	Selector  string   `json:"selector,omitempty"`
	Command   string   `json:"command"` // repeats the audit, with absolute times
}

// Evidence identifies the record that was read.
type Evidence struct {
	Bus         string   `json:"bus"`            // without credentials
	Logs        []string `json:"logs,omitempty"` // names of streams or topics
	Cluster     string   `json:"cluster,omitempty"`
	ClusterUID  string   `json:"clusterUID,omitempty"`
	Records     int      `json:"records"` // in the span, of the objects and their scopes
	First       *Event   `json:"first,omitempty"`
	Last        *Event   `json:"last,omitempty"`
	ReadUpTo    *Event   `json:"readUpTo,omitempty"` // the last that was read, also after the span
	Agents      []Agent  `json:"agents"`
	APIServers  []string `json:"apiServers,omitempty"` // versions
	AuditedWith string   `json:"auditedWith"`          // version of kubecdc

	AuditedAt time.Time `json:"auditedAt"` // when the reading began, by the clock of the reader
}

// Event identifies an event of the record.
type Event struct {
	Time time.Time `json:"time"`
	ID   string    `json:"id"`
}

// Agent is an agent whose progress was read.
type Agent struct {
	Writer     string `json:"writer"`
	Checkpoint string `json:"checkpoint,omitempty"`
	Node       string `json:"node,omitempty"`
	Runs       int    `json:"runs"`
}

// Observed says for how much of the span a resource was observed, and the record proves it.
type Observed string

// How much of the span.
const (
	Whole  Observed = "whole"
	Partly Observed = "partly"
	None   Observed = "none"
)

// Resource is what the record has of one resource.
type Resource struct {
	Resource  string          `json:"resource"`
	Observed  Observed        `json:"observed"`
	Certainty certainty.Level `json:"certainty"` // at the worst moment
	Scopes    []string        `json:"scopes"`
	Changes   int             `json:"changes"` // versions and deletions in the span
	Created   int             `json:"created"` // of the changes
	Updated   int             `json:"updated"`
	Deleted   int             `json:"deleted"`
	Objects   int             `json:"objects"` // that changed
	Proven    []Span          `json:"proven"`  // the parts of the span without a finding, in order
}

// Finding is a span in which the record proves less than the verdict needs. Since and Until are
// inside the audited span; From and To of the cause are its own ends.
type Finding struct {
	Since     time.Time       `json:"since"`
	Until     time.Time       `json:"until"`
	Resource  string          `json:"resource,omitempty"` // "": any
	Scope     string          `json:"scope,omitempty"`
	Certainty certainty.Level `json:"certainty"`
	certainty.Cause

	Objects []string `json:"objects,omitempty"` // at most mostObjects
	What    string   `json:"what"`
	Advice  string   `json:"advice"`

	detail string // what the cause does not say
}

// mostObjects limits the objects that a finding names. Records counts all.
const mostObjects = 20

// key identifies findings that may be one.
func (f *Finding) key() string {
	return strings.Join([]string{
		f.Resource, f.Scope, string(f.Kind), string(f.Reason), string(f.Why), strings.Join(f.DeadLetters, ","),
		f.detail,
	}, "\x00")
}

// overlaps reports whether two findings share a moment, and may be about one object.
func (f *Finding) overlaps(o *Finding) bool {
	isOne := f.Resource == "" || o.Resource == "" || f.Resource == o.Resource
	return isOne && !f.Until.Before(o.Since) && !o.Until.Before(f.Since)
}

// NeverExisted is the kind of the remark that the record has no object of a name or a namespace.
const NeverExisted = "never-existed"

// Remark is what an auditor should know although it does not change the verdict.
type Remark struct {
	Kind     string `json:"kind"`
	Resource string `json:"resource,omitempty"`
	Scope    string `json:"scope,omitempty"`
	Count    int    `json:"count,omitempty"`
	What     string `json:"what"`
}

// IsProven reports whether the record has every change.
func (r *Report) IsProven() bool { return r.Verdict == Proven }

// join makes findings of adjacent parts one, and sorts all.
func join(all []Finding) []Finding {
	byKey := map[string]*Finding{}
	out := []*Finding{}
	for i := range all {
		f := &all[i]
		last := byKey[f.key()]
		isNext := last != nil && !f.Since.After(last.Until.Add(1))
		if !isNext {
			byKey[f.key()] = f
			out = append(out, f)
			continue
		}
		last.Until = f.Until
		last.To, last.Records = f.To, max(last.Records, f.Records)
		if f.AskAgain.After(last.AskAgain) {
			last.AskAgain = f.AskAgain
		}
	}
	findings := []Finding{}
	for _, f := range out {
		findings = append(findings, *f)
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Scope, b.Scope))
	})
	return findings
}
