package apiview_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"

	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

// watched returns the events of a watch of one second: type, kind, name and resourceVersion.
func watched(t *testing.T, s *apiview.Server, path, accept string) []string {
	t.Helper()
	w := ask(t.Context(), s, "GET", path+"&watch=true&timeoutSeconds=1", accept, "")
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	out := []string{}
	lines := bufio.NewScanner(w.Body)
	for lines.Scan() {
		var e struct {
			Type   string
			Object struct {
				Kind     string
				Metadata struct {
					Name, ResourceVersion string
					Annotations           map[string]string
				}
				Rows []struct{ Cells []any }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		text := fmt.Sprint(e.Type, " ", e.Object.Kind, " ", e.Object.Metadata.Name, " ",
			e.Object.Metadata.ResourceVersion)
		for key, value := range e.Object.Metadata.Annotations {
			text += " " + key + "=" + value
		}
		for _, r := range e.Object.Rows {
			text += fmt.Sprint(" ", r.Cells[0])
		}
		out = append(out, text)
	}
	return out
}

// A watch begins with the objects of the moment, unless the client has them, and then nothing
// happens.
func TestWatchOfAMoment(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	initial := "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for path, want := range map[string][]string{
		"/api/v1/namespaces/shop/pods?": {
			"ADDED Pod web-0 106", "ADDED Pod web-1 107",
		},
		"/api/v1/pods?fieldSelector=metadata.name%3Dweb-1&resourceVersion=0": {"ADDED Pod web-1 107"},
		"/api/v1/pods?resourceVersion=109&allowWatchBookmarks=true":          {},
		"/api/v1/pods?labelSelector=tier" + initial: {
			"ADDED Pod web-0 106", "BOOKMARK Pod  109 k8s.io/initial-events-end=true",
		},
		"/api/v1/configmaps?" + initial: {
			"BOOKMARK ConfigMap  111 k8s.io/initial-events-end=true",
		},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(want, watched(t, s, path, "")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	for path, want := range map[string][]string{ // as old clients ask
		"/api/v1/watch/pods?resourceVersion=0": {
			"ADDED Pod db-0 108", "ADDED Pod web-0 106", "ADDED Pod web-1 107",
		},
		"/api/v1/watch/namespaces/shop/pods?":         {"ADDED Pod web-0 106", "ADDED Pod web-1 107"},
		"/api/v1/watch/namespaces/shop/pods/web-1?":   {"ADDED Pod web-1 107"},
		"/api/v1/watch/namespaces/other/pods?":        {},
		"/apis/demo.example.com/v1/watch/widgets?":    {"ADDED Widget cog 128", "ADDED Widget gear 127"},
		"/api/v1/watch/namespaces/shop/pods/nothing?": {},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(want, watched(t, s, path, "")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	t.Run("table", func(t *testing.T) {
		t.Parallel()
		want := []string{"ADDED Table  106 web-0", "ADDED Table  107 web-1"}
		if diff := cmp.Diff(want, watched(t, s, "/api/v1/namespaces/shop/pods?", asTable)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// A value is true as for kube-apiserver: Python's client sends False.
func TestListUnlessWatchIsTrue(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for value, want := range map[string]string{
		"False": "PodList",
		"FALSE": "PodList",
		"false": "PodList",
		"0":     "PodList",
		"True":  "ADDED",
		"1":     "ADDED",
		"":      "ADDED",
		"no":    "ADDED",
	} {
		w := ask(ended, s, "GET", "/api/v1/pods?watch="+value, "", "")
		var got struct{ Kind, Type string }
		if err := json.NewDecoder(w.Body).Decode(&got); err != nil || got.Kind+got.Type != want {
			t.Errorf("watch=%s: %+v, %v", value, got, err)
		}
	}
}

// A watch with a resourceVersion that the view does not have is answered 200, with one event: the
// error.
func TestWatchOfAnotherVersion(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for query, want := range map[string]string{
		"resourceVersion=7": "ERROR 410 Expired too old resource version: 7 (109)",
		"resourceVersion=9999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": "ERROR 504 Timeout Timeout: Too large resource version: 9999, current: 109",
	} {
		w := ask(t.Context(), s, "GET", "/api/v1/pods?watch=1&"+query, asTable, "")
		var got struct {
			Type   string
			Object metav1.Status
		}
		lines := json.NewDecoder(w.Body)
		err := lines.Decode(&got)
		text := fmt.Sprint(got.Type, " ", got.Object.Code, " ", got.Object.Reason, " ", got.Object.Message)
		if err != nil || w.Code != 200 || text != want {
			t.Errorf("%s: %d %s, %v", query, w.Code, text, err)
		}
		if got.Object.Kind != "Status" || lines.More() {
			t.Errorf("%s: %s", query, w.Body)
		}
	}
}

// An open watch of a moment does not keep its objects in memory.
func TestWatchKeepsNoObjects(t *testing.T) {
	t.Parallel()
	var m memory
	s := &apiview.Server{Open: m.open(cluster())}
	config := serve(t, s)
	client := &http.Client{Transport: config.Transport}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 5 {
		path := fmt.Sprintf("/at/rv:%d/api/v1/pods?watch=1&allowWatchBookmarks=true", 105+i)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Accept", []string{"", asTable}[i%2])
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		opened, kept := m.moments()
		if opened == 5 && kept == 1 { // the server keeps one moment
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("5 open watches keep the objects of %d moments, of %d that were opened", kept, opened)
		}
		runtime.Gosched()
	}
}

// Bookmarks come each minute, and a watch ends with its client.
func TestWatchSendsBookmarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &apiview.Server{Root: cluster().view(), Token: token}
		ctx, cancel := context.WithTimeout(t.Context(), 190*time.Second)
		defer cancel()
		w := ask(ctx, s, "GET", "/api/v1/pods?watch=1&resourceVersion=109&allowWatchBookmarks=true", "", "")
		const bookmark = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1",` +
			`"metadata":{"resourceVersion":"109"}}}`
		if n := strings.Count(w.Body.String(), bookmark); n != 3 {
			t.Errorf("%d bookmarks in 190 s: %s", n, w.Body)
		}
	})
}

// client-go's informer works unmodified, with list and watch and with watch-list.
func TestInformer(t *testing.T) {
	for _, watchList := range []bool{false, true} {
		t.Run(fmt.Sprint("watch-list ", watchList), func(t *testing.T) {
			replaceWatchList(t, watchList)
			client, err := dynamic.NewForConfig(serve(t, &apiview.Server{Root: cluster().view()}))
			if err != nil {
				t.Fatal(err)
			}
			factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
			pods := factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
			widgets := factory.ForResource(schema.GroupVersionResource{
				Group:    "demo.example.com",
				Version:  "v1",
				Resource: "widgets",
			})
			informers := []cache.SharedIndexInformer{pods.Informer(), widgets.Informer()}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			factory.Start(ctx.Done())
			defer factory.Shutdown()
			defer cancel()
			if !cache.WaitForCacheSync(ctx.Done(), informers[0].HasSynced, informers[1].HasSynced) {
				t.Fatal("the informers do not sync")
			}
			if got := len(informers[0].GetStore().ListKeys()); got != 3 {
				t.Errorf("%d pods", got)
			}
			if got := len(informers[1].GetStore().ListKeys()); got != 2 {
				t.Errorf("%d widgets", got)
			}
		})
	}
}

type gates struct{ watchList bool }

func (g gates) Enabled(key features.Feature) bool {
	return key == features.WatchListClient && g.watchList
}

func replaceWatchList(t *testing.T, on bool) {
	t.Helper()
	was := features.FeatureGates()
	features.ReplaceFeatureGates(gates{on})
	t.Cleanup(func() { features.ReplaceFeatureGates(was) })
}
