package informers

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Where a watch cannot go on because history was lost (a 410), LIST may still know it: an API server that was restarted
// answers Exact lists at any resourceVersion that etcd has not compacted, and every revision of etcd is a
// resourceVersion of every resource. A fresh list at `to`, compared with the last-known objects at `from`, tells which
// names have changed; each of them is then walked back:
//
//	from ──────────────────────────────────────────────────── to
//	 prior        step        step     (deleted)       last
//	              rv 7        rv 9       rv 12         rv 15
//	               └─ at 8 ────┘ ◀─ 11 exists, 12 not ──┘ ◀─ asked at 14: nothing, so 15 created it
//
// Asking at the resourceVersion right below a version's own gives the version before it, one request for each. Where
// there was nothing, but prior is known to have existed, a deletion lies in between: between a resourceVersion with an
// object and a later one without, bisection finds a deletion in as many requests as the span has binary digits.
//
// What this cannot tell: objects of a name that both came and went inside the gap, between two points where it was free,
// and, of a name that was not in the scope at `from`, what it did there before the object that has it at `to`. Nobody
// would ask for them without trying every resourceVersion.

const (
	// walkRequests and walkFor bound what bringing one informer's gap to light may cost the API server, in requests and in
	// time. What is not found by then is inferred.
	walkRequests = 10_000
	walkFor      = 30 * time.Second
	// walkNames is how many names are walked at a time.
	walkNames = 8
)

// change is a name whose object differs between two lists.
type change struct {
	key         string
	prior, last *object.Object // nil: none in the scope
	// managers are those of last, for its changedBy; nil: not kept.
	managers *object.Scanned
}

// step is one version of a name inside a gap.
type step struct {
	rv        uint64         // of the version, or of its deletion
	object    *object.Object // nil: deleted at rv
	changedBy []byte         // as on a watch event; nil where the version before is not known
	outside   bool           // the scope's selectors did not take it
}

// walked is what was found of one name: its versions behind prior and before last, ascending. Of versions outside of the
// scope's selectors, there are the first and the last of each run; one that the name had at the beginning of the gap, where
// it was not in the scope, is the first step. A version whose uid is not that of the one before it, with no deletion in
// between, follows a deletion step of the same resourceVersion.
type walked struct {
	steps []step
	// whole tells that the steps lead from prior to last; else what lies below the first of them is missing.
	whole bool
	// changedBy is that of last, nil where it is not known.
	changedBy []byte
}

// walkBack finds what became of the names that changed, behind from, up to the list at to, by key; whole tells that it is
// whole for all of them. slots bounds how many requests run at a time over all informers. It sorts changed: the budget goes
// to the first keys first. What fails makes less whole; the only error is the end of ctx.
func (i *informer) walkBack(ctx context.Context, slots chan struct{}, from, to uint64, changed []change) (byKey map[string]walked, whole bool, err error) {
	return i.walkWithin(ctx, slots, walkRequests, walkFor, from, to, changed)
}

