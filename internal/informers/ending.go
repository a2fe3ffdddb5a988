package informers

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// If nothing observes a scope any more, the bus must have its scope.ended: without that, a reader
// cannot distinguish it from a scope whose agent is down. The checkpoint keeps the scope until the
// bus has the event, so that the next run sends it if this one ends before. A scope of the same
// name begins after that.
//
// If a scope is no longer selected, its tombstone sends its end, after its left events. If no
// resourceVersion is later than its last event, the left events follow (Tombstone.sendLater).

// ending is a scope whose end is being sent.
type ending struct{ done chan struct{} }

// announceEnd sends the end of a scope that has neither an informer nor a tombstone. c has its
// position, and why it ends. It must be called with mu held.
func (m *Manager) announceEnd(ctx context.Context, name string, c *checkpoint.Scope) {
	if m.active.endings[name] != nil {
		return
	}
	e := &ending{done: make(chan struct{})}
	m.active.endings[name] = e
	if m.o.Memory != nil {
		m.o.Memory.Track(name, func() (checkpoint.Position, bool) { return checkpoint.Position{Scope: *c}, true }, nil)
	}
	event := &object.StreamEvent{
		Kind:            object.ScopeEnded,
		Scope:           name,
		History:         c.History,
		ResourceVersion: c.ResourceVersion,
		Resource: &object.Resource{
			Group:      c.Group,
			Version:    c.Version,
			Name:       c.Resource,
			Kind:       c.Kind,
			Namespaced: c.Namespaced,
		},
		End:        object.EndReason(c.Ended.Reason),
		Successors: c.Ended.Successors,
	}
	lane := m.o.Lane(name)
	reports := m.active.lingering[name].ResourceVersion != 0
	m.goRun(ctx, func(ctx context.Context) {
		if reports && m.reportEnd(ctx) != nil {
			return // the manager ends: the next run sends the end
		}
		if store.Send(ctx, lane, event, m.o.Now()) != nil {
			return // the manager ends: the next run sends it
		}
		_ = m.decide(ctx, func(context.Context) { // or the manager ends
			delete(m.active.endings, name)
			delete(m.active.lingering, name)
			m.forget(name)
			m.release(name)
			close(e.done)
		})
	})
}

// endOf describes the end of a scope whose informer has ended. It must be called with mu held.
func endOf(r *running, reason object.EndReason) *checkpoint.Scope {
	p, ok := r.Position()
	if !ok || p.Resource == "" {
		p.ResourceVersion, p.History = r.Store().View().Reached, r.Store().View().History
		r.Selection().Describe(&p.Scope)
	}
	p.Ended = &checkpoint.Ended{Reason: string(reason)}
	return &p.Scope
}

// successorsOf returns the names of the scopes that begin after a tombstone, and can have the
// objects of its scope.
func successorsOf(t *informer.Tombstone) (names []string) {
	for _, o := range t.Successors() {
		if in := t.Selection().Namespace; o.Waits && (in == "" || o.Selection().Takes(in)) {
			names = append(names, o.Name())
		}
	}
	return names
}
