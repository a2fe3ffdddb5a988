package informers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

// at is an object of a name as of a revision.
func at(name, uid string, rv uint64) *object.Object {
	ref := object.NewRef(configMaps, "shop", name, uid)
	return object.New(ref, rv, 0, nil, []byte("{}"))
}

// glimpsesOf are what each revision shows: "a=1 b=2*", a and b by their uids, of which b was written at this revision.
func glimpsesOf(from uint64, texts ...string) (out []*glimpse) {
	for n, text := range texts {
		g := &glimpse{uids: map[string]string{}}
		for _, one := range strings.Fields(text) {
			name, uid, _ := strings.Cut(one, "=")
			uid, written := strings.CutSuffix(uid, "*")
			o := at(name, uid, from+1+uint64(n))
			g.uids[o.Ref.Key] = uid
			if written {
				g.object, g.managers = o, &object.Scanned{}
			}
		}
		out = append(out, g)
	}
	return out
}

func TestSteps(t *testing.T) {
	prior := map[string]*object.Object{}
	for _, o := range []*object.Object{at("a", "1", 7), at("gone", "2", 8)} {
		prior[o.Ref.Key] = o
	}
	got := map[string]string{}
	for key, way := range steps(10, prior, glimpsesOf(10,
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
	)) {
		var text []string
		for k := range way {
			text = append(text, way[k].String())
		}
		got[key[strings.LastIndexByte(key, '/')+1:]] = strings.Join(text, ", ")
	}
	want := map[string]string{
		"a": "11 1, 15 gone, 16 4, 19 4, 25 gone", "gone": "12 gone", "brief": "13 3, 14 gone, 26 7", "again": "20 6, 22 6", "quiet": "20 gone",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestFoundAll has a store take what each revision has shown, and tells what it owes then.
func TestFoundAll(t *testing.T) {
	for name, c := range map[string]struct {
		known, listed []*object.Object // before the list, and by it
		at            []string         // from 11 on
		want          string           // "": it does not lead there
	}{
		"born, came and went": {
			listed: []*object.Object{at("a", "1", 12)}, at: []string{"b=2*", "a=1* b=2", "a=1"},
			want: "a c12; b c11 d13",
		},
		"changed, replaced, deleted": {
			known:  []*object.Object{at("a", "1", 5), at("b", "2", 6), at("c", "3", 7), at("same", "4", 8)},
			listed: []*object.Object{at("a", "1", 12), at("b", "9", 14), at("same", "4", 8)},
			at:     []string{"a=1* b=2 c=3 same=4", "a=1* b=2 c=3 same=4", "a=1 c=3 same=4", "a=1 b=9* c=3 same=4", "a=1 b=9 same=4"},
			want:   "a u11 u12; b d13 c14; c d15",
		},
		"a version that no revision has": {listed: []*object.Object{at("a", "1", 13)}, at: []string{"a=1*", "a=1", "a=1"}},
		"one that the list has not":      {at: []string{"a=1*"}},
		"one that vanished unseen":       {known: []*object.Object{at("a", "1", 5)}, at: []string{"a=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(storeOptions{Resource: configMaps, Scope: "configmaps", Metrics: newVectors(nil).of("configmaps").store})
			s.beginList(listFresh)
			for _, o := range c.known {
				s.load(o, nil)
			}
			s.endList(10, nil)
			s.beginList(listAgain)
			for _, o := range c.listed {
				s.compare(o, &object.Scanned{})
			}
			to := 10 + uint64(len(c.at))
			s.loses(lost{from: 10, reason: object.Expired, quiet: true})
			s.endList(to, nil)
			_, changed := s.changes()
			prior := map[string]*object.Object{}
			for _, ch := range changed {
				if ch.prior != nil {
					prior[ch.key] = ch.prior
				}
			}
			_, ok := s.foundAll(steps(10, prior, glimpsesOf(10, c.at...)))
			if ok != (c.want != "") {
				t.Fatalf("found all: %t", ok)
			}
			if !ok {
				return
			}
			var all []string
			for _, key := range slices.Clone(s.order) {
				text := key[strings.LastIndexByte(key, '/')+1:]
				due, _ := s.takeDue(key, "")
				for _, d := range due {
					if d.Inferred {
						t.Errorf("%s at %d is inferred", d.Ref.Key, d.ResourceVersion)
					}
					text += fmt.Sprintf(" %c%d", d.Op, d.ResourceVersion)
				}
				all = append(all, text)
			}
			if got := strings.Join(all, "; "); got != c.want {
				t.Errorf("owes %q, want %q", got, c.want)
			}
		})
	}
}

func TestLookupsAreBounded(t *testing.T) {
	l, now := newLookups(), time.Unix(1_800_000_000, 0)
	allowed := 0
	for l.AllowN(now, eachRevisions) {
		allowed += eachRevisions
	}
	if allowed > lookupsAMinute || allowed < lookupsAMinute-eachRevisions {
		t.Errorf("%d at once, want about %d", allowed, lookupsAMinute)
	}
	if l.AllowN(now.Add(time.Second), eachRevisions) || !l.AllowN(now.Add(time.Minute), eachRevisions) {
		t.Error("they do not come back within a minute")
	}
}
