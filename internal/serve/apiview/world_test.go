package apiview_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "the-token"

// start is when the first event of a record was observed, and created when its objects were
// created.
var (
	start   = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	created = start.Add(-2 * time.Hour)
)

// record is the events of a cluster.
type record struct {
	events []*consume.Event
	next   uint64
	scopes []*consume.Event // one event of each resource
}

// event returns an event with what all have.
func (r *record) event(apiVersion, resource, id string) *consume.Event {
	r.next++
	e := &consume.Event{
		ID:              id,
		Source:          "/kubernetes/prod",
		Cluster:         "prod",
		Time:            start.Add(time.Duration(r.next) * time.Second),
		APIVersion:      apiVersion,
		Resource:        resource,
		ResourceVersion: strconv.FormatUint(r.next, 10),
		Sequence:        fmt.Sprintf("%020d", r.next),
	}
	r.events = append(r.events, e)
	return e
}

// stream adds an event about the stream of a resource.
func (r *record) stream(kind, apiVersion, resource string) *consume.Event {
	e := r.event(apiVersion, resource, "")
	e.ID = fmt.Sprintf("%s/%s/%d", resource, kind, r.next)
	e.Type = consume.EventType(consume.TypePrefix + kind)
	e.Scope = e.GroupResource()
	e.Stream = &consume.Stream{ResourceVersion: e.ResourceVersion, Snapshot: "s"}
	e.ResourceVersion, e.Sequence = "", ""
	return e
}

// progress adds the progress of the scope of a resource.
func (r *record) progress(scope string) {
	e := r.event("", "", "")
	rv := e.ResourceVersion
	*e = consume.Event{
		ID:      "progress/w/0-1/" + rv,
		Source:  e.Source,
		Cluster: e.Cluster,
		Time:    e.Time,
		Type:    consume.TypeProgress,
	}
	e.Progress = &consume.Progress{Writer: "w", Run: "0-1", Number: int(r.next), Scopes: []consume.ScopeProgress{
		{Resource: scope, Scope: scope, ResourceVersion: rv, To: e.Time},
	}}
}

// resource adds a snapshot of a resource with objects.
func (r *record) resource(apiVersion, resource string, objects ...string) {
	r.scopes = append(r.scopes, r.stream("snapshot.started", apiVersion, resource))
	for _, o := range objects {
		r.object(consume.Read, apiVersion, resource, o)
	}
	r.stream("snapshot.completed", apiVersion, resource)
}

// object adds an event of an object, with its resourceVersion and creation filled in.
func (r *record) object(op consume.Op, apiVersion, resource, text string) *consume.Event {
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err.Error() + text)
	}
	meta := o["metadata"].(map[string]any)
	e := r.event(apiVersion, resource, "")
	e.Name = meta["name"].(string)
	e.Kind = o["kind"].(string)
	e.Op = op
	e.Type = consume.TypePrefix + "object"
	e.Namespace, _ = meta["namespace"].(string)
	e.UID = "u-" + resource + "-" + e.Namespace + "-" + e.Name
	e.ID = resource + "/" + e.UID + "/" + e.ResourceVersion
	o["apiVersion"] = apiVersion
	meta["uid"] = e.UID
	meta["resourceVersion"] = e.ResourceVersion
	if meta["creationTimestamp"] == nil {
		meta["creationTimestamp"] = created.Format(time.RFC3339)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	e.Data = &consume.Data{Op: op, ResourceVersion: e.ResourceVersion, After: raw}
	if op == consume.Read {
		e.Data.Snapshot = "s"
	}
	if op == consume.Deleted {
		e.Data.Before, e.Data.After = raw, json.RawMessage("null")
	}
	return e
}

// state returns the state of a moment.
func (r *record) state(at timeline.Moment) *timeline.State {
	s := timeline.NewState(at, timeline.Options{})
	for _, e := range r.events {
		s.Add(e)
	}
	return s
}

// view returns the view of the end of the record, two hours after its objects were created.
func (r *record) view() *apiview.View {
	return apiview.NewView(r.state(timeline.Now(start)), apiview.Options{Now: start})
}

