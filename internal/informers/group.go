package informers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// A progress has one entry for each resource, which stands for all of its scopes that do not
// differ, and an entry for each scope that does. So its size depends on the resources, and hardly
// on the scopes. If too many differ, the entry stands for all: then it claims the least of any, and
// has the interruptions of all.

const (
	// behind is how much earlier the time of a scope may be than that of others with the same
	// entry.
	behind = 90 * time.Second
	// nearby is how far apart two interruptions of one reason, or two hidden spans, may be that are
	// reported as one.
	nearby = 2 * time.Second
	// snapshotsNearby is how much earlier the last snapshot of a scope may have begun than that of
	// others with the same time in an event.
	snapshotsNearby = 10 * time.Minute
	// maxNamed is how many scopes of a resource have entries of their own because they differ.
	maxNamed = 8
)

// entries are the entries of one resource, and the scopes that they stand for.
type entries struct {
	joined []object.ScopeReport
	scopes []scopeReport
}

// group joins the reports of the scopes of each resource. They are sorted by resource.
func group(all []scopeReport) (out []entries) {
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(r scopeReport) bool { return r.Resource.String() != all[0].Resource.String() })
		if n < 0 {
			n = len(all)
		}
		out = append(out, entries{joined: join(all[:n]), scopes: all[:n]})
		all = all[n:]
	}
	return out
}

// join returns the entries of one resource: the one for several scopes is the last.
func join(all []scopeReport) (out []object.ScopeReport) {
	var like []scopeReport
	for _, r := range all {
		if r.started && r.ResourceVersion != 0 && !r.ends {
			like = append(like, r)
		} else {
			out = append(out, r.ScopeReport)
		}
	}
	if len(like) == 0 {
		return out
	}
	same, different := split(like)
	if len(different) > maxNamed {
		same, different = like, nil
	}
	for _, r := range different {
		out = append(out, r.ScopeReport)
	}
	return append(out, merge(same))
}

// split returns the scopes that do not differ from most others, and the rest.
func split(all []scopeReport) (same, different []scopeReport) {
	spans := newUnions(all)
	var newest time.Time
	for i := range all {
		newest = later(newest, all[i].To)
	}
	classes := map[string]int{}
	class := func(r *scopeReport) string {
		return fmt.Sprint(r.History, newest.Sub(r.To) > behind, spans.of(&r.ScopeReport))
	}
	most := ""
	for i := range all {
		c := class(&all[i])
		classes[c]++
		if classes[c] > classes[most] {
			most = c
		}
	}
	for i := range all {
		if class(&all[i]) == most {
			same = append(same, all[i])
		} else {
			different = append(different, all[i])
		}
	}
	return same, different
}

// merge returns the entry that stands for several scopes of a resource.
func merge(all []scopeReport) object.ScopeReport {
	out := object.ScopeReport{
		Resource:        all[0].Resource,
		Count:           len(all),
		ResourceVersion: all[0].ResourceVersion,
		History:         all[0].History,
		To:              all[0].To,
		SnapshotBegan:   all[0].SnapshotBegan,
	}
	for i := range all[1:] {
		r := &all[i+1]
		if cmp.Or(cmp.Compare(r.History, out.History), cmp.Compare(r.ResourceVersion, out.ResourceVersion)) < 0 {
			out.History, out.ResourceVersion = r.History, r.ResourceVersion
		}
		if r.To.Before(out.To) {
			out.To = r.To
		}
		if r.SnapshotBegan.Before(out.SnapshotBegan) {
			out.SnapshotBegan = r.SnapshotBegan
		}
	}
	spans := newUnions(withFormer(all, out.History, out.ResourceVersion))
	out.Interruptions, out.Hidden = spans.interruptions, spans.hidden
	return out
}

// withFormer returns reports with the former hidden spans that were not over at a version. The
// entry claims no more for any of the scopes, so a reader that begins there must know of them.
func withFormer(all []scopeReport, history uint32, version uint64) []scopeReport {
	all = slices.Clone(all)
	for i := range all {
		r := &all[i]
		if r.History != history {
			continue // versions before a restore cannot be compared
		}
		for _, h := range r.FormerHidden {
			if h.Until.ResourceVersion > version {
				r.Hidden = append(slices.Clip(r.Hidden), h)
			}
		}
	}
	return all
}

// unions has the interruptions of several scopes, and their hidden spans. Those that overlap, or
// are near each other, are one.
type unions struct {
	interruptions []object.Interruption
	hidden        []object.HiddenSpan
}

func newUnions(all []scopeReport) (u unions) {
	for i := range all {
		u.interruptions = append(u.interruptions, all[i].Interruptions...)
		u.hidden = append(u.hidden, all[i].Hidden...)
	}
	slices.SortStableFunc(u.interruptions, func(a, b object.Interruption) int {
		return cmp.Or(cmp.Compare(a.Why, b.Why), a.From.Compare(b.From))
	})
	u.interruptions = fold(u.interruptions, func(a, b object.Interruption) (object.Interruption, bool) {
		if a.Why != b.Why || !isNear(a.Until, b.From) {
			return a, false
		}
		a.Until = lastEnd(a.Until, b.Until)
		return a, true
	})
	slices.SortStableFunc(u.interruptions, func(a, b object.Interruption) int { return a.From.Compare(b.From) })
	slices.SortStableFunc(u.hidden, func(a, b object.HiddenSpan) int { return a.From.Time.Compare(b.From.Time) })
	u.hidden = fold(u.hidden, func(a, b object.HiddenSpan) (object.HiddenSpan, bool) {
		isOver := !a.Until.IsZero()
		if isOver && !isNear(a.Until.Time, b.From.Time) {
			return a, false
		}
		a.From.ResourceVersion = min(a.From.ResourceVersion, b.From.ResourceVersion)
		if !isOver || b.Until.IsZero() {
			a.Until = object.Point{}
			return a, true
		}
		a.Until.ResourceVersion = max(a.Until.ResourceVersion, b.Until.ResourceVersion)
		a.Until.Time = later(a.Until.Time, b.Until.Time)
		return a, true
	})
	return u
}

