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
func (s *Manager) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	defer close(s.ended)
	s.progress.began = s.o.Now()
	s.mu.Lock()
	s.ran, s.group = true, g
	s.sharing.resume(nil)
	if s.o.Memory != nil {
		s.sharing.resume(s.o.Memory.Scopes())
		for name, c := range s.o.Memory.Scopes() {
			s.active.remembered[schema.GroupResource{Group: c.Group, Resource: c.Resource}] = true
			s.active.raiseHistory(&object.Resource{Group: c.Group, Name: c.Resource}, c.Aggregated, c.History)
			if c.Ended != nil {
				s.announceEnd(ctx, name, &c)
				continue
			}
			s.active.origins[name] = informer.Origin{Scope: c}
		}
	}
	s.mu.Unlock()
	s.extensions.Need(s.takesExtensions(s.sel))
	s.goRun(ctx, func(ctx context.Context) {
		s.extensions.Run(ctx, func(ctx context.Context, ev discovery.Event) {
			_ = s.decide(ctx, func(ctx context.Context) { s.applyExtension(ctx, ev) }) // or the manager ends
		})
	})
	s.goRun(ctx, s.loop, s.deps.Denials.Run, s.namespaces.run, s.discover, s.sendProgress, s.noteInterruptions)
	s.goRun(ctx, s.followVersion, s.compareEtcds, s.compareForms)
	return g.Wait()
}

func (s *Manager) goRun(ctx context.Context, all ...func(context.Context)) {
	for _, f := range all {
		s.group.Go(func() error {
			f(ctx)
			return nil
		})
	}
}

func (s *Manager) loop(ctx context.Context) {
	var nodes chan *nodeEvent
	if s.deletedNodes != nil {
		nodes = s.deletedNodes.events
	}
	for {
		var input func(context.Context)
		select {
		case <-ctx.Done():
			return
		case input = <-s.inputs:
		case ev := <-nodes:
			s.deletedNodes.received.Notify()
			input = func(ctx context.Context) { s.deletedNodes.applyEvent(ctx, ev) }
		}
		s.mu.Lock()
		input(ctx)
		s.mu.Unlock()
	}
}

// errEnded is the error of calls after the manager has ended.
var errEnded = errors.New("the informers have ended")

