package informers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// If a node is lost, so is its agent, and no agent observes the node's Pods, which are deleted some time later. So the manager of the central agent
// follows which Nodes exist, by an informer whose deltas are not sent, except for deletions of Nodes. When a Node is deleted, the manager
// takes over the scope of its agent until that is empty. The informer begins with the objects as they were right before the deletion.

const (
	// takeoverFor is how long a take-over lasts at least: a scheduler that has not seen the deletion may bind a Pod to the node.
	takeoverFor = 2 * time.Minute
	// nodeEvents is how many changes of Nodes may wait for the loop; then the watch on Nodes waits.
	nodeEvents = 256
	// unknownVersion stands for the position of the agent of a node that is gone: it may be any.
	unknownVersion = 1
)

// takeovers observes the objects of nodes that are gone. It is the lane of the informer of Nodes.
type takeovers struct {
	set    *Manager
	lasts  time.Duration   // for how long at least
	events chan *nodeEvent // of Nodes that are deleted and created. Never closed; a store call waits while it is full
	// received is notified after an event was taken out of events.
	received broadcast.Signal
	rules    atomic.Pointer[nodeRules]

	// Guarded by the manager's mu; resource, lane and scopeOf are set before there is an informer of Nodes.
	nodes    map[string]*takeover // by node
	resource *object.Resource     // Nodes, nil: they are not followed yet
	lane     store.Lane           // for the deletions of Nodes
	existing *store.Store         // Nodes that exist
	scopeOf  func(string) string  // of one node's Node
}

// nodeEvent is the deletion or creation of a Node.
type nodeEvent struct {
	node    string
	created bool
	at      uint64
	since   time.Time // when the Node was created
	both    *both
}

// takeover is what was taken over of one node. Guarded by the manager's mu.
type takeover struct {
	since    time.Time
	scopes   []*running
	returned bool // the Node was created again: its own agent observes it
	ending   bool // scopes are being ended
}

// both calls inner once Acked was called as often as left said.
type both struct {
	inner object.Acker
	left  atomic.Int32
}

func (b *both) Acked(d *object.Delta) {
	if b.left.Add(-1) == 0 && b.inner != nil {
		b.inner.Acked(d)
	}
}

