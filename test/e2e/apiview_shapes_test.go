package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// shapedPlane starts a control plane whose API server serves what the test writes into etcd, and
// does nothing else with it.
func shapedPlane(t *testing.T) *world.Plane {
	t.Helper()
	return world.StartPlane(t, controlplane.Options{NoControllerManager: true, APIServerArgs: []string{
		"--runtime-config=api/all=true", "--enable-priority-and-fairness=false",
		"--disable-admission-plugins=ServiceAccount,MutatingAdmissionPolicy,ValidatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionWebhook",
	}})
}

// shapedResource is a resource of the API server.
type shapedResource struct {
	metav1.APIResource

	gv schema.GroupVersion
}

func (r *shapedResource) path() string {
	if r.gv.Group == "" {
		return "/api/v1/" + r.Name
	}
	return "/apis/" + r.gv.String() + "/" + r.Name
}

// shapedResources returns the stable resources whose Go types are known, in the versions that the
// API server prefers.
func shapedResources(t *testing.T, config *rest.Config) []shapedResource {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []shapedResource
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			isStable := !strings.Contains(gv.Version, "alpha") && !strings.Contains(gv.Version, "beta")
			if isStable && slices.Contains(r.Verbs, "watch") && scheme.Scheme.Recognizes(gv.WithKind(r.Kind)) &&
				l.GroupVersion != "events.k8s.io/v1" {
				out = append(out, shapedResource{r, gv})
			}
		}
	}
	return out
}

// prefix returns where etcd has the objects of a resource.
func (r *shapedResource) prefix() string {
	for name, prefix := range map[string]string{
		"nodes":                  "minions",
		"services":               "services/specs",
		"endpoints":              "services/endpoints",
		"replicationcontrollers": "controllers",
		"ingresses":              "ingress",
	} {
		if r.Name == name {
			return "/registry/" + prefix
		}
	}
	return "/registry/" + r.Name
}

// put writes objects of random shapes into etcd.
func (s *shapes) put(t *testing.T, p *world.Plane, r *shapedResource, n int) {
	t.Helper()
	for i := range n {
		o, err := scheme.Scheme.New(r.gv.WithKind(r.Kind))
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(o).Elem()
		s.fill(v, 0)
		namespace, key := "", fmt.Sprintf("shape-%d", i)
		if r.Namespaced {
			namespace = []string{"default", "kube-system"}[s.IntN(2)]
		}
		s.meta(v.FieldByName("ObjectMeta").Addr().Interface().(*metav1.ObjectMeta), namespace, key)
		v.FieldByName("TypeMeta").Set(reflect.ValueOf(metav1.TypeMeta{Kind: r.Kind, APIVersion: r.gv.String()}))
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if namespace != "" {
			key = namespace + "/" + key
		}
		if _, err := p.History.Client.Put(t.Context(), r.prefix()+"/"+key, string(body)); err != nil {
			t.Fatal(err)
		}
	}
}

// shaped asks the API server, and a view of its objects.
type shaped struct {
	*world.Plane
	client *http.Client
	now    time.Time // before the last question to the API server
	then   time.Time // after it
}

// live asks the API server.
func (s *shaped) live(t *testing.T, path, accept string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.APIServerURL(0)+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	s.now = time.Now()
	w, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.then = time.Now()
	return w.StatusCode, body
}

// shapedToken is that of the views.
const shapedToken = "the-token"

// askView asks a view.
func askView(ctx context.Context, v *apiview.View, path, accept string) (int, []byte) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1"+path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+shapedToken)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	(&apiview.Server{Root: v, Token: shapedToken}).ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

// shapedList is a list of the API server.
type shapedList struct {
	Kind     string
	Metadata metav1.ListMeta
	Items    []json.RawMessage
}

// viewOf returns the view of the objects of a list.
func viewOf(t *testing.T, r *shapedResource, list *shapedList, now time.Time) *apiview.View {
	t.Helper()
	state := timeline.NewState(timeline.Now(now), timeline.Options{})
	at := now.Add(-time.Hour)
	event := func(kind, id, rv string) *consume.Event {
		return &consume.Event{
			ID:              id,
			Source:          "/kubernetes/c",
			Cluster:         "c",
			Time:            at,
			APIVersion:      r.gv.String(),
			Resource:        r.Name,
			Type:            consume.EventType(consume.TypePrefix + kind),
			ResourceVersion: rv,
		}
	}
	stream := func(kind string) {
		e := event(kind, kind, "")
		e.Scope, e.Stream = e.GroupResource(), &consume.Stream{ResourceVersion: "1", Snapshot: "s"}
		state.Add(e)
	}
	stream("snapshot.started")
	for _, raw := range list.Items {
		var o map[string]json.RawMessage
		var meta metav1.ObjectMeta
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(o["metadata"], &meta); err != nil {
			t.Fatal(err)
		}
		o["kind"] = json.RawMessage(strconv.Quote(r.Kind))
		o["apiVersion"] = json.RawMessage(strconv.Quote(r.gv.String()))
		after, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		e := event("object", string(meta.UID), meta.ResourceVersion)
		e.Namespace = meta.Namespace
		e.Name = meta.Name
		e.Kind = r.Kind
		e.UID = string(meta.UID)
		e.Op = consume.Read
		e.Sequence = fmt.Sprintf("%020s", meta.ResourceVersion)
		e.Data = &consume.Data{Op: consume.Read, ResourceVersion: meta.ResourceVersion, Snapshot: "s", After: after}
		state.Add(e)
	}
	stream("snapshot.completed")
	return apiview.NewView(state, apiview.Options{Now: now})
}

const shapedTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// cells are the rows of a Table.
type cells struct {
	Columns []metav1.TableColumnDefinition `json:"columnDefinitions"`
	Rows    []struct {
		Cells      []any
		Conditions []metav1.TableRowCondition
		Object     json.RawMessage
	}
}

func (c *cells) read(t *testing.T, body []byte) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(c); err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	for i := range c.Columns {
		c.Columns[i].Description = ""
	}
}

// shapesSeed is KUBECDC_SHAPES_SEED, or random.
func shapesSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("KUBECDC_SHAPES_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KUBECDC_SHAPES_SEED=%d", seed)
	return seed
}

// TestTablesAreThoseOfTheAPIServer compares the tables of a view, cell by cell, with those of the
// API server: of all its resources, and of objects of random shapes.
func TestTablesAreThoseOfTheAPIServer(t *testing.T) {
	slow(t)
	t.Parallel()
	p := shapedPlane(t)
	config := p.Config(controlplane.Admin)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &shaped{Plane: p, client: client}
	random := &shapes{Rand: rand.New(rand.NewPCG(shapesSeed(t), 0)), now: time.Now()}
	resources := shapedResources(t, config)
	n := size(20, 60, 500)
	for i := range resources {
		random.put(t, p, &resources[i], n)
	}
	compared := 0
	for i := range resources {
		compared += s.compareTable(t, &resources[i], n)
	}
	t.Logf("%d cells of %d resources compared", compared, len(resources))
}

// listed returns the list of a resource, once it has n objects of random shapes.
func (s *shaped) listed(t *testing.T, r *shapedResource, n int) *shapedList {
	t.Helper()
	var list shapedList
	wait.Eventually(t, time.Minute, func() error {
		code, body := s.live(t, r.path(), "application/json")
		list = shapedList{}
		if err := json.Unmarshal(body, &list); err != nil || code != http.StatusOK {
			return fmt.Errorf("%s: %d, %w: %.300s", r.path(), code, err, body)
		}
		if got := bytes.Count(body, []byte(`"uid":"uid-of-shape-`)); got < n {
			return fmt.Errorf("%s has %d objects", r.path(), got)
		}
		return nil
	})
	return &list
}

func (s *shaped) compareTable(t *testing.T, r *shapedResource, n int) (compared int) {
	t.Helper()
	list := s.listed(t, r, n)
	code, body := s.live(t, r.path()+"?resourceVersionMatch=Exact&resourceVersion="+list.Metadata.ResourceVersion,
		shapedTable)
	if code != http.StatusOK {
		t.Errorf("%s: %d %.300s", r.path(), code, body)
		return 0
	}
	var want cells
	want.read(t, body)
	var got []cells // at each second in which the API server may have computed the ages
	for now := s.now; now.Before(s.then.Add(time.Second)); now = now.Add(time.Second) {
		_, body := askView(t.Context(), viewOf(t, r, list, now), r.path(), shapedTable)
		var at cells
		at.read(t, body)
		got = append(got, at)
	}
	if diff := cmp.Diff(want.Columns, got[0].Columns); diff != "" {
		oracle.Fail(t, "%s: columns: -live +record\n%s", r.path(), diff)
		return 0
	}
	if len(want.Rows) != len(got[0].Rows) {
		oracle.Fail(t, "%s: %d rows, the record has %d", r.path(), len(want.Rows), len(got[0].Rows))
		return 0
	}
	for i, row := range want.Rows {
		a := got[0].Rows[i]
		if diff := cmp.Diff(row.Conditions, a.Conditions); diff != "" {
			oracle.Fail(t, "%s %v: conditions: -live +record\n%s", r.path(), row.Cells, diff)
		}
		if len(row.Cells) != len(a.Cells) {
			oracle.Fail(t, "%s: want %v, got %v", r.path(), row.Cells, a.Cells)
			continue
		}
		for k, cell := range row.Cells {
			compared++
			if r.Name == "secrets" && cell == json.Number("0") && a.Cells[k] == "<unknown>" {
				continue // the record does not say whether the agent has removed the values
			}
			if !slices.ContainsFunc(got, func(at cells) bool { return reflect.DeepEqual(cell, at.Rows[i].Cells[k]) }) {
				oracle.Fail(t, "%s %v: cell %d: want %#v, got %#v\n%s", r.path(), row.Cells[0], k, cell, a.Cells[k],
					list.Items[i])
			}
		}
	}
	return compared
}

