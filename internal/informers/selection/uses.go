package selection

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// unmatchedAfter is how long a redacted path may match nothing before Unmatched returns it.
const unmatchedAfter = 24 * time.Hour

// uses records which paths of a rule's Redact have matched a value, since a time.
type uses struct {
	*object.Uses

	since time.Time
}

// UnmatchedPath is a redacted path that has matched no value since a time, although objects were read: it may be misspelled.
type UnmatchedPath struct {
	Rule  int       `json:"rule"` // its index
	Path  string    `json:"path"`
	Since time.Time `json:"since"`
}

// Continue continues the records of the paths that rules of previous have for the same resources. Scopes that do not change continue with
// the cutters of previous. It must be called before s has scopes.
func (s *Selection) Continue(previous *Selection) {
	for n := range s.Rules {
		rule := &s.Rules[n]
		for k := range previous.Rules {
			if was := &previous.Rules[k]; was.names() == rule.names() && slices.Equal(was.Redact, rule.Redact) {
				rule.uses = was.uses
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
		u := &s.Rules[n].uses
		if now.Sub(u.since) < unmatchedAfter {
			continue
		}
		for _, path := range u.Unmatched() {
			all = append(all, UnmatchedPath{n, path, u.since})
		}
	}
	return all
}
