package informers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// reviewsAgain is how many of those that were denied are asked for again within discovery.DiscoverEvery: where most namespaces are
// those of others, the API server is not to be asked about all of them all the time.
const reviewsAgain = 256

// access is what the API server says of a resource in one namespace.
type access struct {
	scope   string // that is observed, or would be; "": it is not known, or no rule takes it
	allowed bool   // list and watch are, or were in the last run
	asked   time.Time
}

// review looks again and again where resources may be read, until ctx ends.
func (n *namespaces) review(ctx context.Context, begin func([]*running, []*farewell)) {
	b := retry.New()
	for {
		wait, further, err := n.look(ctx, begin)
		if err == nil || further {
			b = retry.New()
		}
		if err != nil && ctx.Err() == nil {
			wait = b.Next(err)
			n.set.o.Log.Debug("cannot tell in which namespaces resources may be read, retrying", "err", err, "retry_in", wait)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-n.woken:
			t.Stop()
			retry.Sleep(ctx, reviewDelay)
		}
	}
}

// look asks what has to be asked, and has observed what is allowed. It returns when to look again. further: where it failed, it has
// answers that it had not before.
func (n *namespaces) look(ctx context.Context, begin func([]*running, []*farewell)) (again time.Duration, further bool, err error) {
	questions, wait := n.questions()
	if questions == nil {
		return wait, false, nil // it is not known what there is
	}
	s := n.set
	err = discovery.Review(ctx, s.client, questions)
	s.mu.Lock()
	for _, q := range questions {
		t := n.resources[groupResource(&q.Resource)]
		if t == nil || t.access[q.Namespace] == nil || !q.Answered {
			continue // the rules are others, or it is to be asked again
		}
		further = true
		a := t.access[q.Namespace]
		a.asked, a.allowed = time.Now(), a.allowed || q.Allowed
	}
	s.mu.Unlock()
	if err == nil || !further { // what fails again and again does not hold up the rest
		err = errors.Join(err, n.observe(ctx, begin))
	}
	if err != nil {
		return 0, further, err
	}
	n.decided()
	return wait, further, nil
}

// questions are those that are to be asked now, nil where it is not known which namespaces there are; and when to ask again.
func (n *namespaces) questions() ([]*discovery.Access, time.Duration) {
	s := n.set
	s.mu.Lock()
	defer s.mu.Unlock()
	names, known := n.there.Names()
	if !known {
		return nil, discovery.DiscoverEvery
	}
	now, wait := time.Now(), discovery.DiscoverEvery
	out, again, asked := []*discovery.Access{}, []*discovery.Access{}, map[*discovery.Access]time.Time{}
	for _, c := range s.chosenOf(s.served, s.unknown, func(gr schema.GroupResource) bool { return n.resources[gr] != nil }) {
		t := n.resources[groupResource(&c.Resource)]
		if !c.SpansNamespaces() {
			continue
		}
		for _, name := range names {
			a := t.access[name]
			if !c.Takes(name) {
				continue
			}
			if a == nil {
				a = &access{}
				t.access[name] = a
			}
			if a.scope == "" {
				scopes, err := s.sel.InNamespaces(&c, name)
				if err != nil {
					continue // it is logged where it is to be observed
				}
				a.scope = scopes[0].Name
			}
			q := &discovery.Access{Resource: c.Resource, Namespace: name}
			asked[q] = a.asked
			created, seen := n.there.CreatedAt(name)
			young := created != 0 && now.Sub(seen) < youngFor
			switch {
			case a.allowed:
			case a.asked.IsZero(), young:
				out = append(out, q)
			case now.Sub(a.asked) >= discovery.DiscoverEvery:
				again = append(again, q)
			}
			if !a.allowed && young {
				wait = reviewSoon
			}
		}
		for name, a := range t.access {
			if _, absent := n.there.AbsentAt(name); absent && s.informers[a.scope] == nil {
				delete(t.access, name)
			}
		}
	}
	slices.SortFunc(again, func(a, b *discovery.Access) int {
		return cmp.Or(asked[a].Compare(asked[b]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Resource.String(), b.Resource.String()))
	})
	if now.Sub(n.again) < discovery.DiscoverEvery {
		return out, wait // namespaces come, and who is young is asked about often
	}
	n.again = now
	if len(again) > reviewsAgain {
		again = again[:reviewsAgain]
	}
	return append(out, again...), wait
}