func objectJSON(kind, namespace, name, rest string) string {
	place := ""
	if namespace != "" {
		place = fmt.Sprintf(`,"namespace":%q`, namespace)
	}
	if rest != "" && !strings.HasPrefix(rest, ",") {
		rest = "," + rest
	}
	return fmt.Sprintf(`{"kind":%q,"metadata":{"name":%q%s}%s}`, kind, name, place, rest)
}

// cluster is a record with a little of everything.
func cluster() *record {
	r := &record{next: 100}
	r.resource("v1", "namespaces", objectJSON("Namespace", "", "shop", `"status":{"phase":"Active"}`),
		objectJSON("Namespace", "", "shop-b", `"status":{"phase":"Active"}`))
	r.resource("v1", "pods",
		`{"kind":"Pod","metadata":{"name":"web-0","namespace":"shop","labels":{"app":"web","tier":"front"}},
			"spec":{"nodeName":"n1","containers":[{"name":"app","image":"web:1"}]},"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.1"}],"containerStatuses":[{"name":"app","ready":true,"restartCount":2,"state":{"running":{}},
			"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-11-20T13:30:00Z"}}}]}}`,
		`{"kind":"Pod","metadata":{"name":"web-1","namespace":"shop","labels":{"app":"web"}},"spec":{"nodeName":"n2","containers":[{"name":"app","image":"web:1"}]},"status":{"phase":"Pending"}}`,
		`{"kind":"Pod","metadata":{"name":"db-0","namespace":"shop-b","labels":{"app":"db"}},"spec":{"nodeName":"n1","containers":[{"name":"app","image":"db:1"}]},
			"status":{"phase":"Succeeded","containerStatuses":[{"name":"app","restartCount":0,"state":{"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`)
	r.resource("v1", "configmaps")
	r.resource("v1", "secrets",
		objectJSON("Secret", "shop", "hashed",
			`"type":"Opaque","data":{"password":"hmac-sha256:0a1b2c3d:abc","user":"YQ=="}`),
		objectJSON("Secret", "shop", "removed", `"type":"Opaque"`))
	r.resource("apps/v1", "deployments",
		`{"kind":"Deployment","metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},
		"template":{"spec":{"containers":[{"name":"app","image":"web:1"},{"name":"log","image":"log:2"}]}}},"status":{"readyReplicas":1,"updatedReplicas":2,"availableReplicas":1}}`)
	r.resource("rbac.authorization.k8s.io/v1", "roles", objectJSON("Role", "shop", "reader", ""))
	r.resource("apiextensions.k8s.io/v1", "customresourcedefinitions",
		`{"kind":"CustomResourceDefinition","metadata":{"name":"widgets.demo.example.com"},"spec":{"group":"demo.example.com","scope":"Namespaced",
		"names":{"plural":"widgets","singular":"widget","kind":"Widget","shortNames":["wd"],"categories":["demo"]},
		"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.color"}],"additionalPrinterColumns":[
			{"name":"Color","type":"string","jsonPath":".spec.color"},{"name":"Size","type":"integer","jsonPath":".spec.size","priority":1},
			{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"},{"name":"Made","type":"date","jsonPath":".metadata.creationTimestamp"}]}]}}`,
		`{"kind":"CustomResourceDefinition","metadata":{"name":"gadgets.demo.example.com"},"spec":{"group":"demo.example.com","scope":"Cluster",
		"names":{"plural":"gadgets","singular":"gadget","kind":"Gadget"},"versions":[{"name":"v1beta1","served":true},{"name":"v1","served":true}]}}`)
	r.resource("demo.example.com/v1", "widgets",
		objectJSON("Widget", "shop", "gear",
			`"spec":{"color":"red","size":7},"status":{"conditions":[{"type":"Other","status":"x"},{"type":"Ready","status":"True"}]}`),
		objectJSON("Widget", "shop", "cog", `"spec":{"color":"blue"}`))
	r.resource("demo.example.com/v1", "gadgets")
	return r
}

// serve serves and returns the configuration of a client.
func serve(t *testing.T, s *apiview.Server) *rest.Config {
	t.Helper()
	s.Token = token
	server := httptest.NewServer(s)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, BearerToken: token, QPS: -1, Transport: transport(t)}
}

func transport(t *testing.T) *http.Transport {
	t.Helper()
	out := &http.Transport{}
	t.Cleanup(out.CloseIdleConnections)
	return out
}

// ask makes a request without a network.
func ask(ctx context.Context, h http.Handler, method, path, accept, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
