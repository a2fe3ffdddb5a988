package informers_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// truth is the reference with which a record on the bus is compared.
type truth struct {
	branches [][]*version // histories: one for each restore of etcd, and the current one last
	restored uint64       // the lowest resourceVersion to which etcd was restored, the highest number if it never was
	// selections are those that may be in force for a version. It must be on record if all of them
	// take it in the same way.
	selections func(v *version) []func(*version) bool
	born       map[*version]int // how much was on record when a version was made; not there: nothing
	record     []*object.Delta
	told       []reported
	crashes    []int // how much was on record then
	stops      []stop
	logs       []int  // how much was on record when the log was replaced
	blank      []int  // see machine
	repeats    bool   // the bus itself makes copies
	from       uint64 // where a record without snapshots begins
}

// stop is the end of a run without a crash.
type stop struct {
	at int // how much was on record
	// scopes with a tombstone, and ids of snapshots, that the bus does not have completely: the
	// next run sends them again
	unfinished []string
	// behind has the saved resourceVersions of scopes that had not sent all that their last list
	// found. The next run finds the gap again, and sends again what follows it (guarantees.md).
	behind map[string]uint64
}

// repeats reports whether the run after the stop may send d again, which scope sent before it.
func (s *stop) repeats(d *object.Delta, scope string) bool {
	if d.Op == object.Read {
		return slices.Contains(s.unfinished, d.Snapshot)
	}
	from, ok := s.behind[scope]
	return ok && d.ResourceVersion > from || d.Op == object.Left && slices.Contains(s.unfinished, d.Scope)
}

// point is a version's place in the order of histories.
func point(d *object.Delta) uint64 { return uint64(d.History)<<48 | d.ResourceVersion }

// loses reports whether the events of a resource on the log have a lower history number than other
// events among the first n on record.
func (x *truth) loses(resource string, n int) bool {
	log := 0
	known := uint32(0)
	highest := uint32(0)
	for _, at := range x.logs {
		if at <= n {
			log = max(log, at)
		}
	}
	for k, d := range x.record[:n] {
		number := d.History
		if d.Stream != nil {
			number = d.Stream.History
		}
		highest = max(highest, number)
		if k >= log && d.Stream != nil && d.Stream.Resource.String() == resource {
			known = number
		}
	}
	return log == n || known < highest
}