func (i *informer) walkWithin(ctx context.Context, slots chan struct{}, requests int64, d time.Duration, from, to uint64,
	changed []change,
) (byKey map[string]walked, whole bool, err error) {
	b := &budget{informer: i, slots: slots, until: time.Now().Add(d)}
	b.left.Store(requests)
	w := &walker{asker: b, from: from, to: to, selects: i.selection.HasSelector(), pushed: i.selection.HasServerSelector()}
	slices.SortFunc(changed, func(a, b change) int { return strings.Compare(a.key, b.key) })
	results := make([]walked, len(changed))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(walkNames)
	for k := range changed {
		g.Go(func() (err error) {
			results[k], err = w.walk(ctx, &changed[k])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, false, err
	}
	byKey, whole = make(map[string]walked, len(changed)), true
	for k := range changed {
		byKey[changed[k].key] = results[k]
		whole = whole && results[k].whole
	}
	return byKey, whole, nil
}

// budget asks the API server as long as there are requests and time left.
type budget struct {
	informer *informer
	slots    chan struct{} // one is held during each request
	until    time.Time
	left     atomic.Int64 // requests, retries included
}

// ask implements asker.
func (b *budget) ask(ctx context.Context, q question) (*found, error) {
	ctx, cancel := context.WithDeadline(ctx, b.until)
	defer cancel()
	return b.informer.answer(ctx, q, func(ctx context.Context, q question) (*found, error) {
		if b.left.Add(-1) < 0 {
			return nil, apiserver.ErrUnanswerable
		}
		select {
		case b.slots <- struct{}{}:
			defer func() { <-b.slots }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return b.informer.ask(ctx, q)
	})
}

// asker answers questions about the past, nil where no object had the name. Any error is final. Safe for concurrent use.
type asker interface {
	ask(ctx context.Context, q question) (*found, error)
}

// walker walks names back between two lists.
type walker struct {
	asker
	from, to uint64
	selects  bool // the scope has selectors
	pushed   bool // which the API server applies, at least some of them
}

// walk walks one name back. The only error is the end of ctx.
func (w *walker) walk(ctx context.Context, c *change) (walked, error) {
	d := &descent{walker: w, prior: c.prior, from: w.from}
	if c.prior != nil {
		// Between from and its own version, which may be a little higher, nothing else can have been.
		d.from = max(d.from, c.prior.ResourceVersion)
	}
	err := d.begin(ctx, c)
	for err == nil && !d.whole {
		err = d.descend(ctx)
	}
	if ctx.Err() != nil {
		return walked{}, context.Cause(ctx)
	}
	slices.Reverse(d.steps)
	return d.walked, nil
}

// descent is the walk of one name. Its steps are still descending.
type descent struct {
	*walker
	walked
	ref   *object.Ref
	prior *object.Object
	from  uint64
	low   *found // the lowest version found: the last step, or (no step) what the list shows
}

// begin finds where to start from.
func (d *descent) begin(ctx context.Context, c *change) error {
	switch {
	case c.last != nil && c.last.ResourceVersion <= d.from:
		return apiserver.ErrUnanswerable // what is remembered comes from another history
	case c.last != nil:
		d.ref, d.low = c.last.Ref, &found{object: c.last, managers: c.managers}
		return nil
	case c.prior == nil:
		d.whole = true
		return nil
	}
	d.ref = c.prior.Ref
	if d.selects {
		f, err := d.ask(ctx, question{ref: d.ref, rv: d.to})
		if err != nil {
			return err
		}
		if f != nil {
			f.outside = true
			return d.take(f)
		}
	}
	return d.deletion(ctx, d.to)
}

// descend finds what was before the lowest version.
func (d *descent) descend(ctx context.Context) error {
	rv := d.low.object.ResourceVersion
	below, err := d.at(ctx, rv-1)
	if err != nil {
		return err
	}
	same := below != nil && below.object.Ref.UID == d.low.object.Ref.UID
	if d.low.managers != nil {
		var before object.Stamp
		if same {
			before = below.object.Managed
		}
		changedBy := d.low.managers.AppendChangedBy(nil, before)
		if n := len(d.steps); n > 0 {
			d.steps[n-1].changedBy = changedBy
		} else {
			d.changedBy = changedBy
		}
	}
	switch {
	case below == nil && d.prior == nil:
		d.whole = true // here it came into being
		return nil
	case below == nil:
		return d.deletion(ctx, rv-1)
	case !same:
		d.steps = append(d.steps, step{rv: rv})
	}
	return d.take(below)
}

// at is what there was at rv, inside or outside of the scope.
func (d *descent) at(ctx context.Context, rv uint64) (*found, error) {
	q := question{ref: d.ref, rv: rv}
	switch {
	case rv <= d.from && d.prior != nil:
		return &found{object: d.prior}, nil
	case rv <= d.from && !d.selects:
		return nil, nil
	case rv > d.from && d.pushed: // inside is the likelier
		q.selected = true
		if f, err := d.ask(ctx, q); f != nil || err != nil {
			return f, err
		}
		q.selected = false
	}
	f, err := d.ask(ctx, q)
	if f != nil && d.pushed {
		f.outside = true
	}
	return f, err
}

// deletion finds a deletion between prior and absent, where there was nothing, and goes on from what it deleted.
func (d *descent) deletion(ctx context.Context, absent uint64) error {
	if absent <= d.from {
		return apiserver.ErrUnanswerable // what is remembered comes from another history
	}
	there, f := d.from, &found{object: d.prior}
	for absent-there > 1 {
		middle := there + (absent-there)/2
		switch at, err := d.ask(ctx, question{ref: d.ref, rv: middle}); {
		case err != nil:
			return err
		case at == nil:
			absent = middle
		default:
			there, f = middle, at
		}
	}
	d.steps = append(d.steps, step{rv: absent})
	if d.pushed && !d.isPrior(f.object) {
		inside, err := d.ask(ctx, question{ref: d.ref, rv: there, selected: true})
		if err != nil {
			return err
		}
		f.outside = inside == nil || inside.outside
	}
	return d.take(f)
}

// take goes on from f, the version below all that was found before.
func (d *descent) take(f *found) error {
	o := f.object
	if d.isPrior(o) {
		d.whole = true
		return nil
	}
	begun := o.ResourceVersion <= d.from
	if begun && (d.prior != nil || !f.outside) {
		return apiserver.ErrUnanswerable // what is remembered comes from another history
	}
	d.low, d.whole = f, begun
	s := step{rv: o.ResourceVersion, object: o, outside: f.outside}
	if n := len(d.steps); n >= 2 && s.outside && d.steps[n-1].outside && d.steps[n-2].outside {
		d.steps[n-1] = s // between two others that are outside, nobody misses it
		return nil
	}
	d.steps = append(d.steps, s)
	return nil
}

func (d *descent) isPrior(o *object.Object) bool {
	return d.prior != nil && d.prior.ResourceVersion == o.ResourceVersion && d.prior.Ref.UID == o.Ref.UID
}
