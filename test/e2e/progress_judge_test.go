package e2e_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// judge stops the agent and judges its record.
func (o *observed) judge(t *testing.T) {
	t.Helper()
	listings := o.stop()
	world.Pass(t.Context(), calm)
	o.StopAgent(t)
	o.awaitReport(t, "the last one", func(rec *oracle.Record) bool {
		return rec.Report.Ends && !rec.Time.Before(o.wall(listings[len(listings)-1].at))
	})
	o.judgeObjects(t)
	records := o.Stream.All()
	observers := oracle.ObserversOf(records)
	for _, resource := range progressResources {
		sc := o.scopeOf(t, resource)
		all := observers.Of(sc.Text)
		if len(all) != 1 {
			oracle.Fail(t, "%d writers report on %s, want one", len(all), sc.Text)
			continue
		}
		o.judgeInterruptions(t, all[0], records)
		o.judgeLists(t, sc, observers, records, listings)
	}
}

// judgeObjects judges the deltas and gaps. Only a resource that was held back for long may have
// gaps.
func (o *observed) judgeObjects(t *testing.T) {
	t.Helper()
	expires := make(map[string]bool)
	for resource, all := range o.faults {
		for _, f := range all {
			if f.until.Sub(f.from) >= cached {
				expires[resource] = true
				o.Losses = append(o.Losses, oracle.Loss{Rev: f.rev})
			}
		}
	}
	got := o.Judge(t, nil, progressResources...)
	for _, gap := range got.Gaps {
		if gap.Reason != oracle.Expired || !gap.Recovered || !expires[gap.Scope.Resource] {
			oracle.Fail(t, "%s (%s, recovered %t), where no history was lost", gap.ID, gap.Reason, gap.Recovered)
		}
	}
	if got.Inferred > 0 && len(got.Gaps) == 0 {
		oracle.Fail(t, "%d inferred deltas without a gap", got.Inferred)
	}
}

// judgeInterruptions compares what the agent has reported of a scope with what was done to it.
func (o *observed) judgeInterruptions(t *testing.T, said *oracle.Observation, records []oracle.Record) {
	t.Helper()
	if said.Open != nil {
		oracle.Fail(t, "%s: the interruption from %s (%s) is not over", said.Text, said.Open.From, said.Open.Why)
	}
	left := slices.DeleteFunc(slices.Clone(said.Said), func(x oracle.Interruption) bool {
		return x.Why == oracle.InterruptedStart && !x.From.After(o.captured) // it is of the first run
	})
	for _, f := range o.faults[said.Resource] {
		proof := o.proof(said.Scope, f.rev, records)
		i := slices.IndexFunc(left, func(x oracle.Interruption) bool {
			return x.Why == f.why && !x.From.After(f.from) && !x.Until.Before(f.until)
		})
		if i < 0 {
			oracle.Fail(t, "%s: no interruption (%s) has the time from %s until %s", said.Text, f.why, f.from, f.until)
			continue
		}
		x := left[i]
		left = slices.Delete(left, i, i+1)
		before, after := f.from.Sub(x.From), x.Until.Sub(proof)
		if before > spanBefore || after > spanAfter {
			oracle.Fail(t,
				"%s: the interruption (%s), %s until %s, begins %s before the fault, and ends %s after the proof",
				said.Text, x.Why, x.From, x.Until, before, after)
		}
		t.Logf("%s: %s, reported from %s before the fault until %s after its end, %s after the proof",
			said.Text, x.Why, before, x.Until.Sub(f.until), after)
	}
	for _, x := range left {
		if o.followsFault(said.Resource, x) {
			continue
		}
		oracle.Fail(t, "%s: an interruption (%s) from %s until %s, where nothing was done",
			said.Text, x.Why, x.From, x.Until)
	}
}

// followsFault reports whether an interruption lies in the seconds after a fault. The path then
// sends all that it has held back at once, which may block the watch.
func (o *observed) followsFault(resource string, x oracle.Interruption) bool {
	return slices.ContainsFunc(o.faults[resource], func(f injected) bool {
		begins := !x.From.Before(f.until) && !x.From.After(f.until.Add(spanAfter))
		return x.Why == "blocked" && begins && !x.Until.After(f.until.Add(spanBlocked))
	})
}

// proof returns the agent's time of the first record that shows a scope after a revision.
func (o *observed) proof(sc oracle.Scope, rev uint64, records []oracle.Record) time.Time {
	for i := range records {
		rec := &records[i]
		if rec.Op != "" && rec.Op != oracle.Read && sc.Has(rec.Key) && rec.Rev > rev {
			return rec.Time
		}
	}
	return time.Time{}
}

// judgeLists compares lists with the records. The records prove that they have the state of a
// scope, or there was a fault.
func (o *observed) judgeLists(
	t *testing.T, sc oracle.Scope, observers *oracle.Observers, records []oracle.Record, listings []listing,
) {
	t.Helper()
	exact, inside := 0, 0
	for _, l := range listings {
		if l.resource != sc.Resource {
			continue
		}
		at := o.wall(l.at)
		if !observers.Exact(sc.Text, at) {
			inside++
			if !o.excuses(sc, at, records, observers.Of(sc.Text)[0].Said) {
				oracle.Fail(t, "%s: the state at %s is not known, where nothing was done", sc.Text, at)
			}
			continue
		}
		exact++
		got := oracle.TableAt(records, sc, at)
		if !maps.Equal(got, l.table) {
			oracle.Fail(t, "%s at %s: exact, and the records have %v; the API server had %v", sc.Text, at, got, l.table)
		}
	}
	if exact < 8 || len(o.faults[sc.Resource]) > 0 && inside == 0 || exact+inside < 20 {
		t.Errorf("%s: %d lists compared, and %d inside of interruptions: too few", sc.Text, exact, inside)
	}
	t.Logf("%s: %d lists compared, %d inside of interruptions", sc.Text, exact, inside)
}

// excuses reports whether a fault may be why the state of a resource is not known at a time. The
// state shortly after the first snapshot may be unknown too.
func (o *observed) excuses(sc oracle.Scope, at time.Time, records []oracle.Record, said []oracle.Interruption) bool {
	if at.Before(o.captured.Add(spanAfter)) {
		return true
	}
	isFollowed := slices.ContainsFunc(said, func(x oracle.Interruption) bool {
		return o.followsFault(sc.Resource, x) && !at.Before(x.From) && !at.After(x.Until)
	})
	return isFollowed || slices.ContainsFunc(o.faults[sc.Resource], func(f injected) bool {
		return at.After(f.from.Add(-spanBefore)) && at.Before(o.proof(sc, f.rev, records).Add(spanAfter))
	})
}