// problems compares what is on record of a resource with history.
func (x *truth) problems(resource string) (problems []string) {
	fault := func(format string, args ...any) {
		problems = append(problems, resource+": "+fmt.Sprintf(format, args...))
	}
	type gap struct {
		*object.StreamEvent
		at int // in the record
	}
	var gaps []gap
	claims := x.claims(resource)
	first := x.from
	type copied struct {
		content, scope string
		at             int
	}
	seen := map[string]copied{}  // by id
	earlier := map[string]bool{} // ids on earlier logs
	log := 0                     // where in the record the last log begins
	type state struct {
		value   string
		at      uint64
		scope   string // another scope may have another event for the same version
		highest int    // where in the record
		broken  bool
	}
	states := map[string]*state{}  // by name
	reads := map[string]bool{}     // uid/point of versions that were read
	highest := map[string]uint64{} // by uid: an event that is not above it is late
	// where the record has the deletion of a uid, or an inferred left, at its highest point
	ended := map[string]int{}
	type op struct {
		op string
		at int
	}
	recorded := map[string][]op{} // by uid/rv, or uid/d
	crashed := func(after, before int) bool {
		return slices.ContainsFunc(x.crashes, func(at int) bool { return after < at && at <= before })
	}
	histories := map[string][]int{} // by scope and history number: the branches that it may be
	for n, d := range x.record {
		if slices.Contains(x.logs, n) { // the new log gets everything that it needs again
			log = n
			for id := range seen {
				earlier[id] = true
			}
			clear(states)
			clear(seen)
			clear(highest)
		}
		if slices.Contains(x.blank, n) && x.loses(resource, n) {
			// neither the checkpoint nor the log has the history number (guarantees.md)
			clear(histories)
		}
		if d.Stream != nil {
			if d.Stream.Resource.String() != resource {
				continue
			}
			switch d.Stream.Kind {
			case object.SnapshotStarted:
				if first == 0 {
					first = d.Stream.ResourceVersion
				}
			case object.Gap:
				gaps = append(gaps, gap{d.Stream, n})
			}
			for _, st := range states {
				st.broken = true
			}
			continue
		}
		if d.Ref.Resource.String() != resource {
			continue
		}
		x.inOneHistory(histories, d, fault)
		version := fmt.Sprintf("%s/%d", d.Ref.UID, point(d))
		id := version
		switch d.Op {
		case object.Deleted:
			id = fmt.Sprintf("%s/%d/d", d.Ref.UID, d.History)
		case object.Read:
			id += "/r/" + d.Snapshot
		case object.Left: // another scope may have entered with the same version
			id += "/l"
		}
		content := fmt.Sprint(short(d), d.ResourceVersion, d.Previous)
		is := op{string(d.Op), n}
		if d.Inferred {
			is.op = "~" + is.op
		}
		rv := d.Ref.UID + "/" + strconv.FormatUint(d.ResourceVersion, 10)
		if d.Op == object.Deleted {
			rv = d.Ref.UID + "/d"
		}
		if was, ok := seen[id]; ok {
			if was.content != content && was.scope == d.Scope && !d.Inferred && !strings.HasPrefix(was.content, "~") {
				// an inferred version may be observed by another run
				fault("%s is the id of %s, and of %s", id, was.content, content)
			}
			again := slices.ContainsFunc(x.stops, func(s stop) bool {
				return was.at < s.at && s.at <= n && s.repeats(d, was.scope)
			})
			if !x.repeats && !again && !crashed(was.at, n) && (d.Op != object.Left || was.scope == d.Scope) {
				fault(
					"%s is on record twice, the agent did not crash in between, and had finished what it belongs to: %s",
					id, content)
			}
			continue
		}
		seen[id] = copied{content, d.Scope, n}
		recorded[rv] = append(recorded[rv], is)
		if d.Op == object.Read {
			reads[version] = true
		}
		if point(d) <= highest[d.Ref.UID] && (d.Op == object.Read || reads[version]) {
			continue // a snapshot after a gap may show a version before a restart sends the change
		}
		unsure := d.Op == object.Left && d.Inferred
		if at, ok := ended[d.Ref.UID]; ok && point(d) == highest[d.Ref.UID] && (d.Op == object.Deleted || unsure) &&
			crashed(at, n) {
			continue // one of the two runs did not know whether it was deleted, and claimed less (guarantees.md)
		}
		isLate := point(d) < highest[d.Ref.UID]
		if point(d) > highest[d.Ref.UID] {
			delete(ended, d.Ref.UID)
			if d.Op == object.Deleted || unsure {
				ended[d.Ref.UID] = n
			}
		}
		highest[d.Ref.UID] = max(highest[d.Ref.UID], point(d))
		name := d.Ref.Namespace() + "/" + d.Ref.Name()
		st := states[name]
		if st == nil {
			st = &state{broken: true}
			states[name] = st
		}
		if (isLate || point(d) < st.at) && slices.ContainsFunc(gaps, func(g gap) bool {
			return g.From < d.ResourceVersion && d.ResourceVersion <= g.To && crashed(g.at, n)
		}) {
			continue // after a gap of an earlier run: this run may know more, and consumers see that the event is late
		}
		if point(d) < st.at && earlier[id] && crashed(log, n) {
			continue // its first copy is on an earlier log, and the next run repeats it on this one
		}
		if point(d) <= st.at && d.Scope != st.scope && crashed(st.highest, n) {
			continue // the previous run sent more, under another selection
		}
		if !st.broken && d.Op != object.Read && valueOf(d.Before) != st.value &&
			!(d.Op == object.Entered && st.value == "-") {
			fault("chain of %s: %s at %d follows %s at %d", name, short(d), d.ResourceVersion, st.value, st.at)
		}
		// some API servers assign no new version to a deletion
		own := d.Op == object.Deleted && d.Previous == d.ResourceVersion
		if late := point(d) < st.at ||
			point(d) == st.at && d.Scope == st.scope && !own; late && d.Op != object.Read && st.at != 0 && !d.Inferred {
			fault("order of %s: %s at %d after %d", name, short(d), d.ResourceVersion, st.at)
		}
		st.value, st.broken = valueOf(d.After), false
		if !d.Inferred {
			st.at = max(st.at, point(d))
			st.scope = d.Scope
			st.highest = n
		}
	}
	history := x.branches[len(x.branches)-1]
	// alive reports whether an object was in the scope at one end of a gap.
	alive := func(uid string, at uint64, matches func(*version) bool) bool {
		var last *version
		for _, v := range history {
			if v.uid == uid && v.rv <= at {
				last = v
			}
		}
		return last != nil && !last.deleted && matches(last)
	}
	for _, v := range history {
		if v.rv <= first || v.bookmark {
			continue
		}
		all := x.selections(v)
		want := opOf(v, all[0])
		if want == "" || slices.ContainsFunc(all[1:], func(s func(*version) bool) bool { return opOf(v, s) != want }) {
			continue
		}
		covered := slices.IndexFunc(gaps, func(g gap) bool {
			covers := g.From < v.rv && v.rv <= g.To || g.Reason == object.Rewound && x.restored < v.rv && v.rv <= g.To
			return covers && g.Reason != object.ContentChanged &&
				(!g.Recovered || g.To > x.restored || slices.ContainsFunc(all, func(s func(*version) bool) bool {
					return !alive(v.uid, g.From, s) && !alive(v.uid, g.To, s)
				}))
		})
		at := len(x.record) // where the version, or the first gap that covers it, is on record
		if covered >= 0 {
			at = gaps[covered].at
		}
		told := func(rv string, ops ...string) bool {
			k := slices.IndexFunc(recorded[rv], func(o op) bool {
				return o.at >= x.born[v] && slices.Contains(ops, o.op)
			})
			if k >= 0 {
				at = min(at, recorded[rv][k].at)
			}
			return k >= 0
		}
		rv := v.uid + "/" + strconv.FormatUint(v.rv, 10)
		switch want {
		case "c":
			if !told(rv, "c", "~c", "~e") && covered < 0 { // history was gone when the agent asked which of them it is
				fault("%s of %s %s at %d is not on record: %v", want, v.name, v.uid, v.rv, recorded[rv])
			}
		case "d":
			left := told(rv, "~l") // after a crash, the next run may send d at the same resourceVersion (guarantees.md)
			if !told(v.uid+"/d", "d", "~d") && !left && covered < 0 {
				fault("%s of %s %s at %d is not on record: %v", want, v.name, v.uid, v.rv, recorded[v.uid+"/d"])
			}
		default:
			if !told(rv, want, "~"+want) && covered < 0 {
				fault("%s of %s %s at %d is not on record: %v", want, v.name, v.uid, v.rv, recorded[rv])
			}
		}
		for _, c := range claims {
			if c.rv >= v.rv && c.at >= x.born[v] && c.at < at && consume.ScopeCovers(c.scope, v.namespace) {
				fault("progress up to %d is on record at %d, before %s of %s %s at %d", c.rv, c.at, want, v.name, v.uid,
					v.rv)
				break
			}
		}
	}
	return problems
}

