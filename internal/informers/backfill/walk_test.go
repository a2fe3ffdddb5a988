package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// fact is one change of a name in a made-up history.
type fact struct {
	rv      uint64
	uid     string
	deleted bool
	outside bool
	version *backfill.Answer // nil: deleted
}

// past is the history of one name. It answers questions until its budget is spent.
type past struct {
	facts    []fact
	lo, hi   uint64 // the range of revisions that may be asked for
	budget   int
	requests int
	agent    bool     // the agent applies the selectors, so answers set Outside
	entries  []string // managedFields of the object that has the name
}

var configMaps = &object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}

// put adds a version. Its managers are those of the version before it and m-<rv>.
func (p *past) put(rv uint64, uid string, outside bool) {
	p.entries = append(p.entries,
		fmt.Sprintf(`{"manager":"m-%d","operation":"Update","time":"2026-11-20T%02d:%02d:%02dZ"}`,
			rv, rv/3600%24, rv/60%60, rv%60))
	raw := fmt.Sprintf(
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm","namespace":"shop","uid":%q,"resourceVersion":"%d","managedFields":[%s]}}`,
		uid, rv, strings.Join(p.entries, ","))
	json, m, err := object.NewScanner(nil).Scan(nil, []byte(raw), "", "")
	if err != nil {
		panic(err)
	}
	p.facts = append(p.facts, fact{rv: rv, uid: uid, outside: outside, version: &backfill.Answer{
		Object:   object.New(object.NewRef(configMaps, "shop", "cm", uid), rv, m.Managed, nil, json),
		Managers: m.CopyManagers(),
	}})
}

func (p *past) delete(rv uint64, uid string) {
	p.entries = nil
	p.facts = append(p.facts, fact{rv: rv, uid: uid, deleted: true})
}

// at returns the fact of the object that existed at rv, or nil if there was none.
func (p *past) at(rv uint64) *fact {
	for k := range slices.Backward(p.facts) {
		if f := &p.facts[k]; f.rv <= rv {
			if f.deleted {
				return nil
			}
			return f
		}
	}
	return nil
}

// inside returns the object at rv, or nil if none was in the scope.
func (p *past) inside(rv uint64) *object.Object {
	if f := p.at(rv); f != nil && !f.outside {
		return f.version.Object
	}
	return nil
}

// Ask implements backfill.Asker.
func (p *past) Ask(ctx context.Context, q backfill.Question) (*backfill.Answer, error) {
	if q.At < p.lo || q.At > p.hi || q.Ref.Key != "configmaps/shop/cm" {
		return nil, fmt.Errorf("asked of %s at %d, between %d and %d", q.Ref.Key, q.At, p.lo, p.hi)
	}
	if p.requests >= p.budget {
		return nil, apiserver.ErrUnanswerable
	}
	p.requests++
	f := p.at(q.At)
	if f == nil || q.Selected && f.outside {
		return nil, ctx.Err()
	}
	copied := *f.version
	copied.Outside = p.agent && f.outside
	return &copied, ctx.Err()
}

// List implements backfill.Asker.
func (*past) List(context.Context, uint64, func() error, func(*object.Object, *object.Scanned) error) error {
	return errors.New("listed")
}

// Retry implements backfill.Asker.
func (*past) Retry(ctx context.Context, request func(context.Context) error) error {
	return request(ctx)
}

// change returns the change that lists at from and to show.
func (p *past) change(from, to uint64) *backfill.Change {
	c := &backfill.Change{Key: "configmaps/shop/cm", Before: p.inside(from), After: p.inside(to)}
	if c.After != nil {
		c.Managers = p.at(to).version.Managers
	}
	return c
}

// walk walks c back from to to from.
func (p *past) walk(ctx context.Context, from, to uint64, selects bool, c *backfill.Change) (backfill.Result, error) {
	p.lo, p.hi = from, to
	if c.Before != nil {
		p.lo = max(from, c.Before.ResourceVersion)
	}
	byKey, complete, err := backfill.Walk(ctx, p, backfill.Gap{From: from, To: to, Changed: []backfill.Change{
		*c,
	}}, backfill.Options{
		HasSelector: selects, HasServerSelector: selects && !p.agent, Requests: unlimited, Time: time.Minute,
	})
	r := byKey[c.Key]
	if r.Complete != complete {
		panic("the whole is not what its only name is")
	}
	return r, err
}

