package apiview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// change is one event of a watch.
type change struct {
	version        uint64
	time           time.Time
	before, object *object.Object // nil: it did not exist, it is gone
}

// replay shows changes one after the other.
type replay struct {
	order []step // of all resources

	mu      sync.Mutex
	shown   map[*content]int
	now     time.Time     // of the change that was shown last
	moved   chan struct{} // closed, and replaced, when another change is shown
	watched chan struct{} // closed by the first watch
	asked   time.Time     // when the last list or watch began
}

// step is the next change of a resource.
type step struct {
	content *content
	version uint64
	time    time.Time // when it is shown
}

// Log collects what happened after a moment, for View.Follow. It keeps objects compressed.
type Log struct {
	entries map[string][]entry // by resource, in the order of the record
	highest map[string]uint64  // version, by resource
	packers map[string]*packer
}

// entry is a version of an object.
type entry struct {
	version uint64
	time    time.Time
	history uint32
	ref     *object.Ref
	object  *object.Object // nil: it is gone, or the record does not have it
	gone    bool
}

// Add adds the next version of the record. It keeps no reference to it.
func (l *Log) Add(v *timeline.Version) {
	if l.packers == nil {
		l.entries = map[string][]entry{}
		l.highest = map[string]uint64{}
		l.packers = map[string]*packer{}
	}
	p := l.packers[v.Resource]
	if p == nil {
		plural, group, _ := strings.Cut(v.Resource, ".")
		p = &packer{resource: &object.Resource{Group: group, Name: plural}, redacted: map[*object.Object]bool{}}
		l.packers[v.Resource] = p
	}
	if v.Kind != "" {
		p.sample = timeline.Version{Object: consume.Object{
			Namespace: v.Namespace,
		}, APIVersion: v.APIVersion, Kind: v.Kind}
	}
	e := entry{
		version: number(v.ResourceVersion),
		time:    v.Time,
		history: v.History,
		gone:    v.Gone(),
	}
	if v.Again { // its form is later than its version
		e.version = max(e.version, l.highest[v.Resource])
	}
	l.highest[v.Resource] = max(l.highest[v.Resource], e.version)
	if !e.gone && v.After != nil {
		e.object = p.pack(v, v.After)
		e.ref = e.object.Ref
	} else {
		e.ref = object.NewRef(p.resource, v.Namespace, v.Name, v.UID)
	}
	l.entries[v.Resource] = append(l.entries[v.Resource], e)
}

// Follow adds what happened after the moment, to be shown by Play. It must be called before the
// view is served. A resource that begins in the log is served without objects until then. The log
// is not needed afterwards.
func (v *View) Follow(l *Log) error {
	if v.replay != nil {
		return errors.New("a view is replayed once")
	}
	v.replay = &replay{
		shown:   map[*content]int{},
		now:     v.now,
		moved:   make(chan struct{}),
		watched: make(chan struct{}),
	}
	v.beginResources(l)
	var common []step
	var others [][]step
	for _, r := range v.resources {
		if r.other != nil {
			continue
		}
		if err := r.follow(l.entries[r.content.name]); err != nil {
			return err
		}
		if p := l.packers[r.content.name]; p != nil {
			maps.Copy(r.redacted, p.redacted)
		}
		var steps []step
		for i := range r.log {
			steps = append(steps, step{r.content, r.log[i].version, r.log[i].time})
		}
		if timeline.InCommonEtcd(r.content.name) {
			common = append(common, steps...)
		} else {
			others = append(others, steps)
		}
	}
	v.replay.order = ordered(common, others)
	return nil
}

