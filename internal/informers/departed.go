package informers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A node that is gone takes its agent along, and what becomes of its Pods is for nobody to see: they are deleted some time
// later. So the set of the companion follows which Nodes there are, by an informer whose deltas go no further, but for the
// deletions of Nodes. When one is deleted, the scope of its agent is taken over until it is empty: by an informer that begins
// with the objects as they were right before that deletion.

const (
	// departedFor is for how long at least a node is looked after: a Pod may be bound to it by somebody who does not know yet.
	departedFor = 2 * time.Minute
	// departedAtOnce is how many deletions of Nodes may wait to be heeded; then the watch on Nodes waits.
	departedAtOnce = 256
	// unknownVersion stands for the resourceVersion up to which the agent of a node that is gone has come: any.
	unknownVersion = 1
)

func newDepartures(s *Set) *departures {
	return &departures{set: s, lasts: departedFor, heard: make(chan *departure, departedAtOnce)}
}

// departures takes over what belongs to nodes that are gone.
type departures struct {
	set      *Set
	lasts    time.Duration       // for how long at least
	lane     store.Lane          // for the deletions of Nodes
	heard    chan *departure     // of Nodes that go and come. Never closed; a store call waits while it is full
	received broadcast.Signal    // one was taken out of heard
	taken    map[string]*taken   // by node; under the set's mu
	resource *object.Resource    // Nodes
	nodes    *store.Store        // those that there are
	scopeOf  func(string) string // of one node's Node
	told     atomic.Pointer[tellable]
}

// departure is the deletion of a Node, or that one was made.
type departure struct {
	node  string
	back  bool
	at    uint64
	since time.Time // there was nothing of it before
	both  *both
}

// taken is what was taken over of one node.
type taken struct {
	since    time.Time
	scopes   []*running
	returned bool // the Node was made again: its own agent observes it
	ending   bool // scopes are being ended
	watched  bool // of the goroutine of run: another one waits for the end
}

// both tells inner once Acked and done were called.
type both struct {
	inner object.Acker
	left  atomic.Int32
}

func (b *both) Acked(d *object.Delta) {
	if b.left.Add(-1) == 0 && b.inner != nil {
		b.inner.Acked(d)
	}
}

