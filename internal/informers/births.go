package informers

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/object"
)

// A resource that is defined while the set watches definitions is observed from its birth: the resourceVersion at which its
// CustomResourceDefinition was established. Behind it there was no object, so what is found is created, not read:
//
//	E (established) ───────────── R (list) ──▶ watch
//	 nothing      E+1  E+2  …  R
//
// A watch from E is refused as a rule: the API server begins to keep history of a resource when it is first asked for it. So
// the objects are listed at once, and the few revisions in between are looked at one by one, each an Exact list of the whole
// resource: then also an object that came and went is told of, and no gap announced. Where there are too many, the names that
// the list has are walked back (walkback.go), and a gap tells that it is so.
//
// A snapshot of no objects, at E, goes first: it is complete from there, and whatever a consumer still has of an earlier
// resource of that name is gone.

const (
	// birthRevisions is how many revisions between birth and list are looked at one by one at most.
	birthRevisions = 256
	// birthObjects is how many objects these lists may have in all.
	birthObjects = 50_000
)

// bear makes informers of what was defined while the set watched, and has not got any. What is still being ended under that
// name is waited for.
func (s *Set) bear() []*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.discovered {
		return nil // the first discovery makes them
	}
	taken, ending := map[schema.GroupResource]bool{}, map[schema.GroupResource]bool{}
	for _, i := range s.informers {
		gr := schema.GroupResource{Group: i.resource.Group, Resource: i.resource.Name}
		taken[gr] = true
		ending[gr] = ending[gr] || i.vanished.Load() != 0
	}
	born := s.definitions.births(ending)
	if len(born) == 0 {
		return nil
	}
	out, _ := choose(s.sel.Rules, born, true, taken)
	begin := s.add(s.observed(out))
	s.inherit(begin)
	s.definitions.delivered(born)
	for _, r := range begin {
		s.o.Log.Info("a resource was defined: it is observed from its birth", "scope", r.scope, "rv", r.born)
	}
	return begin
}

// births are the resources of which the birth was seen, but for those of except.
func (d *definitions) births(except map[schema.GroupResource]bool) (out []served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.crds {
		if c.born != 0 && len(c.served.versions) > 0 && !except[schema.GroupResource{Group: c.served.group, Resource: c.served.name}] {
			out = append(out, *c.served)
		}
	}
	slices.SortFunc(out, func(a, b served) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.name, b.name)) })
	return out
}

// delivered notes that births are dealt with: a rule that is added later reads what there is.
func (d *definitions) delivered(all []served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range all {
		if c := d.crds[all[i].name+"."+all[i].group]; c != nil {
			c.born, c.served = 0, nil
		}
	}
}

// beginsBorn has an informer of which nothing is remembered begin at the birth of its resource, where that is known.
func (s *Set) beginsBorn(i *informer) {
	i.born, i.bornAt = s.definitions.bornAt(i.resource)
}

// loadBirth reads a resource behind whose birth there was nothing of it.
func (i *informer) loadBirth(ctx context.Context) (uint64, error) {
	from := i.born
	// The bus may have heard of an earlier resource of that name: in which history that was.
	if _, err := i.askBus(ctx, from); err != nil {
		return 0, err
	}
	if h := i.heard; h != nil {
		i.store.knowHistory(h.History)
		i.heard = nil
	}
	if !i.store.isLoaded() {
		i.store.beginList(listResume)
		if i.snapshots == SnapshotNever {
			i.store.endList(from, nil)
		} else {
			snap := newSnapshot(i.scope, "", from, time.Now())
			i.store.endList(from, snap, i.store.started(snap))
		}
	}
	i.store.beginList(listAgain)
	rv, err := i.pages(ctx, metav1.ListOptions{}, i.store.compare)
	if err != nil {
		return 0, err
	}
	if rv < from || i.store.wentBack() {
		// Etcd was restored, or there were objects before: whatever it is, it is read as any other resource.
		i.born = 0
		reason := object.Expired
		if rv < from {
			reason = object.Rewound
		}
		i.restart(reason)
		return 0, errRestart
	}
	if rv == from && i.store.losing() == nil {
		i.store.endList(rv, nil)
	} else {
		i.store.loses(lost{from: from, since: i.bornAt, reason: object.Expired})
		i.store.endList(rv, nil, i.birth(from, rv))
	}
	i.born = 0
	return rv, nil
}

// birth is the notice before what came into being between from and the list at to: none, if all is found of it, else a gap.
func (i *informer) birth(from, to uint64) *notice {
	whole := false
	n := i.store.gap(to, func(ctx context.Context) (recovered bool, err error) {
		whole, recovered, err = i.findSince(ctx, from, to)
		return recovered, err
	})
	gap := n.event
	n.event = func() *object.StreamEvent {
		if whole && !i.store.lost.untold {
			return nil
		}
		return gap()
	}
	return n
}

