package informers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// rediscoverUnserved is the interval of discovery while a resource that the selection names is not
// served.
const rediscoverUnserved = 5 * time.Second

// Run discovers and observes until ctx ends. When it returns, everything that it started has ended.
// It must be called at most once.
func (m *Manager) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	defer close(m.ended)
	m.progress.began = m.o.Now()
	m.mu.Lock()
	m.ran, m.group = true, g
	m.sharing.resume(nil)
	if m.o.Memory != nil {
		m.sharing.resume(m.o.Memory.Scopes())
		for name, c := range m.o.Memory.Scopes() {
			m.active.remembered[schema.GroupResource{Group: c.Group, Resource: c.Resource}] = true
			m.active.raiseHistory(&object.Resource{Group: c.Group, Name: c.Resource}, c.Aggregated, c.History)
			if c.Ended != nil {
				m.announceEnd(ctx, name, &c)
				continue
			}
			m.active.origins[name] = informer.Origin{Scope: c}
		}
	}
	m.mu.Unlock()
	m.extensions.Need(m.takesExtensions(m.sel))
	m.goRun(ctx, func(ctx context.Context) {
		m.extensions.Run(ctx, func(ctx context.Context, ev discovery.Event) {
			_ = m.decide(ctx, func(ctx context.Context) { m.applyExtension(ctx, ev) }) // or the manager ends
		})
	})
	m.goRun(ctx, m.loop, m.deps.Denials.Run, m.namespaces.run, m.discover, m.sendProgress, m.noteInterruptions)
	m.goRun(ctx, m.followVersion, m.compareEtcds, m.compareForms)
	return g.Wait()
}

func (m *Manager) goRun(ctx context.Context, all ...func(context.Context)) {
	for _, f := range all {
		m.group.Go(func() error {
			f(ctx)
			return nil
		})
	}
}

func (m *Manager) loop(ctx context.Context) {
	var nodes chan *nodeEvent
	if m.deletedNodes != nil {
		nodes = m.deletedNodes.events
	}
	for {
		var input func(context.Context)
		select {
		case <-ctx.Done():
			return
		case input = <-m.inputs:
		case ev := <-nodes:
			m.deletedNodes.received.Notify()
			input = func(ctx context.Context) { m.deletedNodes.applyEvent(ctx, ev) }
		}
		m.mu.Lock()
		input(ctx)
		m.mu.Unlock()
	}
}

// errEnded is the error of calls after the manager has ended.
var errEnded = errors.New("the informers have ended")

