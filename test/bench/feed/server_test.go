package feed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/bench/feed"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// over runs a test with a stock configuration for the feed, over plain HTTP and over TLS with
// HTTP/2.
func over(t *testing.T, pods int, test func(*testing.T, *feed.Server, *rest.Config)) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%t", secure), func(t *testing.T) {
			s, err := feed.New(feed.Options{Pods: pods, TLS: secure})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var g errgroup.Group
			g.Go(func() error { return s.Run(ctx) })
			t.Cleanup(func() {
				cancel()
				if err := g.Wait(); err != nil {
					t.Errorf("feed: %v", err)
				}
			})
			file, err := s.Kubeconfig()
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(file)
			if err != nil {
				t.Fatal(err)
			}
			config.QPS = -1
			test(t, s, config)
		})
	}
}

func start(t *testing.T, s *feed.Server, query string) {
	t.Helper()
	response, err := http.Post(s.ControlURL()+"/start?"+query, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		t.Fatalf("start: %s", response.Status)
	}
}

func TestDiscovery(t *testing.T) {
	over(t, 1, func(t *testing.T, _ *feed.Server, config *rest.Config) {
		for _, legacy := range []bool{false, true} {
			client := discovery.NewDiscoveryClientForConfigOrDie(config)
			client.UseLegacyDiscovery = legacy
			_, lists, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatalf("legacy=%t: %v", legacy, err)
			}
			got := map[string]bool{}
			for _, list := range lists {
				for _, r := range list.APIResources {
					got[list.GroupVersion+"/"+r.Name] = len(r.Verbs) > 0
				}
			}
			for _, want := range []string{
				"v1/pods", "v1/namespaces", "v1/configmaps", "coordination.k8s.io/v1/leases",
			} {
				if !got[want] {
					t.Errorf("legacy=%t: no %s in %v", legacy, want, got)
				}
			}
		}
		kubeSystem, err := dynamic.NewForConfigOrDie(config).
			Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
			Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil || kubeSystem.GetUID() == "" {
			t.Errorf("kube-system: uid %q, %v", kubeSystem.GetUID(), err)
		}
	})
}

func TestListPaging(t *testing.T) {
	const pods = 100
	over(t, pods, func(t *testing.T, s *feed.Server, config *rest.Config) {
		client := dynamic.NewForConfigOrDie(config).Resource(podResource)
		seen, token := 0, ""
		for {
			page, err := client.List(t.Context(), metav1.ListOptions{Limit: 7, Continue: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				if got, want := item.GetName(), s.History().Name(seen); got != want {
					t.Fatalf("item %d is %s, not %s", seen, got, want)
				}
				seen++
			}
			token = page.GetContinue()
			if token == "" {
				break
			}
			if left := *page.GetRemainingItemCount(); left != int64(pods-seen) {
				t.Errorf("after %d pods %d remain", seen, left)
			}
			// Updates between two pages must not show on later pages.
			start(t, s, "updates=5")
		}
		if seen != pods {
			t.Errorf("%d pods on all pages, not %d", seen, pods)
		}
	})
}

func TestWatchResumesAndExpires(t *testing.T) {
	over(t, 10, func(t *testing.T, s *feed.Server, config *rest.Config) {
		client := dynamic.NewForConfigOrDie(config).Resource(podResource)
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const updates = 50
		start(t, s, "updates=50")
		h, version := s.History(), list.GetResourceVersion()
		for j := 0; j < updates; {
			// A new watch every 7 updates, each from the end of the previous one.
			w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			for range min(7, updates-j) {
				event := <-w.ResultChan()
				pod, _ := event.Object.(*unstructured.Unstructured)
				if event.Type != watch.Modified || pod.GetName() != h.Name(h.Order(j)) ||
					pod.GetResourceVersion() != fmt.Sprint(h.Version(j)) {
					t.Fatalf("update %d: %s %v", j, event.Type, event.Object)
				}
				version = pod.GetResourceVersion()
				j++
			}
			w.Stop()
		}

		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		event := <-w.ResultChan()
		if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("watch from before the beginning: %s %v", event.Type, err)
		}
	})
}

// A stock reflector, with a WatchList and without, ends with the pods' last states.
func TestReflector(t *testing.T) {
	const pods, updates = 200, 1000
	over(t, pods, func(t *testing.T, s *feed.Server, config *rest.Config) {
		client := dynamic.NewForConfigOrDie(config).Resource(podResource)
		synced := make(chan struct{})
		var once sync.Once
		var changes int
		done := make(chan struct{})
		informer := cache.NewSharedInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, o)
			},
		}, &unstructured.Unstructured{}, 0)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, _ any) {
				changes++
				if changes == updates {
					once.Do(func() { close(done) })
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var g errgroup.Group
		g.Go(func() error { informer.RunWithContext(ctx); return nil })
		defer func() { cancel(); _ = g.Wait() }()
		g.Go(func() error {
			defer close(synced)
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				return errors.New("not synced")
			}
			return nil
		})
		<-synced
		// At a limited rate, a handler that keeps up gets each update. An informer may skip some,
		// but a contestant must not.
		start(t, s, fmt.Sprintf("updates=%d&rate=%d", updates, 5*updates))
		select {
		case <-done:
		case <-ctx.Done():
			t.Fatalf("%d of %d updates", changes, updates)
		}
		h := s.History()
		for i := range pods {
			o, exists, err := informer.GetStore().GetByKey(h.Namespace(i) + "/" + h.Name(i))
			if err != nil || !exists {
				t.Fatalf("pod %d: exists=%t, %v", i, exists, err)
			}
			want := fmt.Sprint(h.At(i, h.Version(updates-1)))
			if got := o.(*unstructured.Unstructured).GetResourceVersion(); got != want {
				t.Errorf("pod %d is at %s, not %s", i, got, want)
			}
		}
	})
}

func TestTokenIsAskedFor(t *testing.T) {
	over(t, 1, func(t *testing.T, s *feed.Server, config *rest.Config) {
		if s.Token() == "" {
			t.Skip("no credentials over plain HTTP")
		}
		config = rest.CopyConfig(config)
		config.BearerToken = "wrong"
		_, err := dynamic.NewForConfigOrDie(config).Resource(podResource).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("list with a wrong token: %v", err)
		}
	})
}

// Agents keep their checkpoint in a ConfigMap, with optimistic locking.
func TestConfigMapsAreKept(t *testing.T) {
	over(t, 1, func(t *testing.T, _ *feed.Server, config *rest.Config) {
		client := dynamic.NewForConfigOrDie(config).
			Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("kubecdc")
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "checkpoint"},
			"data": map[string]any{"pods": "1"},
		}}
		if _, err := client.Get(t.Context(), "checkpoint", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("get before create: %v", err)
		}
		created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update of an old version: %v", err)
		}
	})
}
