package apiview_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// rollout returns the view of a moment, followed by changes of ConfigMaps.
func rollout(t *testing.T) *apiview.View {
	t.Helper()
	r := &record{}
	labelled := func(name, app, value string) string {
		return fmt.Sprintf(
			`{"kind":"ConfigMap","metadata":{"name":%q,"namespace":"shop","labels":{"app":%q}},"data":{"v":%q}}`, name,
			app, value)
	}
	r.resource("v1", "configmaps", labelled("a", "web", "0"), labelled("b", "db", "0"))
	r.object(consume.Updated, "v1", "configmaps", labelled("a", "web", "1"))
	r.object(consume.Created, "v1", "configmaps", labelled("c", "web", "1"))
	r.object(consume.Updated, "v1", "configmaps", labelled("a", "db", "2"))
	r.object(consume.Deleted, "v1", "configmaps", labelled("b", "db", "0"))
	r.object(consume.Updated, "v1", "configmaps", labelled("a", "web", "3"))
	r.progress("configmaps")
	return following(t, r, 4)
}

// A client that lists and watches sees every version after the moment, in order. A selector that an
// object begins or ceases to match adds or deletes it. A watch may begin at any resourceVersion in
// between, and a list continues at its own.
func TestReplay(t *testing.T) {
	t.Parallel()
	v := rollout(t)
	client, err := dynamic.NewForConfig(serve(t, &apiview.Server{Root: v}))
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	first, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if first.GetResourceVersion() != "4" || first.GetContinue() == "" {
		t.Fatalf("the first page: %v", first)
	}
	type watched struct {
		options metav1.ListOptions
		want    []string
		got     []string
	}
	seconds := int64(6)
	watches := map[string]*watched{
		"all": {options: metav1.ListOptions{ResourceVersion: "4"}, want: []string{
			"MODIFIED a 5 1", "ADDED c 6 1", "MODIFIED a 7 2", "DELETED b 8 0", "MODIFIED a 9 3",
		}},
		"web": {options: metav1.ListOptions{ResourceVersion: "4", LabelSelector: "app=web"}, want: []string{
			"MODIFIED a 5 1", "ADDED c 6 1", "DELETED a 7 1", "ADDED a 9 3",
		}},
		"c": {options: metav1.ListOptions{ResourceVersion: "4", FieldSelector: "metadata.name=c"}, want: []string{
			"ADDED c 6 1",
		}},
		"nothing is known": {
			options: metav1.ListOptions{},
			want: []string{
				"ADDED a 2 0", "ADDED b 3 0", "MODIFIED a 5 1", "ADDED c 6 1", "MODIFIED a 7 2", "DELETED b 8 0",
				"MODIFIED a 9 3",
			},
		},
	}
	watch := func(options metav1.ListOptions) ([]string, error) {
		options.TimeoutSeconds = &seconds
		w, err := maps.Watch(t.Context(), options)
		if err != nil {
			return nil, err
		}
		var out []string
		for e := range w.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				return nil, fmt.Errorf("%v", e.Object)
			}
			value, _, _ := unstructured.NestedString(o.Object, "data", "v")
			out = append(out, fmt.Sprint(e.Type, " ", o.GetName(), " ", o.GetResourceVersion(), " ", value))
		}
		return out, nil
	}
	done := make(chan error, len(watches))
	for _, w := range watches {
		go func() {
			var err error
			w.got, err = watch(w.options)
			done <- err
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := false
	if n, err := v.Play(ctx, 0, func() { began = true }); n != 5 || err != nil || !began {
		t.Errorf("%d changes, %v, begun: %v", n, err, began)
	}
	for range watches {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for name, w := range watches {
		if diff := cmp.Diff(w.want, w.got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	seconds = 1
	got, err := watch(metav1.ListOptions{ResourceVersion: "7"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"DELETED b 8 0", "MODIFIED a 9 3"}, got); diff != "" {
		t.Errorf("from the middle: -want +got\n%s", diff)
	}
	rest, err := maps.List(t.Context(), metav1.ListOptions{Continue: first.GetContinue()})
	if err != nil || len(rest.Items) != 1 || rest.Items[0].GetName() != "b" || rest.GetResourceVersion() != "4" {
		t.Errorf("the second page of the first list: %v, %v", rest, err)
	}
	now := ask(t.Context(), &apiview.Server{Root: v, Token: token}, "GET",
		"/api/v1/configmaps?labelSelector="+url.QueryEscape("app=web"), "", "")
	if got := strings.Join(names(t, now), " "); got != "shop/a shop/c" ||
		!strings.Contains(now.Body.String(), `"metadata":{"resourceVersion":"9"}`) {
		t.Errorf("at the end: %s", now.Body)
	}
}

// A replay begins 2 s after the first watch, and shows each change at its distance from the moment,
// divided by the speed.
func TestReplaySpeed(t *testing.T) {
	t.Parallel()
	for speed, want := range map[float64][]string{
		0:   {"0s MODIFIED a 5", "0s ADDED c 6", "0s MODIFIED a 7", "0s DELETED b 8", "0s MODIFIED a 9"},
		0.5: {"10s MODIFIED a 5", "12s ADDED c 6", "14s MODIFIED a 7", "16s DELETED b 8", "18s MODIFIED a 9"},
		1:   {"5s MODIFIED a 5", "6s ADDED c 6", "7s MODIFIED a 7", "8s DELETED b 8", "9s MODIFIED a 9"},
		10:  {"500ms MODIFIED a 5", "600ms ADDED c 6", "700ms MODIFIED a 7", "800ms DELETED b 8", "900ms MODIFIED a 9"},
	} {
		t.Run(fmt.Sprint(speed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := rollout(t)
				ctx, cancel := context.WithCancel(t.Context())
				w := &timed{ResponseRecorder: httptest.NewRecorder(), begun: time.Now().Add(2 * time.Second)}
				request := httptest.NewRequestWithContext(ctx, "GET",
					"http://127.0.0.1/api/v1/configmaps?watch=1&resourceVersion=4", nil)
				request.Header.Set("Authorization", "Bearer "+token)
				var watch sync.WaitGroup
				watch.Go(func() { (&apiview.Server{Root: v, Token: token}).ServeHTTP(w, request) })
				var begun time.Time
				if n, err := v.Play(ctx, speed, func() { begun = time.Now() }); n != 5 || err != nil {
					t.Errorf("%d changes, %v", n, err)
				}
				synctest.Wait()
				cancel()
				watch.Wait()
				if !begun.Equal(w.begun) {
					t.Errorf("the replay began %s late", begun.Sub(w.begun))
				}
				if diff := cmp.Diff(want, w.at); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			})
		})
	}
}

// timed is a client that notes when it is sent each event.
type timed struct {
	*httptest.ResponseRecorder
	begun time.Time
	at    []string
}

func (t *timed) Write(b []byte) (int, error) {
	var e struct {
		Type   string
		Object struct {
			Metadata struct{ Name, ResourceVersion string }
		}
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return 0, err
	}
	t.at = append(t.at,
		fmt.Sprint(time.Since(t.begun), " ", e.Type, " ", e.Object.Metadata.Name, " ",
			e.Object.Metadata.ResourceVersion))
	return len(b), nil
}

// Changes of several resources are shown in the order of resourceVersions. One that was observed
// late does not delay those after it, and a resource of another etcd keeps its own time.
func TestReplayOfLateChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &record{next: 1000}
		for _, resource := range []string{"configmaps", "pods", "events"} {
			r.resource("v1", resource)
		}
		v := apiview.NewView(r.state(timeline.At(start.Add(2000*time.Second))), apiview.Options{Now: start})
		var log apiview.Log
		add := func(resource, name string, rv, after int) {
			log.Add(&timeline.Version{
				Object:          consume.Object{Resource: resource, Namespace: "shop", Name: name, UID: name},
				APIVersion:      "v1",
				Kind:            "Any",
				Op:              consume.Created,
				ResourceVersion: fmt.Sprint(rv),
				Time:            start.Add(time.Duration(after) * time.Second),
				After:           []byte(fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"%d"}}`, name, rv)),
			})
		}
		for i := range 5 {
			add("configmaps", fmt.Sprint("cm-", i), 2000+10*i, 10*i+10)
			add("pods", fmt.Sprint("pod-", i), 2006+10*i, 10*i+15)
			add("events", fmt.Sprint("event-", i), 9_000_000+i, 10*i+15)
		}
		add("configmaps", "late", 2015, 55)
		if err := v.Follow(&log); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := &apiview.Server{Root: v, Token: token}
		got := map[string]*timed{}
		var watches sync.WaitGroup
		for _, resource := range []string{"configmaps", "pods", "events"} {
			w := &timed{ResponseRecorder: httptest.NewRecorder(), begun: time.Now().Add(2 * time.Second)}
			got[resource] = w
			request := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1/api/v1/"+resource+"?watch=1", nil)
			request.Header.Set("Authorization", "Bearer "+token)
			watches.Go(func() { s.ServeHTTP(w, request) })
		}
		if _, err := v.Play(ctx, 1, func() {}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		watches.Wait()
		for resource, want := range map[string][]string{
			"configmaps": {
				"10s ADDED cm-0 2000", "20s ADDED cm-1 2010", "25s ADDED late 2015", "30s ADDED cm-2 2020",
				"40s ADDED cm-3 2030", "50s ADDED cm-4 2040",
			},
			"pods": {
				"15s ADDED pod-0 2006", "25s ADDED pod-1 2016", "35s ADDED pod-2 2026", "45s ADDED pod-3 2036",
				"55s ADDED pod-4 2046",
			},
			"events": {
				"15s ADDED event-0 9000000", "25s ADDED event-1 9000001", "35s ADDED event-2 9000002",
				"45s ADDED event-3 9000003", "55s ADDED event-4 9000004",
			},
		} {
			if diff := cmp.Diff(want, got[resource].at); diff != "" {
				t.Errorf("%s: -want +got\n%s", resource, diff)
			}
		}
	})
}

// following returns the view of the moment rv:from of a record, followed by the rest.
func following(t *testing.T, r *record, from uint64) *apiview.View {
	t.Helper()
	at := timeline.AtVersion(from, 0)
	state, fold := timeline.NewState(at, timeline.Options{}), timeline.NewFold(timeline.Now(start), timeline.Options{})
	var log apiview.Log
	for _, e := range r.events {
		state.Add(e)
		for _, v := range fold.Add(e) {
			if !at.Includes(e) {
				log.Add(v)
			}
		}
	}
	v := apiview.NewView(state, apiview.Options{Now: start})
	if err := v.Follow(&log); err != nil {
		t.Fatal(err)
	}
	return v
}

// replayed returns the events that a watch from the beginning of a replay has seen at its end.
func replayed(t *testing.T, v *apiview.View, path string) []string {
	t.Helper()
	s := &apiview.Server{Root: v, Token: token}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	list := ask(t.Context(), s, "GET", path, "", "")
	var meta metav1.PartialObjectMetadataList
	if err := json.Unmarshal(list.Body.Bytes(), &meta); err != nil || list.Code != 200 {
		t.Fatalf("%d %s: %v", list.Code, list.Body, err)
	}
	ask(ended, s, "GET", path+"?watch=1", "", "")
	if _, err := v.Play(t.Context(), 0, func() {}); err != nil {
		t.Fatal(err)
	}
	return watched(t, s, path+"?resourceVersion="+meta.ResourceVersion, "")
}

// A resource that the record has from within the span, as that of a new CRD, is served from the
// beginning, without objects.
func TestReplayOfANewResource(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "configmaps", objectJSON("ConfigMap", "shop", "a", ""))
	r.resource("apiextensions.k8s.io/v1", "customresourcedefinitions")
	from := r.next
	r.object(consume.Created, "apiextensions.k8s.io/v1", "customresourcedefinitions",
		`{"kind":"CustomResourceDefinition","metadata":{"name":"widgets.demo.example.com"},"spec":{"group":"demo.example.com","scope":"Namespaced",
		"names":{"plural":"widgets","singular":"widget","kind":"Widget","shortNames":["wd"]},"versions":[{"name":"v1","served":true,"storage":true,
			"additionalPrinterColumns":[{"name":"Color","type":"string","jsonPath":".spec.color"}]}]}}`)
	r.resource("demo.example.com/v1", "widgets", objectJSON("Widget", "shop", "gear", `"spec":{"color":"red"}`))
	r.object(consume.Updated, "demo.example.com/v1", "widgets",
		objectJSON("Widget", "shop", "gear", `"spec":{"color":"blue"}`))
	v := following(t, r, from)
	s := &apiview.Server{Root: v, Token: token}
	if body := ask(t.Context(), s, "GET", "/apis/demo.example.com/v1", "", "").Body.String(); !strings.Contains(body,
		`"shortNames":["wd"]`) {
		t.Error(body)
	}
	want := []string{"ADDED Widget gear 8", "MODIFIED Widget gear 10"}
	if diff := cmp.Diff(want, replayed(t, v, "/apis/demo.example.com/v1/widgets")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if body := ask(t.Context(), s, "GET", "/apis/demo.example.com/v1/widgets", asTable,
		"").Body.String(); !strings.Contains(body, `"cells":["gear","blue"]`) {
		t.Error(body)
	}
}

// An object that replaces another one of its name is another object, also if the record does not
// have the deletion.
func TestReplayOfAReplacedObject(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "configmaps", objectJSON("ConfigMap", "shop", "a", ""))
	from := r.next
	e := r.object(consume.Created, "v1", "configmaps", objectJSON("ConfigMap", "shop", "a", ""))
	e.UID = "another"
	e.Data.After = bytes.Replace(e.Data.After, []byte("u-configmaps-shop-a"), []byte("another"), 1)
	v := following(t, r, from)
	want := []string{"DELETED ConfigMap a 4", "ADDED ConfigMap a 4"}
	if diff := cmp.Diff(want, replayed(t, v, "/api/v1/configmaps")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Resources of two histories of etcd cannot be replayed in one go.
func TestReplayOfARestore(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "configmaps", objectJSON("ConfigMap", "shop", "a", ""))
	v := apiview.NewView(r.state(timeline.Now(start)), apiview.Options{Now: start})
	var log apiview.Log
	log.Add(&timeline.Version{Object: consume.Object{
		Resource:  "configmaps",
		Namespace: "shop",
		Name:      "a",
	}, History: 1, ResourceVersion: "2", Time: start})
	err := v.Follow(&log)
	if err == nil ||
		!strings.Contains(err.Error(),
			"etcd was restored at 2026-11-20T14:00:00Z: replay the time before it or after it") {
		t.Errorf("%v", err)
	}
}

// BenchmarkLog adds versions of Pods of 3 KB to a log, and reports the memory that each keeps.
func BenchmarkLog(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var log apiview.Log
	size := 0
	var env strings.Builder
	for i := range 45 {
		fmt.Fprintf(&env, `{"name":"VARIABLE_%d","value":"%x"},`, i, i*i*7919)
	}
	for i := range b.N {
		body := fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"shop","uid":"%x","resourceVersion":"%d","annotations":{"text":%q}},`+
				`"spec":{"nodeName":"node-%d","containers":[{"name":"app","image":"web:1","env":[%s{"name":"LAST"}]}]},"status":{"phase":"Running","podIP":"10.0.%d.%d"}}`,
			i%1000, sha256.Sum256(fmt.Append(nil, i%1000)), i, strings.Repeat("text of all Pods ", 40), i%7,
			env.String(), i%250, i%1000/4)
		size += len(body)
		log.Add(&timeline.Version{
			Object: consume.Object{
				Resource:  "pods",
				Namespace: "shop",
				Name:      fmt.Sprint("web-", i%1000),
				UID:       fmt.Sprint(i % 1000),
			},
			Op: consume.Updated, ResourceVersion: fmt.Sprint(i), Time: start, After: body,
		})
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(size)/float64(b.N), "JSON-B/version")
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(b.N), "kept-B/version")
	runtime.KeepAlive(&log)
}
