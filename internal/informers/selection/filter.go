package selection

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Filters are the filters of the rules of a scope. nil withholds nothing.
type Filters struct {
	byClause []Filter
	// Where names the conditions by which objects as a whole are withheld, "": there are none.
	Where string
}

// Filters returns the filters of the scope's rules, nil if none has one.
func (s *Scope) Filters() *Filters {
	out, some := &Filters{byClause: make([]Filter, len(s.clauses))}, false
	h, whole := sha256.New(), false
	for n := range s.clauses {
		rule := s.clauses[n].rule
		if rule == nil {
			continue
		}
		if rule.Filter != nil {
			out.byClause[n] = rule.Filter(s.Resource)
			some = some || out.byClause[n] != nil
		}
		if rule.Where != "" {
			whole = true
			fmt.Fprintf(h, "%d %s\n", n, rule.Where) // a hash never fails
		}
	}
	if whole {
		out.Where = hex.EncodeToString(h.Sum(nil)[:8])
	}
	if !some {
		return nil
	}
	return out
}

// Withholds returns why a delta is not sent, "" if it is sent. The rule that takes the object as it is now decides, or the one that took a
// deleted object.
func (f *Filters) Withholds(d *object.Delta) (reason string) {
	o := d.After
	if o == nil {
		o = d.Before
	}
	return f.WithholdsAs(o.Ref.Clause, d)
}

// WithholdsAs is Withholds for the rule of a clause.
func (f *Filters) WithholdsAs(clause uint16, d *object.Delta) (reason string) {
	if f == nil || int(clause) >= len(f.byClause) || f.byClause[clause] == nil {
		return ""
	}
	return f.byClause[clause].Withholds(d)
}
