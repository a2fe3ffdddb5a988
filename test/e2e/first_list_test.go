package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestFirstList starts an agent while objects change. With the feature gate WatchList, the first
// list of each scope is the beginning of a watch, also of Events, which have no watch cache.
// Without it, the API server refuses that, and all are lists. The record is the same: that of
// etcd's history.
func TestFirstList(t *testing.T) {
	slow(t)
	for _, isOn := range []bool{true, false} {
		t.Run(fmt.Sprint("WatchList=", isOn), func(t *testing.T) {
			t.Parallel()
			testFirstList(t, isOn)
		})
	}
}

func testFirstList(t *testing.T, isOn bool) {
	const namespace = "first"
	objects := size(1_500, 10_000, 100_000)
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true, FeatureGates: map[string]bool{
		"WatchList": isOn,
	}})
	p.NewNamespace(t, namespace)
	p.MakeMany(t, namespace, "old", objects)
	for n := range 3 {
		_, err := p.API.Create(t.Context(), world.Collection("events", namespace), obj{
			"apiVersion":     "v1",
			"kind":           "Event",
			"metadata":       world.Meta(fmt.Sprint("event-", n)),
			"involvedObject": obj{"namespace": namespace},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	before := begun(t, p)
	ctx, end := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	changes.Go(func() {
		for ctx.Err() == nil {
			err := changeOne(ctx, p, namespace, fmt.Sprint("old-", rand.IntN(objects)))
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: world.WatchConfigMaps(namespace) + `
  - resources: [events, secrets]
    namespaces: [first]
`})
	s := world.ReadStream(t, bus, p.Reader())
	a.Ready(t)
	snapshots := s.Completed(t, "configmaps", "events", "secrets")
	end()
	changes.Wait()
	got := world.Check(t, p, s, world.ViewOf(snapshots), "configmaps", "events")
	got.NoGaps(t)
	if got.Expected < objects {
		t.Errorf("%d records expected, that is too few for %d objects", got.Expected, objects)
	}
	want := 0
	if isOn {
		want = 3
	}
	if n := begun(t, p) - before; n != want {
		t.Errorf("%d watches of the agent began with the objects, want %d", n, want)
	}
}

// changeOne updates an object, deletes it, and creates it again.
func changeOne(ctx context.Context, p *world.Plane, namespace, name string) error {
	collection := world.Collection("configmaps", namespace)
	uri := collection + "/" + name
	if _, err := p.API.MergePatch(ctx, uri, obj{"data": obj{"text": "changed"}}); err != nil {
		return err
	}
	if err := p.API.Remove(ctx, uri); err != nil {
		return err
	}
	_, err := p.API.Create(ctx, collection, obj{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   world.Meta(name),
		"data":       obj{"text": "again"},
	})
	return err
}

// begun returns how many watches of the resources of this test have begun with the existing
// objects.
func begun(t *testing.T, p *world.Plane) (n int) {
	t.Helper()
	text, err := p.API.Get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`(?m)^apiserver_watch_list_duration_seconds_count\{([^}]*)\} (\d+)`)
	for _, m := range series.FindAllSubmatch(text, -1) {
		if regexp.MustCompile(`resource="(configmaps|events|secrets)",scope="namespace"`).Match(m[1]) {
			one, _ := strconv.Atoi(string(m[2]))
			n += one
		}
	}
	return n
}