// beginResources adds the resources that only the log has: those of a CRD that was created after
// the moment, or that were captured from then on.
func (v *View) beginResources(l *Log) {
	definitions := l.definitions()
	for name, p := range l.packers {
		if slices.ContainsFunc(v.resources, func(r *resource) bool { return r.content.name == name }) {
			continue
		}
		k, ok := kindOf(name, []*timeline.Version{&p.sample}, definitions[name])
		if !ok {
			continue
		}
		r := newResource(name, &k, definitions[name])
		first := slices.MinFunc(l.entries[name], func(a, b entry) int { return cmp.Compare(a.version, b.version) })
		r.first.version = max(first.version, 2) - 1
		if rv, _, ok := v.moment.ResourceVersion(); ok {
			r.first.version = rv
		}
		v.resources = append(v.resources, r)
	}
	v.addVersions()
}

// definitions returns the last definition of each custom resource.
func (l *Log) definitions() map[string]*definition {
	const crds = "customresourcedefinitions.apiextensions.k8s.io"
	var versions []*timeline.Version
	for _, e := range l.entries[crds] {
		if e.object == nil {
			continue
		}
		if body, err := e.object.AppendJSON(nil); err == nil {
			versions = append(versions, &timeline.Version{After: body})
		}
	}
	return definitions(versions)
}

// lag is by how much later than another change of the same etcd a change may be observed, unless a
// gap delayed it.
const lag = time.Second

// ordered returns the order of a replay. Resources of one etcd are in the order of
// resourceVersions; a step that was observed late does not delay those after it. The times of the
// common resources show which of the others are of another etcd: their order is by time.
func ordered(common []step, others [][]step) []step {
	common = punctual(common)
	var apart []step
	same := slices.Clone(common)
	for _, steps := range others {
		if elsewhere(common, steps) {
			apart = append(apart, punctual(steps)...)
		} else {
			same = append(same, steps...)
		}
	}
	out := append(punctual(same), apart...)
	slices.SortStableFunc(out, func(a, b step) int { return a.time.Compare(b.time) })
	return out
}

// punctual sorts steps by resourceVersion, and sets the time of each to the earliest one of it and
// those after it.
func punctual(steps []step) []step {
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.version, b.version) })
	for i := len(steps) - 2; i >= 0; i-- {
		if steps[i+1].time.Before(steps[i].time) {
			steps[i].time = steps[i+1].time
		}
	}
	return steps
}

// elsewhere reports whether most steps were observed at other times than the common steps of
// similar resourceVersions.
func elsewhere(common, steps []step) bool {
	apart := 0
	for _, s := range steps {
		i, _ := slices.BinarySearchFunc(common, s, func(c, s step) int { return cmp.Compare(c.version, s.version) })
		early := i > 0 && common[i-1].time.Sub(s.time) > lag
		late := i < len(common) && s.time.Sub(common[i].time) > lag
		if early || late {
			apart++
		}
	}
	return apart > len(steps)/2
}

// follow makes the log of a resource.
func (c *content) follow(entries []entry) error {
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.version, b.version) })
	if c.history == nil && len(entries) > 0 {
		first := entries[0].history
		c.history = &first
	}
	current := map[string]*object.Object{}
	for _, o := range c.first.objects {
		current[o.Ref.Key] = o
	}
	for _, e := range entries {
		if e.history != *c.history {
			return fmt.Errorf("etcd was restored at %s: replay the time before it or after it",
				e.time.Format(time.RFC3339))
		}
		next := change{
			version: max(e.version, c.first.version+1),
			time:    e.time,
			before:  current[e.ref.Key],
			object:  e.object,
		}
		switch {
		case e.object != nil:
			current[e.ref.Key] = e.object
		case e.gone && next.before != nil && next.before.Ref.UID == e.ref.UID:
			delete(current, e.ref.Key)
		default:
			continue // it was not there, or the record does not have it
		}
		c.log = append(c.log, next)
	}
	return nil
}

// withVersion returns an object with another resourceVersion.
func withVersion(body []byte, rv uint64) []byte {
	var members, meta map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || json.Unmarshal(members["metadata"], &meta) != nil {
		return body
	}
	meta["resourceVersion"] = json.RawMessage(strconv.Quote(object.FormatVersion(rv)))
	var err error
	members["metadata"], err = json.Marshal(meta)
	if err != nil {
		return body
	}
	out, err := json.Marshal(members)
	if err != nil {
		return body
	}
	return out
}