// decide makes the loop call f, and returns after that. If f was not called, the error is the cause
// of ctx, or errEnded.
func (m *Manager) decide(ctx context.Context, f func(ctx context.Context)) error {
	done := make(chan struct{})
	input := func(ctx context.Context) {
		defer close(done)
		f(ctx)
	}
	select {
	case m.inputs <- input:
		<-done
		return nil
	case <-m.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start runs tombstones, and informers until ctx ends or they are cancelled. It must be called with
// mu held.
func (m *Manager) start(ctx context.Context, begin []*running, tombstones []*informer.Tombstone) {
	for _, r := range begin {
		own, cancel := context.WithCancel(ctx)
		r.cancel = cancel
		m.goRun(own, func(ctx context.Context) {
			defer cancel()
			r.Run(ctx, r.after, func() { m.track(r.Informer) })
		})
	}
	for _, t := range tombstones {
		reports := m.active.lingering[t.Name()].ResourceVersion != 0
		m.goRun(ctx, func(ctx context.Context) {
			if !reports || m.reportEnd(ctx) == nil { // or the manager ends
				t.Run(ctx)
			}
			_ = m.decide(ctx, func(context.Context) { // or the manager ends
				m.active.raiseHistory(t.Resource(), t.IsAggregated(), t.Store().View().History)
				if m.active.tombstones[t.Name()] == t {
					delete(m.active.tombstones, t.Name())
					delete(m.active.lingering, t.Name())
				}
				t.SetRemoved()
				m.release(t.Name())
			})
		})
	}
}

// discover asks for the served resources, at intervals and when an extension changes, until ctx
// ends.
func (m *Manager) discover(ctx context.Context) {
	began := time.Now()
	m.extensions.WaitListed(ctx)
	if m.recallScopes(ctx) != nil {
		return
	}
	for b, first := retry.New(), true; ; {
		wait, err := m.discoverOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = b.Next(err)
			if r := apiserver.Reason(err); !apiserver.IsShared(r) || m.deps.Outage.Begin(r, time.Now()) {
				m.o.Log.Warn("cannot discover resources, retrying", "err", err, "retry_in", wait)
			}
		default:
			b = retry.New()
			m.deps.Outage.End(time.Now())
			if first {
				first = false
				m.goRun(ctx, func(ctx context.Context) { m.awaitCapture(ctx, began) })
			}
		}
		if !m.extensions.Wait(ctx, wait) {
			return
		}
	}
}

// discoverOnce asks for the served resources, and passes the answer to the loop. It returns the
// delay before the next call.
func (m *Manager) discoverOnce(ctx context.Context) (again time.Duration, err error) {
	now, err := m.askServed(ctx)
	if err == nil {
		m.extensions.AwaitDefinitions(ctx, now.all)
		err = m.namespaces.resumeSplit(ctx, &now)
	}
	again = discovery.DiscoverEvery
	ended := m.decide(ctx, func(ctx context.Context) {
		if m.served.failure == nil {
			m.served.failing = time.Now()
		}
		m.served.failure = err
		if err == nil {
			m.applyServed(ctx, &now)
		}
		if len(m.served.missing) > 0 {
			again = rediscoverUnserved
		}
	})
	return again, cmp.Or(ended, err)
}

func (m *Manager) askServed(ctx context.Context) (now served, err error) {
	now.discovery = m.discoveries.Add(1)
	found, err := m.finder.Discover(ctx)
	if err == nil {
		now.all = found.Resources
		now.unwatchable = found.Unwatchable
		now.unknown = found.Unknown
		now.index = selection.NewIndex(now.all)
	}
	return now, err
}

// applyServed drains informers of versions that are no longer served. It starts informers of
// resources that have none, and tombstones of scopes that only the last run had. An answer older
// than the one in force changes nothing. It must be called with mu held.
func (m *Manager) applyServed(ctx context.Context, now *served) {
	if now.discovery < m.served.discovery {
		return
	}
	m.kickInformers(func(i *running) bool { // it was not served
		current, ok := now.index.Current(i.Resource())
		return ok && *current == *i.Resource() && !discovery.IsBuiltIn(i.Resource().Group) &&
			i.FailsBecause(apiserver.ReasonNotFound)
	})
	m.drainOutdated(ctx, now)
	chosen, missing := m.sel.Choose(now.all, now.unknown, m.resourcesTakenBy(nil))
	now.missing, now.uncapturable = m.sel.Uncapturable(missing, now.unwatchable)
	m.warnOfMissing(now)
	if len(now.unknown) > 0 && !slices.Equal(now.unknown, m.served.unknown) {
		m.o.Log.Warn("cannot discover some API groups", "groups", now.unknown)
	}
	m.served = *now
	m.namespaces.forgetUnserved()
	m.observeChosen(ctx, chosen, nil)
	m.scopes.retain(chosen)
	m.retireUndefined(ctx)
}

// warnOfMissing logs patterns of the selection that match no resource that can be captured, unless
// they did so before. It must be called with mu held.
func (m *Manager) warnOfMissing(now *served) {
	for _, u := range now.missing {
		if !slices.Contains(m.served.missing, u) {
			m.o.Log.Warn("a selected resource is not served, checking again", "resource", u, "every",
				rediscoverUnserved)
		}
	}
	for _, u := range now.uncapturable {
		if !slices.Contains(m.served.uncapturable, u) {
			m.o.Log.Warn("cannot capture a resource, checking again", "resource", u.Pattern, "err", whyUncapturable(u))
		}
	}
}

// whyUncapturable returns the error of a pattern, with the fix.
func whyUncapturable(u selection.Uncapturable) error {
	return fmt.Errorf("%w: %s: remove it from resources", apiserver.ErrUnsupported, u.Why)
}

// drainOutdated drains the informers of versions that are no longer served. It must be called with
// mu held.
func (m *Manager) drainOutdated(ctx context.Context, now *served) {
	for _, r := range m.active.informers {
		if !r.Phase().IsLeaving() && r.RemovedAt() == 0 && now.isOutdated(r.Resource()) {
			m.o.Log.Warn("a resource is now served in another version: restarting its informer", "scope", r.Name(),
				"version", r.Resource().Version)
			m.drain(ctx, r, true)
		}
	}
}

// isOutdated reports whether a resource is served, but not in its version or as its kind. If its
// version could not be discovered, it may still be served.
func (s *served) isOutdated(r *object.Resource) bool {
	current, ok := s.index.Current(r)
	return ok && *current != *r && !slices.Contains(s.unknown, r.APIVersion())
}

// observeChosen starts informers of chosen resources that have none or are of deleted nodes, and
// tombstones of scopes that are no longer selected. ended are the replaced informers. It must be
// called with mu held.
func (m *Manager) observeChosen(ctx context.Context, chosen []selection.Choice, ended []*running) (added []*running) {
	for _, spec := range m.newSpecs(chosen, ended) {
		added = append(added, m.enroll(spec))
	}
	if m.deletedNodes != nil {
		added = append(added, m.followNodes()...)
		added = append(added, m.resumeDeletedNodes(ctx)...)
	}
	m.start(ctx, added, m.tombstonesOf(ctx, added))
	m.startCreated(ctx)
	return added
}

// release frees the metrics and lane of a scope without an informer and a tombstone. It must be
// called with mu held.
func (m *Manager) release(scope string) {
	if m.active.informers[scope] != nil || m.active.tombstones[scope] != nil || m.active.endings[scope] != nil {
		return
	}
	m.deps.Metrics.Forget(scope)
	if m.o.ReleaseLane != nil {
		m.o.ReleaseLane(scope)
	}
}

// fate selects the treatment of a scope whose informer is removed.
type fate uint8

const (
	succeeded  fate = iota // another informer resumes from its position
	deselected             // a tombstone sends the left events of its objects
	gone                   // the bus has everything: the scope is deleted from the checkpoint
)

// removeGone removes an ended informer, and announces why its scope ends. The bus must have
// everything of the scope. It must be called with mu held.
func (m *Manager) removeGone(ctx context.Context, r *running, reason object.EndReason) {
	end := endOf(r, reason)
	m.remove(r, gone)
	m.announceEnd(ctx, r.Name(), end)
}

// remove removes an ended informer, with all state that its fate does not need. No other function
// does. It must be called with mu held.
func (m *Manager) remove(r *running, f fate) {
	a := &m.active
	delete(a.informers, r.Name())
	a.lingering[r.Name()] = lastReport(r)
	defer r.SetRemoved()
	if m.deletedNodes != nil {
		m.deletedNodes.dropInformer(r)
	}
	a.raiseHistory(r.Resource(), r.IsAggregated(), r.Store().View().History)
	p, ok := r.Position()
	switch {
	case f == gone:
		gr := groupResource(r.Resource())
		a.remembered[gr] = true
		if m.deps.LastEvents != nil {
			m.deps.LastEvents.Forget(r.Resource(), r.Name())
		}
		if t := m.namespaces.resources[gr]; t != nil {
			delete(t.access, r.Selection().Namespace) // if its namespace is created again, the access is reviewed again
		}
	case ok:
		a.origins[r.Name()] = informer.Origin{Scope: p.Scope, Continued: f == succeeded && r.IsContinuable()}
	case f == succeeded && r.Spec().Origin != nil && r.Spec().Origin.Lost != nil:
		// it could not begin: the history of its scope was lost
		a.origins[r.Name()] = *r.Spec().Origin
	}
	if f == gone || f == deselected && !ok {
		m.forget(r.Name())
	}
	if f != succeeded {
		m.release(r.Name())
	}
}

// applyExtension applies a change of a CustomResourceDefinition or an APIService to the informers.
// A new resource is observed from its creation (begin.go). If the definition of a resource is
// deleted, the resource is retired (retire.go). A failed request is retried at once if its cause
// may have changed. It must be called with mu held.
func (m *Manager) applyExtension(ctx context.Context, ev discovery.Event) {
	switch ev := ev.(type) {
	case discovery.DefinitionDeleted:
		for _, r := range m.active.informers {
			if r.Resource().String() == ev.Name && !r.Spec().Internal {
				m.retire(ctx, r, ev.ResourceVersion)
			}
		}
		m.startCreated(ctx)
	case discovery.DefinitionUpdated:
		for _, i := range m.active.informers {
			if ev.SchemaChanged && i.Resource().String() == ev.Name {
				i.NewGeneration(ev.StorageChanged)
				i.NoteContentChange()
				broadcast.Wake(m.forms)
			}
		}
		m.kickInformers(func(i *running) bool { return i.Resource().String() == ev.Name && i.IsFailing() })
		m.startCreated(ctx)
	case discovery.APIServiceAvailable:
		m.kickInformers(func(i *running) bool {
			return i.Resource().Version+"."+i.Resource().Group == ev.Name && i.IsFailing()
		})
	}
}

// kickInformers makes some informers retry at once. It must be called with mu held.
func (m *Manager) kickInformers(which func(i *running) bool) {
	for _, i := range m.active.informers {
		if which(i) {
			i.Kick()
		}
	}
}

// takesExtensions reports whether any rule of a selection can take extensions.
func (m *Manager) takesExtensions(sel *selection.Selection) bool {
	if sel.PartOf(&object.Resource{Group: discovery.SomeExtension, Name: "any"}).None {
		return false
	}
	return slices.ContainsFunc(sel.Rules, func(r selection.Rule) bool {
		return slices.ContainsFunc(r.Resources, discovery.TakesExtensions)
	})
}
