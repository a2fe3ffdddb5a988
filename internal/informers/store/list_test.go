package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

var configMaps = &object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}

// at is an object of a name as of a revision.
func at(name, uid string, rv uint64) *object.Object {
	ref := object.NewRef(configMaps, "shop", name, uid)
	return object.New(ref, rv, 0, nil, []byte("{}"))
}

// versionsOf reads versions of a name: "11 1, 13 gone" is the object with the uid 1, written at 11
// and deleted at 13.
func versionsOf(name, text string) (versions []backfill.Version) {
	for _, one := range strings.Split(text, ", ") {
		number, uid, _ := strings.Cut(one, " ")
		rv, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			panic(err)
		}
		s := backfill.Version{ResourceVersion: rv}
		if uid != "gone" {
			s.Object = at(name, uid, rv)
		}
		versions = append(versions, s)
	}
	return versions
}

// TestFoundAll has a store take the versions that a list at each revision has shown, and checks
// what is due then.
func TestFoundAll(t *testing.T) {
	for name, c := range map[string]struct {
		known, listed []*object.Object // before the list at 20, and by it
		versions      map[string]string
		want          string // "": they do not lead from the one to the other
		found         int    // versions, without deletions
	}{
		"created, and created and deleted": {
			listed: []*object.Object{at("a", "1", 12)}, versions: map[string]string{"a": "12 1", "b": "11 2, 13 gone"},
			want: "a c12; b c11 d13", found: 2,
		},
		"changed, replaced, deleted": {
			known:    []*object.Object{at("a", "1", 5), at("b", "2", 6), at("c", "3", 7), at("same", "4", 8)},
			listed:   []*object.Object{at("a", "1", 12), at("b", "9", 14), at("same", "4", 8)},
			versions: map[string]string{"a": "11 1, 12 1", "b": "13 gone, 14 9", "c": "15 gone"},
			want:     "a u11 u12; b d13 c14; c d15", found: 3,
		},
		"a version that no revision has": {listed: []*object.Object{at("a", "1", 13)}, versions: map[string]string{
			"a": "11 1",
		}},
		"an object that the list has not": {versions: map[string]string{"a": "11 1"}},
		"a deletion that no revision has": {known: []*object.Object{at("a", "1", 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Resource: configMaps, Scope: "configmaps", Metrics: testMetrics(), Now: time.Now})
			s.BeginList(Fresh)
			for _, o := range c.known {
				s.Load(o, nil)
			}
			s.EndList(10)
			s.BeginList(Relist)
			for _, o := range c.listed {
				s.Compare(o, &object.Scanned{})
			}
			s.Lose(Loss{From: 10, Reason: object.Expired, SkipIfRecovered: true})
			s.EndList(20)
			byKey := map[string][]backfill.Version{}
			for name, text := range c.versions {
				byKey["configmaps/shop/"+name] = versionsOf(name, text)
			}
			found, ok := s.AddAllVersions(byKey)
			if ok != (c.want != "") || found != c.found {
				t.Fatalf("found all: %t, %d versions, want %d", ok, found, c.found)
			}
			if !ok {
				return
			}
			var all []string
			for _, key := range slices.Clone(s.known.order) {
				text := key[strings.LastIndexByte(key, '/')+1:]
				due, _ := s.takePendingLocked(key, "")
				for _, d := range due {
					if d.Inferred {
						t.Errorf("%s at %d is inferred", d.Ref.Key, d.ResourceVersion)
					}
					text += fmt.Sprintf(" %s%d", d.Op, d.ResourceVersion)
				}
				all = append(all, text)
			}
			if got := strings.Join(all, "; "); got != c.want {
				t.Errorf("owes %q, want %q", got, c.want)
			}
		})
	}
}

// A search that ends after etcd was found to be restored adds none of its versions to the new list.
func TestStepsOfAnotherListAreNotAdded(t *testing.T) {
	s := New(Options{Resource: configMaps, Scope: "configmaps", Metrics: testMetrics(), Now: time.Now})
	s.BeginList(Fresh)
	s.EndList(10)
	s.BeginList(Relist)
	s.Lose(Loss{From: 10, Reason: object.Expired, SkipIfRecovered: true})
	s.EndList(20)
	s.Restart(Loss{From: 20, Reason: object.Rewound})
	if _, ok := s.AddAllVersions(map[string][]backfill.Version{
		"configmaps/shop/b": versionsOf("b", "11 2, 13 gone"),
	}); ok || s.known.pendingKeys > 0 {
		t.Errorf("added: %t, %d keys are pending, and no object is known", ok, s.known.pendingKeys)
	}
}
