package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/wording"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// setWords writes what a finding means, and what to do about it.
func (f *Finding) setWords(only string) {
	f.What, f.Advice = f.words(only)
}

func (f *Finding) words(only string) (what, advice string) {
	switch f.Kind {
	case certainty.Interrupted:
		if f.Why == certainty.InterruptedEnded {
			return "nothing shows what happened between the last progress and the end of the observation",
				"compare with the audit log of the API server"
		}
		return f.WhyWords() + "; no change is missing, but those in between have the time at which they were found",
			"take the times from changedBy, or from the audit log of the API server"
	case certainty.Gap:
		if f.Reason == consume.ReasonContentChanged {
			return "no version is missing, but the API server began to serve known versions in another form",
				"compare the objects before and after"
		}
		if !f.ScopeEnded.IsZero() {
			return fmt.Sprintf("versions are missing (%s), and the scope ended at %s before the gap was closed",
					f.Reason, local(f.ScopeEnded)),
				"look for the changes in the audit log of the API server, or in a backup of etcd"
		}
		if f.To == (certainty.Bound{}) {
			return fmt.Sprintf("versions are missing (%s), and nothing has closed the gap yet", f.Reason),
				"audit again when the agent has caught up ('kubecdc status')"
		}
		return fmt.Sprintf("versions are missing (%s)", f.Reason),
			"look for the changes in the audit log of the API server, or in a backup of etcd"
	case certainty.RecoveredGap:
		return fmt.Sprintf(
				"a gap (%s) whose versions were found later; objects that were created and deleted inside are missing",
				f.Reason),
			"look for such objects in the audit log of the API server"
	case certainty.DeadLetter:
		return "events are among the dead letters, and not on the bus: " + strings.Join(f.DeadLetters, ", "),
			"read them where deadLetter of the configuration points to"
	case certainty.Filtered:
		return filteredWords(f.Records),
			"these versions are in no record; remove operations, where and noise from the rule, for later spans"
	case certainty.Unreadable:
		return "records cannot be read, and may be about these objects: " + wording.Count(f.Records),
			"'kubecdc tail' shows them"
	case certainty.BeforeRecord, certainty.NotRead:
		return "the record begins at " + f.To.Words(),
			"begin the span there, or read an older copy; keep records for longer (maxAge)"
	case certainty.AfterRecord:
		return f.afterWords()
	case certainty.FormerRelease:
		return "a former release wrote the record, and nothing shows that it is complete",
			"begin the span after the upgrade"
	case certainty.EndedByOperator:
		return "an operator, not its agent, ended the observation", "find out what became of the agent"
	case certainty.NotPermitted:
		return "the reader does not have all of the objects: " + only,
			"ask with a user that may read them, or only for those"
	case certainty.NotSelected:
		return f.detail,
			"name a namespace or a label selector that the agent captures, or widen its selection, for later spans"
	case certainty.Contradicted:
		return "versions are missing, and no gap says so: " + f.detail,
			"the record is damaged, or records were deleted: compare with a copy"
	case certainty.Truncated:
		return "versions are in the record without the object, which was too large for the bus and is not in its store",
			"that they changed is proven; look for their content elsewhere, and configure a claim store"
	case certainty.Selected, certainty.Withheld, certainty.Unplaced, certainty.CapturedUntil:
		return string(f.Kind), "" // only an answer about Events beside versions has them
	case certainty.NoSnapshot, certainty.OtherEtcd, certainty.EtcdNotKnown:
	}
	return "the record has no complete snapshot of it", "check that the agent captures it ('kubecdc status')"
}

func filteredWords(n int) string {
	if n == 0 {
		return "filters withheld versions"
	}
	return "filters withheld versions: " + wording.Count(n)
}

func (f *Finding) afterWords() (what, advice string) {
	what = "the record ends earlier"
	if from := f.From.Words(); from != "" {
		what = "the record is complete up to " + from
	}
	if !f.AskAgain.IsZero() {
		return what, "audit again at " + f.AskAgain.Local().Format(time.RFC3339)
	}
	return what, "end the span there, or check that the agent runs ('kubecdc status')"
}
