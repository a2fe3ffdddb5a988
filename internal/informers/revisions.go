package informers

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// Where a watch has lost history of few revisions, and where there is none from the birth of a resource on, each revision is
// looked at by itself: an Exact list of the whole scope. Nothing is missing then, not even an object that came and went, and
// there is no gap to announce. That is how history goes on when the definition of a custom resource is changed, too: the API
// server begins its history of the resource anew then, and a watch from before is refused, although there is nothing wrong.

const (
	// eachRevisions is how many revisions are looked at one by one at most.
	eachRevisions = 1024
	// eachObjects is how many objects these lists may have in all.
	eachObjects = 50_000
	// objectsALookup is how many objects cost as much as a revision.
	objectsALookup = 50
	// lookupsAMinute is how many revisions are looked at in a minute over all informers. Behind an API server that was restarted
	// each of a thousand resources would look at each revision, and there is little to be found.
	lookupsAMinute = 10_000
)

// newLookups is what bounds them.
func newLookups() *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/lookupsAMinute), lookupsAMinute)
}

// gapUnlessFound is the notice of a gap up to the list at to, for which find looks.
func (i *informer) gapUnlessFound(to uint64) *notice {
	return i.store.gap(to, func(ctx context.Context) (whole, recovered bool, err error) { return i.find(ctx, to) })
}

