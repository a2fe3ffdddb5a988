package oracle

import "fmt"

// JudgeScopes checks the starts and ends of scopes in the records of one lane. Every event of an
// object, and every snapshot and progress, is of a scope that has started and not ended since.
// A gap may precede the start that follows it. The left events of an idle etcd follow the end.
func JudgeScopes(records []Record) []Fault {
	j := &scopesJudgement{observed: map[string]Scope{}, ended: map[string]Scope{}, seen: map[string]bool{}}
	for i := range records {
		rec := &records[i]
		if rec.ID != "" && !j.seen[rec.ID] {
			j.seen[rec.ID] = true
			j.record(rec)
		}
	}
	return j.faults
}

type scopesJudgement struct {
	observed map[string]Scope // By text.
	ended    map[string]Scope // By text.
	seen     map[string]bool  // By id.
	faults   []Fault
}

func (j *scopesJudgement) record(rec *Record) {
	if rec.Report != nil {
		return // JudgeProgress checks its scopes.
	}
	switch rec.Stream {
	case ScopeStarted:
		j.observed[rec.Scope.Text] = rec.Scope
	case ScopeEnded:
		if _, ok := j.observed[rec.Scope.Text]; !ok {
			j.fault(rec, "%s ends, and has not started", rec.Scope.Text)
		}
		delete(j.observed, rec.Scope.Text)
		j.ended[rec.Scope.Text] = rec.Scope
	case Gap:
	case "":
		isLate := rec.Op == Left && isAny(j.ended, func(s Scope) bool { return s.Has(rec.Key) })
		if !isLate && !isAny(j.observed, func(s Scope) bool { return s.Has(rec.Key) }) {
			j.fault(rec, "op %s, %s, of no observed scope", rec.Op, rec.ID)
		}
	default: // A snapshot may be of a part of a scope.
		if !isAny(j.observed, func(s Scope) bool { return s.Resource == rec.Scope.Resource }) {
			j.fault(rec, "%s of no observed scope", rec.ID)
		}
	}
}

func isAny(scopes map[string]Scope, is func(Scope) bool) bool {
	for _, s := range scopes {
		if is(s) {
			return true
		}
	}
	return false
}

func (j *scopesJudgement) fault(rec *Record, format string, args ...any) {
	j.faults = append(j.faults, Fault{
		Kind:     "scope",
		Key:      rec.Key,
		Rev:      rec.Rev,
		Position: rec.Position,
		Lane:     rec.Lane,
		Text:     fmt.Sprintf(format, args...),
	})
}
