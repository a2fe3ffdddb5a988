package informers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// If a node is lost, so is its agent, and its Pods are deleted some time later. So the manager of
// the central agent follows which Nodes exist, by an informer that sends only their deletions. When
// a Node is deleted, the manager takes over the scope of its agent until that is empty. The
// informer starts with the objects as they were right before the deletion.

const (
	takeoverFor = 2 * time.Minute // minimum: a scheduler that has not seen the deletion may bind a Pod to the node
	// limit of changes of Nodes that wait for the loop; beyond it, the watch on Nodes waits
	nodeEvents     = 256
	unknownVersion = 1 // represents the position of a deleted node's agent: it may be any
)

// takeovers observes the objects of deleted nodes. It is the lane of the informer of Nodes.
type takeovers struct {
	set      *Manager
	lasts    time.Duration    // minimum duration
	events   chan *nodeEvent  // deletions and creations of Nodes. Never closed; a store call waits while it is full
	received broadcast.Signal // notified after an event was received from events
	rules    atomic.Pointer[nodeRules]

	// Guarded by the manager's mu; resource and lane are set before there is an informer of Nodes.
	nodes    map[string]*takeover // by node
	resource *object.Resource     // Nodes; nil until they are followed
	lane     store.Lane           // for the deletions of Nodes
	existing *store.Store         // existing Nodes
}

// nodeEvent is the deletion or creation of a Node. It acknowledges the delta after left calls of
// Acked.
type nodeEvent struct {
	node    string
	created bool
	at      uint64
	since   time.Time    // when the Node was created
	acker   object.Acker // of the delta
	left    atomic.Int32 // the loop makes one
}

// takeover has the scopes taken over of one node. Guarded by the manager's mu.
type takeover struct {
	since    time.Time
	scopes   []*running
	returned bool // the Node was created again: its own agent observes it
	ending   bool // scopes are being ended
}