// decide makes the loop call f, and returns after that. If f was not called, the error is the cause
// of ctx, or errEnded.
func (s *Manager) decide(ctx context.Context, f func(ctx context.Context)) error {
	done := make(chan struct{})
	input := func(ctx context.Context) {
		defer close(done)
		f(ctx)
	}
	select {
	case s.inputs <- input:
		<-done
		return nil
	case <-s.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start runs tombstones, and informers until ctx ends or they are cancelled. It must be called with
// mu held.
func (s *Manager) start(ctx context.Context, begin []*running, tombstones []*informer.Tombstone) {
	for _, r := range begin {
		own, cancel := context.WithCancel(ctx)
		r.cancel = cancel
		s.goRun(own, func(ctx context.Context) {
			defer cancel()
			r.Run(ctx, r.after, func() { s.track(r.Informer) })
		})
	}
	for _, t := range tombstones {
		reports := s.active.lingering[t.Name()].ResourceVersion != 0
		s.goRun(ctx, func(ctx context.Context) {
			if !reports || s.reportEnd(ctx) == nil { // or the manager ends
				t.Run(ctx)
			}
			_ = s.decide(ctx, func(context.Context) { // or the manager ends
				s.active.raiseHistory(t.Resource(), t.IsAggregated(), t.Store().View().History)
				if s.active.tombstones[t.Name()] == t {
					delete(s.active.tombstones, t.Name())
					delete(s.active.lingering, t.Name())
				}
				t.SetRemoved()
				s.release(t.Name())
			})
		})
	}
}

// discover asks for the served resources, at intervals and when an extension changes, until ctx
// ends.
func (s *Manager) discover(ctx context.Context) {
	began := time.Now()
	s.extensions.WaitListed(ctx)
	if s.recallScopes(ctx) != nil {
		return
	}
	for b, first := retry.New(), true; ; {
		wait, err := s.discoverOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = b.Next(err)
			if r := apiserver.Reason(err); !apiserver.IsShared(r) || s.deps.Outage.Begin(r, time.Now()) {
				s.o.Log.Warn("cannot discover resources, retrying", "err", err, "retry_in", wait)
			}
		default:
			b = retry.New()
			s.deps.Outage.End(time.Now())
			if first {
				first = false
				s.goRun(ctx, func(ctx context.Context) { s.awaitCapture(ctx, began) })
			}
		}
		if !s.extensions.Wait(ctx, wait) {
			return
		}
	}
}

// discoverOnce asks for the served resources, and passes the answer to the loop. It returns the
// delay before the next call.
func (s *Manager) discoverOnce(ctx context.Context) (again time.Duration, err error) {
	now, err := s.askServed(ctx)
	if err == nil {
		s.extensions.AwaitDefinitions(ctx, now.all)
		err = s.namespaces.resume(ctx, &now)
	}
	again = discovery.DiscoverEvery
	ended := s.decide(ctx, func(ctx context.Context) {
		if s.served.failure == nil {
			s.served.failing = time.Now()
		}
		s.served.failure = err
		if err == nil {
			s.takeServed(ctx, &now)
		}
		if len(s.served.missing) > 0 {
			again = rediscoverUnserved
		}
	})
	return again, cmp.Or(ended, err)
}

func (s *Manager) askServed(ctx context.Context) (now served, err error) {
	now.discovery = s.discoveries.Add(1)
	found, err := s.finder.Discover(ctx)
	if err == nil {
		now.all = found.Resources
		now.unwatchable = found.Unwatchable
		now.unknown = found.Unknown
		now.index = selection.NewIndex(now.all)
	}
	return now, err
}

// takeServed drains informers of versions that are no longer served. It starts informers of
// resources that have none, and tombstones of scopes that only the last run had. An answer older
// than the one in force changes nothing. It must be called with mu held.
func (s *Manager) takeServed(ctx context.Context, now *served) {
	if now.discovery < s.served.discovery {
		return
	}
	s.kick(func(i *running) bool { // it was not served
		current, ok := now.index.Current(i.Resource())
		return ok && *current == *i.Resource() && !discovery.IsBuiltIn(i.Resource().Group) &&
			i.FailsBecause(apiserver.ReasonNotFound)
	})
	s.drainOutdated(ctx, now)
	chosen, missing := s.sel.Choose(now.all, now.unknown, s.taken(nil))
	now.missing, now.uncapturable = s.sel.Uncapturable(missing, now.unwatchable)
	s.warnOfMissing(now)
	if len(now.unknown) > 0 && !slices.Equal(now.unknown, s.served.unknown) {
		s.o.Log.Warn("cannot discover some API groups", "groups", now.unknown)
	}
	s.served = *now
	s.namespaces.forgetUnserved()
	s.observeChosen(ctx, chosen, nil)
	s.scopes.retain(chosen)
	s.retireUndefined(ctx)
}

// warnOfMissing logs patterns of the selection that match no resource that can be captured, unless
// they did so before. It must be called with mu held.
func (s *Manager) warnOfMissing(now *served) {
	for _, m := range now.missing {
		if !slices.Contains(s.served.missing, m) {
			s.o.Log.Warn("a selected resource is not served, checking again", "resource", m, "every",
				rediscoverUnserved)
		}
	}
	for _, u := range now.uncapturable {
		if !slices.Contains(s.served.uncapturable, u) {
			s.o.Log.Warn("cannot capture a resource, checking again", "resource", u.Pattern, "err", whyUncapturable(u))
		}
	}
}

// whyUncapturable returns the error of a pattern, with the fix.
func whyUncapturable(u selection.Uncapturable) error {
	return fmt.Errorf("%w: %s: remove it from resources", apiserver.ErrUnsupported, u.Why)
}

// drainOutdated drains the informers of versions that are no longer served. It must be called with
// mu held.
func (s *Manager) drainOutdated(ctx context.Context, now *served) {
	for _, r := range s.active.informers {
		if !r.Phase().IsLeaving() && r.RemovedAt() == 0 && now.outdates(r.Resource()) {
			s.o.Log.Warn("a resource is now served in another version: restarting its informer", "scope", r.Name(),
				"version", r.Resource().Version)
			s.drain(ctx, r, true)
		}
	}
}

// outdates reports whether a resource is served, but not in its version or as its kind. An
// undiscovered version may still be served.
func (now *served) outdates(r *object.Resource) bool {
	current, ok := now.index.Current(r)
	return ok && *current != *r && !slices.Contains(now.unknown, r.APIVersion())
}

// observeChosen starts informers of chosen resources that have none or are of deleted nodes, and
// tombstones of scopes that are no longer selected. ended are the replaced informers. It must be
// called with mu held.
func (s *Manager) observeChosen(ctx context.Context, chosen []selection.Choice, ended []*running) (added []*running) {
	for _, spec := range s.add(chosen, ended) {
		added = append(added, s.enroll(spec))
	}
	if s.deletedNodes != nil {
		added = append(added, s.followNodes()...)
		added = append(added, s.resumeDeletedNodes(ctx)...)
	}
	s.start(ctx, added, s.tombstonesOf(ctx, added))
	s.startCreated(ctx)
	return added
}

// release frees the metrics and lane of a scope without an informer and a tombstone. It must be
// called with mu held.
func (s *Manager) release(scope string) {
	if s.active.informers[scope] != nil || s.active.tombstones[scope] != nil || s.active.endings[scope] != nil {
		return
	}
	s.deps.Metrics.Forget(scope)
	if s.o.ReleaseLane != nil {
		s.o.ReleaseLane(scope)
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
func (s *Manager) removeGone(ctx context.Context, r *running, reason object.EndReason) {
	end := endOf(r, reason)
	s.remove(r, gone)
	s.announceEnd(ctx, r.Name(), end)
}

// remove removes an ended informer, with all state that its fate does not need. No other function
// does. It must be called with mu held.
func (s *Manager) remove(r *running, f fate) {
	a := &s.active
	delete(a.informers, r.Name())
	a.lingering[r.Name()] = lastReport(r)
	defer r.SetRemoved()
	if s.deletedNodes != nil {
		s.deletedNodes.dropInformer(r)
	}
	a.raiseHistory(r.Resource(), r.IsAggregated(), r.Store().View().History)
	p, ok := r.Position()
	switch {
	case f == gone:
		gr := groupResource(r.Resource())
		a.remembered[gr] = true
		if s.deps.LastEvents != nil {
			s.deps.LastEvents.Forget(r.Resource(), r.Name())
		}
		if t := s.namespaces.resources[gr]; t != nil {
			delete(t.access, r.Selection().Namespace) // if its namespace is created again, the access is reviewed again
		}
	case ok:
		a.origins[r.Name()] = informer.Origin{Scope: p.Scope, Continued: f == succeeded && r.IsContinuable()}
	case f == succeeded && r.Spec().Origin != nil && r.Spec().Origin.Lost != nil:
		// it could not begin: the history of its scope was lost
		a.origins[r.Name()] = *r.Spec().Origin
	}
	if f == gone || f == deselected && !ok {
		s.forget(r.Name())
	}
	if f != succeeded {
		s.release(r.Name())
	}
}

// applyExtension applies a change of a CustomResourceDefinition or an APIService to the informers.
// A new resource is observed from its creation (begin.go). If the definition of a resource is
// deleted, the resource is retired (retire.go). A failed request is retried at once if its cause
// may have changed. It must be called with mu held.
func (s *Manager) applyExtension(ctx context.Context, ev discovery.Event) {
	switch ev := ev.(type) {
	case discovery.DefinitionDeleted:
		for _, r := range s.active.informers {
			if r.Resource().String() == ev.Name && !r.Spec().Internal {
				s.retire(ctx, r, ev.ResourceVersion)
			}
		}
		s.startCreated(ctx)
	case discovery.DefinitionUpdated:
		for _, i := range s.active.informers {
			if ev.SchemaChanged && i.Resource().String() == ev.Name {
				i.NewGeneration(ev.StorageChanged)
				i.NoteContentChange()
				broadcast.Wake(s.forms)
			}
		}
		s.kick(func(i *running) bool { return i.Resource().String() == ev.Name && i.IsFailing() })
		s.startCreated(ctx)
	case discovery.APIServiceAvailable:
		s.kick(func(i *running) bool { return i.Resource().Version+"."+i.Resource().Group == ev.Name && i.IsFailing() })
	}
}

// kick makes some informers retry at once. It must be called with mu held.
func (s *Manager) kick(which func(i *running) bool) {
	for _, i := range s.active.informers {
		if which(i) {
			i.Kick()
		}
	}
}

// takesExtensions reports whether any rule of a selection can take extensions.
func (s *Manager) takesExtensions(sel *selection.Selection) bool {
	if sel.PartOf(&object.Resource{Group: discovery.SomeExtension, Name: "any"}).None {
		return false
	}
	return slices.ContainsFunc(sel.Rules, func(r selection.Rule) bool {
		return slices.ContainsFunc(r.Resources, discovery.TakesExtensions)
	})
}
