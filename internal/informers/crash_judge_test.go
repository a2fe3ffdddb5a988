package informers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// exception is a case that docs/reference/guarantees.md, "What is not promised", leaves out.
type exception string

const (
	// restoreNotFound: etcd was restored to a resourceVersion that is not before the checkpoint.
	// The agent was killed before it had found that. The bus cannot be asked for the newest record
	// of an object, so that nothing shows the restore.
	restoreNotFound exception = "a restore that was not found before the kill, on a bus that cannot be asked"
	// restoreNotShown: the same on JetStream. The newest record of an object shows no version after
	// the checkpoint, because a snapshot has read older ones since, or the object has left a scope.
	restoreNotShown exception = "a restore that was not found before the kill, and that the newest record does not show"
	// selectionChanged: "An object is in a consumer's table at once, if its scope was no longer
	// selected and is selected again". Also "After a crash, every object is in a consumer's table
	// at once, if the resource's selection changes with the next start or soon after it". The
	// object's next change counts.
	selectionChanged exception = "a selection that has changed"
	// snapshotNever: "With snapshot.mode: never: the state of objects that do not change again
	// after a gap without a base to compare with". The first list has no base either.
	snapshotNever exception = "no snapshots"
	// endsAfterACrash: "left events, or a sweep, for every object of a scope that ends between a
	// crash and the scope's next complete save".
	endsAfterACrash exception = "a scope that ends after a crash"
)

// excuses is called at each start. It finds out whether nothing can show this agent that etcd was
// restored.
func (c *crash) excuses() {
	if len(c.branches) == 0 || c.highestHistory() > c.found {
		return
	}
	record, log := c.onLog()
	newest := (&recorder{deltas: record[log:]}).lastObjectLocked(&object.Resource{Name: "configmaps"})
	for _, saved := range c.memory.Scopes() {
		switch {
		case saved.ResourceVersion > c.restored:
		case c.plan.bus != jetStream:
			c.excused = restoreNotFound
		case newest == nil || newest.ResourceVersion <= saved.ResourceVersion:
			c.excused = restoreNotShown
		}
	}
}

// judges waits until nothing happens any more, and judges the record. Then it does so again after a
// change of each object.
func (c *crash) judges() []string {
	c.heals()
	quiet := 3 * time.Minute
	if len(c.branches) > 0 {
		quiet = liveWithin
	}
	c.settle(quiet)
	if c.excused != "" {
		return nil
	}
	changed := len(c.segment.choices) > 1
	problems := c.verdict(map[exception]bool{
		selectionChanged: changed, snapshotNever: c.plan.script.mode == informer.SnapshotNever,
	})
	if len(problems) > 0 {
		return problems
	}
	c.touches()
	c.puts("shop/new", "")
	c.puts("other/new", "")
	c.added(c.deleteIn("shop", "a"))
	c.settle(10 * time.Second)
	if changed {
		c.sweeps()
		c.settle(time.Second)
	}
	problems = c.verdict(map[exception]bool{endsAfterACrash: c.vague})
	for n := range problems {
		problems[n] = "after more changes: " + problems[n]
	}
	return problems
}

// verdict returns what is wrong with the record.
func (c *crash) verdict(excused map[exception]bool) []string {
	c.encodes()
	_, log := c.onLog()
	problems := slices.Concat(c.problems(), c.idProblems(log), c.deletionProblems(), c.gapProblems())
	for _, drops := range []bool{false, true} {
		r := &reader{drops: drops, seen: map[string]bool{}, table: map[string]row{}}
		for n, e := range c.events[log:] {
			if gone := r.read(e); len(c.segment.choices) == 1 {
				problems = append(problems, c.sweepProblems(r, n+log, gone)...)
			}
		}
		problems = append(problems, c.tableProblems(r, excused)...)
	}
	if len(problems) > 0 {
		c.noteRecord()
	}
	return problems
}

// event is a delta as a consumer reads it.
type event struct {
	*consume.Event
	delta *object.Delta
	row   row
}

// row is the content of an object in a consumer's table.
type row struct{ name, value, rv string }

// encodes encodes and parses what is new on record.
func (c *crash) encodes() {
	record, _ := c.bus.all()
	enc := encode.New(encode.Options{Cluster: "cluster", ClusterUID: "uid", Before: true, Patch: true})
	var buffer encode.Event
	for _, d := range record[len(c.events):] {
		if err := enc.Encode(&buffer, d); err != nil {
			c.fail("%v", err)
		}
		parsed, err := consume.Parse(bytes.Clone(buffer.Body))
		if err != nil {
			c.fail("parse %s: %v", buffer.Body, err)
		}
		e := &event{Event: parsed, delta: d}
		if parsed.Data != nil && len(parsed.Data.After) > 0 {
			var after struct {
				Metadata struct{ Namespace, Name, ResourceVersion string }
				Data     struct{ Value string }
			}
			if err := json.Unmarshal(parsed.Data.After, &after); err != nil {
				c.fail("after of %s: %v", parsed.ID, err)
			}
			e.row = row{
				after.Metadata.Namespace + "/" + after.Metadata.Name, after.Data.Value, after.Metadata.ResourceVersion,
			}
		}
		c.events = append(c.events, e)
	}
}

// reader is a consumer that keeps a table of the existing objects, by the rules of consume.Tracker.
type reader struct {
	drops   bool // the bus drops records with a known id
	seen    map[string]bool
	tracker consume.Tracker
	table   map[string]row // by resource and uid
}

func (r *reader) String() string {
	if r.drops {
		return "without duplicates"
	}
	return "with duplicates"
}

