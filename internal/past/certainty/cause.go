package certainty

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/wording"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Kind says what kind of cause lowers a certainty.
type Kind string

// The kinds of causes. From and To are those of Cause.
const (
	// Interrupted: nothing proves that the scope was observed from From to To. Why says why.
	// Stopped is when the agent ended before, if it has said that.
	Interrupted Kind = "interrupted"

	// Gap: versions are missing between From and To. To is zero if nothing has made the state right
	// again. ScopeEnded is when the scope ended before that. Reason is that of the gap.
	Gap Kind = "gap"
	// RecoveredGap: a Gap whose versions are all in the record, for objects that existed at one of
	// its ends. At a resourceVersion, only objects that were created and deleted inside it may be
	// wrong. They may be missing. If an agent that was killed had sent them, they may be
	// outdated or deleted by then. At a time, the other changes inside it may be missing too: they
	// have the time at which they were found.
	RecoveredGap Kind = "recovered-gap"
	// DeadLetter: the state lacks the events DeadLetters.
	DeadLetter Kind = "dead-letter"
	// Filtered: from From to To, filters withheld the last version of at least one object, or its
	// deletion. To is zero: they still do.
	Filtered Kind = "filtered"

	// Unreadable: Records that cannot be read may be about objects of the scope.
	Unreadable Kind = "unreadable"

	// BeforeRecord: the record of the scope begins at To.
	BeforeRecord Kind = "before-record"
	// AfterRecord: the record is complete up to From. AskAgain, unless zero, is when more may be
	// known.
	AfterRecord Kind = "after-record"
	// NoSnapshot: the record has no complete snapshot of the scope by then.
	NoSnapshot Kind = "no-snapshot"
	// NotRead: the first progress that was read is at To. The record was not read from its
	// beginning.
	NotRead Kind = "not-read"
	// FormerRelease: up to From, or up to To, agents of a former release wrote the record. Nothing
	// shows that it is complete there.
	FormerRelease Kind = "former-release"
	// EndedByOperator: an operator, not the agent, has ended the scope. The record is complete up
	// to From.
	EndedByOperator Kind = "ended-by-operator"
	// OtherEtcd: the moment is a resourceVersion, and those of the scope are of another etcd, or no
	// numbers.
	OtherEtcd Kind = "other-etcd"
	// EtcdNotKnown: the moment is a resourceVersion, and it is not known yet whether those of the
	// scope are of the same etcd.
	EtcdNotKnown Kind = "etcd-not-known"
	// NotPermitted: the reader does not have all of the objects that are asked for.
	NotPermitted Kind = "not-permitted"

	// The next four are about the Kubernetes Events of a span, which have to be complete.

	// Selected: only Events that match selectors are captured, or were at some time in the span.
	Selected Kind = "selected"
	// Withheld: filters withheld Records versions of Events, in the span or before it.
	Withheld Kind = "withheld"
	// Unplaced: Records Events are about objects that the record does not have. Their owners are
	// not known.
	Unplaced Kind = "unplaced"
	// CapturedUntil: Events were captured until From, which is before the end of the span.
	CapturedUntil Kind = "captured-until"
)

// These kinds are those of an audit, which asks for every change in a span. The state at a moment
// does not show them.
const (
	// NotSelected: no agent observed all objects that are asked for. Those of no scope are not in
	// the record.
	NotSelected Kind = "not-selected"
	// Contradicted: the record shows that it lacks versions, and nothing else says so.
	Contradicted Kind = "contradicted"
	// Truncated: versions are in the record without the object, which was too large.
	Truncated Kind = "truncated"
)

// Level returns the level that a cause of the kind allows at best.
func (k Kind) Level() Level {
	switch k {
	case Interrupted:
		return Late
	case Gap, RecoveredGap, DeadLetter, Filtered, Unreadable, Selected, Withheld, Unplaced, Contradicted, Truncated:
		return Uncertain
	case BeforeRecord, AfterRecord, NoSnapshot, NotRead, FormerRelease, EndedByOperator, OtherEtcd, EtcdNotKnown,
		NotPermitted,
		CapturedUntil, NotSelected:
	}
	return Unknown
}

// isFixed reports whether later events of the record change nothing about a cause of the kind.
func (k Kind) isFixed() bool {
	switch k {
	case BeforeRecord, NotRead, FormerRelease, EndedByOperator, OtherEtcd, NotPermitted, Unreadable, DeadLetter,
		Selected, Withheld, Unplaced, CapturedUntil, NotSelected, Contradicted, Truncated:
		return true
	case Interrupted, Gap, RecoveredGap, Filtered, AfterRecord, NoSnapshot, EtcdNotKnown:
	}
	return false
}

// These are reasons of interruptions that no agent reports: the record shows them.
const (
	InterruptedUnheard consume.InterruptionReason = "unheard" // progress is missing
	InterruptedEnded   consume.InterruptionReason = "ended"   // the scope ended before the next progress
)

// Cause is one reason why a scope is not exact. Its Kind says which fields it has.
type Cause struct {
	Kind Kind  `json:"kind"`
	From Bound `json:"from,omitzero"`
	To   Bound `json:"to,omitzero"`

	Reason      consume.GapReason          `json:"reason,omitempty"`
	Why         consume.InterruptionReason `json:"why,omitempty"`
	DeadLetters []string                   `json:"deadLetters,omitempty"` // ids of events
	Records     int                        `json:"records,omitempty"`
	AskAgain    time.Time                  `json:"askAgain,omitzero"`
	Stopped     time.Time                  `json:"stopped,omitzero"`
	ScopeEnded  time.Time                  `json:"scopeEnded,omitzero"`

	// AfterRecord: the last progress about the scope, and the last one that claimed only what was
	// older than MaxLag; zero: there is none.
	Heard, Lagged time.Time `json:"-"`
}

