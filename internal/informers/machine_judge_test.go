package informers_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// onLog returns the record, and the number of its first deltas that are not on the current log.
func (k *machine) onLog() (record []*object.Delta, before int) {
	record, _ = k.bus.all()
	k.faultMu.Lock()
	defer k.faultMu.Unlock()
	if len(k.logs) > 0 {
		before = k.logs[len(k.logs)-1]
	}
	return record, before
}

// lastEvent returns the last stream event of a resource on the current log.
func (k *machine) lastEvent(of *object.Resource) (informer.LastEvent, bool, error) {
	record, before := k.onLog()
	return (&recorder{deltas: record[before:]}).lastEvent(of)
}

// goesLive ends all faults, and waits until everything is live and on the bus.
func (k *machine) goesLive() {
	k.note("all faults end")
	k.heal()
	k.bus.holds("free")
	marks, began := k.marks(), time.Now()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		wait(k.t.Context(), pause)
		var why error
		// Discovery finds resources that no scope observes. After a restore of etcd, the watch on
		// definitions may show nothing until its end.
		found := time.Minute
		if k.restored != math.MaxUint64 {
			found = 11 * time.Minute
		}
		why = k.isLive(marks)
		if why == nil && (k.defined || time.Since(began) > found) {
			break
		}
		if pause == time.Second {
			k.bookmark() // a tombstone waits for a resourceVersion above all that was sent
		}
		if time.Since(began) > liveWithin {
			k.fail("not live %v after the last fault: %v", liveWithin, why)
		}
	}
	k.note("all is live after %v", time.Since(began))
	if len(k.segment.choices) > 1 {
		// An inferred left has the resourceVersion of the tombstone, which is later than that of
		// the object's last change. If a scope then takes the object again, its read is not above
		// that, and counts only with the next change (guarantees.md).
		k.touches()
		k.sweeps()
	}
	k.judge()
	k.begins()
	k.floor = k.now1()
	k.rewound = nil
	k.crashed = false
}

// touches changes all objects.
func (k *machine) touches() {
	k.mu.Lock()
	all := slices.Collect(maps.Values(k.now))
	k.mu.Unlock()
	for _, v := range all {
		k.values++
		k.added(k.putIn(v.namespace, v.name, fmt.Sprint(k.values), v.labels))
	}
}

// sweeps takes a snapshot of all objects.
func (k *machine) sweeps() {
	for began := time.Now(); ; k.bookmark() {
		// a scope waits for one, which shows that the API server has repeated everything
		_, err := k.life.set.Snapshot(k.t.Context(), "", "")
		if err == nil || strings.Contains(err.Error(), "is not captured") ||
			strings.Contains(err.Error(), "is not loaded") {
			break
		}
		if !strings.Contains(err.Error(), "catching up") || time.Since(began) > time.Minute {
			k.fail("snapshot: %v", err)
		}
		wait(k.t.Context(), 10*time.Millisecond)
	}
	for began := time.Now(); k.life.set.Owes(); wait(k.t.Context(), 10*time.Millisecond) {
		if time.Since(began) > time.Minute {
			k.fail("a snapshot is not complete after a minute")
		}
	}
	if err := k.bus.drained(k.t.Context(), time.Minute); err != nil {
		k.fail("the snapshot is not on the bus: %v", err)
	}
}

// marks makes changes that each scope sends.
func (k *machine) marks() (marks []*version) {
	k.values++
	for _, namespace := range []string{"shop", "other"} {
		if namespace == "shop" || k.defined {
			v := k.putIn(namespace, "last", fmt.Sprint(k.values), map[string]string{"in": "1"})
			k.added(v)
			marks = append(marks, v)
		}
	}
	return marks
}