// textOf shows a version: "12 uid-1 outside", "14 gone".
func textOf(s *backfill.Version) string {
	switch {
	case s.Object == nil:
		return fmt.Sprintf("%d gone", s.ResourceVersion)
	case s.Outside:
		return fmt.Sprintf("%d %s outside", s.ResourceVersion, s.Object.Ref.UID)
	default:
		return fmt.Sprintf("%d %s", s.ResourceVersion, s.Object.Ref.UID)
	}
}

func texts(versions []backfill.Version) (out []string) {
	for k := range versions {
		out = append(out, textOf(&versions[k]))
	}
	return out
}

func (f *fact) String() string {
	switch {
	case f.deleted:
		return fmt.Sprintf("%d gone", f.rv)
	case f.outside:
		return fmt.Sprintf("%d %s outside", f.rv, f.uid)
	default:
		return fmt.Sprintf("%d %s", f.rv, f.uid)
	}
}

// history parses a past: "3 a" (object a changed at 3), "5 a out" (it did not match the selectors
// then), "9 a gone".
func history(text string) *past {
	p := &past{budget: unlimited}
	for _, line := range strings.Split(text, ", ") {
		f := strings.Fields(line)
		rv, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			panic(err)
		}
		if strings.HasSuffix(line, "gone") {
			p.delete(rv, f[1])
		} else {
			p.put(rv, f[1], strings.HasSuffix(line, "out"))
		}
	}
	return p
}

const unlimited = 1 << 30

func TestWalkBack(t *testing.T) {
	for _, tt := range []struct {
		name, history string
		from, to      uint64
		want          string
		requests      int
	}{
		{"one change", "3 a, 20 a", 10, 30, "", 1},
		{"five changes", "3 a, 12 a, 14 a, 17 a, 21 a, 29 a", 10, 30, "12 a, 14 a, 17 a, 21 a", 5},
		{"neighbours ask for nothing", "3 a, 11 a", 10, 30, "", 0},
		{"created", "12 a, 14 a", 10, 30, "12 a", 2},
		{"deleted", "3 a, 12 a, 17 a gone", 10, 30, "12 a, 17 gone", 5},
		{"deleted untouched", "3 a, 17 a gone", 10, 30, "17 gone", 4},
		{"created again", "3 a, 12 a gone, 14 b, 18 b", 10, 30, "12 gone, 14 b", 4},
		{"created again twice", "3 a, 12 a gone, 14 b, 18 b gone, 20 c", 10, 30, "12 gone, 14 b, 18 gone", 8},
		{"came and went", "3 a, 12 a gone, 21 b, 22 b gone, 29 c", 10, 30, "12 gone", 5},
		{"another uid at once", "3 a, 12 a gone, 12 b, 14 b", 10, 30, "12 gone, 12 b", 2},
		{"entered", "3 a out, 12 a out, 14 a, 17 a", 10, 30, "3 a outside, 12 a outside, 14 a", 5},
		{"entered, untouched before", "3 a out, 14 a", 10, 30, "3 a outside", 2},
		{"created outside", "12 a out, 13 a out, 14 a out, 17 a", 10, 30, "12 a outside, 14 a outside", 8},
		{"left", "3 a, 12 a, 14 a out, 16 a out, 18 a out", 10, 30, "12 a, 14 a outside, 18 a outside", 7},
		{"left and deleted", "3 a, 14 a out, 16 a gone", 10, 30, "14 a outside, 16 gone", 7},
		{"flapping", "3 a, 12 a out, 14 a, 16 a out, 18 a", 10, 30, "12 a outside, 14 a, 16 a outside", 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := history(tt.history)
			w, err := p.walk(t.Context(), tt.from, tt.to, strings.Contains(tt.history, "out"), p.change(tt.from, tt.to))
			got := texts(w.Versions)
			if err != nil || !w.Complete || strings.Join(got, ", ") != tt.want || p.requests != tt.requests {
				t.Errorf("%q, whole %t, %d requests, error %v; want %q in %d", got, w.Complete, p.requests, err,
					tt.want, tt.requests)
			}
		})
	}
}

