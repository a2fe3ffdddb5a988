package etcds

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// Every is the least time between two sandwiches of the same resources.
	Every = time.Minute
	// AgainEvery is the longest time after which what is known is compared again. The first times
	// are shorter: two etcds that assign versions in step may seem to be one for some minutes.
	AgainEvery = time.Hour
	firstAgain = 4 * time.Minute
	// enough is how many sandwiches show that two resources share an etcd.
	enough = 3
	// maxInner is how many resources one sandwich lists between its two lists of a representative.
	maxInner = 16
	// maxCompared is how many resources one round compares. A cluster with more needs more rounds,
	// and no minute costs more than others.
	maxCompared = 128
	// maxEtcds bounds the etcds that resources are compared with.
	maxEtcds = 16
	// maxFails is how many lists in a row may fail: those of a representative that is alone in its
	// etcd, and those of other resources in one sandwich.
	maxFails = 3
	// longestRest bounds how many rounds leave out a resource whose list has failed.
	longestRest = 64
)

// customs is the name of all custom resources together.
const customs = "custom resources"

// Resource is what is known of a resource apart from its lists.
type Resource struct {
	Name       string // "deployments.apps"
	Aggregated bool
	Custom     bool   // it has a definition, and no other API server serves it
	History    uint32 // how often its etcd was restored
	Etcd       int    // its number in an earlier run; 0: not known
}

// Etcds knows which resources share an etcd, as far as sandwiches of lists have shown it: see the
// package comment. It is not safe for concurrent use.
type Etcds struct {
	all    map[string]*resource
	last   int           // the highest number of an etcd so far; none is used again
	isVoid bool          // what an earlier run knew is void
	again  time.Time     // when what is known is compared again
	wait   time.Duration // from then until the next time
	// moved has the version of the representative of each etcd in the last round.
	moved map[int]uint64
	left  int // how many resources the round may still compare
	// custom has the names of the custom resources, sorted. One of them is listed for all of them:
	// after each failure, the next one.
	custom []string
	listed int // the index of the one that is listed, modulo their number
}

type resource struct {
	Resource
	etcd    int // its number; 0: not known
	streaks map[int]streak
	apart   map[int]bool // the numbers of etcds that it is proved not to be in
	fails   int          // failed lists in a row
	rests   int          // how many rounds leave it out
	isDue   bool         // the known etcd is to be compared again
}

// streak is a run of sandwiches without one outside.
type streak struct {
	n     int
	at    time.Time // of the last sandwich that counts, as are outer and inner
	outer uint64    // the version of the second list of the representative
	inner uint64    // the version of the list of the resource
}

// New returns an Etcds of no resource. last is the highest number of an etcd in an earlier run.
func New(last int) *Etcds {
	return &Etcds{
		all:   map[string]*resource{},
		last:  last,
		wait:  firstAgain,
		moved: map[int]uint64{},
	}
}

// Observe sets the resources that are observed. A resource that was not observed before has the
// etcd of an earlier run. It returns false if what was known is void.
func (e *Etcds) Observe(now []Resource) (isValid bool) {
	isValid = true
	names := map[string]bool{}
	for _, r := range e.joinCustoms(now) {
		names[r.Name] = true
		known := e.all[r.Name]
		switch {
		case known == nil:
			e.all[r.Name] = &resource{Resource: r}
			if !e.isVoid {
				e.all[r.Name].etcd = r.Etcd
			}
		case known.History != r.History:
			isValid = false
		case known.Aggregated != r.Aggregated:
			known.forget()
		}
		e.all[r.Name].Resource = r
	}
	maps.DeleteFunc(e.all, func(name string, _ *resource) bool { return !names[name] })
	if !isValid {
		e.isVoid = true
		for _, r := range e.all {
			r.forget()
		}
		clear(e.moved)
		e.CompareAgain()
	}
	for _, r := range e.sorted() {
		if r.Aggregated && r.etcd == 0 {
			e.startEtcd(r)
		}
	}
	return isValid
}

// joinCustoms makes one resource of all custom resources.
func (e *Etcds) joinCustoms(all []Resource) (joined []Resource) {
	e.custom = nil
	one := Resource{Name: customs}
	if known := e.all[customs]; known != nil {
		one.History = known.History // that of one which is no longer observed
	}
	for _, r := range slices.SortedFunc(slices.Values(all),
		func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) }) {
		if !r.Custom {
			joined = append(joined, r)
			continue
		}
		e.custom = append(e.custom, r.Name)
		one.History = max(one.History, r.History)
		one.Etcd = cmp.Or(one.Etcd, r.Etcd)
	}
	if len(e.custom) > 0 {
		joined = append(joined, one)
	}
	return joined
}