// observe makes informers for what is allowed. Those that were refused the whole resource end.
func (n *namespaces) observe(ctx context.Context, begin func([]*running, []*farewell)) error {
	s := n.set
	s.looking.Lock() // discovery and a new selection wait
	defer s.looking.Unlock()
	s.mu.Lock()
	refused := n.split()
	s.mu.Unlock()
	for _, r := range refused {
		if err := s.settle(ctx, r); err != nil {
			return err
		}
	}

	s.mu.Lock()
	var inherited []checkpoint.Scope // what they were to go on from
	for _, r := range refused {
		if s.informers[r.scope] != r {
			continue
		}
		delete(s.informers, r.scope)
		switch p, ok := r.position(); {
		case ok:
			s.origins[r.scope] = p.Scope
		case r.resume != nil && r.resume.lost == nil:
			inherited = append(inherited, r.resume.Scope)
			fallthrough
		default:
			s.forget(r.scope)
		}
		s.release(r.scope)
	}
	added := s.add(s.chosenOf(s.served, s.unknown, func(gr schema.GroupResource) bool { return n.resources[gr] != nil }))
	s.inherit(added, inherited...)
	bequeath(refused, added)
	var scopes []string
	for _, r := range added {
		scopes = append(scopes, r.scope)
	}
	if slices.Sort(scopes); len(scopes) > 0 {
		s.o.Log.Info("namespaces are observed each by itself", "count", len(scopes), "scopes", few(scopes))
	}
	parting := s.part(s.served, s.unknown, added)
	s.mu.Unlock()
	begin(added, parting)
	signal(n.left) // a namespace may have gone since it was asked about
	return nil
}

// split finds resources that are allowed somewhere, and not observed in each namespace by itself yet, and returns the informers that
// were refused them. The caller holds mu.
func (n *namespaces) split() (refused []*running) {
	for gr, t := range n.resources {
		var allowed []string
		for name, a := range t.access {
			if a.allowed {
				allowed = append(allowed, name)
			}
		}
		if t.split || len(allowed) == 0 {
			continue
		}
		var those []*running
		loaded := false
		for _, r := range n.set.informers {
			if groupResource(r.resource) == gr && r.selection.Namespace == "" {
				those = append(those, r)
				loaded = loaded || r.store.IsLoaded()
			}
		}
		if loaded {
			delete(n.resources, gr) // it is allowed by now
			continue
		}
		t.split = true
		refused = append(refused, those...)
		slices.Sort(allowed)
		n.set.o.Log.Warn("not permitted to read a resource in all namespaces: it is observed in those where that is allowed; for more, grant list "+
			"and watch on it in other namespaces, or in the whole cluster ('kubecdc rbac', with the same --config, prints that role) and restart",
			"resource", t.resource.String(), "namespaces", few(allowed), "not_permitted", len(t.access)-len(allowed))
	}
	return refused
}

// recall finds resources that the last run observed in each namespace by itself, of those that are served, and asks if they may
// be read as a whole by now. Without that, they would be given up, and begun anew.
func (n *namespaces) recall(ctx context.Context, all []selection.APIResource, unknown []string) error {
	s := n.set
	s.mu.Lock()
	known := map[schema.GroupResource][]*access{}
	names := map[*access]string{}
	for scope, c := range s.origins {
		gr := schema.GroupResource{Group: c.Group, Resource: c.Resource}
		if name, ok := selection.SingleNamespace(c.Namespaces); ok && c.Namespaced && n.resources[gr] == nil {
			a := &access{scope: scope, allowed: true}
			known[gr], names[a] = append(known[gr], a), name
		}
	}
	var questions []*discovery.Access
	for _, c := range s.chosenOf(all, unknown, func(gr schema.GroupResource) bool { return known[gr] != nil }) {
		if c.SpansNamespaces() {
			questions = append(questions, &discovery.Access{Resource: c.Resource})
		}
	}
	s.mu.Unlock()
	if err := discovery.Review(ctx, s.client, questions); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range questions {
		if q.Allowed {
			continue
		}
		gr := groupResource(&q.Resource)
		t := &tenancy{resource: q.Resource, split: true, access: map[string]*access{}}
		for _, a := range known[gr] {
			t.access[names[a]] = a
		}
		n.resources[gr] = t
		n.once.Do(func() { close(n.needed) })
		signal(n.woken)
	}
	return nil
}

// widen asks which resources may be read as a whole by now: a new selection observes them so.
func (n *namespaces) widen(ctx context.Context) {
	s := n.set
	var questions []*discovery.Access
	s.mu.Lock()
	for _, t := range n.resources {
		questions = append(questions, &discovery.Access{Resource: t.resource})
	}
	s.mu.Unlock()
	if discovery.Review(ctx, s.client, questions) != nil {
		return // it stays as it is
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range questions {
		if q.Allowed {
			delete(n.resources, groupResource(&q.Resource))
		}
	}
}

// drop takes back that a scope is forbidden, where that is not logged yet.
func (d *denials) drop(scope string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for verb, scopes := range d.scopes {
		d.scopes[verb] = slices.DeleteFunc(scopes, func(s string) bool { return s == scope })
		if len(d.scopes[verb]) == 0 {
			delete(d.scopes, verb)
			delete(d.errs, verb)
		}
	}
}