// If the known objects and the answers of the API server belong to different histories, no versions
// are invented.
func TestWalkBackThroughAnotherHistory(t *testing.T) {
	p := history("3 a, 12 a, 14 a")
	stranger := history("5 z")
	for _, tt := range []struct {
		name, want string
		change     *backfill.Change
	}{
		{"another object was there", "12 a", &backfill.Change{Before: stranger.inside(5), After: p.inside(14)}},
		{"nothing was there", "12 a", &backfill.Change{After: p.inside(14)}},
		{"nothing has changed since", "", &backfill.Change{Before: stranger.inside(5), After: p.inside(3)}},
		{"known from later than the end", "", &backfill.Change{Before: history("20 z").inside(20)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := p.walk(t.Context(), 10, 20, false, tt.change)
			if got := texts(w.Versions); err != nil || w.Complete || strings.Join(got, ", ") != tt.want {
				t.Errorf("%q, whole %t, error %v; want %q, not whole", got, w.Complete, err, tt.want)
			}
		})
	}
}

func TestWalkBackEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	p := history("3 a, 12 a, 14 a")
	if w, err := p.walk(ctx, 10, 20, false, p.change(10, 20)); !errors.Is(err, stopped) {
		t.Errorf("%+v, %v, want the cause of the end", w, err)
	}
}

// A walk needs few requests in a long gap.
func TestWalkBackCost(t *testing.T) {
	p := history("3 a, 1234 a gone")
	if w, err := p.walk(t.Context(), 10, 2010, false, p.change(10, 2010)); err != nil || !w.Complete ||
		p.requests != 11 {
		t.Errorf("a deletion within 2,000 revisions: %+v, %v in %d requests, want 11", w, err, p.requests)
	}
	p = history("3 a, 111 a, 400 a, 900 a, 1300 a, 1999 a")
	if w, err := p.walk(t.Context(), 10, 2010, false, p.change(10, 2010)); err != nil || !w.Complete ||
		p.requests != 5 {
		t.Errorf("five versions within 2,000 revisions: %+v, %v in %d requests, want 5", w, err, p.requests)
	}
}

// For any history, gap and budget, a walk finds only changes that happened. Above the lowest
// version that it found, it misses only changes that no request can find. With a sufficient budget,
// it is complete.
func TestWalkBackProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		selects := rapid.Bool().Draw(t, "selects")
		p := drawPast(t, selects)
		p.agent = selects && rapid.Bool().Draw(t, "agent")
		end := p.facts[len(p.facts)-1].rv + 20
		from := rapid.Uint64Range(1, end).Draw(t, "from")
		to := rapid.Uint64Range(from, end).Draw(t, "to")
		p.budget = unlimited
		if rapid.Bool().Draw(t, "bounded") {
			p.budget = rapid.IntRange(0, 30).Draw(t, "budget")
		}
		c := p.change(from, to)
		if c.Before != nil {
			// A gap may begin below the known version of an object. For this object, it then begins
			// at that version.
			from = rapid.Uint64Range(1, from).Draw(t, "gap")
		}
		w, err := p.walk(t.Context(), from, to, selects, c)
		from = p.lo
		if err != nil {
			t.Fatal(err)
		}
		if c.Before == nil && c.After == nil || c.Before == c.After {
			if !w.Complete && c.After == nil || len(w.Versions) > 0 {
				t.Fatalf("versions %v where nothing changed", w.Versions)
			}
			return
		}
		if p.budget == unlimited && !w.Complete {
			t.Fatal("not whole")
		}
		p.check(t, c, &w, from, to)
	})
}

func drawPast(t *rapid.T, selects bool) *past {
	p := &past{}
	rv := uint64(1)
	uid := ""
	uids := 0
	for range rapid.IntRange(1, 40).Draw(t, "changes") {
		rv += rapid.Uint64Range(1, 6).Draw(t, "pause")
		outside := selects && rapid.Bool().Draw(t, "outside")
		op := rapid.IntRange(0, 9).Draw(t, "op")
		switch {
		case uid == "":
			uids++
			uid = fmt.Sprintf("u%d", uids)
			p.put(rv, uid, outside)
		case op < 3:
			p.delete(rv, uid)
			uid = ""
		case op == 3: // never in etcd, but an aggregated API server may do so
			p.delete(rv, uid)
			uids++
			uid = fmt.Sprintf("u%d", uids)
			p.put(rv, uid, outside)
		default:
			p.put(rv, uid, outside)
		}
	}
	return p
}

