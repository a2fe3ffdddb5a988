package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// lists has the objects that lists at each revision after 10 return: "a=1 b=2*" is a and b with
// their uids, and b was written at this revision. "-" is an object that the scope leaves out, and
// "|" begins another page.
type lists []string

func (lists) Ask(context.Context, backfill.Question) (*backfill.Answer, error) {
	return nil, errors.New("asked about a name")
}

func (l lists) List(
	ctx context.Context, rv uint64, request func() error, each func(*object.Object, *object.Scanned) error,
) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := request(); err != nil {
		return err
	}
	for _, one := range strings.Fields(l[rv-11]) {
		var err error
		switch one {
		case "|":
			err = request()
		case "-":
			err = each(nil, &object.Scanned{})
		}
		if err != nil {
			return err
		}
		if one == "|" || one == "-" {
			continue
		}
		name, uid, _ := strings.Cut(one, "=")
		uid, written := strings.CutSuffix(uid, "*")
		version := uint64(1)
		if written {
			version = rv
		}
		if err := each(at(name, uid, version), &object.Scanned{}); err != nil {
			return err
		}
	}
	return nil
}

func (lists) Retry(ctx context.Context, request func(context.Context) error) error {
	return request(ctx)
}

// at is an object of a name as of a revision.
func at(name, uid string, rv uint64) *object.Object {
	return object.New(object.NewRef(configMaps, "shop", name, uid), rv, 0, nil, []byte("{}"))
}

func TestEveryRevision(t *testing.T) {
	l := lists{
		"a=1* gone=2",      // 11
		"a=1",              // 12
		"a=1 brief=3*",     // 13
		"a=1",              // 14
		"",                 // 15
		"a=4*",             // 16
		"a=4 quiet=5",      // 17: of another agent's namespace, say: it was there all along
		"a=4 quiet=5",      // 18
		"a=4* quiet=5",     // 19
		"a=4 again=6*",     // 20
		"a=4 again=6",      // 21
		"a=4 again=6*",     // 22
		"a=4 again=6 ",     // 23
		"a=4 again=6 ",     // 24
		"again=6",          // 25
		"again=6 brief=7*", // 26
	}
	var changed []backfill.Change
	for _, o := range []*object.Object{at("a", "1", 7), at("gone", "2", 8)} {
		changed = append(changed, backfill.Change{Key: o.Ref.Key, Before: o})
	}
	byKey, err := everyRevision(t.Context(), l, &backfill.Gap{From: 10, To: 10 + uint64(len(l)), Changed: changed})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, versions := range byKey {
		got[strings.TrimPrefix(key, "configmaps/shop/")] = strings.Join(texts(versions), ", ")
	}
	want := map[string]string{
		"a":     "11 1, 15 gone, 16 4, 19 4, 25 gone",
		"gone":  "12 gone",
		"brief": "13 3, 14 gone, 26 7",
		"again": "20 6, 22 6",
		"quiet": "20 gone",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// revisions has the changes of some names at the revisions of a gap.
type revisions struct {
	names       []string
	lists       lists
	before, now map[string]*object.Object // by name
	versions    map[string][]string       // by name, as texts has them
}

func drawRevisions(t *rapid.T) *revisions {
	r := &revisions{
		names:    []string{"a", "b", "c", "d"},
		before:   map[string]*object.Object{},
		now:      map[string]*object.Object{},
		versions: map[string][]string{},
	}
	for _, name := range r.names {
		if rapid.Bool().Draw(t, "exists") {
			r.now[name] = at(name, "u0", 1)
			r.before[name] = r.now[name]
		}
	}
	for n := range rapid.IntRange(1, 30).Draw(t, "revisions") {
		r.draw(t, 11+uint64(n))
	}
	return r
}

// draw draws what happens at rv.
func (r *revisions) draw(t *rapid.T, rv uint64) {
	name := rapid.SampledFrom(r.names).Draw(t, "name")
	written := ""
	switch o := r.now[name]; rapid.IntRange(0, 3).Draw(t, "op") {
	case 0: // a write to another resource
	case 1:
		if o != nil {
			r.versions[name] = append(r.versions[name], fmt.Sprint(rv, " gone"))
			delete(r.now, name)
		}
	default:
		uid := fmt.Sprint("u", rv)
		if o != nil {
			uid = o.Ref.UID
		}
		written, r.now[name] = name, at(name, uid, rv)
		r.versions[name] = append(r.versions[name], fmt.Sprint(rv, " ", uid))
	}
	text := ""
	for name, o := range r.now {
		text += name + "=" + o.Ref.UID
		if name == written {
			text += "*"
		}
		text += " "
	}
	r.lists = append(r.lists, text)
}

// gap is the gap that these revisions make.
func (r *revisions) gap() *backfill.Gap {
	gap := &backfill.Gap{From: 10, To: 10 + uint64(len(r.lists))}
	for _, name := range r.names {
		if r.before[name] != r.now[name] {
			gap.Changed = append(gap.Changed, backfill.Change{
				Key:    "configmaps/shop/" + name,
				Before: r.before[name],
				After:  r.now[name],
			})
		}
	}
	return gap
}

// The versions are all changes at the revisions of a gap, and lead from its beginning to its end.
func TestEveryRevisionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRevisions(t)
		byKey, err := everyRevision(t.Context(), r.lists, r.gap())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for key, versions := range byKey {
			name := strings.TrimPrefix(key, "configmaps/shop/")
			got[name] = texts(versions)
			if !backfill.Leads(r.before[name], versions, r.now[name]) {
				t.Errorf("%s: %q do not lead from %v to %v", name, got[name], r.before[name], r.now[name])
			}
		}
		if diff := cmp.Diff(r.versions, got); diff != "" {
			t.Errorf("versions of %q (-want +got):\n%s", r.lists, diff)
		}
	})
}