// TestOtherVersionsAreThoseOfTheAPIServer compares what a view and the API server answer about the
// same objects in several API versions. The view has them in one of these.
func TestOtherVersionsAreThoseOfTheAPIServer(t *testing.T) {
	slow(t)
	t.Parallel()
	p := shapedPlane(t)
	config := p.Config(controlplane.Admin)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &shaped{Plane: p, client: client}
	random := &shapes{Rand: rand.New(rand.NewPCG(shapesSeed(t), 0)), now: time.Now()}
	events := schema.GroupVersion{Group: "events.k8s.io", Version: "v1"}
	autoscalers := schema.GroupVersion{Group: "autoscaling", Version: "v2"}
	resource := func(gv schema.GroupVersion, name, kind string) *shapedResource {
		return &shapedResource{metav1.APIResource{Name: name, Kind: kind, Namespaced: true}, gv}
	}
	core, group := resource(schema.GroupVersion{Version: "v1"}, "events", "Event"), resource(events, "events", "Event")
	v2 := resource(autoscalers, "horizontalpodautoscalers", "HorizontalPodAutoscaler")
	v1 := resource(autoscalers, "horizontalpodautoscalers", "HorizontalPodAutoscaler")
	v1.gv.Version = "v1"
	n := size(40, 150, 2000)
	random.put(t, p, core, n)
	random.put(t, p, v2, n)
	coreFields := []string{
		"involvedObject.name=a", "involvedObject.kind=Pod,type=True", "involvedObject.namespace!=a",
		"involvedObject.uid=b2", "involvedObject.apiVersion=apps/v1",
		"involvedObject.fieldPath=", "source=a", "reportingComponent=", "reason=Failed", "metadata.name=shape-3",
		"regarding.name=a", "note=a",
	}
	groupFields := []string{
		"regarding.name=a", "regarding.kind=Pod,type=True", "regarding.namespace!=a", "regarding.uid=b2",
		"regarding.apiVersion=apps/v1", "regarding.fieldPath=",
		"regarding.resourceVersion!=a", "reportingController=", "reason=Failed", "metadata.namespace=default",
		"involvedObject.name=a", "source=a",
	}
	for _, c := range []struct {
		recorded, served *shapedResource
		fields           []string
	}{
		{core, group, groupFields},
		{core, core, coreFields},
		{group, core, coreFields},
		{group, group, groupFields},
		{v2, v1, []string{"metadata.name=shape-3", "spec.maxReplicas=1"}},
		{v2, v2, []string{"metadata.name!=shape-3"}},
	} {
		list := s.listed(t, c.recorded, n)
		if len(list.Items) < n {
			t.Fatalf("%d objects", len(list.Items))
		}
		view := viewOf(t, c.recorded, list, time.Now())
		paths := []string{
			c.served.path(),
			strings.TrimSuffix(c.served.path(), "/"+c.served.Name) + "/namespaces/default/" + c.served.Name,
			c.served.path() + "?limit=7",
			c.served.path() + "?includeObject=Object", c.served.path() + "?labelSelector=a",
			c.served.path() + "?watch=1&resourceVersion=0&timeoutSeconds=3",
			strings.TrimSuffix(c.served.path(), "/"+c.served.Name) + "/namespaces/default/" + c.served.Name + "/none",
		}
		for _, f := range c.fields {
			paths = append(paths, c.served.path()+"?fieldSelector="+url.QueryEscape(f))
		}
		for i := range list.Items {
			var o metav1.PartialObjectMetadata
			if err := json.Unmarshal(list.Items[i], &o); err != nil {
				t.Fatal(err)
			}
			paths = append(paths,
				fmt.Sprintf("%s/namespaces/%s/%s/%s", strings.TrimSuffix(c.served.path(), "/"+c.served.Name),
					o.Namespace, c.served.Name, o.Name))
		}
		found := 0
		for i, path := range paths {
			accepts := []string{"application/json"}
			if i < 20 && !strings.Contains(path, "watch") {
				accepts = append(accepts, shapedTable, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
					"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
			}
			for _, accept := range accepts {
				if strings.HasSuffix(accept, "Metadata;v=v1;g=meta.k8s.io") != (i > 6+len(c.fields)) &&
					strings.Contains(accept, "Partial") {
					continue
				}
				found += s.compareAnswer(t, view, path, accept)
			}
		}
		t.Logf("%s of a record of %s: %d answers compared, with %d objects", c.served.path(), c.recorded.gv, len(paths),
			found)
	}
	list := s.listed(t, v2, n)
	for _, path := range []string{"/apis/autoscaling", "/apis/autoscaling/v1", "/apis/autoscaling/v2"} {
		s.compareDiscovery(t, viewOf(t, v2, list, time.Now()), path)
	}
	list = s.listed(t, core, n)
	for _, path := range []string{"/apis/events.k8s.io", "/apis/events.k8s.io/v1"} {
		s.compareDiscovery(t, viewOf(t, core, list, time.Now()), path)
	}
}

// compareAnswer compares an answer without what differs between any two servers: the versions of
// lists, and ages. It returns how many objects the answer has.
func (s *shaped) compareAnswer(t *testing.T, view *apiview.View, path, accept string) int {
	t.Helper()
	wantCode, want := s.live(t, path, accept)
	gotCode, got := askView(t.Context(), view, path, accept)
	if wantCode != gotCode {
		oracle.Fail(t, "%s: want %d, got %d: %s", path, wantCode, gotCode, got)
		return 0
	}
	a, n := s.normal(t, want)
	b, _ := s.normal(t, got)
	if strings.Contains(path, "watch=1") && len(a) > 0 { // its time may end before a slow machine has sent all objects
		for name := range b {
			if a[name] == nil {
				delete(b, name)
			}
		}
		for name := range a {
			if b[name] == nil {
				delete(a, name)
			}
		}
		if len(a) == 0 {
			oracle.Fail(t, "%s: no object was sent by both", path)
		}
	}
	if diff := cmp.Diff(a, b); diff != "" {
		oracle.Fail(t, "%s (%s): -live +record\n%s", path, accept, diff)
	}
	return n
}

// normal returns the objects of an answer by their names, and what else it has.
func (s *shaped) normal(t *testing.T, body []byte) (out map[string]any, objects int) {
	t.Helper()
	out = map[string]any{}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for {
		var v map[string]any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return out, objects
		} else if err != nil {
			t.Fatalf("%v: %.300s", err, body)
		}
		kind := v["kind"]
		meta, _ := v["metadata"].(map[string]any)
		if v["type"] != nil && v["object"] != nil { // of a watch
			o := v["object"].(map[string]any)
			out[fmt.Sprint(v["type"], o["metadata"].(map[string]any)["namespace"], "/",
				o["metadata"].(map[string]any)["name"])] = o
			objects++
			continue
		}
		if strings.HasSuffix(fmt.Sprint(kind), "List") || kind == "Table" {
			for _, field := range []string{"resourceVersion", "continue", "remainingItemCount"} {
				delete(meta, field)
			}
		}
		items, _ := v["items"].([]any)
		if v["items"] == nil && kind == "PartialObjectMetadataList" {
			v["items"] = []any{}
		}
		for _, item := range items {
			objects++
			if kind != "PartialObjectMetadataList" { // an API server omits them, clients do not rely on that
				delete(item.(map[string]any), "kind")
				delete(item.(map[string]any), "apiVersion")
			}
		}
		rows, _ := v["rows"].([]any)
		for _, row := range rows {
			objects++
			cells := row.(map[string]any)["cells"].([]any)
			for i := range cells {
				cells[i] = agesOfTables.ReplaceAllString(fmt.Sprint(cells[i]), "AGE")
			}
		}
		columns, _ := v["columnDefinitions"].([]any)
		for _, column := range columns {
			delete(column.(map[string]any), "description")
		}
		if status, ok := v["details"].(map[string]any); ok && kind == "Status" {
			delete(status, "uid")
		}
		out["answer"] = v
	}
}

// compareDiscovery compares what clients read of a resource.
func (s *shaped) compareDiscovery(t *testing.T, view *apiview.View, path string) {
	t.Helper()
	_, want := s.live(t, path, "application/json")
	_, got := askView(t.Context(), view, path, "application/json")
	read := func(body []byte) any {
		var list metav1.APIResourceList
		var group metav1.APIGroup
		if err := errors.Join(json.Unmarshal(body, &list), json.Unmarshal(body, &group)); err != nil {
			t.Fatal(err)
		}
		if list.Kind == "APIGroup" {
			return group
		}
		list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool {
			return strings.Contains(r.Name, "/")
		})
		for i := range list.APIResources {
			list.APIResources[i].Verbs, list.APIResources[i].StorageVersionHash = nil, ""
		}
		return list
	}
	if diff := cmp.Diff(read(want), read(got)); diff != "" {
		oracle.Fail(t, "%s: -live +record\n%s", path, diff)
	}
}