// fold joins neighbors.
func fold[T any](all []T, join func(a, b T) (T, bool)) (out []T) {
	for _, next := range all {
		if n := len(out); n > 0 {
			joined, ok := join(out[n-1], next)
			if ok {
				out[n-1] = joined
				continue
			}
		}
		out = append(out, next)
	}
	return out
}

// of returns the indices of the unions that have an interruption, or a hidden span, of a scope.
func (u *unions) of(r *object.ScopeReport) (indices []int) {
	for _, i := range r.Interruptions {
		indices = append(indices, slices.IndexFunc(u.interruptions, func(o object.Interruption) bool {
			return o.Why == i.Why && !i.From.Before(o.From) && (o.Until.IsZero() || !i.From.After(o.Until))
		}))
	}
	for _, h := range r.Hidden {
		indices = append(indices, -1-slices.IndexFunc(u.hidden, func(o object.HiddenSpan) bool {
			return !h.From.Time.Before(o.From.Time) && (o.Until.IsZero() || !h.From.Time.After(o.Until.Time))
		}))
	}
	slices.Sort(indices)
	return slices.Compact(indices)
}

// isNear reports whether a span that begins at from joins one that ends at until, zero: it is open.
func isNear(until, from time.Time) bool { return until.IsZero() || from.Sub(until) <= nearby }

// lastEnd returns the later end, zero if one is open.
func lastEnd(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	return later(a, b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// share moves the times that most scopes have to the event, so that it says them once. A time of
// the event may be earlier than that of a scope: then it claims less, until the next event. A scope
// that ends has no next one, so it keeps its own time; ends has the names of these. A scope whose
// last snapshot is not known prevents that for the snapshots: it would get the time of the others.
func share(r *object.Report, ends map[string]bool) {
	var tos, begans []*time.Time
	hasSnapshots := true
	for i := range r.Scopes {
		s := &r.Scopes[i]
		if !ends[s.Scope] {
			tos = append(tos, &s.To)
		}
		begans = append(begans, &s.SnapshotBegan)
		hasSnapshots = hasSnapshots && (s.ResourceVersion == 0 || !s.SnapshotBegan.IsZero())
	}
	r.To = shareTime(tos, behind)
	if hasSnapshots {
		r.SnapshotBegan = shareTime(begans, snapshotsNearby)
	}
}

// shareTime returns the earliest of the times that are at most within before the newest one, and
// clears all of these.
func shareTime(all []*time.Time, within time.Duration) time.Time {
	var newest time.Time
	for _, t := range all {
		newest = later(newest, *t)
	}
	least := newest
	for _, t := range all {
		if t.IsZero() || newest.Sub(*t) > within {
			continue
		}
		if t.Before(least) {
			least = *t
		}
		*t = time.Time{}
	}
	return least
}

// shareEtcds moves the etcd that most resources have to the event, so that it says it once. It does
// so if the event says the etcds of all of its resources.
func shareEtcds(r *object.Report) {
	etcds, sizes := map[string]string{}, map[string]int{}
	for i := range r.Scopes {
		name := r.Scopes[i].Resource.String()
		etcds[name] = cmp.Or(etcds[name], r.Scopes[i].Etcd)
	}
	for _, etcd := range etcds {
		if etcd == "" {
			return
		}
		sizes[etcd]++
	}
	for _, etcd := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[etcd] > sizes[r.Etcd] {
			r.Etcd = etcd
		}
	}
	for i := range r.Scopes {
		s := &r.Scopes[i]
		s.Etcd = etcds[s.Resource.String()]
		if s.Etcd == r.Etcd {
			s.Etcd = ""
		}
	}
}

// pack distributes the entries over events of at most limit bytes. All entries of a resource are in
// one event: an entry for several scopes stands for those that no other entry of the event names.
// If they do not fit, each scope has an entry, in as many events as are needed.
func pack(all []entries, limit int) (events [][]object.ScopeReport) {
	var event []object.ScopeReport
	size := 0
	add := func(together []object.ScopeReport) {
		n := sizeOfAll(together)
		if size > 0 && size+n > limit {
			events = append(events, event)
			event, size = nil, 0
		}
		event = append(event, together...)
		size += n
	}
	for _, e := range all {
		if sizeOfAll(e.joined) <= limit {
			add(e.joined)
			continue
		}
		for _, r := range e.scopes {
			add([]object.ScopeReport{r.ScopeReport})
		}
	}
	return append(events, event) // also without a scope: the agent is alive
}

// sizeOfAll returns an upper bound of the size of entries in an event, in bytes.
func sizeOfAll(all []object.ScopeReport) (size int) {
	const (
		entry        = 240 // names of members, two times, two numbers and an etcd
		interruption = 120
		hidden       = 200
	)
	for i := range all {
		r := &all[i]
		size += entry + 2*len(r.Scope) + len(r.Resource.Name) + len(r.Resource.Group)
		size += interruption*len(r.Interruptions) + hidden*len(r.Hidden)
	}
	return size
}