// read reads an event. It returns the objects that the end of a snapshot deletes.
func (r *reader) read(e *event) (swept []consume.Object) {
	if r.drops && r.seen[e.ID] {
		return nil
	}
	r.seen[e.ID] = true
	v := r.tracker.Apply(e.Event)
	for _, o := range v.Gone {
		delete(r.table, o.Resource+" "+o.UID)
	}
	switch key := e.GroupResource() + " " + e.UID; {
	case e.Type == consume.TypeSnapshotCompleted:
		return v.Gone
	case !v.News || e.Data == nil:
	case e.Op == consume.Deleted || e.Op == consume.Left:
		delete(r.table, key)
	default:
		r.table[key] = e.row
	}
	return nil
}

// rows returns the objects that exist and are selected, by resource and uid.
func (c *crash) rows() map[string]row {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]row{}
	for _, resource := range []string{"configmaps", "widgets.shop.test"} {
		takes := c.taken.takes(resource)
		for key, v := range c.now {
			if takes(v) && (resource == "configmaps" || c.defined) {
				out[resource+" "+v.uid] = row{key, v.value, object.FormatVersion(v.rv)}
			}
		}
	}
	return out
}

// tableProblems compares a reader's table with the objects that exist.
func (c *crash) tableProblems(r *reader, excused map[exception]bool) (problems []string) {
	tracked := map[string]bool{}
	for o := range r.tracker.All() {
		tracked[o.Resource+" "+o.UID] = true
	}
	if !maps.EqualFunc(tracked, r.table, func(bool, row) bool { return true }) {
		problems = append(problems,
			fmt.Sprintf("%s: the Tracker has %v, a table by its verdicts %v", r, tracked, r.table))
	}
	want := c.rows()
	if !excused[selectionChanged] && !excused[snapshotNever] {
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if got, ok := r.table[key]; !ok {
				problems = append(problems, fmt.Sprintf("%s: %s %+v exists, and not for a consumer", r, key, want[key]))
			} else if got != want[key] {
				problems = append(problems,
					fmt.Sprintf("%s: %s is %+v, and %+v for a consumer", r, key, want[key], got))
			}
		}
	}
	if !excused[selectionChanged] && !excused[endsAfterACrash] {
		for _, key := range slices.Sorted(maps.Keys(r.table)) {
			if _, ok := want[key]; !ok {
				problems = append(problems, fmt.Sprintf("%s: %s %+v lives on for a consumer", r, key, r.table[key]))
			}
		}
	}
	return problems
}

// idProblems finds different events with one id.
func (c *crash) idProblems(log int) (problems []string) {
	first := map[string]*event{}
	for n, e := range c.events[log:] {
		was := first[e.ID]
		if was == nil {
			first[e.ID] = e
			continue
		}
		if a, b := was.said(e), e.said(was); a != b {
			problems = append(problems, fmt.Sprintf("%s is the id of %s, and of %s (%d on record)", e.ID, a, b, n+log))
		}
	}
	return problems
}

// said returns what an event says, for a comparison with another one of its id. An inferred event
// may claim less, and an inferred deletion may have a later resourceVersion. For another scope, the
// object may have entered or left.
func (e *event) said(other *event) string {
	if s := e.Stream; s != nil {
		return fmt.Sprint(e.Type, e.Scope, s.Snapshot, s.ResourceVersion, s.FromResourceVersion, s.ToResourceVersion)
	}
	if e.Data.Inferred || other.Data.Inferred || e.delta.Scope != other.delta.Scope {
		return fmt.Sprint(e.row)
	}
	return fmt.Sprint(e.Op, e.Data.ResourceVersion, e.row)
}

// versionsOf returns all versions of an object, in all histories.
func (c *crash) versionsOf(uid string) (out []*version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, branch := range append(slices.Clone(c.branches), c.history) {
		for _, v := range branch {
			if v.uid == uid && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	return out
}

// gapProblems finds gaps that nothing in the script causes.
func (c *crash) gapProblems() (problems []string) {
	for n, e := range c.events {
		s := e.delta.Stream
		if s != nil && s.Kind == object.Gap && !slices.Contains(c.plan.script.gaps, s.Reason) {
			problems = append(problems,
				fmt.Sprintf("a gap (%s) of %s is on record at %d, and nothing was lost", s.Reason, s.Scope, n))
		}
	}
	return problems
}

// deletionProblems finds deletions of objects that existed then.
func (c *crash) deletionProblems() (problems []string) {
	for n, e := range c.events {
		d := e.delta
		if d.Stream != nil || d.Op != object.Deleted {
			continue
		}
		if !slices.ContainsFunc(c.versionsOf(d.Ref.UID), func(v *version) bool {
			return v.deleted && (v.rv <= d.ResourceVersion || v.shown == d.ResourceVersion)
		}) {
			problems = append(problems,
				fmt.Sprintf("%s at %d (%d on record) deletes an object that existed", short(d), d.ResourceVersion, n))
		}
	}
	return problems
}

// sweepProblems finds objects that the end of a snapshot deletes, the nth event on record, although
// they exist then.
func (c *crash) sweepProblems(r *reader, n int, swept []consume.Object) (problems []string) {
	if len(c.branches) > 0 {
		return nil // the next history may lack them
	}
	for _, o := range swept {
		var last *version
		for _, v := range c.versionsOf(o.UID) {
			if c.born[v] <= n {
				last = v
			}
		}
		if last != nil && !last.deleted && c.taken.takes(o.Resource)(last) {
			problems = append(problems,
				fmt.Sprintf("%s: the end of a snapshot (%d on record) deletes %s %s, which exists",
					r, n, last.key(), o.UID))
		}
	}
	return problems
}