// isLive returns an error that says what is not live, or not on the bus.
func (k *machine) isLive(marks []*version) error {
	if k.life.set.Owes() {
		return errors.New("a snapshot is not complete")
	}
	seen := map[string]bool{}
	for _, st := range k.life.set.Status() {
		switch {
		case st.Health == informer.HealthNotServed && !st.Synced && !k.defined && st.Resource == "widgets.shop.test":
		case !k.defined && st.Resource == "widgets.shop.test":
			return errors.New("widgets are observed, and not defined any more")
		case st.Phase != informer.PhaseLive || st.Health != informer.HealthOK || st.Pending > 0 || !st.Captured:
			return fmt.Errorf("%+v", st)
		default:
			seen[st.Resource] = true
		}
	}
	if err := k.bus.drained(k.t.Context(), 0); err != nil {
		return err
	}
	for _, resource := range []string{"configmaps", "widgets.shop.test"} {
		takes := k.taken.takes(resource)
		for _, v := range marks {
			if (resource == "configmaps" || k.defined) && takes(v) && (!seen[resource] || !k.bus.has(resource, v)) {
				return fmt.Errorf("%s/%s of %s at %d is not on the bus", v.namespace, v.name, resource, v.rv)
			}
		}
	}
	return nil
}

// judge compares the record with history.
func (k *machine) judge() {
	problems := k.problems()
	_, log := k.onLog()
	record, crashes := k.bus.all()
	for _, resource := range []string{"configmaps", "widgets.shop.test"} {
		problems = append(problems,
			stateProblems(record[log:], resource, k.now, k.taken.takes(resource), func(uid string) bool {
				return k.vague &&
					slices.ContainsFunc(record[:crashes[len(crashes)-1]],
						func(d *object.Delta) bool { return d.Ref != nil && d.Ref.UID == uid })
			})...)
	}
	if len(problems) > 0 {
		k.noteRecord()
		k.fail("%s", strings.Join(problems, "\n"))
	}
}

// problems returns what contradicts history on record, and what the test itself reports.
func (k *machine) problems() (problems []string) {
	k.mu.Lock()
	history := slices.Clone(k.history)
	k.mu.Unlock()
	of := truth{
		branches: append(slices.Clone(k.branches), history),
		restored: k.restored,
		born:     k.born,
		logs:     k.logs,
		blank:    k.blank,
		stops:    k.stops,
		from:     k.from,
	}
	of.record, of.crashes = k.bus.all()
	of.told = k.bus.allTold()
	for _, resource := range []string{"configmaps", "widgets.shop.test"} {
		of.selections = func(v *version) (all []func(*version) bool) {
			for _, c := range k.made[v].choices {
				all = append(all, c.takes(resource))
			}
			return all
		}
		problems = append(problems, of.problems(resource)...)
	}
	if k.t.Failed() {
		problems = append(problems, "the test has failed")
	}
	k.notesMu.Lock()
	defer k.notesMu.Unlock()
	for line := range strings.Lines(k.notes.String()) {
		if strings.Contains(line, "level=ERROR") && strings.Contains(line, "illegal") {
			problems = append(problems, line)
		}
	}
	return problems
}

// noteRecord notes history and the record.
func (k *machine) noteRecord() {
	k.mu.Lock()
	history := slices.Clone(k.history)
	k.mu.Unlock()
	k.note("history:")
	for _, v := range history {
		k.note("  %d %s %s %s deleted=%t in=%s", v.rv, v.key(), v.uid, v.value, v.deleted, v.labels["in"])
	}
	record, crashes := k.bus.all()
	k.note("on record:")
	for n, d := range record {
		if slices.Contains(crashes, n) {
			k.note("  crash")
		}
		if d.Stream != nil {
			k.note("  %d %s %s h%d %d %d-%d %s recovered=%t", n, short(d), d.Stream.Scope, d.Stream.History,
				d.Stream.ResourceVersion, d.Stream.From, d.Stream.To, d.Stream.Snapshot, d.Stream.Recovered)
		} else {
			k.note("  %d %s rv=%d h%d of %s", n, short(d), d.ResourceVersion, d.History, d.Scope)
		}
	}
}
