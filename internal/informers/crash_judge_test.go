package informers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// exception is a case that docs/reference/guarantees.md, "What is not promised", leaves out.
type exception string

const (
	// restoreNotFound: etcd was restored to a resourceVersion that is not before the checkpoint, the agent was killed before it had found that,
	// and the bus cannot be asked for the newest record of an object. Then nothing shows the restore.
	restoreNotFound exception = "a restore that was not found before the kill, on a bus that cannot be asked"
	// selectionChanged: "An object is in a consumer's table at once, if its scope was no longer selected and is selected again", and "After a
	// crash, every object is in a consumer's table at once, if the resource's selection changes with the next start or soon after it". The
	// next change of the object counts.
	selectionChanged exception = "a selection that has changed"
	// endsAfterACrash: "left events, or a sweep, for every object of a scope that ends between a crash and the scope's next complete save".
	endsAfterACrash exception = "a scope that ends after a crash"
)

// excuses is called at a start. It finds out whether a restore of etcd is excepted.
func (c *crash) excuses() {
	n := len(c.branches)
	if n == 0 || c.plan.bus == jetStream || c.highestHistory() > c.found {
		return
	}
	for _, saved := range c.memory.Scopes() {
		if saved.ResourceVersion <= c.restored {
			c.excused = restoreNotFound
		}
	}
}

// judges waits until nothing happens any more, and judges the record. Then it does so again after a change of each object.
func (c *crash) judges(out *outcome) {
	c.heals()
	quiet := 3 * time.Minute
	if len(c.branches) > 0 {
		quiet = settlesWithin
	}
	c.settle(quiet)
	changed := len(c.segment.choices) > 1
	excused := map[exception]bool{selectionChanged: changed}
	out.problems = c.verdict(excused)
	if len(out.problems) > 0 {
		return
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
	for _, problem := range c.verdict(map[exception]bool{endsAfterACrash: c.vague}) {
		out.problems = append(out.problems, "after more changes: "+problem)
	}
}

// verdict returns what is wrong with the record.
func (c *crash) verdict(excused map[exception]bool) (problems []string) {
	if c.excused != "" {
		return nil
	}
	problems = c.problems()
	c.encodes()
	_, log := c.onLog()
	problems = append(problems, c.idProblems(log)...)
	problems = append(problems, c.deletionProblems()...)
	for _, drops := range []bool{false, true} {
		r := &reader{drops: drops, seen: map[string]bool{}, table: map[string]row{}}
		for n, e := range c.events[log:] {
			gone, ok := r.read(e)
			if ok && !excused[selectionChanged] && len(c.segment.choices) == 1 {
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
			e.row = row{after.Metadata.Namespace + "/" + after.Metadata.Name, after.Data.Value, after.Metadata.ResourceVersion}
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

// read reads an event. If it ends a snapshot, read returns the objects that are gone with it, and true.
func (r *reader) read(e *event) (gone []consume.Object, sweep bool) {
	if r.drops && r.seen[e.ID] {
		return nil, false
	}
	r.seen[e.ID] = true
	v := r.tracker.Apply(e.Event)
	for _, o := range v.Gone {
		delete(r.table, o.Resource+" "+o.UID)
	}
	switch key := e.GroupResource() + " " + e.UID; {
	case !v.News || e.Data == nil:
	case e.Op == consume.Deleted || e.Op == consume.Left:
		delete(r.table, key)
	default:
		r.table[key] = e.row
	}
	return v.Gone, e.Type == consume.TypeSnapshotCompleted
}

// tableProblems compares a reader's table with the objects that exist.
func (c *crash) tableProblems(r *reader, excused map[exception]bool) (problems []string) {
	tracked := map[string]bool{}
	for o := range r.tracker.All() {
		tracked[o.Resource+" "+o.UID] = true
	}
	if !maps.EqualFunc(tracked, r.table, func(bool, row) bool { return true }) {
		problems = append(problems, fmt.Sprintf("%s: the Tracker has %v, a table by its verdicts %v", r, tracked, r.table))
	}
	c.mu.Lock()
	now := maps.Clone(c.now)
	c.mu.Unlock()
	want := map[string]row{}
	for _, resource := range []string{"configmaps", "widgets.shop.test"} {
		takes := c.taken.takes(resource)
		for key, v := range now {
			if takes(v) && (resource == "configmaps" || c.defined) {
				want[resource+" "+v.uid] = row{key, v.value, object.FormatVersion(v.rv)}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		got, ok := r.table[key]
		switch {
		case ok && got == want[key], excused[selectionChanged]:
		case !ok:
			problems = append(problems, fmt.Sprintf("%s: %s %+v exists, and not for a consumer", r, key, want[key]))
		default:
			problems = append(problems, fmt.Sprintf("%s: %s is %+v, and %+v for a consumer", r, key, want[key], got))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.table)) {
		if _, ok := want[key]; !ok && !excused[selectionChanged] && !excused[endsAfterACrash] {
			problems = append(problems, fmt.Sprintf("%s: %s %+v lives on for a consumer", r, key, r.table[key]))
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

// said returns what an event says, for a comparison with another one of its id. An inferred event may claim less, and an inferred deletion
// may have a later resourceVersion.
func (e *event) said(other *event) string {
	if s := e.Stream; s != nil {
		return fmt.Sprint(e.Type, e.Scope, s.Snapshot, s.ResourceVersion, s.FromResourceVersion, s.ToResourceVersion)
	}
	if e.Data.Inferred || other.Data.Inferred {
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
			problems = append(problems, fmt.Sprintf("%s at %d (%d on record) deletes an object that existed", short(d), d.ResourceVersion, n))
		}
	}
	return problems
}

// sweepProblems finds objects that a snapshot's end deletes, the nth event on record, although they existed before it and still do.
func (c *crash) sweepProblems(r *reader, n int, gone []consume.Object) (problems []string) {
	if len(c.branches) > 0 {
		return nil // the next history may lack them
	}
	for _, o := range gone {
		exists := false
		for _, v := range c.versionsOf(o.UID) {
			exists = exists && c.born[v] > n || !v.deleted && c.born[v] <= n
		}
		if exists && c.taken.takes(o.Resource)(&version{namespace: o.Namespace, labels: map[string]string{"in": "1"}}) {
			problems = append(problems, fmt.Sprintf("%s: the end of a snapshot (%d on record) deletes %s/%s %s, which exists", r, n, o.Namespace, o.Name, o.UID))
		}
	}
	return problems
}
