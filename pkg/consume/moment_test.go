package consume_test

import (
	"fmt"
	"testing"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A reader of the state at resourceVersion 25 does not apply a change at 26. It is all that says
// that the object was there when the snapshot was taken.
func TestTouchSparesFromTheSweep(t *testing.T) {
	for _, before := range []string{"", "10", "20", "21"} {
		touch := before == "10" || before == "20" // else it may have begun after the snapshot
		var tr consume.Tracker
		script(t, &tr, `
			c web/1 @10 => news
			c api/2 @11 => news
			started S1 @20 => news
			r api/2 @11 S1 => -`)
		later := &consume.Event{
			Source:     "/kubernetes/a",
			APIVersion: "v1",
			Resource:   "pods",
			Namespace:  "shop",
			Name:       "web",
			UID:        "1",
			Op:         consume.Updated,
			Sequence:   fmt.Sprintf("%020d", 26),
			Data: &consume.Data{
				Op:                      consume.Updated,
				PreviousResourceVersion: before,
			},
		}
		tr.Touch(later)
		v := tr.Apply(&consume.Event{
			Type:       consume.TypeSnapshotCompleted,
			Source:     "/kubernetes/a",
			APIVersion: "v1",
			Resource:   "pods",
			Scope:      "pods",
			Stream:     &consume.Stream{Snapshot: "S1", ResourceVersion: "20"},
		})
		if swept := len(v.Gone) > 0; swept == touch {
			t.Errorf("was %q before: swept: %v", before, v.Gone)
		}
		if !tr.Apply(later).News {
			t.Errorf("was %q before, and then its event is no news", before)
		}
	}
}

func TestHighest(t *testing.T) {
	var tr consume.Tracker
	script(t, &tr, `
		c web/1 @10 => news
		u web/1 @12 h1 => news
		c api/2 @11 => news
		d api/2 @13 => news`)
	for _, c := range []struct {
		source, resource, uid string
		history               uint32
		sequence              uint64
	}{
		{"/kubernetes/a", "pods", "1", 1, 12},
		{"/kubernetes/a", "pods", "2", 0, 13},
		{"/kubernetes/a", "pods", "3", 0, 0},
		{"/kubernetes/a", "nodes", "1", 0, 0},
		{"/kubernetes/b", "pods", "1", 0, 0},
	} {
		history, sequence := tr.Highest(consume.ClusterKey{Source: c.source}, c.resource, c.uid)
		if history != c.history || sequence != c.sequence {
			t.Errorf("highest of %s: /h%d %d, want /h%d %d", c.uid, history, sequence, c.history, c.sequence)
		}
	}
}

func TestTouchOfWhatIsNotKnown(t *testing.T) {
	var tr consume.Tracker
	e := &consume.Event{Source: "/kubernetes/a", APIVersion: "v1", Resource: "pods", UID: "1", Data: &consume.Data{}}
	tr.Touch(e)
	tr.Touch(&consume.Event{Source: "/kubernetes/a", APIVersion: "v1", Resource: "pods", Stream: &consume.Stream{}})
	if tr.Len() != 0 {
		t.Error("an object is known that was only touched")
	}
}

func TestScopeCovers(t *testing.T) {
	for _, c := range []struct {
		scope, namespace string
		want             bool
	}{
		{"pods", "shop", true},
		{"nodes", "", true},
		{"pods/shop", "shop", true},
		{"pods/shop", "other", false},
		{"pods/team-*,!team-x?labelSelector=a=b", "team-y", true},
		{"pods/team-*,!team-x?labelSelector=a=b", "team-x", false},
	} {
		if got := consume.ScopeCovers(c.scope, c.namespace); got != c.want {
			t.Errorf("%s covers %q: %t, want %t", c.scope, c.namespace, got, c.want)
		}
	}
}

func TestIsPartOf(t *testing.T) {
	for _, c := range []struct {
		part, scope string
		want        bool
	}{
		{"pods/shop", "pods", true},
		{"pods/shop", "pods/shop", false},
		{"pods/shop", "pods/shop,team-*", true},
		{"pods/shop", "pods/team-*", false},
		{"pods/shop", "deployments.apps", false},
		{"pods/shop", "pods?labelSelector=a=b", false},
		{"pods/shop?labelSelector=a=b", "pods?labelSelector=a=b", true},
		{"pods/shop?any=shop?labelSelector=a=b|team-*", "pods?any=shop?labelSelector=a=b|team-*", true},
		{"pods/team-*", "pods", false},
		{"pods/a,b", "pods", false},
		{"pods", "pods", false},
	} {
		if got := consume.IsPartOf(c.part, c.scope); got != c.want {
			t.Errorf("%s is a part of %s: %t, want %t", c.part, c.scope, got, c.want)
		}
	}
}