func (r *resource) forget() {
	r.etcd = 0
	r.streaks = nil
	r.apart = nil
	r.isDue = false
}

// startEtcd makes a resource the first one, and so the representative, of a new etcd.
func (e *Etcds) startEtcd(r *resource) {
	e.last++
	r.etcd = e.last
	r.streaks = nil
	r.apart = nil
}

// Of returns the number of the etcd that has a resource; 0: it is not known.
func (e *Etcds) Of(name string) int {
	if _, isCustom := slices.BinarySearch(e.custom, name); isCustom {
		name = customs
	}
	if r := e.all[name]; r != nil {
		return r.etcd
	}
	return 0
}

// sorted returns the resources in the order in which they represent an etcd: first the one that is
// least likely to have an etcd of its own.
func (e *Etcds) sorted() []*resource {
	rank := func(r *resource) int {
		n := slices.Index([]string{"namespaces", "configmaps", "pods", "services"}, r.Name)
		switch {
		case r.fails > 0:
			return 100 + r.fails
		case n < 0:
			return 50
		}
		return n
	}
	return slices.SortedFunc(maps.Values(e.all), func(a, b *resource) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
}

// representatives returns a resource of each etcd that others are compared with, by number.
func (e *Etcds) representatives() map[int]*resource {
	out := map[int]*resource{}
	for _, r := range e.sorted() {
		if r.etcd != 0 && !r.Aggregated && out[r.etcd] == nil && len(out) < maxEtcds {
			out[r.etcd] = r
		}
	}
	return out
}

// CompareAgain makes the next round compare what is known.
func (e *Etcds) CompareAgain() { e.again, e.wait = time.Time{}, firstAgain }

// Lister returns the resourceVersion of a list of one object without a resourceVersion.
type Lister func(resource string) (uint64, error)

// Round compares what is to be compared now. It calls list for one resource after the other. It
// must not be called more often than Every.
func (e *Etcds) Round(now time.Time, list Lister) {
	if !now.Before(e.again) {
		e.again = now.Add(e.wait)
		e.wait = min(2*e.wait, AgainEvery)
		for _, r := range e.all {
			r.isDue = r.etcd != 0
		}
	}
	e.left = maxCompared
	known := e.representatives()
	for _, r := range e.all {
		r.rests = max(0, r.rests-1)
		maps.DeleteFunc(r.streaks, func(number int, _ streak) bool { return known[number] == nil })
	}
	done := map[int]bool{}
	e.compareOpen(now, done, list)
	// Known etcds come last, as far as the round goes.
	all := e.representatives()
	for _, number := range slices.Sorted(maps.Keys(all)) {
		e.compare(now, number, all[number], e.dueAgain(number, all[number]), list)
	}
	e.compareOpen(now, done, list) // with etcds that were found just now
}

// compareOpen compares the resources of which nothing is known with each etcd that is not done.
func (e *Etcds) compareOpen(now time.Time, done map[int]bool, list Lister) {
	for {
		e.startProvedEtcd()
		number, outer := e.nextUndone(done)
		if outer == nil {
			return
		}
		done[number] = true
		e.compare(now, number, outer, e.candidates(number, outer), list)
	}
}

// startProvedEtcd makes a resource the first one of a new etcd, if it is proved to be in no known
// one.
func (e *Etcds) startProvedEtcd() {
	known := e.representatives()
	if len(known) == maxEtcds {
		return
	}
	for _, r := range e.sorted() {
		if r.etcd != 0 || r.Aggregated || r.rests > 0 {
			continue
		}
		isNew := true
		for number := range known {
			isNew = isNew && r.apart[number]
		}
		if isNew {
			e.startEtcd(r)
			return
		}
	}
}

// nextUndone returns the lowest number of an etcd that the round has not compared, with its
// representative; nil: there is none.
func (e *Etcds) nextUndone(done map[int]bool) (number int, outer *resource) {
	all := e.representatives()
	for _, number := range slices.Sorted(maps.Keys(all)) {
		if !done[number] {
			return number, all[number]
		}
	}
	return 0, nil
}

// compare makes the sandwiches of one etcd: its representative is outer, the other resources are
// inner.
func (e *Etcds) compare(now time.Time, number int, outer *resource, inner []*resource, list Lister) {
	inner = inner[:min(len(inner), e.left)]
	if len(inner) == 0 {
		return
	}
	// No sandwich of these can count before the version of the representative has risen.
	isWaiting := !slices.ContainsFunc(inner, func(r *resource) bool { return r.streaks[number].n == 0 })
	first, ok := e.askVersion(outer, list)
	if !ok {
		if outer.fails >= maxFails && e.isAlone(outer) {
			outer.forget() // nothing can be compared with it
		}
		return
	}
	if isWaiting && first <= e.moved[number] {
		return
	}
	e.left -= len(inner)
	for part := range slices.Chunk(inner, maxInner) {
		first, ok = e.makeSandwich(now, number, outer, first, part, list)
		if !ok {
			return
		}
	}
	e.moved[number] = first
}

// candidates returns the resources that may be in the etcd of a representative (outer), as far as
// is known. It begins with those that have the longest streak.
func (e *Etcds) candidates(number int, outer *resource) (all []*resource) {
	for _, r := range e.sorted() {
		isElsewhere := len(r.streaks) > 0 && r.streaks[number].n == 0
		if r != outer && !r.Aggregated && r.rests == 0 && r.etcd == 0 && !r.apart[number] && !isElsewhere {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b *resource) int { return b.streaks[number].n - a.streaks[number].n })
	return all
}

// dueAgain returns the resources of an etcd that must be compared again with its representative
// (outer).
func (e *Etcds) dueAgain(number int, outer *resource) (all []*resource) {
	for _, r := range e.sorted() {
		if r != outer && !r.Aggregated && r.rests == 0 && r.etcd == number && r.isDue {
			all = append(all, r)
		}
	}
	return all
}

// makeSandwich makes one sandwich. first is the version of its first list of the representative. It
// returns the version of its last list, or false if no conclusion is possible.
func (e *Etcds) makeSandwich(
	now time.Time, number int, outer *resource, first uint64, inner []*resource, list Lister,
) (last uint64, ok bool) {
	versions := map[*resource]uint64{}
	failures := 0
	for _, r := range inner {
		rv, ok := e.askVersion(r, list)
		if ok {
			versions[r], failures = rv, 0
			continue
		}
		failures++
		if failures == maxFails {
			break // the API server may be unreachable
		}
	}
	last, ok = e.askVersion(outer, list)
	if !ok || last < first {
		return 0, false
	}
	for r, rv := range versions {
		r.noteSandwich(number, sandwich{now, first, rv, last})
	}
	return last, true
}

func (e *Etcds) isAlone(r *resource) bool {
	for _, o := range e.all {
		if o != r && o.etcd == r.etcd {
			return false
		}
	}
	return true
}

func (e *Etcds) askVersion(r *resource, list Lister) (rv uint64, ok bool) {
	name := r.Name
	if name == customs {
		name = e.custom[e.listed%len(e.custom)]
	}
	rv, err := list(name)
	if err != nil {
		if r.Name == customs {
			e.listed++
		}
		r.fails = min(r.fails+1, longestRest)
		r.rests = min(1<<min(r.fails, 10), longestRest)
		return 0, false
	}
	r.fails = 0
	return rv, true
}

// sandwich has the versions of the lists A, B, A.
type sandwich struct {
	at                 time.Time
	first, inner, last uint64
}

// noteSandwich notes a sandwich whose inner list is of the resource. number is the etcd of its
// representative.
func (r *resource) noteSandwich(number int, s sandwich) {
	r.isDue = false
	if s.inner < s.first || s.inner > s.last {
		r.etcd = 0
		delete(r.streaks, number)
		if r.apart == nil {
			r.apart = map[int]bool{}
		}
		r.apart[number] = true
		return
	}
	if r.etcd != 0 {
		return // it is still there
	}
	was := r.streaks[number]
	isFirst := was.n == 0
	hasRisen := s.first > was.outer && s.inner > was.inner
	if !isFirst && (!hasRisen || s.at.Sub(was.at) < Every) {
		return
	}
	if was.n+1 == enough {
		r.etcd = number
		r.streaks = nil
		r.apart = nil
		return
	}
	if r.streaks == nil {
		r.streaks = map[int]streak{}
	}
	r.streaks[number] = streak{was.n + 1, s.at, s.last, s.inner}
}
