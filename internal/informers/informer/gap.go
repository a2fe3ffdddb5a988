package informer

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
)

// recoverVersions recovers the versions between the lost history and the list at to, and adds them
// to the pending deltas. complete: nothing is missing. recovered: nothing is missing, except
// objects that were created and deleted in between. The only error is the cause of ctx.
func (i *Informer) recoverVersions(ctx context.Context, to uint64) (complete, recovered bool, err error) {
	l, changed := i.store.Changes()
	gap := backfill.Gap{From: l.From, To: to, Changed: changed}
	began := time.Now()
	var budget *backfill.Budget
	if l.SkipIfRecovered && !i.selection.HasSelector() {
		budget = gap.Reserve(i.deps.Lookups, i.store.View().Objects)
	}
	if budget != nil {
		found, err := backfill.EveryRevision(ctx, i, gap, budget)
		if ctx.Err() != nil {
			return false, false, context.Cause(ctx)
		}
		if err != nil {
			i.log.Debug("cannot list each revision", "scope", i.name, "from_rv", l.From, "to_rv", to, "err", err)
		} else if versions, ok := i.store.AddAllVersions(found); ok {
			i.log.Debug("each revision was listed", "scope", i.name, "from_rv", l.From, "to_rv", to, "versions",
				versions,
				"took", time.Since(began))
			return true, true, nil
		}
	}
	byKey, recovered, err := backfill.Walk(ctx, i, gap, backfill.Options{
		HasSelector:       i.selection.HasSelector(),
		HasServerSelector: i.selection.HasServerSelector(),
		Requests:          backfill.MaxRequests,
		Time:              backfill.MaxTime,
	})
	if err != nil {
		return false, false, err
	}
	versions := i.store.AddVersions(byKey)
	recovered = recovered && !l.Unrecoverable
	level := i.log.Info
	if !recovered {
		level = i.log.Warn
	}
	level("history was lost on the watch: searched for the missed changes with lists", "scope", i.name, "from_rv",
		l.From, "to_rv", to,
		"reason", l.Reason, "since", l.Since, "changed", len(changed), "versions_found", versions, "recovered",
		recovered,
		"took", time.Since(began))
	return false, recovered, nil
}