// Acked implements object.Acker.
func (ev *nodeEvent) Acked(d *object.Delta) {
	if ev.left.Add(-1) == 0 && ev.acker != nil {
		ev.acker.Acked(d)
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
	if forward == nil {
		return nil
	}
	return d.lane.Put(ctx, key, bytes, forward)
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
	return forward == nil || d.lane.TryPut(key, bytes, forward)
}

// Room implements Lane. There is none while events is full.
func (d *takeovers) Room() <-chan struct{} {
	if next := d.received.Next(); len(d.events) == cap(d.events) {
		return next
	}
	return d.lane.Room()
}

// split returns the delta to send, and the event for the loop; either may be nil. Without an event,
// it acknowledges the delta. The Nodes' checkpoint passes a deletion once the bus has it and the
// checkpoint has the scopes that are taken over because of it.
func (d *takeovers) split(delta *object.Delta) (forward *object.Delta, ev *nodeEvent) {
	if delta.Stream != nil || delta.Op != object.Created && delta.Op != object.Deleted {
		if delta.Acker != nil {
			delta.Acker.Acked(delta)
		}
		return nil, nil
	}
	ev = &nodeEvent{
		node:    delta.Ref.Name(),
		created: delta.Op == object.Created,
		at:      delta.ResourceVersion,
		acker:   delta.Acker,
	}
	ev.left.Store(1)
	if !ev.created {
		ev.since = createdAt(delta.Before)
		forward = d.rules.Load().forward(delta)
	}
	if forward != nil {
		ev.left.Store(2)
		forward.Scope, forward.Acker = selection.NameOfObject(d.resource, ev.node), ev
	}
	return forward, ev
}

// createdAt returns the creation time of the object, zero if unknown.
func createdAt(o *object.Object) time.Time {
	var meta struct {
		Metadata struct{ CreationTimestamp time.Time }
	}
	if o != nil {
		if raw, err := o.AppendJSON(nil); err == nil {
			_ = json.Unmarshal(raw, &meta) // zero if it is not a time
		}
	}
	return meta.Metadata.CreationTimestamp
}

// followNodes returns a new informer that follows which Nodes exist, unless there is one. It must
// be called with mu held.
func (s *Manager) followNodes() []*running {
	d := s.takeovers
	if d.resource == nil {
		r, ok := s.served.index.Current(&object.Resource{Version: "v1", Name: "nodes", Kind: "Node"})
		if !ok || len(s.partlyObserved()) == 0 {
			return nil
		}
		d.resource, d.lane = r, s.o.Lane(r.String())
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
	spec.Snapshots = informer.SnapshotNever
	spec.Every = 0
	spec.Internal = true
	r := s.enroll(spec)
	d.existing = r.Store()
	return []*running{r}
}

// redactsAs reports whether an internal informer of the manager has the same content under sel.
func (r *running) redactsAs(sel *selection.Selection) bool {
	whole, err := sel.Whole(r.Resource())
	return err == nil && whole.Content() == r.Selection().Content()
}

// partlyObserved returns informers of objects on no node: with a node's name, their scopes are its
// agent's. It must be called with mu held.
func (s *Manager) partlyObserved() (out []*running) {
	for _, i := range s.active.informers {
		if p := s.sel.PartOf(i.Resource()); p.FieldSelector != "" &&
			strings.HasSuffix(i.Selection().FieldSelector, p.FieldSelector) {
			out = append(out, i)
		}
	}
	return out
}

// resumeTakeovers resumes the take-overs of the last run, and those that a reload has interrupted.
// It must be called with mu held.
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

// takeOver enrolls an informer of a node's objects. of observes those of the same resource on no
// node. It must be called with mu held.
func (s *Manager) takeOver(of *running, spec *informer.Spec) *running {
	spec.Shared = true
	r := s.enroll(spec)
	r.Store().CopyFilter(of.Store()) // a new selection may have filters that differ from those of its clauses
	return r
}

// add adds a take-over that ends by itself. It must be called with mu held.
func (d *takeovers) add(ctx context.Context, node string) *takeover {
	t := &takeover{since: time.Now()}
	d.nodes[node] = t
	d.set.goRun(ctx, func(ctx context.Context) { d.endInTime(ctx, node, t) })
	return t
}

// apply applies a change of a Node. It must be called with mu held.
func (d *takeovers) apply(ctx context.Context, ev *nodeEvent) {
	s, t := d.set, d.nodes[ev.node]
	switch {
	case ev.created:
		if t != nil {
			t.returned = true
		}
		ev.Acked(nil)
		return
	case t != nil && !t.ending:
		t.since, t.returned = time.Now(), false
	default:
		t = d.add(ctx, ev.node)
		d.begin(ctx, t, ev)
	}
	scopes := t.scopes
	s.goRun(ctx, func(ctx context.Context) {
		// The Nodes' checkpoint must not pass the deletion before these are in the checkpoint, or
		// no longer needed.
		for _, r := range scopes {
			if s.awaitAdopted(ctx, r) != nil {
				return
			}
		}
		ev.Acked(nil)
	})
}

// awaitAdopted waits until r, or an informer that replaces it, has a position to resume from, or
// none replaces it: its node exists again.
func (s *Manager) awaitAdopted(ctx context.Context, r *running) error {
	next, adopted := r, false
	err := r.Wait(ctx, func(v informer.View) bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		next, adopted = s.active.informers[r.Name()], v.Adopted
		_, waits := s.active.origins[r.Name()] // for an informer
		return adopted || next != r && (next != nil || !waits)
	})
	if err != nil || adopted || next == nil {
		return err
	}
	return s.awaitAdopted(ctx, next)
}

// begin starts the informers of a take-over. It must be called with mu held.
func (d *takeovers) begin(ctx context.Context, t *takeover, ev *nodeEvent) {
	s := d.set
	for _, of := range s.partlyObserved() {
		spec := s.specOf(of.Selection().ForNode(ev.node), of.Spec().Lane)
		ending := s.active.informers[spec.Scope.Name] // of an earlier take-over
		// Not the position in the checkpoint: etcd may have been restored since, and the events
		// sent by the node's agent are unknown.
		spec.History = of.Store().View().History
		spec.Origin = &informer.Origin{
			Scope:     checkpoint.Scope{ResourceVersion: ev.at - 1, History: spec.History, LastSeen: ev.since},
			Inherited: true,
			Lost: &store.Loss{
				From:          unknownVersion,
				Since:         ev.since,
				Reason:        object.CheckpointLost,
				Unrecoverable: true,
			},
		}
		// as in a checkpoint: a reload may replace the informer before it has a position
		spec.Scope.Describe(&spec.Origin.Scope)
		r := s.takeOver(of, spec)
		if ending != nil {
			r.after = append(r.after, ending.Done())
		}
		t.scopes = append(t.scopes, r)
		if of.Phase().IsLeaving() { // its content is no longer configured, and r has the same
			s.drain(ctx, r, of.Phase() != informer.PhaseRetiring)
		}
	}
	s.o.Log.Info("a node was deleted: this agent takes over its scopes", "node", ev.node, "rv", ev.at, "scopes",
		len(t.scopes))
	s.start(ctx, t.scopes, nil)
}

// drop removes an informer from its take-over. It must be called with the manager's mu held.
func (d *takeovers) drop(r *running) {
	for _, t := range d.nodes {
		t.scopes = slices.DeleteFunc(slices.Clone(t.scopes), func(o *running) bool { return o == r })
	}
}

// endInTime ends a take-over once the node exists again or has no objects left.
func (d *takeovers) endInTime(ctx context.Context, node string, t *takeover) {
	waitsFor := func() tenure {
		d.set.mu.RLock()
		defer d.set.mu.RUnlock()
		return d.waitsForLocked(node, t)
	}
	for ctx.Err() == nil {
		waits := waitsFor()
		changed := func() bool { return waitsFor() != waits }
		switch {
		case waits.over:
			return
		case !waits.until.IsZero():
			within, cancel := context.WithDeadline(ctx, waits.until)
			_ = d.set.mu.Wait(within, changed)
			cancel()
		case waits.scope != nil:
			_ = waits.scope.Wait(ctx, func(informer.View) bool { return changed() })
		default:
			d.end(ctx, node, t)
		}
	}
}

// tenure is the condition for the end of a take-over: a time, or a scope that must be empty. If
// there is neither, it ends now.
type tenure struct {
	until time.Time
	scope *running
	over  bool // the take-over has ended
}

func (d *takeovers) waitsForLocked(node string, t *takeover) tenure {
	switch until := t.since.Add(d.lasts); {
	case d.nodes[node] != t:
		return tenure{over: true}
	case !t.returned && time.Now().Before(until):
		return tenure{until: until}
	case t.returned, d.existing.Has(node):
		// or created without an event: while this agent did not run, or if etcd was restored
		return tenure{}
	}
	for _, r := range t.scopes {
		if v, _ := r.View(); !v.Empty {
			return tenure{scope: r}
		}
	}
	return tenure{}
}

// end ends the informers of a take-over, unless it must wait for something now.
func (d *takeovers) end(ctx context.Context, node string, t *takeover) {
	s := d.set
	var all []*running
	reason := object.Removed
	_ = s.decide(ctx, func(context.Context) { // or the manager ends
		if d.waitsForLocked(node, t) == (tenure{}) {
			t.ending, all = true, t.scopes
			returned := t.returned || d.existing.Has(node)
			if returned {
				reason = object.TakenOver
			}
			s.o.Log.Info("the take-over of a node has ended", "node", node, "returned", returned)
		}
	})
	var g sync.WaitGroup
	for _, r := range all {
		g.Go(func() { s.end(ctx, r, r.RemovedAt(), reason) })
	}
	g.Wait()
	_ = s.decide(ctx, func(context.Context) { // or the manager ends
		t.ending = false // a reload may have replaced some: those are ended next
		if len(t.scopes) == 0 && d.nodes[node] == t {
			delete(d.nodes, node)
		}
	})
}