// finding has the result of a walk and the true history of the name.
type finding struct {
	*backfill.Result
	change   *backfill.Change
	from, to uint64
	truth    []fact // ascending; the first may be a version outside the scope at from
	seen     []bool // the facts that are among the versions
}

// check compares a result with the true history.
func (p *past) check(t *rapid.T, c *backfill.Change, w *backfill.Result, from, to uint64) {
	f := &finding{Result: w, change: c, from: from, to: to}
	for _, is := range p.facts {
		base := c.Before == nil && !is.deleted && p.at(from) != nil && p.at(from).rv == is.rv &&
			p.at(from).uid == is.uid
		shown := c.After != nil && is.version != nil && is.version.Object == c.After
		if (is.rv > from || base) && is.rv <= to && !shown {
			f.truth = append(f.truth, is)
		}
	}
	f.checkVersions(t)
	f.checkMissing(t)
	f.checkChangedBy(t)
	if most := 3*(len(f.truth)+2) + (len(f.truth)+1)*bits.Len64(to-from); p.requests > most {
		f.fail(t, "%d requests", p.requests)
	}
}

func (f *finding) fail(t *rapid.T, format string, args ...any) {
	var facts []string
	for k := range f.truth {
		facts = append(facts, f.truth[k].String())
	}
	t.Fatalf("%s\nfrom %d to %d, whole %t\ntruth %q\nfound %q", fmt.Sprintf(format, args...), f.from, f.to, f.Complete,
		facts, texts(f.Versions))
}

// checkVersions checks that each version is true, and in order.
func (f *finding) checkVersions(t *rapid.T) {
	f.seen = make([]bool, len(f.truth))
	next := 0
	for k := range f.Versions {
		text := textOf(&f.Versions[k])
		for next < len(f.truth) && f.truth[next].String() != text {
			next++
		}
		if next == len(f.truth) {
			f.fail(t, "%s was not, or not in this place", text)
		}
		f.seen[next] = true
		next++
	}
}

// checkMissing checks that only facts are missing that cannot be found, or need not be found.
func (f *finding) checkMissing(t *rapid.T) {
	first := slices.Index(f.seen, true)
	if f.Complete {
		first = 0
	} else if first < 0 {
		first = len(f.truth)
	}
	for k := first; k < len(f.truth); k++ {
		if !f.seen[k] && !f.isUnknowable(first, f.truth[k].uid) && !f.isAmidst(k) {
			f.fail(t, "%s is missing", &f.truth[k])
		}
	}
}

// isUnknowable reports whether an object was created and deleted within the gap, and none of its
// facts from first on was found.
func (f *finding) isUnknowable(first int, uid string) bool {
	for k := first; k < len(f.truth); k++ {
		if f.truth[k].uid == uid && f.seen[k] {
			return false
		}
	}
	return (f.change.After == nil || uid != f.change.After.Ref.UID) &&
		(f.change.Before == nil || uid != f.change.Before.Ref.UID)
}

// isAmidst reports whether fact k is a version outside the scope between two others of its object.
func (f *finding) isAmidst(k int) bool {
	if k == 0 || k == len(f.truth)-1 {
		return false
	}
	return !slices.ContainsFunc(f.truth[k-1:k+2], func(is fact) bool {
		return is.deleted || !is.outside || is.uid != f.truth[k].uid
	})
}

// checkChangedBy checks that changedBy has the manager that made a version, and no earlier ones, if
// the version below it is known. A walk that ran out of requests may know that there is none.
func (f *finding) checkChangedBy(t *rapid.T) {
	named := func(what string, changedBy []byte, rv uint64, must bool) {
		if (changedBy != nil || must) && !strings.HasPrefix(string(changedBy), fmt.Sprintf(`[{"manager":"m-%d",`, rv)) {
			f.fail(t, "%s has changedBy %s", what, changedBy)
		}
	}
	for k := range f.Versions {
		s := &f.Versions[k]
		if s.Object != nil && s.ResourceVersion > f.from {
			named(textOf(s), s.ChangedBy, s.ResourceVersion, k > 0 || f.Complete)
		} else if s.ChangedBy != nil {
			f.fail(t, "%s has changedBy %s", textOf(s), s.ChangedBy)
		}
	}
	if c := f.change; c.After != nil {
		named("the last", f.ChangedBy, c.After.ResourceVersion, len(f.Versions) > 0 || f.Complete)
	}
}
