package informers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// reviewsAgain limits the denied namespaces that are reviewed again within discovery.DiscoverEvery.
// Most namespaces may be unreadable.
const reviewsAgain = 256

// access records whether the API server permits reading a resource in one namespace.
type access struct {
	scope   string // name of the current or possible scope; "" if it is unknown, or no rule takes the namespace
	allowed bool   // list and watch are allowed, or were in the last run
	asked   time.Time
}

// reviewAccess asks at intervals where resources may be read, until ctx ends.
func (n *namespaces) reviewAccess(ctx context.Context) {
	for b := retry.New(); ctx.Err() == nil; {
		wait, further, err := n.reviewOnce(ctx)
		if err == nil || further {
			b = retry.New()
		}
		if err != nil && ctx.Err() == nil {
			wait = b.Next(err)
			n.manager.o.Log.Debug("cannot check in which namespaces resources may be read, retrying", "err", err,
				"retry_in", wait)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-n.woken:
			_ = pause.For(ctx, reviewDelay)
		}
	}
}

// reviewOnce asks the questions that are due, and starts informers of allowed resources. further:
// it has new answers, even if it failed.
func (n *namespaces) reviewOnce(ctx context.Context) (again time.Duration, further bool, err error) {
	var questions []*discovery.Access
	if err := n.manager.decide(ctx, func(context.Context) {
		questions, again = n.dueQuestions()
	}); err != nil || questions == nil {
		return again, false, err // nil: the namespaces are not known
	}
	err = discovery.Review(ctx, n.manager.client, questions)
	ended := n.manager.decide(ctx, func(ctx context.Context) {
		for _, q := range questions {
			t := n.resources[groupResource(&q.Resource)] // nil: the rules have changed
			if t != nil && t.access[q.Namespace] != nil && q.Answered {
				further = true
				a := t.access[q.Namespace]
				a.asked, a.allowed = time.Now(), a.allowed || q.Allowed
			}
		}
		if err == nil || !further { // repeated failures do not delay the rest
			n.observeAllowed(ctx)
		}
		if err == nil {
			maps.DeleteFunc(n.undecided, func(gr schema.GroupResource, _ bool) bool {
				return n.manager.active.drains[selection.Canonical(gr)] == nil // else it is observed after the drain
			})
		}
	})
	return again, further, cmp.Or(err, ended)
}

// dueQuestions returns the questions to ask now, nil if no namespaces are known, and when to ask
// again. It must be called with mu held.
func (n *namespaces) dueQuestions() ([]*discovery.Access, time.Duration) {
	m := n.manager
	names, known := n.there.Names()
	if !known {
		return nil, discovery.DiscoverEvery
	}
	now, wait := time.Now(), discovery.DiscoverEvery
	out := []*discovery.Access{}
	again := []*discovery.Access{}
	asked := map[*discovery.Access]time.Time{}
	for _, c := range m.chosenOf(&m.served, func(gr schema.GroupResource) bool { return n.resources[gr] != nil }) {
		if !c.SpansNamespaces() {
			continue
		}
		t := n.resources[groupResource(&c.Resource)]
		for _, name := range names {
			a := n.accessOf(t, &c, name)
			if a == nil || a.allowed {
				continue
			}
			q := &discovery.Access{Resource: c.Resource, Namespace: name}
			asked[q] = a.asked
			created, seen := n.there.CreatedAt(name)
			switch {
			case created != 0 && now.Sub(seen) < youngFor:
				out, wait = append(out, q), reviewSoon
			case a.asked.IsZero():
				out = append(out, q)
			case now.Sub(a.asked) >= discovery.DiscoverEvery:
				again = append(again, q)
			}
		}
		maps.DeleteFunc(t.access, func(name string, a *access) bool {
			_, absent := n.there.AbsentAt(name)
			return absent && m.active.informers[a.scope] == nil
		})
	}
	if now.Sub(n.again) < discovery.DiscoverEvery {
		return out, wait // new namespaces cause frequent calls
	}
	n.again = now
	slices.SortFunc(again, func(a, b *discovery.Access) int {
		return cmp.Or(asked[a].Compare(asked[b]), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Resource.String(), b.Resource.String()))
	})
	return append(out, again[:min(len(again), reviewsAgain)]...), wait
}

// accessOf returns the access to a resource in a namespace, or nil if no rule takes it there. It
// must be called with mu held.
func (n *namespaces) accessOf(t *tenancy, c *selection.Choice, namespace string) *access {
	if !c.Takes(namespace) {
		return nil
	}
	a, ok := t.access[namespace]
	if !ok {
		a = &access{}
		t.access[namespace] = a
	}
	if a.scope == "" {
		scopes, err := n.manager.sel.InNamespaces(c, namespace)
		if err != nil {
			return nil // newSpecs logs it
		}
		a.scope = scopes[0].Name
	}
	return a
}