// everyRevision lists each revision of gap with a budget of its own, in a scope without known
// objects.
func everyRevision(ctx context.Context, l lists, gap *backfill.Gap) (map[string][]backfill.Version, error) {
	return backfill.EveryRevision(ctx, l, *gap, gap.Reserve(backfill.NewLimiter(), 0))
}

// After a list that fails permanently there are no versions.
func TestEveryRevisionFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if byKey, err := everyRevision(ctx, lists{"a=1"}, &backfill.Gap{
		From: 10,
		To:   11,
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v, want the end of the context", byKey, err)
	}
}

// EveryRevision ends when its lists have cost as much as they may. Objects that the API server
// lists and the scope leaves out count too.
func TestEveryRevisionWithinItsBudget(t *testing.T) {
	for name, c := range map[string]struct {
		lists lists
		left  int // tokens of the limiter
		ok    bool
	}{
		"as many objects as permitted":           {lists{strings.Repeat("a=1 ", 50_000)}, 10_000, true},
		"too many objects":                       {lists{strings.Repeat("a=1 ", 50_000), "a=1"}, 10_000, false},
		"as many excluded ones as permitted":     {lists{strings.Repeat("- ", 50_000)}, 10_000, true},
		"too many that the scope leaves out":     {lists{strings.Repeat("- ", 50_000), "-"}, 10_000, false},
		"as many further pages as permitted":     {lists{strings.Repeat("| ", 100), ""}, 10_000, true},
		"too many pages":                         {lists{strings.Repeat("| ", 100), "|"}, 10_000, false},
		"as many pages as the limiter permits":   {lists{"| |", ""}, 4, true},
		"more pages than the limiter permits":    {lists{"| |", ""}, 3, false},
		"as many objects as the limiter permits": {lists{strings.Repeat("- ", 149)}, 3, true},
		"more objects than the limiter permits":  {lists{strings.Repeat("- ", 150)}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := backfill.NewLimiter()
				l.AllowN(time.Now(), 10_000-c.left)
				gap := backfill.Gap{From: 10, To: 10 + uint64(len(c.lists))}
				_, err := backfill.EveryRevision(t.Context(), c.lists, gap, gap.Reserve(l, 0))
				if c.ok != (err == nil) || err != nil && !errors.Is(err, apiserver.ErrUnanswerable) {
					t.Errorf("%v, permitted: %t", err, c.ok)
				}
			})
		})
	}
}

func TestLeads(t *testing.T) {
	a := at("a", "1", 5)
	a2 := at("a", "1", 6)
	b := at("a", "2", 7)
	gone := backfill.Version{ResourceVersion: 6}
	to := func(o *object.Object) backfill.Version {
		return backfill.Version{ResourceVersion: o.ResourceVersion, Object: o}
	}
	for name, c := range map[string]struct {
		from     *object.Object
		versions []backfill.Version
		to       *object.Object
		want     bool
	}{
		"from nothing to nothing":               {nil, nil, nil, true},
		"nowhere":                               {a, nil, at("a", "1", 5), true},
		"to another version":                    {a, nil, a2, false},
		"to nothing without a deletion":         {a, nil, nil, false},
		"from nothing without a creation":       {nil, nil, a, false},
		"an update":                             {a, []backfill.Version{to(a2)}, a2, true},
		"an update that the list does not show": {a, []backfill.Version{to(a2)}, a, false},
		"a replacement":                         {a, []backfill.Version{gone, to(b)}, b, true},
		"a replacement without a deletion":      {a, []backfill.Version{to(b)}, b, false},
		"a deletion of what does not exist":     {nil, []backfill.Version{gone}, nil, false},
		"created and deleted":                   {nil, []backfill.Version{to(a), gone}, nil, true},
		"deleted twice":                         {a, []backfill.Version{gone, gone}, nil, false},
	} {
		if got := backfill.Leads(c.from, c.versions, c.to); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestLookupsAreBounded(t *testing.T) {
	const most, each = 10_000, 1024
	if _, ok := (&backfill.Gap{From: 10, To: 10 + each + 1}).Cost(0); ok {
		t.Errorf("more than %d revisions may be listed", each)
	}
	l, now := backfill.NewLimiter(), time.Unix(1_800_000_000, 0)
	allowed := 0
	for l.AllowN(now, each) {
		allowed += each
	}
	if allowed > most || allowed < most-each {
		t.Errorf("%d at once, want about %d", allowed, most)
	}
	if l.AllowN(now.Add(time.Second), each) || !l.AllowN(now.Add(time.Minute), each) {
		t.Error("they do not come back within a minute")
	}
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		from, to      uint64
		objects, want int // 0: each revision may not be listed
	}{
		{10, 10, 0, 0},
		{11, 10, 0, 0},
		{10, 11, 0, 1},
		{10, 20, 100, 10 + 1000/50},
		{10, 20, 5000, 10 + 50_000/50},
		{10, 20, 5001, 0},
		{10, 10 + 1024, 1, 1024 + 1024/50},
		{10, 10 + 1025, 1, 0},
	} {
		if got, ok := (&backfill.Gap{From: c.from, To: c.to}).Cost(c.objects); ok != (c.want != 0) ||
			ok && got != c.want {
			t.Errorf("%d objects from %d to %d: %d, %t, want %d", c.objects, c.from, c.to, got, ok, c.want)
		}
	}
}
