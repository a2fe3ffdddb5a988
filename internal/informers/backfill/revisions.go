package backfill

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	maxRevisions = 1024   // of a gap for EveryRevision
	maxObjects   = 50_000 // that all of its lists together return
	// requests of a gap beyond one for each revision: further pages, and retries
	furtherPages = maxObjects / apiserver.PageSize
	// objectsPerLookup is the number of listed objects that cost as much as one request.
	objectsPerLookup = 50
	// lookupsPerMinute bounds the lists at single revisions over all scopes: after a restart of the
	// API server, many scopes find little.
	lookupsPerMinute = 10_000
)

// NewLimiter returns the limiter of lists at single revisions. All scopes share it.
func NewLimiter() *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/lookupsPerMinute), lookupsPerMinute)
}

// Cost returns how many tokens of the limiter EveryRevision takes if its lists return so many
// objects, each on one page. ok is false if g is too long for it, or empty.
func (g *Gap) Cost(objects int) (tokens int, ok bool) {
	if g.From >= g.To || g.To-g.From > maxRevisions {
		return 0, false
	}
	revisions := int(g.To - g.From)
	return revisions + revisions*objects/objectsPerLookup, revisions*objects <= maxObjects
}

// Budget limits what EveryRevision asks of the API server. The known objects of a scope show only
// its least cost: a list also returns objects that the scope leaves out, and may have more pages
// than expected. So each request and each listed object counts when it is made or read.
type Budget struct {
	limiter  *rate.Limiter
	requests atomic.Int64 // that may still be made
	tokens   atomic.Int64 // taken from the limiter before they are needed
	objects  atomic.Int64 // listed so far
}

// Reserve takes the cost of g from the limiter, in a scope of so many known objects. It returns nil
// if EveryRevision is too expensive for g.
func (g *Gap) Reserve(l *rate.Limiter, objects int) *Budget {
	tokens, ok := g.Cost(objects)
	if !ok || !l.AllowN(time.Now(), tokens) {
		return nil
	}
	b := &Budget{limiter: l}
	b.requests.Store(int64(g.To-g.From) + furtherPages)
	b.tokens.Store(int64(tokens))
	return b
}

// takeRequest permits one more request. Its error is apiserver.ErrUnanswerable.
func (b *Budget) takeRequest() error {
	if b.requests.Add(-1) < 0 {
		return apiserver.ErrUnanswerable
	}
	return b.takeToken()
}

// takeObject permits one more listed object. Its error is apiserver.ErrUnanswerable.
func (b *Budget) takeObject() error {
	n := b.objects.Add(1)
	switch {
	case n > maxObjects:
		return apiserver.ErrUnanswerable
	case n%objectsPerLookup == 0:
		return b.takeToken()
	}
	return nil
}

func (b *Budget) takeToken() error {
	if b.tokens.Add(-1) < 0 && !b.limiter.Allow() {
		return apiserver.ErrUnanswerable
	}
	return nil
}

// EveryRevision finds every version inside gap by a list at each of its revisions. It returns the
// versions of each name by key, ascending. It fails if a list fails permanently, if b is used up,
// or after MaxTime.
func EveryRevision(ctx context.Context, a Asker, gap Gap, b *Budget) (map[string][]Version, error) {
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	revisions := make([]*revision, gap.To-gap.From)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrent)
	for n := range revisions {
		g.Go(func() (err error) {
			revisions[n], err = listRevision(ctx, a, gap.From+1+uint64(n), b)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return compareRevisions(gap, revisions), nil
}

// revision is the state of a scope at one revision.
type revision struct {
	uids     map[string]string // by key
	written  *object.Object    // at this revision; nil if none was
	managers *object.Scanned   // of written
}

// listRevision lists the scope at rv.
func listRevision(ctx context.Context, a Asker, rv uint64, b *Budget) (*revision, error) {
	r := &revision{uids: map[string]string{}}
	err := a.Retry(ctx, func(ctx context.Context) error {
		return a.List(ctx, rv, b.takeRequest, func(o *object.Object, m *object.Scanned) error {
			if err := b.takeObject(); err != nil || o == nil {
				return err
			}
			r.uids[o.Ref.Key] = o.Ref.UID
			if o.ResourceVersion == rv {
				r.written, r.managers = o, m.CopyManagers()
			}
			return nil
		})
	})
	return r, err
}

// compareRevisions returns the differences between the consecutive revisions of gap as versions.
func compareRevisions(gap Gap, revisions []*revision) map[string][]Version {
	versions := map[string][]Version{}
	// uids at the previous revision. It may lack names that exist at every revision
	before := map[string]string{}
	latest := map[string]*object.Object{} // last version of each name that exists
	for _, c := range gap.Changed {
		if o := c.Before; o != nil {
			before[c.Key], latest[c.Key] = o.Ref.UID, o
		}
	}
	for n, now := range revisions {
		rv := gap.From + 1 + uint64(n)
		for key := range before {
			if _, ok := now.uids[key]; !ok {
				versions[key] = append(versions[key], Version{ResourceVersion: rv})
				delete(latest, key)
			}
		}
		if o := now.written; o != nil {
			key := o.Ref.Key
			var managed object.Stamp
			if last := latest[key]; last != nil && last.Ref.UID == o.Ref.UID {
				managed = last.Managed
			}
			versions[key] = append(versions[key], Version{
				ResourceVersion: rv,
				Object:          o,
				ChangedBy:       now.managers.AppendChangedBy(nil, managed),
			})
			latest[key] = o
		}
		before = now.uids
	}
	return versions
}