// Words says what the cause is, and what the reader can do.
func (c *Cause) Words() string {
	return c.Kind.Level().String() + ": " + c.words()
}

func (c *Cause) words() string {
	from, to := c.From.Words(), c.To.Words()
	switch c.Kind {
	case Interrupted:
		return c.AbsenceWords("it") + "; changes in between were observed late, so the answer may lack some; " +
			"ask for a moment before or after, or for a resourceVersion (rv:N)"
	case Gap, RecoveredGap:
		return c.gapWords(from, to)
	case DeadLetter:
		return fmt.Sprintf("events between %s and %s are among the dead letters; ask for a moment before them, "+
			"or after the next event of each of their objects: %s", from, to, strings.Join(c.DeadLetters, ", "))
	case Filtered:
		return filteredWords(from, to)
	case Unreadable:
		return unreadableWords(c.Records)
	case BeforeRecord:
		return "the record begins later, at " + to + ": ask for a later moment"
	case AfterRecord:
		if !c.AskAgain.IsZero() {
			return "not final yet, the record is complete up to " + from + ": ask again at " + c.AskAgain.Local().
				Format(time.RFC3339)
		}
		text := "the record ends earlier"
		if from != "" {
			text += ", at " + from
		}
		return text + ": ask for an earlier moment, or again later ('kubecdc status' shows whether the agent runs)"
	case NotRead:
		return "nothing shows that the record is complete there; the first progress that was read is at " + to +
			": ask for a later moment"
	case FormerRelease:
		if to != "" {
			return "the record of a former release ends at " + to +
				", and nothing shows that it is complete before: ask for a later moment"
		}
		return "the record of a former release ends at " + from + ", and nothing shows that it is complete"
	case EndedByOperator:
		return "an operator, not its agent, has ended it; the record ends at " + from
	case OtherEtcd:
		return "its resourceVersions are of another etcd, or not numbers: use a time"
	case EtcdNotKnown:
		return "it is not known yet whether its resourceVersions are of the same etcd: use a time"
	case NotPermitted:
		return "the reader does not have all of its objects"
	case Selected:
		return "only Events of a selection are captured, or were for a time: others may be missing"
	case Withheld:
		return "filters withheld versions of Events, which may be missing: " + wording.Count(c.Records)
	case Unplaced:
		return "the record does not have the objects of some Events, which may be about what you ask for: " +
			wording.Count(c.Records)
	case CapturedUntil:
		return "Events were captured until " + from + ", and not after it"
	case NotSelected, Contradicted, Truncated: // an audit has words of its own
		return string(c.Kind)
	case NoSnapshot:
	}
	return "the record has no complete snapshot of the resource by then: " +
		"check that the agent captures it ('kubecdc status')"
}

func (c *Cause) gapWords(from, to string) string {
	text := fmt.Sprintf("the record has a gap (%s) from %s", c.Reason, from)
	if !c.ScopeEnded.IsZero() {
		return text + ", and its scope ended at " + c.ScopeEnded.Local().
			Format(time.RFC3339) + " before it was closed; " +
			"ask for a moment before it"
	}
	if to == "" {
		return text + ", and nothing has closed it yet; " +
			"ask for a moment before it, or again later ('kubecdc status' shows what the agent does)"
	}
	text += " to " + to
	if c.Reason == consume.ReasonContentChanged {
		text += "; no version is missing, but the API server has begun to serve known versions in another form"
	}
	if c.Kind == RecoveredGap {
		text += "; its versions were found later, except those of objects that were created and deleted inside it"
	}
	return text + "; ask for a moment before or after it"
}

func filteredWords(from, to string) string {
	text := "filters may have withheld versions"
	if from != "" {
		text += " since " + from
	}
	if to == "" {
		return text + "; ask for a moment before it, or after the next snapshot"
	}
	return text + ", until " + to + "; ask for a moment before or after it"
}

func unreadableWords(records int) string {
	return "records that cannot be read, and may belong to the answer: " + wording.Count(records) +
		" ('kubecdc tail' shows them)"
}

// AbsenceWords says from when to when nothing proves that a scope was observed, and why. what is
// the word for the scope: it, them.
func (c *Cause) AbsenceWords(what string) string {
	isKnown := c.Why != InterruptedUnheard && c.Why != InterruptedEnded &&
		(c.Why != consume.InterruptedStart || !c.Stopped.IsZero())
	text := "nothing proves that the agent observed " + what
	if isKnown {
		text = "the agent did not observe " + what
	}
	text += " from " + c.From.Words()
	if to := c.To.Words(); to != "" {
		text += " to " + to
	}
	return text + " (" + c.WhyWords() + ")"
}

// WhyWords describes why a scope was not observed.
func (c *Cause) WhyWords() string {
	switch c.Why {
	case consume.InterruptedStart:
		if c.Stopped.IsZero() {
			return "the agent was started again, and has not said when it had ended"
		}
		return "the agent was stopped at " + c.Stopped.Local().Format(time.RFC3339)
	case consume.InterruptedClosed, consume.InterruptedCut:
		return "the watch had ended"
	case consume.InterruptedSilent:
		return "the API server sent nothing"
	case consume.InterruptedBlocked:
		return "the agent's queue was full"
	case consume.InterruptedListed:
		return "a list replaced the watch"
	case consume.InterruptedStopped:
		return "the agent's process stood still"
	case consume.InterruptedStepped:
		return "the agent's clock was set"
	case InterruptedUnheard:
		return "the record has no progress of the agent"
	case InterruptedEnded:
		return "the observation ended"
	}
	return string(c.Why)
}