// claim is what a progress says of one scope: everything up to rv is on record before at.
type claim struct {
	rv    uint64
	at    int // in the record
	scope string
}

// claims returns what the progress on record says of the scopes of a resource.
func (x *truth) claims(resource string) (all []claim) {
	for _, p := range x.told {
		for _, r := range p.Report.Scopes {
			if r.Resource.String() != resource || r.ResourceVersion == 0 {
				continue
			}
			for _, scope := range x.meant(&p, &r) {
				// above that, histories differ
				all = append(all, claim{min(r.ResourceVersion, x.restored), p.at, scope})
			}
		}
	}
	return all
}

// meant returns the scopes that an entry of a progress stands for.
func (x *truth) meant(p *reported, r *object.ScopeReport) (scopes []string) {
	if r.Scope != "" {
		return []string{r.Scope}
	}
	begins := 0 // of the run, in the record
	for _, at := range x.crashes {
		if at <= p.at {
			begins = max(begins, at)
		}
	}
	for _, s := range x.stops {
		if s.at <= p.at {
			begins = max(begins, s.at)
		}
	}
	observed := map[string]bool{}
	for _, d := range x.record[begins:p.at] {
		switch e := d.Stream; {
		case e == nil || e.Resource.String() != r.Resource.String():
		case e.Kind == object.ScopeStarted && d.Observed < p.Observed:
			observed[e.Scope] = true
		case e.Kind == object.ScopeEnded:
			delete(observed, e.Scope)
		}
	}
	for _, other := range p.Report.Scopes {
		delete(observed, other.Scope)
	}
	return slices.Collect(maps.Keys(observed))
}

// opOf returns the operation of a version under a selection, or "" if it has none.
func opOf(v *version, matches func(*version) bool) string {
	is, was := !v.deleted && matches(v), v.before != nil && !v.before.deleted && matches(v.before)
	switch {
	case is && v.before == nil:
		return "c"
	case is && was:
		return "u"
	case is:
		return "e"
	case was && v.deleted:
		return "d"
	case was:
		return "l"
	default:
		return ""
	}
}

