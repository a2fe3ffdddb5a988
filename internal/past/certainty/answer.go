package certainty

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/wording"
)

// Answer says how certain an answer is, in the JSON form of commands.
type Answer struct {
	Moment    string  `json:"moment"`
	Certainty Level   `json:"certainty"`
	Scopes    []Scope `json:"scopes"`

	Unreadable int      `json:"unreadable,omitempty"` // records
	Incomplete []string `json:"incomplete,omitempty"` // objects that the record has only in part
	Only       string   `json:"only,omitempty"`       // what the reader may read, if not all that is asked for
	Since      *Answer  `json:"since,omitempty"`      // of a history: at the beginning of its span

	AskAgain time.Time `json:"askAgain,omitzero"` // when all of it can be known

	outside int // of Unreadable: those that can be about none of the scopes
}

// New returns the certainty of an answer about scopes at a moment. only is what the reader may
// read, in words; "": all that is asked for.
func New(moment string, scopes []Scope, only string) Answer {
	a := Answer{Moment: moment, Scopes: append([]Scope{}, scopes...), Only: only}
	if only != "" {
		for i := range a.Scopes {
			a.Scopes[i].Causes = nil
			a.Scopes[i].Lower(Cause{Kind: NotPermitted})
		}
	}
	a.Certainty = Worst(a.Scopes)
	return a
}

// AddUnreadable adds records that cannot be read, and may belong to the answer. outside are those
// of them that can be about none of the scopes.
func (a *Answer) AddUnreadable(records, outside int) {
	a.Unreadable, a.outside = a.Unreadable+records, a.outside+outside
	if a.Unreadable > 0 {
		a.Certainty = max(a.Certainty, Uncertain)
	}
}

// Outside returns how many unreadable records can be about none of the scopes.
func (a *Answer) Outside() int { return a.outside }

// AddIncomplete adds an object that the record has only in part. what names the missing part.
func (a *Answer) AddIncomplete(object, what string) {
	isKnown := slices.ContainsFunc(a.Incomplete, func(text string) bool { return strings.HasPrefix(text, object+":") })
	if !isKnown {
		a.Incomplete = append(a.Incomplete, object+": "+what)
	}
	a.Certainty = max(a.Certainty, Uncertain)
}

// NoteAgain notes when to ask again: when its causes say for all scopes.
func (a *Answer) NoteAgain() {
	for i := range a.Scopes {
		c := a.Scopes[i].Find(AfterRecord)
		if c != nil && c.AskAgain.After(a.AskAgain) {
			a.AskAgain = c.AskAgain
		}
	}
}

// AddScope adds a scope.
func (a *Answer) AddScope(s Scope) {
	a.Scopes = append(a.Scopes, s)
	a.Certainty = max(a.Certainty, s.Certainty)
}

// IsExact reports whether the answer is exact, and so is that at the beginning of its span.
func (a *Answer) IsExact() bool { return a.Certainty == Exact && (a.Since == nil || a.Since.IsExact()) }

// UpTo returns the time up to which all scopes are known to be complete, zero if there is none.
func (a *Answer) UpTo() time.Time {
	var least time.Time
	for i := range a.Scopes {
		at := a.Scopes[i].CompleteUpTo().Time
		if i == 0 || at.Before(least) {
			least = at
		}
	}
	return least
}

// mostNames is how many scopes a line names, less one.
const mostNames = 6

// Lines returns the lines that explain the level: one line for the scopes that share a cause, an
// end or a count. name returns the name of a scope.
func (a *Answer) Lines(name func(*Scope) string) []string {
	of := map[string][]string{}
	for i := range a.Scopes {
		s := &a.Scopes[i]
		for _, text := range s.words() {
			of[text] = append(of[text], name(s))
		}
	}
	var out []string
	for _, text := range slices.Sorted(maps.Keys(of)) {
		names := of[text]
		if more := len(names) - mostNames + 1; more > 1 {
			names = append(names[:mostNames-1:mostNames-1], fmt.Sprintf("%d more", more))
		}
		out = append(out, strings.Join(names, ", ")+": "+text)
	}
	if a.outside > 0 {
		out = append(out, unreadableWords(a.outside))
	}
	if a.Only != "" {
		out = append(out, "the answer has no other objects: "+a.Only)
	}
	for _, text := range a.Incomplete {
		out = append(out, "too large for the bus, and its store does not have it: "+text)
	}
	return out
}

// words returns all there is to say about the scope, unless it is exact and has all objects.
func (s *Scope) words() []string {
	var out []string
	for i := range s.Causes {
		out = append(out, s.Causes[i].Words())
	}
	if s.Ended != nil {
		out = append(out, s.Ended.Words())
	}
	if s.isSelected() {
		out = append(out, "the record has no objects outside of the selection")
	}
	for _, c := range []struct {
		what string
		n    int
	}{
		{"versions withheld by filters", s.Skipped},
		{"left the selection and may still exist", s.Left},
		{"with redacted values", s.Redacted},
	} {
		if c.n > 0 {
			out = append(out, c.what+": "+wording.Count(c.n))
		}
	}
	return out
}

// ObjectName returns the name by which an answer speaks of an object: "pods shop/web-0".
func ObjectName(resource, namespace, name string) string {
	if namespace == "" {
		return resource + " " + name
	}
	return resource + " " + namespace + "/" + name
}
