package answer

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/audit"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// ErrNotProven is the error of an audit that has been printed and does not prove its span.
var ErrNotProven = errors.New("the audit does not prove the span")

// AuditSpan is what Audit judges.
type AuditSpan struct {
	Since, Until time.Time
	Now          time.Time // when the audit was asked
	Question     audit.Question
	Bus          string // that was read, without credentials
	Version      string // of this program
}

// Audit reports whether the record has every change of the objects from Since to Until.
func (q *Question) Audit(ctx context.Context, s *AuditSpan) (*audit.Report, error) {
	auditor := audit.New(s.Since, s.Until)
	if q.Wanted.Selector != nil {
		auditor.Matches = func(object json.RawMessage) bool { return q.hasLabels(object) }
	}
	clusters := Clusters{}
	var surveyed []timeline.Part
	var reading *record.Reading
	seen := seenObjects{}
	if err := q.During(ctx, func(ctx context.Context) (err error) {
		surveyed, reading, err = q.Record.Survey(ctx, q.Wanted, s.Since, s.Until,
			func(e *consume.Event, versions []*timeline.Version) error {
				auditor.TakeEvent(e, versions)
				seen.noteVersions(q.Wanted, versions)
				return nil
			})
		return err
	}); err != nil {
		return nil, err
	}
	parts := make([]audit.Part, len(surveyed))
	hasScopes := false
	for k, p := range surveyed {
		sure := Assess(timeline.At(p.Until), p.Scopes, reading)
		clusters.AddScopes(p.Scopes)
		hasScopes = hasScopes || len(p.Scopes) > 0
		parts[k] = audit.Part{Since: p.Since, Until: p.Until, Answer: sure.Answer}
	}
	if !hasScopes {
		return nil, q.explainNeverCaptured(ctx)
	}
	if err := clusters.One("objects", "cluster"); err != nil {
		return nil, err
	}
	q.addAbsent(parts)
	report := auditor.Report(q.asked(), parts)
	remarks, err := q.neverExisted(ctx, seen)
	if err != nil {
		return nil, err
	}
	for _, m := range remarks {
		report.AddRemark(m)
	}
	report.Evidence.AuditedAt = s.Now
	report.Question = s.Question
	report.Evidence.Bus = s.Bus
	report.Evidence.AuditedWith = s.Version
	for key, name := range clusters {
		report.Evidence.Cluster, report.Evidence.ClusterUID = name, key.UID
	}
	return report, nil
}

// asked returns the limits of the question that a scope may have too.
func (q *Question) asked() audit.Asked {
	asked := audit.Asked{Namespace: q.Wanted.LiteralNamespace()}
	if q.Wanted.Selector == nil {
		return asked
	}
	requirements, _ := q.Wanted.Selector.Requirements()
	for _, r := range requirements {
		asked.Required = append(asked.Required, r.String())
	}
	return asked
}

// addAbsent adds to each part the resources that the record does not have. A word may name
// resources of several groups: one of them is enough.
func (q *Question) addAbsent(parts []audit.Part) {
	captured := map[string]bool{} // by the user's word
	for _, r := range q.Wanted.Resources {
		for _, p := range parts {
			captured[r.Word] = captured[r.Word] ||
				slices.ContainsFunc(p.Answer.Scopes, func(s certainty.Scope) bool { return s.Resource == r.String() })
		}
	}
	for _, r := range q.Wanted.Resources {
		for k := range parts {
			hasIt := slices.ContainsFunc(parts[k].Answer.Scopes, func(s certainty.Scope) bool {
				return s.Resource == r.String()
			})
			if captured[r.Word] || hasIt {
				continue
			}
			none := certainty.Scope{Resource: r.String(), Name: r.String()}
			none.Lower(certainty.Cause{Kind: certainty.NoSnapshot})
			parts[k].Answer.AddScope(none)
		}
	}
}