// observeAllowed starts informers of allowed resources. It must be called with mu held.
func (n *namespaces) observeAllowed(ctx context.Context) {
	m := n.manager
	n.splitResources(ctx)
	n.logObserved(
		m.observeChosen(ctx,
			m.chosenOf(&m.served, func(gr schema.GroupResource) bool { return n.resources[gr] != nil }), nil))
	n.endInGone(ctx) // a namespace may have been deleted since the question about it
}

// noteReplaced records that informers have replaced others of the same objects. It must be called
// with mu held.
func (n *namespaces) noteReplaced(objects schema.GroupResource, added []*running) {
	maps.DeleteFunc(n.undecided, func(gr schema.GroupResource, _ bool) bool {
		t := n.resources[gr]
		return t != nil && t.split && selection.Canonical(gr) == objects
	})
	n.logObserved(added)
}

// logObserved logs the informers of single namespaces. It must be called with mu held.
func (n *namespaces) logObserved(added []*running) {
	var scopes []string
	for _, r := range added {
		if t := n.resources[groupResource(r.Resource())]; t != nil && t.split {
			scopes = append(scopes, r.Name())
		}
	}
	slices.Sort(scopes)
	if len(scopes) > 0 {
		n.manager.o.Log.Info("watching namespaces one by one", "count", len(scopes), "scopes", informer.Few(scopes))
	}
}

// splitResources finds resources that are allowed in some namespaces, and not yet observed
// separately in each. It drains the informers that may not read all namespaces. It must be called
// with mu held.
func (n *namespaces) splitResources(ctx context.Context) {
	for gr, t := range n.resources {
		allowed := t.allowed()
		if t.split || len(allowed) == 0 {
			continue
		}
		var those []*running
		for _, r := range n.manager.active.informers {
			if groupResource(r.Resource()) == gr && r.Selection().Namespace == "" {
				those = append(those, r)
			}
		}
		if slices.ContainsFunc(those, func(r *running) bool { return r.Status().Synced }) {
			delete(n.resources, gr) // it is allowed now
			continue
		}
		t.split = true
		for _, r := range those {
			n.manager.drain(ctx, r, false)
		}
		n.manager.o.Log.Warn(
			"not permitted to read a resource in all namespaces: it is observed in those where that is allowed; for more, grant list "+
				"and watch on it in other namespaces, or in the whole cluster ('kubecdc rbac', with the same --config, prints the role) and restart",
			"resource", t.resource.String(), "namespaces", informer.Few(allowed), "not_permitted",
			len(t.access)-len(allowed))
	}
}

// resumeSplit finds served resources that the last run observed separately in each namespace, and
// asks whether they may now be read in all at once. Without this call their checkpoints would be
// dropped. Its error is that of the API server, or the cause of ctx.
func (n *namespaces) resumeSplit(ctx context.Context, now *served) error {
	m := n.manager
	known := map[schema.GroupResource]*tenancy{}
	var questions []*discovery.Access
	err := m.decide(ctx, func(context.Context) {
		for scope, c := range m.active.origins {
			gr := schema.GroupResource{Group: c.Group, Resource: c.Resource}
			if name, ok := selection.SingleNamespace(c.Namespaces); ok && c.Namespaced && n.resources[gr] == nil {
				if known[gr] == nil {
					known[gr] = &tenancy{split: true, access: map[string]*access{}}
				}
				known[gr].access[name] = &access{scope: scope, allowed: true}
			}
		}
		if len(known) == 0 {
			return
		}
		for _, c := range m.chosenOf(now, func(gr schema.GroupResource) bool { return known[gr] != nil }) {
			if c.SpansNamespaces() {
				questions = append(questions, &discovery.Access{Resource: c.Resource})
			}
		}
	})
	if err := cmp.Or(err, discovery.Review(ctx, m.client, questions)); err != nil || len(questions) == 0 {
		return err
	}
	return m.decide(ctx, func(context.Context) {
		for _, q := range questions {
			if gr := groupResource(&q.Resource); !q.Allowed && n.resources[gr] == nil {
				known[gr].resource = q.Resource
				n.resources[gr] = known[gr]
				broadcast.Wake(n.woken)
			}
		}
	})
}

// askReadable returns the resources that are observed separately in each namespace, and that may
// now be read in all at once. A new selection observes them so.
func (n *namespaces) askReadable(ctx context.Context) (out []schema.GroupResource) {
	var questions []*discovery.Access
	err := n.manager.decide(ctx, func(context.Context) {
		for _, t := range n.resources {
			questions = append(questions, &discovery.Access{Resource: t.resource})
		}
	})
	if err != nil || discovery.Review(ctx, n.manager.client, questions) != nil {
		return nil // nothing changes
	}
	for _, q := range questions {
		if q.Allowed {
			out = append(out, groupResource(&q.Resource))
		}
	}
	return out
}
