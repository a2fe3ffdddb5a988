package publish

import (
	"errors"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// ProgressEvent is what the last progress events of one writer on the bus say. A run may split its
// progress over several events.
type ProgressEvent struct {
	Writer string
	Run    string    // the last run
	Time   time.Time // of its newest event
	Ends   bool      // the run has ended
	Scopes []ScopeProgress
}

// ScopeProgress is what the newest event of the run that is about a scope says about it.
type ScopeProgress struct {
	Resource string // "deployments.apps"
	// Scope is the name of the scope. "": all scopes of the resource that the run had started and
	// not ended, and that have no entry. Count is their number.
	Scope           string
	Count           int
	ResourceVersion uint64 // 0: not known
	History         uint32
	To              time.Time // zero: not known
	At              time.Time // of the event
}

// progressLabel is the label resource of the progress of an agent, which is about many resources.
const progressLabel = "progress"

// labelOf returns the label resource of a delta's event.
func labelOf(d *object.Delta) string {
	if r := resourceOf(d); r != nil {
		return r.String()
	}
	return progressLabel
}

// reasonOf returns the label reason for an event that is given up; encoded: it could be encoded.
func reasonOf(err error, encoded bool) string {
	switch {
	case !encoded:
		return letterEncode
	case errors.Is(err, ErrTooLarge):
		return letterTooLarge
	}
	return letterRefused
}

// dropProgress gives up a progress event that cannot be encoded, or that the bus refuses for good.
// The next one repeats its content, so it is never shortened, and never becomes a dead letter.
func (d *Dispatcher[I]) dropProgress(f *flight[I], reason string, cause error, now time.Time) {
	d.metrics.progressDropped.WithLabelValues(reason).Inc()
	if suppressed, ok := d.window.First("progress " + reason); ok {
		d.log.Error(
			"progress of the agent was dropped: until the next one, nothing confirms to readers that they have everything",
			"event_id", string(f.ID), "reason", reason,
			"bytes", f.Size(), "scopes", len(f.delta.Report.Scopes), "err", cause, "advice", adviceOnDrop(reason),
			"suppressed", suppressed)
	}
	d.end(f, now)
}

func adviceOnDrop(reason string) string {
	switch reason {
	case letterTooLarge:
		return "raise the bus's limit and event.maxBytes"
	case letterEncode:
		return "report this"
	}
	return "make the bus accept it"
}
