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

// If a node is lost, its agent is lost too. Its Pods are deleted some time later, and no agent
// would send these deletions. So the central agent observes the objects of deleted nodes:
//
//  1. An informer follows which Nodes exist, and sends only their deletions (followNodes). Its lane
//     is deletedNodes, which hands each deletion and creation to the loop as a nodeEvent.
//  2. The loop starts informers of the scopes that the node's agent had (startInformers). They send
//     a gap, because it is not known what that agent has sent. They start with the objects as they
//     were right before the deletion.
//  3. The checkpoint of Nodes passes the deletion once these scopes are in the checkpoint, so a
//     restart resumes them (awaitAdopted, resumeDeletedNodes).
//  4. The informers end when no object is left, or when the node exists again (endInTime). Then its
//     own agent observes it.

const (
	// minimum: a scheduler that has not seen the deletion may bind a Pod to the node
	observeDeletedFor = 2 * time.Minute
	// limit of changes of Nodes that wait for the loop; beyond it, the watch on Nodes waits
	nodeEvents     = 256
	unknownVersion = 1 // represents the position of a deleted node's agent: it may be any
)

// deletedNodes has the nodes whose objects the manager observes instead of their agents. It is the
// lane of the informer of Nodes. The goroutine of that informer calls Put, TryPut and Room, and
// takes no lock. The loop calls the methods that must be called with mu held. One goroutine for
// each node waits for its end (endInTime).
type deletedNodes struct {
	manager    *Manager
	observeFor time.Duration    // minimum duration
	events     chan *nodeEvent  // deletions and creations of Nodes. Never closed; a store call waits while it is full
	received   broadcast.Signal // notified after an event was received from events
	rules      atomic.Pointer[nodeRules]

	// Guarded by the manager's mu; resource and lane are set before there is an informer of Nodes.
	nodes    map[string]*deletedNode // by node
	resource *object.Resource        // Nodes; nil until they are followed
	lane     store.Lane              // for the deletions of Nodes
	existing *store.Store            // existing Nodes
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

// deletedNode has the observed scopes of one deleted node. Guarded by the manager's mu.
type deletedNode struct {
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
func (d *deletedNodes) Put(ctx context.Context, key string, bytes int, delta *object.Delta) error {
	forward, ev := d.splitDelta(delta)
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
func (d *deletedNodes) TryPut(key string, bytes int, delta *object.Delta) bool {
	forward, ev := d.splitDelta(delta)
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
func (d *deletedNodes) Room() <-chan struct{} {
	if next := d.received.Next(); len(d.events) == cap(d.events) {
		return next
	}
	return d.lane.Room()
}

// splitDelta returns the delta to send, and the event for the loop; either may be nil. Without an
// event, it acknowledges the delta. The Nodes' checkpoint passes a deletion once the bus has it and
// the checkpoint has the scopes of the node.
func (d *deletedNodes) splitDelta(delta *object.Delta) (forward *object.Delta, ev *nodeEvent) {
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
func (m *Manager) followNodes() []*running {
	d := m.deletedNodes
	if d.resource == nil {
		r, ok := m.served.index.Current(&object.Resource{Version: "v1", Name: "nodes", Kind: "Node"})
		if !ok || len(m.informersOfNoNode()) == 0 {
			return nil
		}
		d.resource, d.lane = r, m.o.Lane(r.String())
	}
	all, err := m.sel.ScopeOfAll(d.resource)
	if err == nil {
		if m.active.informers[all.Name] != nil {
			return nil
		}
		err = m.selectNodes()
	}
	if err != nil {
		m.o.Log.Error("cannot follow which nodes are deleted", "err", err)
		return nil
	}
	spec := m.specOf(all, d)
	spec.Snapshots = informer.SnapshotNever
	spec.Every = 0
	spec.Internal = true
	r := m.enroll(spec)
	d.existing = r.Store()
	return []*running{r}
}

// hasSameContent reports whether an internal informer of the manager has the same content under
// sel.
func (r *running) hasSameContent(sel *selection.Selection) bool {
	all, err := sel.ScopeOfAll(r.Resource())
	return err == nil && all.Content() == r.Selection().Content()
}

// informersOfNoNode returns the informers of objects that are on no node. With the name of a node,
// their scopes are those of the node's agent. It must be called with mu held.
func (m *Manager) informersOfNoNode() (out []*running) {
	for _, i := range m.active.informers {
		if p := m.sel.PartOf(i.Resource()); p.FieldSelector != "" &&
			strings.HasSuffix(i.Selection().FieldSelector, p.FieldSelector) {
			out = append(out, i)
		}
	}
	return out
}

// resumeDeletedNodes starts the informers of nodes that the last run observed, or that a reload has
// interrupted. It must be called with mu held.
func (m *Manager) resumeDeletedNodes(ctx context.Context) (out []*running) {
	if m.deletedNodes.resource == nil {
		return nil
	}
	for _, of := range m.informersOfNoNode() {
		if m.active.drains[objectsOf(of.Resource())] != nil {
			continue
		}
		for scope, c := range m.active.origins {
			node, ok := strings.CutPrefix(c.FieldSelector, of.Selection().FieldSelector)
			is := of.Selection().ForNode(node)
			if !ok || node == "" || scope != is.Name {
				continue
			}
			r := m.enrollForNode(of, m.specOf(is, of.Spec().Lane))
			t := m.deletedNodes.nodes[node]
			if t == nil {
				t = m.deletedNodes.addNode(ctx, node)
			}
			t.scopes = append(t.scopes, r)
			out = append(out, r)
		}
	}
	return out
}

// enrollForNode enrolls an informer of a node's objects. of is the informer of the same resource
// that observes objects on no node. It must be called with mu held.
func (m *Manager) enrollForNode(of *running, spec *informer.Spec) *running {
	spec.Shared = true
	r := m.enroll(spec)
	r.Store().CopyFilter(of.Store()) // a new selection may have filters that differ from those of its clauses
	return r
}

// addNode adds a node, and starts the goroutine that removes it. It must be called with mu held.
func (d *deletedNodes) addNode(ctx context.Context, node string) *deletedNode {
	t := &deletedNode{since: time.Now()}
	d.nodes[node] = t
	d.manager.goRun(ctx, func(ctx context.Context) { d.endInTime(ctx, node, t) })
	return t
}

// applyEvent applies the deletion or creation of a Node. It must be called with mu held.
func (d *deletedNodes) applyEvent(ctx context.Context, ev *nodeEvent) {
	m, t := d.manager, d.nodes[ev.node]
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
		t = d.addNode(ctx, ev.node)
		d.startInformers(ctx, t, ev)
	}
	scopes := t.scopes
	m.goRun(ctx, func(ctx context.Context) {
		// The checkpoint of Nodes must not pass the deletion before these scopes are in the
		// checkpoint, or no longer needed.
		for _, r := range scopes {
			if m.awaitAdopted(ctx, r) != nil {
				return
			}
		}
		ev.Acked(nil)
	})
}

// awaitAdopted waits until r, or an informer that replaces it, has a position to resume from. It
// also returns if none replaces r, because its node exists again.
func (m *Manager) awaitAdopted(ctx context.Context, r *running) error {
	next, adopted := r, false
	err := r.Wait(ctx, func(v informer.View) bool {
		m.mu.RLock()
		defer m.mu.RUnlock()
		next, adopted = m.active.informers[r.Name()], v.Adopted
		_, waits := m.active.origins[r.Name()] // for an informer
		return adopted || next != r && (next != nil || !waits)
	})
	if err != nil || adopted || next == nil {
		return err
	}
	return m.awaitAdopted(ctx, next)
}

// startInformers starts the informers of a deleted node. It must be called with mu held.
func (d *deletedNodes) startInformers(ctx context.Context, t *deletedNode, ev *nodeEvent) {
	m := d.manager
	for _, of := range m.informersOfNoNode() {
		spec := m.specOf(of.Selection().ForNode(ev.node), of.Spec().Lane)
		ending := m.active.informers[spec.Scope.Name] // since an earlier deletion of the node
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
		r := m.enrollForNode(of, spec)
		if ending != nil {
			r.after = append(r.after, ending.Done())
		}
		t.scopes = append(t.scopes, r)
		if of.Phase().IsLeaving() { // its content is no longer configured, and r has the same
			m.drain(ctx, r, of.Phase() != informer.PhaseRetiring)
		}
	}
	m.o.Log.Info("a node was deleted: this agent takes over its scopes", "node", ev.node, "rv", ev.at, "scopes",
		len(t.scopes))
	m.start(ctx, t.scopes, nil)
}

// dropInformer removes an informer from its node. It must be called with the manager's mu held.
func (d *deletedNodes) dropInformer(r *running) {
	for _, t := range d.nodes {
		t.scopes = slices.DeleteFunc(slices.Clone(t.scopes), func(o *running) bool { return o == r })
	}
}

// endInTime ends the informers of a node once it exists again or has no objects left.
func (d *deletedNodes) endInTime(ctx context.Context, node string, t *deletedNode) {
	waitsFor := func() endCondition {
		d.manager.mu.RLock()
		defer d.manager.mu.RUnlock()
		return d.endConditionLocked(node, t)
	}
	for ctx.Err() == nil {
		waits := waitsFor()
		changed := func() bool { return waitsFor() != waits }
		switch {
		case waits.over:
			return
		case !waits.until.IsZero():
			within, cancel := context.WithDeadline(ctx, waits.until)
			_ = d.manager.mu.Wait(within, changed)
			cancel()
		case waits.scope != nil:
			_ = waits.scope.Wait(ctx, func(informer.View) bool { return changed() })
		default:
			d.endInformers(ctx, node, t)
		}
	}
}

// endCondition is what the end of a node's informers waits for: a time, or a scope that must be
// empty. If there is neither, they end now.
type endCondition struct {
	until time.Time
	scope *running
	over  bool // they have ended
}

func (d *deletedNodes) endConditionLocked(node string, t *deletedNode) endCondition {
	switch until := t.since.Add(d.observeFor); {
	case d.nodes[node] != t:
		return endCondition{over: true}
	case !t.returned && time.Now().Before(until):
		return endCondition{until: until}
	case t.returned, d.existing.Has(node):
		// or created without an event: while this agent did not run, or if etcd was restored
		return endCondition{}
	}
	for _, r := range t.scopes {
		if v, _ := r.View(); !v.Empty {
			return endCondition{scope: r}
		}
	}
	return endCondition{}
}

// endInformers ends the informers of a node, unless they must wait for something now.
func (d *deletedNodes) endInformers(ctx context.Context, node string, t *deletedNode) {
	m := d.manager
	var all []*running
	reason := object.Removed
	_ = m.decide(ctx, func(context.Context) { // or the manager ends
		if d.endConditionLocked(node, t) == (endCondition{}) {
			t.ending, all = true, t.scopes
			returned := t.returned || d.existing.Has(node)
			if returned {
				reason = object.TakenOver
			}
			m.o.Log.Info("the scopes of a deleted node have ended", "node", node, "returned", returned)
		}
	})
	var g sync.WaitGroup
	for _, r := range all {
		g.Go(func() { m.endScope(ctx, r, r.RemovedAt(), reason) })
	}
	g.Wait()
	_ = m.decide(ctx, func(context.Context) { // or the manager ends
		t.ending = false // a reload may have replaced some: those are ended next
		if len(t.scopes) == 0 && d.nodes[node] == t {
			delete(d.nodes, node)
		}
	})
}