// Put implements Lane. Deltas of Nodes go no further than here, but for deletions.
func (d *departures) Put(ctx context.Context, key string, bytes int, delta *object.Delta) error {
	forward, heard := d.look(delta)
	if heard != nil {
		select {
		case d.heard <- heard:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch {
	case forward != nil:
		return d.lane.Put(ctx, key, bytes, forward)
	case heard == nil || heard.both == nil: // else who heeds it acknowledges
		acknowledge(delta)
	}
	return nil
}

// TryPut implements Lane. It may have a deletion heeded twice, which changes nothing.
func (d *departures) TryPut(key string, bytes int, delta *object.Delta) bool {
	forward, heard := d.look(delta)
	if heard != nil {
		select {
		case d.heard <- heard:
		default:
			return false
		}
	}
	switch {
	case forward != nil:
		return d.lane.TryPut(key, bytes, forward)
	case heard == nil || heard.both == nil:
		acknowledge(delta)
	}
	return true
}

func acknowledge(d *object.Delta) {
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
}

// Room implements Lane. There is none while heard is full.
func (d *departures) Room() <-chan struct{} {
	if next := d.received.Next(); len(d.heard) == cap(d.heard) {
		return next
	}
	return d.lane.Room()
}

// look is what is sent of a delta, and what is to be heeded; nil: nothing. The checkpoint of the Nodes passes a deletion once
// it is on the bus, and the scopes that are taken over because of it are remembered.
func (d *departures) look(delta *object.Delta) (*object.Delta, *departure) {
	switch {
	case delta.Stream != nil:
		return nil, nil
	case delta.Op == object.Created:
		return nil, &departure{node: delta.Ref.Name(), back: true}
	case delta.Op != object.Deleted:
		return nil, nil
	}
	name := delta.Ref.Name()
	b := &both{inner: delta.Acker}
	b.left.Store(2)
	forward := d.told.Load().forward(delta)
	if forward == nil {
		b.left.Store(1)
	} else {
		forward.Scope, forward.Acker = d.scopeOf(name), b
	}
	return forward, &departure{node: name, at: delta.ResourceVersion, since: createdAt(delta.Before), both: b}
}

// createdAt is when the object was made, zero where that cannot be told.
func createdAt(o *object.Object) time.Time {
	var meta struct {
		Metadata struct {
			CreationTimestamp time.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	if o != nil {
		raw, err := o.AppendJSON(nil)
		if err != nil || json.Unmarshal(raw, &meta) != nil {
			return time.Time{}
		}
	}
	return meta.Metadata.CreationTimestamp
}

// follow makes the informer that follows which Nodes there are, once. The caller holds mu.
func (s *Set) follow(all []selection.APIResource) []*running {
	d := s.departures
	if d == nil || d.taken != nil || len(s.partlyObserved()) == 0 {
		return nil
	}
	r, ok := selection.Current(all, &object.Resource{Version: "v1", Name: "nodes", Kind: "Node"})
	if !ok {
		return nil
	}
	d.taken, d.resource = map[string]*taken{}, r
	d.lane = s.o.Lane(r.String())
	d.scopeOf = func(node string) string { return selection.NameOfObject(r, node) }
	return append(s.followNodes(), s.resumeTaken()...)
}

// followNodes makes the informer of follow, and makes it anew where Nodes are redacted otherwise. The caller holds mu.
func (s *Set) followNodes() []*running {
	d := s.departures
	scope, err := s.sel.Whole(d.resource)
	if err == nil {
		err = s.tellNodes()
	}
	if err != nil {
		s.o.Log.Error("nodes that go cannot be followed", "err", err)
		return nil
	}
	i := s.newInformer(scope, d)
	i.snapshots, i.every, i.hearing, i.silent = SnapshotNever, 0, nil, true
	d.nodes = i.store
	return []*running{s.enroll(i)}
}

// redactsAs tells that what is observed for the set itself has the same content under sel.
func (i *informer) redactsAs(sel *selection.Selection) bool {
	whole, err := sel.Whole(i.resource)
	return err == nil && whole.Content() == i.selection.Content()
}

// enroll adds an informer to the set. The caller holds mu.
func (s *Set) enroll(i *informer) *running {
	s.begins(i)
	if !s.isParting(i.scope) {
		s.track(i)
	}
	r := &running{informer: i, set: &s.mu.Signal, done: make(chan struct{}), after: s.bidding(i.resource)}
	if ending := s.informers[i.scope]; ending != nil {
		r.after = append(r.after, ending.done)
	}
	s.informers[i.scope] = r
	return r
}

// track has the position of an informer remembered. If a farewell to the same scope is not said yet, its position is remembered until it
// is: launch tracks the informer after it.
func (s *Set) track(i *informer) {
	if s.o.Memory != nil {
		s.o.Memory.Track(i.scope, i.position)
	}
}

// forget has nothing of a scope remembered, except a farewell that is not said yet: it is forgotten with its end. The caller holds mu.
func (s *Set) forget(scope string) {
	if s.o.Memory != nil && !s.isParting(scope) {
		s.o.Memory.Forget(scope)
	}
}

// isParting reports whether a farewell to a scope is not said yet. The caller holds mu.
func (s *Set) isParting(scope string) bool {
	return slices.ContainsFunc(s.farewells, func(f *farewell) bool { return f.scope == scope && !f.isSaid() })
}

// partlyObserved are the informers of what no node has: their scopes, with the name of a node, are those of its agent. The caller
// holds mu.
func (s *Set) partlyObserved() (out []*running) {
	for _, i := range s.informers {
		if p := s.sel.PartOf(i.resource); p.FieldSelector != "" && strings.HasSuffix(i.selection.FieldSelector, p.FieldSelector) {
			out = append(out, i)
		}
	}
	return out
}

// resumeTaken goes on with what the last run had taken over. The caller holds mu.
func (s *Set) resumeTaken() (out []*running) {
	for _, of := range s.partlyObserved() {
		if s.drains[objectsOf(of.resource)] != nil {
			continue
		}
		for scope, c := range s.origins {
			node, ok := strings.CutPrefix(c.FieldSelector, of.selection.FieldSelector)
			is := of.selection.ForNode(node)
			if !ok || node == "" || scope != is.Name {
				continue
			}
			r := s.enroll(s.departed(of, node))
			t := s.departures.taken[node]
			if t == nil {
				t = &taken{since: time.Now()}
				s.departures.taken[node] = t
			}
			t.scopes = append(t.scopes, r)
			out = append(out, r)
		}
	}
	return out
}

// departed makes an informer of what a node has, of the resource of which another observes what no node has.
func (s *Set) departed(of *running, node string) *informer {
	i := s.newInformer(of.selection.ForNode(node), of.lane)
	i.store.CopyFilter(of.store) // a new selection may have others than its clauses
	i.shared = true
	return i
}

// takeOver has what a node that is gone has left observed, by those of scopes that begin.
func (s *Set) takeOver(g *departure) (begin, scopes []*running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.departures.taken[g.node]; t != nil && !t.ending {
		t.since, t.returned = time.Now(), false
		return nil, t.scopes
	}
	t := &taken{since: time.Now()}
	s.departures.taken[g.node] = t
	for _, of := range s.partlyObserved() {
		i := s.departed(of, g.node)
		r := s.enroll(i)
		// Whatever is remembered of the scope by now: etcd may have been restored since, and what the agent of the node has
		// told is not known.
		history := of.store.History()
		i.store.SetHistory(history)
		i.resume = &origin{
			Scope: checkpoint.Scope{
				Group: i.resource.Group, Version: i.resource.Version, Resource: i.resource.Name, Kind: i.resource.Kind,
				Namespaced: i.resource.Namespaced, ResourceVersion: g.at - 1, History: history, LastSeen: g.since,
			},
			inherited: true,
			lost:      &store.Loss{From: unknownVersion, Since: g.since, Reason: object.CheckpointLost, Unrecoverable: true},
		}
		r.heir = true
		t.scopes = append(t.scopes, r)
		if of.leaving != "" { // it has the content that is no longer configured, and so has this one
			s.bringToRest(r, of.leaving == PhaseDraining)
		}
	}
	s.o.Log.Info("a node is gone: what it has left is observed from here", "node", g.node, "rv", g.at, "scopes", len(t.scopes))
	return t.scopes, t.scopes
}

// run heeds departures until ctx ends, and ends what is no longer needed.
func (d *departures) run(ctx context.Context) error {
	var g errgroup.Group
	for {
		changed := d.set.mu.Next()
		for node, t := range d.unwatched() {
			g.Go(func() error {
				d.watch(ctx, node, t)
				return nil
			})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return g.Wait()
		case heard := <-d.heard:
			d.received.Notify()
			if heard.back {
				d.set.returned(heard.node)
				continue
			}
			begin, scopes := d.set.takeOver(heard)
			for _, r := range begin {
				ictx, cancel := context.WithCancel(ctx)
				d.set.mu.Lock()
				r.cancel = cancel
				d.set.mu.Unlock()
				g.Go(func() error {
					defer cancel()
					d.set.observe(ictx, r)
					return nil
				})
			}
			g.Go(func() error {
				// The Nodes' checkpoint must not pass before these are there, or no longer needed.
				for _, r := range scopes { // ended: its node is back
					if r.Wait(ctx, func(v View) bool { return v.Adopted || v.Ended }) != nil {
						return nil
					}
				}
				heard.both.Acked(nil)
				return nil
			})
		}
	}
}

// drop forgets an informer that was taken over and has ended, for another one to take its place. The caller holds the set's mu.
func (d *departures) drop(r *running) {
	for _, t := range d.taken {
		t.scopes = slices.DeleteFunc(slices.Clone(t.scopes), func(o *running) bool { return o == r })
	}
}

// returned notes that a node is there again.
func (s *Set) returned(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.departures.taken[node]; t != nil {
		t.returned = true
	}
}

// unwatched returns the nodes that were taken over since the last call. Nobody has to hear that they are watched.
func (d *departures) unwatched() map[string]*taken {
	d.set.mu.RLock()
	defer d.set.mu.RUnlock()
	out := map[string]*taken{}
	for node, t := range d.taken {
		if !t.watched {
			t.watched, out[node] = true, t
		}
	}
	return out
}

// watch ends what was taken over of a node, once the node is back or has nothing left.
func (d *departures) watch(ctx context.Context, node string, t *taken) {
	for {
		waits := d.waitsFor(node, t)
		changed := func() bool { return d.waitsFor(node, t) != waits }
		switch {
		case waits.over:
			return
		case !waits.until.IsZero():
			within, cancel := context.WithDeadline(ctx, waits.until)
			_ = d.set.mu.Wait(within, changed)
			cancel()
		case waits.scope != nil:
			_ = waits.scope.Wait(ctx, func(View) bool { return changed() })
		default:
			d.conclude(ctx, node, t)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// tenure is what the end of a take-over waits for: for a time, or for a scope to begin or to be empty; neither: it is due.
type tenure struct {
	until    time.Time
	scope    *running
	returned bool // the node is back
	over     bool // it has ended
}

// waitsFor returns what the end of a take-over waits for.
func (d *departures) waitsFor(node string, t *taken) tenure {
	d.set.mu.RLock()
	defer d.set.mu.RUnlock()
	return d.waitsForLocked(node, t)
}

func (d *departures) waitsForLocked(node string, t *taken) tenure {
	if d.taken[node] != t {
		return tenure{over: true}
	}
	for _, r := range t.scopes {
		if r.cancel == nil {
			return tenure{scope: r}
		}
	}
	if !t.returned {
		if until := t.since.Add(d.lasts); time.Now().Before(until) {
			return tenure{until: until}
		}
	}
	// It may have come back where no event told: while this agent was away, or etcd was restored.
	if t.returned || d.nodes.Has(node) {
		return tenure{returned: true}
	}
	for _, r := range t.scopes {
		if v, _ := r.View(); !v.Empty {
			return tenure{scope: r}
		}
	}
	return tenure{}
}

// conclude ends the informers of a node, unless there is something to wait for by now.
func (d *departures) conclude(ctx context.Context, node string, t *taken) {
	s := d.set
	s.mu.Lock()
	waits := d.waitsForLocked(node, t)
	if waits != (tenure{returned: waits.returned}) {
		s.mu.Unlock()
		return
	}
	t.ending = true
	all := t.scopes
	s.mu.Unlock()
	s.o.Log.Info("a node that was gone is not observed from here any more", "node", node, "returned", waits.returned)
	var g errgroup.Group
	for _, r := range all {
		g.Go(func() error {
			s.conclude(ctx, r, r.vanished.Load())
			return nil
		})
	}
	_ = g.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		d.drop(r)
	}
	t.ending = false // a reload may have replaced some: those are ended next
	if len(t.scopes) == 0 && d.taken[node] == t {
		delete(d.taken, node)
	}
}