// Put implements Lane. It sends no deltas of Nodes except deletions.
func (d *takeovers) Put(ctx context.Context, key string, bytes int, delta *object.Delta) error {
	forward, ev := d.split(delta)
	if ev != nil {
		select {
		case d.events <- ev:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch {
	case forward != nil:
		return d.lane.Put(ctx, key, bytes, forward)
	case ev == nil || ev.both == nil: // else the loop acknowledges it
		acknowledge(delta)
	}
	return nil
}

// TryPut implements Lane. A deletion may be applied twice, which changes nothing.
func (d *takeovers) TryPut(key string, bytes int, delta *object.Delta) bool {
	forward, ev := d.split(delta)
	if ev != nil {
		select {
		case d.events <- ev:
		default:
			return false
		}
	}
	switch {
	case forward != nil:
		return d.lane.TryPut(key, bytes, forward)
	case ev == nil || ev.both == nil:
		acknowledge(delta)
	}
	return true
}

func acknowledge(d *object.Delta) {
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
}

// Room implements Lane. There is none while events is full.
func (d *takeovers) Room() <-chan struct{} {
	if next := d.received.Next(); len(d.events) == cap(d.events) {
		return next
	}
	return d.lane.Room()
}

// split returns the delta to send, and the event that the loop has to apply; nil: none. The checkpoint of the Nodes passes a deletion once
// the deletion is on the bus and the checkpoint has the scopes that are taken over because of it.
func (d *takeovers) split(delta *object.Delta) (*object.Delta, *nodeEvent) {
	switch {
	case delta.Stream != nil:
		return nil, nil
	case delta.Op == object.Created:
		return nil, &nodeEvent{node: delta.Ref.Name(), created: true}
	case delta.Op != object.Deleted:
		return nil, nil
	}
	name := delta.Ref.Name()
	b := &both{inner: delta.Acker}
	b.left.Store(2)
	forward := d.rules.Load().forward(delta)
	if forward == nil {
		b.left.Store(1)
	} else {
		forward.Scope, forward.Acker = d.scopeOf(name), b
	}
	return forward, &nodeEvent{node: name, at: delta.ResourceVersion, since: createdAt(delta.Before), both: b}
}

// createdAt returns when the object was created, zero if that is not known.
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

// followNodes makes the informer that follows which Nodes exist, unless there is one. The caller holds mu.
func (s *Manager) followNodes() []*running {
	d := s.takeovers
	if d.resource == nil {
		r, ok := selection.Current(s.served.all, &object.Resource{Version: "v1", Name: "nodes", Kind: "Node"})
		if !ok || len(s.partlyObserved()) == 0 {
			return nil
		}
		d.resource, d.lane = r, s.o.Lane(r.String())
		d.scopeOf = func(node string) string { return selection.NameOfObject(r, node) }
	}
	whole, err := s.sel.Whole(d.resource)
	if err == nil {
		if s.active.informers[whole.Name] != nil {
			return nil
		}
		err = s.selectNodes()
	}
	if err != nil {
		s.o.Log.Error("cannot follow which nodes are deleted", "err", err)
		return nil
	}
	spec := s.specOf(whole, d)
	spec.Snapshots, spec.Every, spec.Internal = scope.SnapshotNever, 0, true
	r := s.enroll(spec)
	d.existing = r.Store()
	return []*running{r}
}

// redactsAs reports whether an informer that the manager runs for itself has the same content under sel.
func (r *running) redactsAs(sel *selection.Selection) bool {
	whole, err := sel.Whole(r.Resource())
	return err == nil && whole.Content() == r.Selection().Content()
}

// partlyObserved returns the informers of objects that are on no node: their scopes, with the name of a node, are those of its agent. The
// caller holds mu.
func (s *Manager) partlyObserved() (out []*running) {
	for _, i := range s.active.informers {
		if p := s.sel.PartOf(i.Resource()); p.FieldSelector != "" && strings.HasSuffix(i.Selection().FieldSelector, p.FieldSelector) {
			out = append(out, i)
		}
	}
	return out
}

// resumeTakeovers resumes the take-overs of the last run. The caller holds mu.
func (s *Manager) resumeTakeovers(ctx context.Context) (out []*running) {
	if s.takeovers.resource == nil {
		return nil
	}
	for _, of := range s.partlyObserved() {
		if s.active.drains[objectsOf(of.Resource())] != nil {
			continue
		}
		for scope, c := range s.active.origins {
			node, ok := strings.CutPrefix(c.FieldSelector, of.Selection().FieldSelector)
			is := of.Selection().ForNode(node)
			if !ok || node == "" || scope != is.Name {
				continue
			}
			r := s.takeOver(of, s.specOf(is, of.Spec().Lane))
			t := s.takeovers.nodes[node]
			if t == nil {
				t = s.takeovers.add(ctx, node)
			}
			t.scopes = append(t.scopes, r)
			out = append(out, r)
		}
	}
	return out
}

// takeOver enrolls an informer of the objects of a node. of observes the objects of the same resource that are on no node. The caller holds
// mu.
func (s *Manager) takeOver(of *running, spec *scope.Spec) *running {
	spec.Shared = true
	r := s.enroll(spec)
	r.Store().CopyFilter(of.Store()) // a new selection may have filters that differ from those of its clauses
	return r
}

// add adds a take-over, and starts the goroutine that ends it. The caller holds mu.
func (d *takeovers) add(ctx context.Context, node string) *takeover {
	t := &takeover{since: time.Now()}
	d.nodes[node] = t
	d.set.goRun(ctx, func(ctx context.Context) { d.endInTime(ctx, node, t) })
	return t
}

// apply applies a change of a Node. The caller holds mu.
func (d *takeovers) apply(ctx context.Context, ev *nodeEvent) {
	s, t := d.set, d.nodes[ev.node]
	switch {
	case ev.created:
		if t != nil {
			t.returned = true
		}
		return
	case t != nil && !t.ending:
		t.since, t.returned = time.Now(), false
	default:
		t = d.add(ctx, ev.node)
		d.begin(ctx, t, ev)
	}
	scopes := slices.Clone(t.scopes)
	s.goRun(ctx, func(ctx context.Context) {
		// The Nodes' checkpoint must not pass the deletion before these are in the checkpoint, or no longer needed.
		for _, r := range scopes { // ended: its node exists again
			if r.Wait(ctx, func(v scope.View) bool { return v.Adopted || v.Ended }) != nil {
				return
			}
		}
		ev.both.Acked(nil)
	})
}

// begin starts the informers of a take-over. The caller holds mu.
func (d *takeovers) begin(ctx context.Context, t *takeover, ev *nodeEvent) {
	s := d.set
	for _, of := range s.partlyObserved() {
		spec := s.specOf(of.Selection().ForNode(ev.node), of.Spec().Lane)
		ending := s.active.informers[spec.Scope.Name] // of an earlier take-over
		// The position in the checkpoint is not used: etcd may have been restored since, and it is not known what the agent of the node has
		// sent.
		spec.History = of.Store().History()
		spec.Origin = &scope.Origin{
			Scope: checkpoint.Scope{
				Group: of.Resource().Group, Version: of.Resource().Version, Resource: of.Resource().Name, Kind: of.Resource().Kind,
				Namespaced: of.Resource().Namespaced, ResourceVersion: ev.at - 1, History: spec.History, LastSeen: ev.since,
			},
			Inherited: true,
			Lost:      &store.Loss{From: unknownVersion, Since: ev.since, Reason: object.CheckpointLost, Unrecoverable: true},
		}
		r := s.takeOver(of, spec)
		if ending != nil {
			r.after = append(r.after, ending.Done())
		}
		t.scopes = append(t.scopes, r)
		if of.Phase().IsLeaving() { // its content is no longer configured, and r has the same
			s.drain(ctx, r, of.Phase() != scope.PhaseRetiring)
		}
	}
	s.o.Log.Info("a node is gone: this agent takes over its scopes", "node", ev.node, "rv", ev.at, "scopes", len(t.scopes))
	s.start(ctx, t.scopes, nil)
}

// drop removes an informer from the take-over that it belongs to. The caller holds the manager's mu.
func (d *takeovers) drop(r *running) {
	for _, t := range d.nodes {
		t.scopes = slices.DeleteFunc(slices.Clone(t.scopes), func(o *running) bool { return o == r })
	}
}

// endInTime ends a take-over once the node exists again or has no objects left.
func (d *takeovers) endInTime(ctx context.Context, node string, t *takeover) {
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
			_ = waits.scope.Wait(ctx, func(scope.View) bool { return changed() })
		default:
			d.end(ctx, node, t)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// tenure is what the end of a take-over waits for: a time, or a scope that has to be empty; neither: it ends now.
type tenure struct {
	until    time.Time
	scope    *running
	returned bool // the node exists again
	over     bool // the take-over has ended
}

// waitsFor returns what the end of a take-over waits for.
func (d *takeovers) waitsFor(node string, t *takeover) tenure {
	d.set.mu.RLock()
	defer d.set.mu.RUnlock()
	return d.waitsForLocked(node, t)
}

func (d *takeovers) waitsForLocked(node string, t *takeover) tenure {
	if d.nodes[node] != t {
		return tenure{over: true}
	}
	if !t.returned {
		if until := t.since.Add(d.lasts); time.Now().Before(until) {
			return tenure{until: until}
		}
	}
	// It may have been created without an event: while this agent did not run, or if etcd was restored.
	if t.returned || d.existing.Has(node) {
		return tenure{returned: true}
	}
	for _, r := range t.scopes {
		if v, _ := r.View(); !v.Empty {
			return tenure{scope: r}
		}
	}
	return tenure{}
}

// end ends the informers of a take-over, unless it has to wait for something by now.
func (d *takeovers) end(ctx context.Context, node string, t *takeover) {
	s := d.set
	var all []*running
	_ = s.decide(ctx, func(context.Context) { // or the manager ends
		waits := d.waitsForLocked(node, t)
		if waits != (tenure{returned: waits.returned}) {
			return
		}
		t.ending, all = true, t.scopes
		s.o.Log.Info("the take-over of a node has ended", "node", node, "returned", waits.returned)
	})
	var g errgroup.Group
	for _, r := range all {
		g.Go(func() error {
			s.end(ctx, r, r.RemovedAt())
			return nil
		})
	}
	_ = g.Wait()
	_ = s.decide(ctx, func(context.Context) { // or the manager ends
		for _, r := range all {
			d.drop(r)
		}
		t.ending = false // a reload may have replaced some: those are ended next
		if len(t.scopes) == 0 && d.nodes[node] == t {
			delete(d.nodes, node)
		}
	})
}