// inOneHistory checks that a delta belongs to a history, and that all deltas of a scope with one
// history number belong to the same one.
func (x *truth) inOneHistory(histories map[string][]int, d *object.Delta, fault func(string, ...any)) {
	if d.Inferred && d.After == nil {
		return // at the resourceVersion of a list
	}
	of := fmt.Sprintf("%s/h%d", d.Scope, d.History)
	before, ok := histories[of]
	if !ok {
		for b := range x.branches {
			before = append(before, b)
		}
	}
	var still []int
	for _, b := range before {
		if slices.ContainsFunc(x.branches[b], func(v *version) bool {
			return v.frameRV() == d.ResourceVersion && v.uid == d.Ref.UID &&
				(d.After == nil || valueOf(d.After) == v.value) &&
				(d.After == nil || !v.deleted) &&
				(d.Inferred || d.Previous == 0 || v.before != nil && v.before.rv == d.Previous)
		}) {
			still = append(still, b)
		}
	}
	if len(still) == 0 {
		fault("%s at %d behind %d is not of the history that %s has told so far", short(d), d.ResourceVersion,
			d.Previous, of)
		return
	}
	histories[of] = still
}

// stateProblems compares the objects that exist for a consumer of the record with those that exist.
// excused: an object may live on.
func stateProblems(record []*object.Delta, resource string, exists map[string]*version, takes func(*version) bool,
	excused func(uid string) bool,
) (problems []string) {
	var t consume.Tracker
	for _, d := range record {
		t.Apply(eventOf(d))
	}
	got := map[string]string{}
	for o := range t.All() {
		if o.Resource == resource {
			got[o.UID] = o.Namespace + "/" + o.Name
		}
	}
	for key, v := range exists {
		if !takes(v) {
			continue
		}
		if got[v.uid] != key {
			problems = append(problems,
				fmt.Sprintf("%s: %s %s does not exist for whoever reads the record", resource, key, v.uid))
		}
		delete(got, v.uid)
	}
	for uid, name := range got {
		if excused(uid) {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s: %s %s lives on for whoever reads the record", resource, name, uid))
	}
	return problems
}

// eventOf returns a delta as consumers read it.
func eventOf(d *object.Delta) *consume.Event {
	e := &consume.Event{Source: "cluster", Time: time.Unix(0, d.Observed)}
	if s := d.Stream; s != nil {
		e.Type = consume.TypePrefix + consume.EventType(s.Kind)
		e.ID = fmt.Sprintf("%s/%s/%s/%d/%d/%s/h%d", s.Scope, s.Kind, s.Snapshot, s.From, max(s.To, s.ResourceVersion),
			s.Reason, s.History)
		e.Resource = s.Resource.Name
		e.APIVersion = strings.TrimPrefix(s.Resource.Group+"/"+s.Resource.Version, "/")
		e.Scope = s.Scope
		e.ResourceVersion = object.FormatVersion(max(s.To, s.ResourceVersion))
		e.Sequence = e.ResourceVersion
		e.Stream = &consume.Stream{
			Snapshot: s.Snapshot, ResourceVersion: object.FormatVersion(s.ResourceVersion), Objects: s.Objects,
			FromResourceVersion: object.FormatVersion(s.From),
			ToResourceVersion:   object.FormatVersion(s.To),
			Reason:              s.Reason,
			Recovered:           s.Recovered,
		}
		return e
	}
	r := d.Ref.Resource
	e.ID = fmt.Sprintf("%s/%d/%s/h%d", d.Ref.UID, d.ResourceVersion, d.Op, d.History)
	e.Resource, e.APIVersion = r.Name, strings.TrimPrefix(r.Group+"/"+r.Version, "/")
	if strings.Contains(d.Scope, "Selector=") {
		e.Scope = d.Scope
	}
	e.Namespace = d.Ref.Namespace()
	e.Name = d.Ref.Name()
	e.UID = d.Ref.UID
	e.Op = d.Op
	e.ResourceVersion = object.FormatVersion(d.ResourceVersion)
	e.Sequence = object.FormatVersion(d.ResourceVersion)
	e.Data = &consume.Data{Op: e.Op, ResourceVersion: e.ResourceVersion, Snapshot: d.Snapshot, Inferred: d.Inferred}
	return e
}
