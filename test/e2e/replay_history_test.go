package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestReplayIsTheHistory changes objects, and has informers of client-go follow a replay of the
// changes, with list and watch and with watch-list. The informers must get the objects of the first
// moment, and then each revision of etcd up to the second one, in order.
func TestReplayIsTheHistory(t *testing.T) { // not parallel: the feature gates of client-go are global
	slow(t)
	p := world.SharedPlane(t)
	namespaces := []string{"replay-a", "replay-b"}
	for _, ns := range namespaces {
		p.NewNamespace(t, ns)
		p.MakeConfigMaps(t, ns, "before", 10)
	}
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - resources: [" + strings.Join(truthResources, ", ") + "]",
	})
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, truthResources...)
	revisions := size(300, 1_000, 10_000)
	write := func() {
		count := p.History.Count(truthResources...)
		ws := &world.Writers{API: p.API, Done: func() bool {
			return p.History.Count(truthResources...)-count >= revisions/3
		}}
		var all []func(context.Context) error
		for _, ns := range namespaces {
			all = append(all, ws.Writer("cm", ns, 15).ConfigMaps, ws.Writer("secret", ns, 15).Secrets,
				ws.Writer("deploy", ns, 8).Deployments,
				ws.Writer("widget", ns, 15).Widgets)
		}
		ws.Run(t, all...)
	}
	write()
	from := p.Now(t)
	write()
	past(t, "snapshot", "--agent", a.URL)
	write()
	until := p.Now(t)
	v := world.ViewOf(s.Started(t, truthResources...))
	v.Until = until
	s.WaitFor(t, oracle.Expect(p.History.Of(truthResources...), v), 20*time.Second)

	for _, watchList := range []bool{false, true} {
		t.Run(fmt.Sprint("watch-list ", watchList), func(t *testing.T) {
			was := features.FeatureGates()
			features.ReplaceFeatureGates(gates{was, watchList})
			defer features.ReplaceFeatureGates(was)
			kubeconfig := world.ServePast(t, "--bus", bus.URL, "--from", fmt.Sprint("rv:", from), "--to",
				fmt.Sprint("rv:", until), "--speed", "max").Kubeconfig
			want, n := map[string][]revision{}, 0
			for _, resource := range truthResources {
				want[resource] = revisionsOf(p, resource, from, until)
				n += len(want[resource])
			}
			if n < revisions/2 {
				t.Errorf("%d revisions: too few for what was done", n)
			}
			for resource, f := range follow(t, kubeconfig, n, truthResources...) {
				compareAt(t, from, listAt(t, p, resource, from), f.initial)
				if !slices.Equal(f.changes, want[resource]) {
					oracle.Fail(t, "%s: %s", resource, firstDifference(want[resource], f.changes))
				}
			}
			t.Logf("%d revisions compared", n)
		})
	}
}

// gates are the feature gates of client-go, with another value of one gate. Without
// InOrderInformers, informers keep only the order of each object.
type gates struct {
	features.Gates
	watchList bool
}

func (g gates) Enabled(key features.Feature) bool {
	if key == features.WatchListClient {
		return g.watchList
	}
	return g.Gates.Enabled(key)
}

// revision is a version of an object, or its deletion, at a revision of etcd.
type revision struct {
	rev     uint64
	deleted bool
	key     oracle.ObjectKey
	uid     string
	digest  oracle.Digest // zero for a deletion
}

// revisionsOf returns the revisions of a resource after one moment and up to another one, in order.
func revisionsOf(p *world.Plane, resource string, from, until uint64) []revision {
	var out []revision
	for key, versions := range p.History.Of(resource) {
		for _, v := range versions {
			if v.Rev > from && v.Rev <= until {
				out = append(out, revision{v.Rev, v.Deleted, key, v.UID, v.Digest})
			}
		}
	}
	slices.SortFunc(out, func(a, b revision) int { return int(a.rev) - int(b.rev) })
	return out
}

func firstDifference(want, got []revision) string {
	n := 0
	for n < len(want) && n < len(got) && want[n] == got[n] {
		n++
	}
	at := func(list []revision) string {
		if n < len(list) {
			return fmt.Sprintf("%+v", list[n])
		}
		return "the end"
	}
	return fmt.Sprintf("revision %d of %d of etcd is %s; the informer has %s, and %d in all", n, len(want), at(want),
		at(got), len(got))
}

// followed is what an informer received for a resource.
type followed struct {
	mu      sync.Mutex
	initial map[oracle.ObjectKey]*oracle.Version
	changes []revision
	err     error
}

func (f *followed) add(resource string, o any, initial, deleted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	object, ok := o.(*unstructured.Unstructured)
	if !ok {
		f.err = fmt.Errorf("the informer of %s missed a deletion: %T", resource, o)
		return
	}
	v, err := oracle.NewVersion(resource, 0, object.DeepCopy().Object)
	switch {
	case err != nil:
		f.err = err
	case initial:
		f.initial[v.Key] = v
	case deleted:
		f.changes = append(f.changes, revision{v.Rev, true, v.Key, v.UID, oracle.Digest{}})
	default:
		f.changes = append(f.changes, revision{v.Rev, false, v.Key, v.UID, v.Digest})
	}
}

// follow runs informers on a replay until they have received n changes in total, and no more come
// for a second.
func follow(t *testing.T, kubeconfig string, n int, resources ...string) map[string]*followed {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer cancel()
	all, synced := map[string]*followed{}, []cache.InformerSynced{}
	for _, resource := range resources {
		f := &followed{initial: map[oracle.ObjectKey]*oracle.Version{}}
		all[resource] = f
		plural, group := oracle.ObjectKey{Resource: resource}.Split()
		informer := factory.ForResource(
			schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}).Informer()
		synced = append(synced, informer.HasSynced)
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    func(o any, initial bool) { f.add(resource, o, initial, false) },
			UpdateFunc: func(_, o any) { f.add(resource, o, false, false) },
			DeleteFunc: func(o any) { f.add(resource, o, false, true) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	factory.Start(ctx.Done())
	wait.Eventually(t, time.Minute, func() error {
		// A replay begins when no client has listed for 2 s: until then, no informer is late.
		_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
			List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && slices.ContainsFunc(synced, func(synced cache.InformerSynced) bool { return !synced() }) {
			err = errors.New("not all informers have listed")
		}
		return err
	})
	seen := func() uint64 {
		sum := 0
		for _, f := range all {
			f.mu.Lock()
			sum += len(f.changes)
			f.mu.Unlock()
		}
		return uint64(sum)
	}
	if err := wait.For(ctx, 2*time.Minute, func() error {
		if got := seen(); got < uint64(n) {
			return fmt.Errorf("the informers have seen %d of %d changes", got, n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	wait.Settled(t, time.Second, time.Minute, seen)
	for _, f := range all {
		f.mu.Lock()
		if f.err != nil {
			t.Error(f.err)
		}
		f.mu.Unlock()
	}
	return all
}
