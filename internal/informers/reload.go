package informers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A new selection can replace the selection in force while the manager runs, and no change of an
// object may be lost or sent twice because of it. A scope is one of four cases:
//
//   - selected as before, except for filters: its informer continues. If another condition
//     withholds whole objects, it takes a snapshot.
//   - selected by other rules, or cut or redacted otherwise: the informer drains, and another one
//     resumes from its position.
//   - no longer selected: its informer drains, and a tombstone follows.
//   - new: it begins as a scope does at the start of a run.
//
// The selection is in force at once, except for resources with a draining informer (drain.go).
// After the drain, the selection then in force decides which informers replace it.

const (
	// reloadWait is how long Reload waits for draining informers: usually milliseconds, forever if
	// the bus does not take their records.
	reloadWait = 3 * time.Second
	// reloadAsks is how long Reload waits for the answers of the API server: a redaction must not
	// wait for them.
	reloadAsks = 10 * time.Second
)

// Reload replaces the selection by spec. It returns nil once spec is in force, while new scopes are
// being read. It waits a few seconds, and not longer, for draining informers. If spec is wrong,
// Reload returns an error that names the fault, and changes nothing. If it returns the cause of
// ctx, spec may be in force. A manager that does not run yet starts with spec. Calls must not
// overlap.
func (m *Manager) Reload(ctx context.Context, spec selection.Spec) error {
	next, err := selection.Compile(spec)
	if err != nil {
		return err
	}
	m.mu.Lock()
	next.Continue(m.sel)
	discovered, ran := m.served.discovery != 0, m.ran
	if !ran {
		m.sel = next
	}
	m.mu.Unlock()
	if !ran {
		return nil
	}
	var readable []schema.GroupResource // may now be read in all namespaces at once
	var now served                      // empty if the API server does not answer: then the last answer stays in force
	if discovered {
		asking, cancel := context.WithTimeout(ctx, reloadAsks)
		now, err = m.askServed(asking)
		if err != nil {
			now = served{}
		}
		readable = m.namespaces.askReadable(asking)
		cancel()
	}
	var draining map[schema.GroupResource]*drain
	var wrong error
	err = m.decide(ctx, func(ctx context.Context) {
		wrong = m.applySelection(ctx, next, &now, readable)
		draining = maps.Clone(m.active.drains)
	})
	if err = cmp.Or(wrong, err); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, m.limits.reload)
	defer cancel()
	_ = m.mu.Wait(within, func() bool { // otherwise it is in force for these resources later
		m.mu.RLock()
		defer m.mu.RUnlock()
		maps.DeleteFunc(draining, func(objects schema.GroupResource, d *drain) bool {
			return m.active.drains[objects] != d
		})
		return len(draining) == 0
	})
	return context.Cause(ctx)
}

// applySelection puts sel in force, except where informers drain. readable are resources that were
// observed separately in each namespace, and may now be read in all at once. After an error nothing
// has changed. It must be called with mu held.
func (m *Manager) applySelection(
	ctx context.Context, sel *selection.Selection, now *served, readable []schema.GroupResource,
) error {
	if m.served.discovery == 0 { // nothing runs yet
		m.sel = sel
		m.extensions.Need(m.takesExtensions(sel))
		return nil
	}
	if now.discovery < m.served.discovery {
		now = &m.served
	}
	split := maps.Clone(m.namespaces.resources)
	for _, gr := range readable {
		delete(m.namespaces.resources, gr)
	}
	chosen, missing := sel.Choose(m.withObserved(now), now.unknown, m.resourcesTakenBy(sel))
	wanted, err := m.wantedScopes(sel, chosen)
	if err != nil {
		m.namespaces.resources = split
		return err
	}
	m.sel = sel
	next := *now
	next.failure = m.served.failure
	next.missing, next.uncapturable = sel.Uncapturable(missing, now.unwatchable)
	m.warnOfMissing(&next)
	m.served = next
	if err := m.selectNodes(); err != nil {
		m.o.Log.Error("cannot apply the changed rules to deletions of Nodes, the previous rules still apply", "err",
			err)
	}
	for scope, i := range m.active.informers {
		w, ok := wanted[scope]
		same := i.Spec().Internal && i.hasSameContent(sel) || !i.Spec().Internal && ok && i.Selection().IsSame(&w)
		if !same || i.Phase().IsLeaving() {
			m.drainForReload(ctx, i, ok || i.Spec().Internal)
		} else if !i.Spec().Internal {
			i.SetFilter(&w)
		}
	}
	m.observeChosen(ctx, chosen, nil)
	m.extensions.Need(m.takesExtensions(sel))
	m.namespaces.noteChangedRules()
	return nil
}

// wantedScopes returns the scopes of a selection, by name. It must be called with mu held.
func (m *Manager) wantedScopes(
	sel *selection.Selection, chosen []selection.Choice,
) (map[string]selection.Scope, error) {
	out := map[string]selection.Scope{}
	for n := range chosen {
		c := &chosen[n]
		scopes, err := m.scopesOf(sel, c)
		if err != nil {
			return nil, err
		}
		for _, one := range scopes {
			out[one.Name] = one
			if m.deletedNodes == nil || c.Part.FieldSelector == "" {
				continue
			}
			for node := range m.deletedNodes.nodes { // their scopes are observed too
				of := one.ForNode(node)
				out[of.Name] = of
			}
		}
	}
	return out, nil
}

// resourcesTakenBy returns the resources with an informer that a rule of sel takes, or, if sel is
// nil, all of them. It must be called with mu held.
func (m *Manager) resourcesTakenBy(sel *selection.Selection) map[schema.GroupResource]bool {
	out := map[schema.GroupResource]bool{}
	for _, i := range m.active.informers {
		if r := i.Resource(); sel == nil || sel.Takes(r) {
			out[groupResource(r)] = true
		}
	}
	return out
}

// withObserved returns what is served, and the unserved resources with an informer, which retries.
// It must be called with mu held.
func (m *Manager) withObserved(now *served) []selection.APIResource {
	out := slices.Clone(now.all)
	added := map[schema.GroupResource]bool{}
	for _, i := range m.active.informers {
		r := i.Resource()
		if gr := groupResource(r); !now.index.Has(r) && !added[gr] {
			added[gr] = true
			out = append(out, selection.APIResource{Group: r.Group, Name: r.Name, Versions: []object.Resource{*r}})
		}
	}
	return out
}