// find looks for what became of the objects behind what was lost, up to the list at to. whole: nothing is missing. recovered:
// but for objects that came and went. Its only error is the end of ctx.
func (i *informer) find(ctx context.Context, to uint64) (whole, recovered bool, err error) {
	l, changed := i.store.changes()
	began := time.Now()
	if l.quiet && !i.selection.HasSelector() && i.mayLookUp(began, l.from, to) {
		byKey, told, err := i.everyRevision(ctx, l.from, to, changed)
		if err != nil {
			return false, false, err
		}
		if told {
			if versions, ok := i.store.foundAll(byKey); ok {
				i.log.Debug("each revision was looked at", "scope", i.scope, "from_rv", l.from, "to_rv", to, "versions", versions,
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
	level := i.log.Info
	if !recovered {
		level = i.log.Warn
	}
	level("history was lost on the watch, and looked for by lists", "scope", i.scope, "from_rv", l.from, "to_rv", to,
		"reason", l.reason, "since", l.since, "changed", len(changed), "versions_found", versions, "recovered", recovered,
		"took", time.Since(began))
	return false, recovered, nil
}

// mayLookUp tells if each revision behind from, up to to, may be looked at.
func (i *informer) mayLookUp(at time.Time, from, to uint64) bool {
	if from >= to || to-from > eachRevisions {
		return false
	}
	revisions := int(to - from)
	objects := revisions * i.store.population()
	return objects <= eachObjects && i.lookups.AllowN(at, revisions+objects/objectsALookup)
}

// glimpse is what there was at one revision.
type glimpse struct {
	uids     map[string]string // by key
	object   *object.Object    // that was written at this revision, nil: none
	managers *object.Scanned   // its managers
}

// everyRevision tells of each name what became of it behind from, up to to, by looking at each revision. changed are the names that
// both ends show differently. told is false where that cannot be, or would take too much. Its only error is the end of parent.
func (i *informer) everyRevision(parent context.Context, from, to uint64, changed []change) (byKey map[string][]step, told bool, err error) {
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
		i.log.Debug("cannot look at each revision", "scope", i.scope, "from_rv", from, "to_rv", to, "err", err)
		return nil, false, nil
	}
	prior := map[string]*object.Object{}
	for k := range changed {
		if c := &changed[k]; c.prior != nil {
			prior[c.key] = c.prior
		}
	}
	return steps(from, prior, glimpses), true, nil
}

// steps makes of what there was at each revision behind from what became of each name, ascending. prior are the objects at from:
// of names that are there at every revision, they may be missing.
func steps(from uint64, prior map[string]*object.Object, glimpses []*glimpse) map[string][]step {
	byKey := map[string][]step{}
	before := map[string]string{}
	latest := map[string]*object.Object{} // of each name, nil: gone
	for key, o := range prior {
		before[key], latest[key] = o.Ref.UID, o
	}
	for n, now := range glimpses {
		rv := from + 1 + uint64(n)
		for key := range before {
			if _, ok := now.uids[key]; !ok {
				byKey[key] = append(byKey[key], step{rv: rv})
				delete(latest, key)
			}
		}
		if o := now.object; o != nil {
			key := o.Ref.Key
			var was object.Stamp
			if last := latest[key]; last != nil && last.Ref.UID == o.Ref.UID {
				was = last.Managed
			}
			byKey[key] = append(byKey[key], step{rv: rv, object: o, changedBy: now.managers.AppendChangedBy(nil, was)})
			latest[key] = o
		}
		before = now.uids
	}
	return byKey
}

// glimpseAt reads what there was at a revision. objects counts them over all revisions.
func (i *informer) glimpseAt(ctx context.Context, rv uint64, objects *atomic.Int64) (*glimpse, error) {
	b := retry.New()
	for {
		out, err := i.glimpseOnce(ctx, rv, objects)
		if err == nil || apiserver.IsPermanent(err) || ctx.Err() != nil || apierrors.IsResourceExpired(err) {
			return out, err
		}
		i.noteError("ask", err)
		if !b.Wait(ctx, err) {
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
	meta, err := i.page(ctx, i.selection.Namespace, metav1.ListOptions{
		Limit: apiserver.PageSize, ResourceVersion: object.FormatVersion(rv), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}, func(raw []byte) error {
		obs, err := r.read(raw, false)
		switch {
		case obs != nil && obs.object == nil:
			return nil // excluded
		case err != nil:
			return err
		case objects.Add(1) > eachObjects:
			return apiserver.ErrUnanswerable
		}
		o := obs.object
		out.uids[o.Ref.Key] = o.Ref.UID
		if o.ResourceVersion == rv {
			out.object, out.managers = o, keepManagers(r.scanned)
		}
		return nil
	})
	if err == nil && (meta.Continue != "" || meta.ResourceVersion != object.FormatVersion(rv)) {
		err = apiserver.ErrUnanswerable // too many, or a server that does not know Exact
	}
	return out, err
}

// foundAll makes due what was found of each name at each revision, and counts the versions; false: it does not lead from what the
// lists before have to what the last one has, and nothing is changed.
func (s *store) foundAll(byKey map[string][]step) (versions int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, d := range s.debts {
		if d.gap == s.gaps && !leads(d.base, byKey[key], s.objects[key].last) {
			return 0, false
		}
	}
	for key, way := range byKey {
		if d := s.debts[key]; d != nil && d.gap == s.gaps {
			continue
		}
		if _, known := s.objects[key]; known || !leads(nil, way, nil) {
			return 0, false // what is due of it tells another story
		}
	}
	for key, way := range byKey {
		d, e := &debt{gap: s.gaps}, s.objects[key]
		if was := s.debts[key]; was != nil {
			d.from, d.outside, d.base, d.told = was.from, was.outside, was.base, was.told
			d.way = slices.Clone(was.way[:was.told])
		}
		for _, st := range way {
			d.way = append(d.way, link{step: st, linked: true})
			if st.object != nil {
				versions++
			}
		}
		d.last = link{linked: true}
		if n := len(d.way); e.last != nil {
			d.last, d.way = d.way[n-1], d.way[:n-1]
		}
		s.debts[key] = d
		s.set(key, entry{last: e.last, due: dueInferred})
	}
	s.line()
	return versions, true
}

// leads tells if way leads from one object to another, nil: none.
func leads(from *object.Object, way []step, to *object.Object) bool {
	if len(way) == 0 {
		return from == to || from != nil && to != nil && from.Ref.UID == to.Ref.UID && from.ResourceVersion == to.ResourceVersion
	}
	for _, st := range way {
		if from != nil && st.object != nil && from.Ref.UID != st.object.Ref.UID || from == nil && st.object == nil {
			return false
		}
		from = st.object
	}
	return leads(from, nil, to)
}
