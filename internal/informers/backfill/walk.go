package backfill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Limits of the cost of one gap for the API server. Versions not found by then are inferred.
const (
	MaxRequests = 10_000
	MaxTime     = 30 * time.Second
)

const concurrent = 8 // concurrent names or revisions of a gap

// Options are the limits of a walk.
type Options struct {
	HasSelector       bool          // an object can enter or leave the scope while it exists
	HasServerSelector bool          // the API server applies at least some of the selectors
	Requests          int64         // limit, retries included
	Time              time.Duration // at most
}

// Result has the versions of one name that Walk found.
type Result struct {
	// Versions are those between Before and After, ascending. Consecutive ones outside the
	// selectors are reduced to the first and the last. A version that the name had at From outside
	// the scope is the first one. If one object replaced another in a single revision, a deletion
	// of the same resourceVersion precedes it.
	Versions  []Version
	Complete  bool   // the versions lead from Before to After. Otherwise those before the first are missing
	ChangedBy []byte // of After, nil if unknown
}

// Walk finds the versions of each changed name of gap. Its results are by key; complete reports
// whether all of them are. A permanent failure of a request, or a limit, leaves the result
// incomplete. The only error is the cause of ctx.
func Walk(ctx context.Context, a Asker, gap Gap, o Options) (byKey map[string]Result, complete bool, err error) {
	limited, cancel := context.WithTimeout(ctx, o.Time)
	defer cancel()
	w := &walker{Gap: gap, Options: o, asker: a}
	w.left.Store(o.Requests)
	slices.SortFunc(gap.Changed, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	results := make([]Result, len(gap.Changed))
	var g errgroup.Group
	g.SetLimit(concurrent)
	for k := range gap.Changed {
		g.Go(func() error {
			results[k] = w.walk(limited, &gap.Changed[k])
			return ctx.Err()
		})
	}
	if g.Wait() != nil {
		return nil, false, context.Cause(ctx)
	}
	byKey, complete = make(map[string]Result, len(results)), true
	for k := range results {
		byKey[gap.Changed[k].Key] = results[k]
		complete = complete && results[k].Complete
	}
	return byKey, complete, nil
}

type walker struct {
	Gap
	Options
	asker Asker
	left  atomic.Int64 // requests
}

func (w *walker) ask(ctx context.Context, q Question) (v *Answer, err error) {
	err = w.asker.Retry(ctx, func(ctx context.Context) (err error) {
		if w.left.Add(-1) < 0 {
			return apiserver.ErrUnanswerable
		}
		v, err = w.asker.Ask(ctx, q)
		return err
	})
	return v, err
}

// walk walks one name back until its result is complete or a question is not answered.
func (w *walker) walk(ctx context.Context, c *Change) Result {
	d := &descent{walker: w, before: c.Before, from: w.From}
	if c.Before != nil {
		// Its own version may be a little higher than From. There was no other in between.
		d.from = max(d.from, c.Before.ResourceVersion)
	}
	err := d.begin(ctx, c)
	for err == nil && !d.Complete {
		err = d.descend(ctx)
	}
	slices.Reverse(d.Versions)
	return d.Result
}

// descent is the walk of one name. Its versions are in descending order.
type descent struct {
	*walker
	Result
	ref    *object.Ref
	before *object.Object // at from; nil if none is in the scope
	from   uint64
	lowest *Answer // lowest version found so far: that of the last of Versions, or After
}

var errOtherHistory = errors.New("known objects belong to another history")

func (d *descent) begin(ctx context.Context, c *Change) error {
	switch {
	case c.After != nil && c.After.ResourceVersion <= d.from:
		return errOtherHistory
	case c.After != nil:
		d.ref, d.lowest = c.After.Ref, &Answer{Object: c.After, Managers: c.Managers}
		return nil
	case c.Before == nil:
		d.Complete = true
		return nil
	}
	d.ref = c.Before.Ref
	if d.HasSelector {
		v, err := d.ask(ctx, Question{Ref: d.ref, At: d.To})
		if err != nil {
			return err
		}
		if v != nil {
			v.Outside = true
			return d.add(v)
		}
	}
	return d.findDeletion(ctx, d.To)
}

func (d *descent) descend(ctx context.Context) error {
	rv := d.lowest.Object.ResourceVersion
	v, err := d.at(ctx, rv-1)
	if err != nil {
		return err
	}
	same := v != nil && v.Object.Ref.UID == d.lowest.Object.Ref.UID
	if d.lowest.Managers != nil {
		var managed object.Stamp
		if same {
			managed = v.Object.Managed
		}
		to := &d.ChangedBy
		if n := len(d.Versions); n > 0 {
			to = &d.Versions[n-1].ChangedBy
		}
		*to = d.lowest.Managers.AppendChangedBy(nil, managed)
	}
	switch {
	case v == nil && d.before == nil:
		d.Complete = true // the object was created at rv
		return nil
	case v == nil:
		return d.findDeletion(ctx, rv-1)
	case !same:
		d.Versions = append(d.Versions, Version{ResourceVersion: rv}) // the deletion of v
	}
	return d.add(v)
}

// at returns the version at rv, inside or outside the scope, nil if there was none.
func (d *descent) at(ctx context.Context, rv uint64) (*Answer, error) {
	q := Question{Ref: d.ref, At: rv}
	switch {
	case rv <= d.from && d.before != nil:
		return &Answer{Object: d.before}, nil
	case rv <= d.from && !d.HasSelector:
		return nil, nil
	case rv > d.from && d.HasServerSelector: // a version inside the scope is more likely
		q.Selected = true
		if v, err := d.ask(ctx, q); v != nil || err != nil {
			return v, err
		}
		q.Selected = false
	}
	v, err := d.ask(ctx, q)
	if v != nil && d.HasServerSelector {
		v.Outside = true
	}
	return v, err
}

// findDeletion finds a deletion between before and absent, where no object had the name, and the
// version that it deleted.
func (d *descent) findDeletion(ctx context.Context, absent uint64) error {
	if absent <= d.from {
		return errOtherHistory
	}
	present, last := d.from, &Answer{Object: d.before}
	for absent-present > 1 {
		middle := present + (absent-present)/2
		switch v, err := d.ask(ctx, Question{Ref: d.ref, At: middle}); {
		case err != nil:
			return err
		case v == nil:
			absent = middle
		default:
			present, last = middle, v
		}
	}
	d.Versions = append(d.Versions, Version{ResourceVersion: absent})
	if d.HasServerSelector && !d.isBefore(last.Object) {
		v, err := d.ask(ctx, Question{Ref: d.ref, At: present, Selected: true})
		if err != nil {
			return err
		}
		last.Outside = v == nil || v.Outside
	}
	return d.add(last)
}

// add takes v, the version below all found so far, and completes the result if it is the one at the
// start of the gap.
func (d *descent) add(v *Answer) error {
	o := v.Object
	if d.isBefore(o) {
		d.Complete = true
		return nil
	}
	begun := o.ResourceVersion <= d.from
	if begun && (d.before != nil || !v.Outside) {
		return errOtherHistory
	}
	d.lowest, d.Complete = v, begun
	s := Version{ResourceVersion: o.ResourceVersion, Object: o, Outside: v.Outside}
	if n := len(d.Versions); n >= 2 && s.Outside && d.Versions[n-1].Outside && d.Versions[n-2].Outside {
		d.Versions[n-1] = s // no event shows a version between two others outside the scope
		return nil
	}
	d.Versions = append(d.Versions, s)
	return nil
}

func (d *descent) isBefore(o *object.Object) bool { return d.before != nil && sameVersion(d.before, o) }
