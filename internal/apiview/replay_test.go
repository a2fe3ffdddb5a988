package apiview_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubecdc/kubecdc/internal/apiview"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// rollout returns the view of a moment, followed by changes of ConfigMaps.
func rollout(t *testing.T) *apiview.View {
	t.Helper()
	r := &record{}
	labelled := func(name, app, value string) string {
		return fmt.Sprintf(`{"kind":"ConfigMap","metadata":{"name":%q,"namespace":"shop","labels":{"app":%q}},"data":{"v":%q}}`, name, app, value)
	}
	r.resource("v1", "configmaps", labelled("a", "web", "0"), labelled("b", "db", "0"))
	from := timeline.AtVersion(4, 0)
	r.object(consume.Updated, "v1", "configmaps", labelled("a", "web", "1"))
	r.object(consume.Created, "v1", "configmaps", labelled("c", "web", "1"))
	r.object(consume.Updated, "v1", "configmaps", labelled("a", "db", "2"))
	r.object(consume.Deleted, "v1", "configmaps", labelled("b", "db", "0"))
	r.object(consume.Updated, "v1", "configmaps", labelled("a", "web", "3"))
	r.stream("progress", "v1", "configmaps")
	state, fold := timeline.NewState(from, timeline.Options{}), timeline.NewFold(timeline.Now(start), timeline.Options{})
	var log apiview.Log
	for _, e := range r.events {
		state.Add(e)
		for _, v := range fold.Add(e) {
			if !from.Includes(e) {
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

// A client that lists and watches sees every version after the moment, in order. A selector that an object begins or ceases to match adds or
// deletes it. A watch may begin at any resourceVersion in between, and a list continues at its own.
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
		"all": {options: metav1.ListOptions{ResourceVersion: "4"}, want: []string{"MODIFIED a 5 1", "ADDED c 6 1", "MODIFIED a 7 2", "DELETED b 8 0", "MODIFIED a 9 3"}},
		"web": {options: metav1.ListOptions{ResourceVersion: "4", LabelSelector: "app=web"}, want: []string{"MODIFIED a 5 1", "ADDED c 6 1", "DELETED a 7 1", "ADDED a 9 3"}},
		"c":   {options: metav1.ListOptions{ResourceVersion: "4", FieldSelector: "metadata.name=c"}, want: []string{"ADDED c 6 1"}},
		"nothing is known": {
			options: metav1.ListOptions{},
			want:    []string{"ADDED a 2 0", "ADDED b 3 0", "MODIFIED a 5 1", "ADDED c 6 1", "MODIFIED a 7 2", "DELETED b 8 0", "MODIFIED a 9 3"},
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
	now := ask(t.Context(), &apiview.Server{Root: v, Token: token}, "GET", "/api/v1/configmaps?labelSelector="+url.QueryEscape("app=web"), "", "")
	if got := strings.Join(names(t, now), " "); got != "shop/a shop/c" || !strings.Contains(now.Body.String(), `"metadata":{"resourceVersion":"9"}`) {
		t.Errorf("at the end: %s", now.Body)
	}
}

// A replay takes as long as the changes took, divided by the speed.
func TestReplaySpeed(t *testing.T) {
	t.Parallel()
	v := rollout(t)
	s := &apiview.Server{Root: v, Token: token}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ask(ended, s, "GET", "/api/v1/configmaps?watch=1", "", "")
	var begun time.Time
	if _, err := v.Play(t.Context(), 10, func() { begun = time.Now() }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 900*time.Millisecond { // 10 s from the moment to the last change
		t.Errorf("the replay took %s", took)
	}
}

// Resources of two histories of etcd cannot be replayed in one go.
func TestReplayOfARestore(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "configmaps", objectJSON("ConfigMap", "shop", "a", ""))
	v := apiview.NewView(r.state(timeline.Now(start)), apiview.Options{Now: start})
	var log apiview.Log
	log.Add(&timeline.Version{Object: consume.Object{Resource: "configmaps", Namespace: "shop", Name: "a"}, History: 1, ResourceVersion: "2", Time: start})
	err := v.Follow(&log)
	if err == nil || !strings.Contains(err.Error(), "etcd was restored at 2026-11-20T14:00:00Z: replay the time before it or after it") {
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
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"shop","uid":"%x","resourceVersion":"%d","annotations":{"text":%q}},`+
			`"spec":{"nodeName":"node-%d","containers":[{"name":"app","image":"web:1","env":[%s{"name":"LAST"}]}]},"status":{"phase":"Running","podIP":"10.0.%d.%d"}}`,
			i%1000, sha256.Sum256(fmt.Append(nil, i%1000)), i, strings.Repeat("text of all Pods ", 40), i%7,
			env.String(), i%250, i%1000/4)
		size += len(body)
		log.Add(&timeline.Version{
			Object: consume.Object{Resource: "pods", Namespace: "shop", Name: fmt.Sprint("web-", i%1000), UID: fmt.Sprint(i % 1000)},
			Op:     consume.Updated, ResourceVersion: fmt.Sprint(i), Time: start, After: body,
		})
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(size)/float64(b.N), "JSON-B/version")
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(b.N), "kept-B/version")
	runtime.KeepAlive(&log)
}
