package clients_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/net/websocket"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/wait"
)

// requests are those of a client that is not in any registry (testdata).
type requests struct {
	Headers  map[string]string
	Requests []struct {
		Path, Accept string
	}
	Watch        string
	Subprotocols []string
}

// server is an API that requests are sent to.
type server struct {
	config *rest.Config
	http   *http.Client
}

func connect(t *testing.T, kubeconfig string) *server {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &server{config, client}
}

// answer returns the code and the JSON of an answer, without the differences between a cluster and
// its record. These are fields that only the server manages, how it was built, and the verbs and
// resources of discovery that the record lacks.
func (s *server) answer(t *testing.T, r *requests, path, accept string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range r.Headers {
		request.Header.Set(name, value)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	answer, err := s.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var body any
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	out, err := json.MarshalIndent(stripped(body), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), "; charset")
	return fmt.Sprintf("%d %s\n%s", answer.StatusCode, kind, out)
}

// stripped returns a value of JSON without what differs.
func stripped(value any) any {
	switch value := value.(type) {
	case map[string]any:
		switch {
		case value["gitVersion"] != nil:
			return []any{value["major"], value["minor"], value["gitVersion"]}
		case value["kind"] == "APIResourceList", value["kind"] == "APIGroupDiscoveryList":
			return discovered(value)
		}
		out := map[string]any{}
		for name, of := range value {
			if !slices.Contains([]string{"managedFields", "resourceVersion", "continue"}, name) ||
				name == "resourceVersion" && value["uid"] != nil {
				out[name] = stripped(of)
			}
		}
		items, _ := out["items"].([]any)
		for _, item := range items { // kube-apiserver omits these of its own kinds
			delete(item.(map[string]any), "apiVersion")
			delete(item.(map[string]any), "kind")
		}
		return out
	case []any:
		var out []any
		for _, of := range value {
			out = append(out, stripped(of))
		}
		return out
	}
	return value
}

// discovered returns the kinds of a discovery that the record has, with what a user interface reads
// of them.
func discovered(value any) []string {
	kinds := map[string]bool{"configmaps": true, "namespaces": true, "deployments": true, "lamps": true}
	var out []string
	switch value := value.(type) {
	case map[string]any:
		name, _ := value["name"].(string)
		if resource, ok := value["resource"].(string); ok {
			name = resource
		}
		kind := value["kind"]
		if response, ok := value["responseKind"].(map[string]any); ok {
			kind = response["kind"] // kube-apiserver omits the group and version of its own kinds
		}
		if kinds[name] && kind != nil {
			out = append(out,
				fmt.Sprint(name, kind, value["namespaced"], value["scope"], value["singularName"],
					value["singularResource"],
					value["shortNames"], value["categories"]))
		}
		for _, of := range value {
			out = append(out, discovered(of)...)
		}
	case []any:
		for _, of := range value {
			out = append(out, discovered(of)...)
		}
	}
	slices.Sort(out)
	return out
}

// answers returns the answers of all requests.
func (s *server) answers(t *testing.T, r *requests, namespace string) string {
	t.Helper()
	all := ""
	for _, of := range r.Requests {
		path := strings.ReplaceAll(of.Path, "NAMESPACE", namespace)
		all += "GET " + path + "\n" + s.answer(t, r, path, of.Accept) + "\n"
	}
	return all
}

// follow watches over WebSocket until the ConfigMap "last" is there, and returns the changes. It
// calls ready once the watch is open.
func (s *server) follow(t *testing.T, r *requests, namespace string, from uint64, ready func()) []string {
	t.Helper()
	path := strings.NewReplacer("NAMESPACE", namespace, "VERSION", strconv.FormatUint(from, 10)).Replace(r.Watch)
	c, err := websocket.NewConfig("wss"+strings.TrimPrefix(s.config.Host, "https")+path, s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	token := base64.RawStdEncoding.EncodeToString([]byte(s.config.BearerToken))
	for _, protocol := range r.Subprotocols {
		c.Protocol = append(c.Protocol, strings.ReplaceAll(protocol, "TOKEN", token))
	}
	c.TlsConfig, err = rest.TLSConfigFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	c.TlsConfig = c.TlsConfig.Clone()
	c.TlsConfig.MinVersion = tls.VersionTLS12
	ws, err := c.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.Close() }()
	ready()
	_ = ws.SetReadDeadline(time.Now().Add(limit))
	var out []string
	for {
		var event struct {
			Type   string
			Object core.ConfigMap
		}
		if err := websocket.JSON.Receive(ws, &event); err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		o := &event.Object
		out = append(out, fmt.Sprintf("%s %s@%s %s %v", event.Type, o.Name, o.ResourceVersion, o.UID, o.Data))
		if o.Name == "last" {
			return out
		}
	}
}