// list returns the objects of a resource as of now.
func (v *View) list(r *resource) *list {
	shown := 0
	if p := v.replay; p != nil {
		p.mu.Lock()
		p.asked = time.Now()
		shown = p.shown[r.content]
		p.mu.Unlock()
	}
	return r.list(shown)
}

// list returns the objects after a number of changes.
func (c *content) list(shown int) *list {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := &c.first
	if c.last != nil && c.last.shown <= shown {
		from = c.last
	}
	if from.shown == shown {
		return from
	}
	l := &list{objects: slices.Clone(from.objects), version: from.version, shown: shown}
	for _, next := range c.log[from.shown:shown] {
		l.apply(&next)
	}
	if c.last == nil || c.last.shown < shown {
		c.last = l
	}
	return l
}

func (l *list) apply(c *change) {
	l.version = max(l.version, c.version)
	if c.object == nil {
		if i, ok := l.index(c.before.Ref.Key); ok {
			l.objects = slices.Delete(l.objects, i, i+1)
		}
		return
	}
	i, ok := l.index(c.object.Ref.Key)
	if ok {
		l.objects[i] = c.object
	} else {
		l.objects = slices.Insert(l.objects, i, c.object)
	}
}

// listAt returns the objects at a resourceVersion that a list had, nil if none of the changes that
// were shown leads to it.
func (c *content) listAt(version uint64, shown int) *list {
	n, ok := c.countUpTo(version, shown)
	if !ok {
		return nil
	}
	if l := c.list(n); l.version == version {
		return l
	}
	return nil
}

// countUpTo returns how many changes have been shown up to a resourceVersion; false: it is before
// the moment.
func (c *content) countUpTo(version uint64, shown int) (int, bool) {
	if version < c.first.version {
		return 0, false
	}
	n := sort.Search(shown, func(i int) bool { return c.log[i].version > version })
	return n, true
}

// clock returns the time to which ages are relative.
func (v *View) clock() time.Time {
	if p := v.replay; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.now
	}
	return v.now
}

// position returns how many changes of a resource have been shown, and a channel that is closed
// when there are more of any resource; nil if there never are.
func (v *View) position(r *resource) (int, <-chan struct{}) {
	p := v.replay
	if p == nil {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown[r.content], p.moved
}

// noteWatch notes that a client watches.
func (v *View) noteWatch() {
	if p := v.replay; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = time.Now()
		select {
		case <-p.watched:
		default:
			close(p.watched)
		}
	}
}

// quiet is how long no list and no watch may have begun before a replay begins, so that all
// informers of a controller list at its start.
const quiet = 2 * time.Second

// Play shows the changes, speed times as fast as they were observed; 0: as fast as clients read. It
// begins when a client watches, and other clients have listed. begun is called then. It returns how
// many changes it has shown.
func (v *View) Play(ctx context.Context, speed float64, begun func()) (int, error) {
	p := v.replay
	select {
	case <-p.watched:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		p.mu.Lock()
		rest := quiet - time.Since(p.asked)
		p.mu.Unlock()
		if rest <= 0 {
			break
		}
		if err := pause.For(ctx, rest); err != nil {
			return 0, err
		}
	}
	begun()
	start, from := time.Now(), p.now
	for i, s := range p.order {
		if speed > 0 {
			if err := pause.For(ctx, time.Duration(float64(s.time.Sub(from))/speed)-time.Since(start)); err != nil {
				return i, err
			}
		}
		p.showStep(s)
	}
	return len(p.order), nil
}

func (r *replay) showStep(s step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown[s.content]++
	if s.time.After(r.now) {
		r.now = s.time
	}
	close(r.moved)
	r.moved = make(chan struct{})
}
