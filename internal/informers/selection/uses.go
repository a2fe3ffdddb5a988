package selection

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// unmatchedAfter is how long a redacted path may match nothing before Unmatched returns it.
const unmatchedAfter = 24 * time.Hour

// UnmatchedPath is a redacted path of a rule that has matched no value since a time, although
// objects were read: it may be misspelled.
type UnmatchedPath struct {
	object.UnmatchedPath

	Rule int // its index
}

// Continue continues the records of the paths that previous redacts too, those of a rule with the
// same resources before others. Scopes that do not change continue with the cutters of previous. It
// must be called before s has scopes.
func (s *Selection) Continue(previous *Selection) {
	for n := range s.Rules {
		rule := &s.Rules[n]
		for _, same := range []bool{false, true} { // the last one counts
			for k := range previous.Rules {
				if was := &previous.Rules[k]; (was.names() == rule.names()) == same {
					rule.uses.Continue(was.uses)
				}
			}
		}
	}
}

// names returns the resources of a rule as text.
func (r *Rule) names() string {
	text := ""
	for _, p := range r.Resources {
		text += p.String() + " "
	}
	for _, p := range r.Except {
		text += "!" + p.String() + " "
	}
	return text
}

// Unmatched returns the paths of rules that have matched nothing for a day, in order.
func (s *Selection) Unmatched(now time.Time) []UnmatchedPath {
	var all []UnmatchedPath
	for n := range s.Rules {
		for _, u := range s.Rules[n].uses.Unmatched(now, unmatchedAfter) {
			all = append(all, UnmatchedPath{u, n})
		}
	}
	return all
}