// askHeadlamp sends the requests of Headlamp.
func askHeadlamp(t *testing.T, c *cluster, _, namespace string) {
	raw, err := os.ReadFile("testdata/headlamp.json")
	if err != nil {
		t.Fatal(err)
	}
	var r requests
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	live := connect(t, c.Kubeconfig)
	want := live.answers(t, &r, namespace)
	from := c.Now(t)
	seen := live.follow(t, &r, namespace, from, func() { c.change(t, namespace) })
	to := c.Now(t)
	c.record(t, namespace)
	moment := fmt.Sprintf("rv:%d", from)
	if diff := gocmp.Diff(want, connect(t, c.serve(t, "--at", moment)).answers(t, &r, namespace)); diff != "" {
		t.Errorf("-live +record\n%s", diff)
	}
	replay := connect(t, c.serve(t, "--from", moment, "--to", fmt.Sprintf("rv:%d", to), "--speed", "max"))
	if diff := gocmp.Diff(seen, replay.follow(t, &r, namespace, from, func() {})); diff != "" {
		t.Errorf("replay: -live +record\n%s", diff)
	}
}

// askMetrics lists and watches as kube-state-metrics does: a reflector of client-go for each kind,
// which would rather have protobuf.
//
// Written from the public sources of github.com/kubernetes/kube-state-metrics (it was not run):
// CreateKubeClient of pkg/util/utils.go has the settings of the client, startReflector of
// internal/store/builder.go the reflector and its store.
func askMetrics(t *testing.T, c *cluster, _, namespace string) {
	follow := func(kubeconfig string, ready func()) []string {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.UserAgent = "kube-state-metrics/v2.20.0 (linux/amd64) kubernetes/0000000"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		config.ContentType = "application/vnd.kubernetes.protobuf"
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		version, err := client.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		maps := client.CoreV1().ConfigMaps(namespace)
		s := &changes{seen: []string{"version " + version.GitVersion}}
		reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return maps.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return maps.Watch(ctx, o)
			},
		}, &core.ConfigMap{}, s, cache.ReflectorOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { reflector.RunWithContext(ctx) })
		defer wg.Wait()
		defer cancel()
		wait.Eventually(t, limit, func() error { return s.has("replace") })
		ready()
		wait.Eventually(t, limit, func() error { return s.has("add last") })
		return s.changes()
	}
	from := c.Now(t)
	seen := follow(c.Kubeconfig, func() { c.change(t, namespace) })
	to := c.Now(t)
	c.record(t, namespace)
	replay := c.serve(t, "--from", fmt.Sprintf("rv:%d", from), "--to", fmt.Sprintf("rv:%d", to), "--speed", "max")
	if diff := gocmp.Diff(seen, follow(replay, func() {})); diff != "" {
		t.Errorf("replay: -live +record\n%s", diff)
	}
}

// changes is the store of a reflector. It notes each call.
type changes struct {
	cache.Store

	mu   sync.Mutex
	seen []string
}

func (s *changes) note(what string, objects ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		o := o.(*core.ConfigMap)
		what += fmt.Sprintf(" %s@%s %v", o.Name, o.ResourceVersion, o.Data)
	}
	s.seen = append(s.seen, what)
	return nil
}

func (s *changes) changes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *changes) has(begin string) error {
	if slices.ContainsFunc(s.changes(), func(line string) bool { return strings.HasPrefix(line, begin) }) {
		return nil
	}
	return errors.New(begin + " is missing")
}

func (s *changes) Add(o any) error    { return s.note("add", o) }
func (s *changes) Update(o any) error { return s.note("update", o) }
func (s *changes) Delete(o any) error { return s.note("delete", o) }
func (s *changes) Resync() error      { return nil }

// Replace sorts the objects: a list has them in the order of etcd, a watch may send them in another
// one.
func (s *changes) Replace(objects []any, _ string) error {
	slices.SortFunc(objects, func(a, b any) int {
		return strings.Compare(a.(*core.ConfigMap).Name, b.(*core.ConfigMap).Name)
	})
	return s.note("replace", objects...)
}