// findSince looks for what history tells behind from, where there was nothing, up to the list at to. whole: nothing is missing.
// recovered: but for objects that came and went.
func (i *informer) findSince(ctx context.Context, from, to uint64) (whole, recovered bool, err error) {
	l, changed := i.store.changes()
	began := time.Now()
	if l.from == from && to-from <= birthRevisions && !i.selects() {
		byKey, ok, err := i.everyRevision(ctx, from, to)
		if err != nil {
			return false, false, err
		}
		if ok {
			if versions, ok := i.store.foundAll(byKey); ok {
				i.log.Debug("a resource was read from its birth", "scope", i.scope, "from_rv", from, "to_rv", to, "versions", versions,
					"took", time.Since(began))
				return true, true, nil
			}
		}
	}
	byKey, recovered, err := i.walkBack(ctx, i.walkSlots, l.from, to, changed)
	if err != nil {
		return false, false, err
	}
	versions := i.store.found(byKey)
	i.log.Info("a resource was read a while after its birth: objects that came and went in between are not known", "scope", i.scope,
		"from_rv", l.from, "to_rv", to, "changed", len(changed), "versions_found", versions, "recovered", recovered, "took", time.Since(began))
	return false, recovered, nil
}

// glimpse is what there was at one revision.
type glimpse struct {
	uids     map[string]string // by key
	object   *object.Object    // that was written at this revision, nil: none
	managers *object.Scanned   // its managers
}

// everyRevision tells of each name what became of it behind from, up to to, by looking at each revision. told is false where
// that cannot be, or would take too much. Its only error is the end of ctx.
func (i *informer) everyRevision(parent context.Context, from, to uint64) (byKey map[string][]step, told bool, err error) {
	ctx, cancel := context.WithTimeout(parent, walkFor)
	defer cancel()
	glimpses := make([]*glimpse, to-from)
	var objects atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(walkNames)
	for n := range glimpses {
		g.Go(func() (err error) {
			glimpses[n], err = i.glimpseAt(gctx, from+1+uint64(n), &objects)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if parent.Err() != nil {
			return nil, false, context.Cause(parent)
		}
		i.log.Debug("cannot look at each revision since the birth of a resource", "scope", i.scope, "err", err)
		return nil, false, nil
	}
	return steps(from, glimpses), true, nil
}

// steps makes of what there was at each revision behind from, what became of each name.
func steps(from uint64, glimpses []*glimpse) map[string][]step {
	byKey := map[string][]step{}
	before := map[string]string{}
	for n, now := range glimpses {
		rv := from + 1 + uint64(n)
		for key := range before {
			if _, ok := now.uids[key]; !ok {
				byKey[key] = append(byKey[key], step{rv: rv})
			}
		}
		if o := now.object; o != nil {
			way := byKey[o.Ref.Key]
			var was object.Stamp
			if len(way) > 0 {
				if last := way[len(way)-1].object; last != nil && last.Ref.UID == o.Ref.UID {
					was = last.Managed
				}
			}
			byKey[o.Ref.Key] = append(way, step{rv: rv, object: o, changedBy: now.managers.AppendChangedBy(nil, was)})
		}
		before = now.uids
	}
	return byKey
}

// glimpseAt reads what there was at a revision. objects counts them over all revisions.
func (i *informer) glimpseAt(ctx context.Context, rv uint64, objects *atomic.Int64) (*glimpse, error) {
	b := newBackoff()
	for {
		out, err := i.glimpseOnce(ctx, rv, objects)
		if err == nil || neverTold(err) || ctx.Err() != nil || apierrors.IsResourceExpired(err) {
			return out, err
		}
		i.noteError("ask", err)
		if !b.wait(ctx, err) {
			return nil, context.Cause(ctx)
		}
	}
}

func (i *informer) glimpseOnce(ctx context.Context, rv uint64, objects *atomic.Int64) (*glimpse, error) {
	select {
	case i.walkSlots <- struct{}{}:
		defer func() { <-i.walkSlots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r := i.newReader()
	out := &glimpse{uids: map[string]string{}}
	meta, err := i.page(ctx, i.namespace, metav1.ListOptions{
		Limit: pageSize, ResourceVersion: object.FormatVersion(rv), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}, func(raw []byte) error {
		obs, err := r.read(raw, false)
		switch {
		case obs != nil && obs.object == nil:
			return nil // excluded
		case err != nil:
			return err
		case objects.Add(1) > birthObjects:
			return errNotTold
		}
		o := obs.object
		out.uids[o.Ref.Key] = o.Ref.UID
		if o.ResourceVersion == rv {
			out.object, out.managers = o, keepManagers(r.scanned)
		}
		return nil
	})
	if err == nil && (meta.Continue != "" || meta.ResourceVersion != object.FormatVersion(rv)) {
		err = errNotTold // too many, or a server that does not know Exact
	}
	return out, err
}

// foundAll makes due what was found of each name at each revision, and counts the versions; false: it does not lead to what the
// list has.
func (s *store) foundAll(byKey map[string][]step) (versions int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.objects {
		way := byKey[key]
		if e.last == nil || len(way) == 0 || way[len(way)-1].object == nil || way[len(way)-1].rv != e.last.ResourceVersion {
			return 0, false
		}
	}
	for key, steps := range byKey {
		if e := s.objects[key]; e.last == nil && steps[len(steps)-1].object != nil {
			return 0, false
		}
		var way []link
		for _, st := range steps {
			way = append(way, link{step: st, linked: true})
			if st.object != nil {
				versions++
			}
		}
		e := s.objects[key]
		d := &debt{gap: s.gaps, way: way, last: link{linked: true}}
		if e.last != nil {
			d.last, d.way = way[len(way)-1], way[:len(way)-1]
		}
		s.debts[key] = d
		s.set(key, entry{last: e.last, due: dueInferred})
	}
	s.line()
	return versions, true
}
