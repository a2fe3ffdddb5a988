package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/prometheus"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Labels of the agents' target, as a monitor of the Prometheus operator gives them.
const (
	namespace = "kubecdc"
	job       = "kubecdc-agent"
)

// world is everything to monitor: a cluster, a JetStream, and two agents (a leader and a standby)
// with a relay and its receiver. It also has a Prometheus that scrapes them and evaluates the
// chart's rules.
type world struct {
	*prometheus.Server

	cluster    *controlplane.Cluster
	kubeconfig string
	client     dynamic.Interface
	bus        *busServer
	receiver   *receiver
	agents     []*agent
}

// agent is a process of kubecdc run.
type agent struct {
	address string // of its HTTP server
	spec    process.Spec
	child   *process.Child
}

// busServer is a JetStream that can be stopped and started again.
type busServer struct {
	options server.Options
	server  *server.Server
}

// receiver accepts the relay's requests, or rejects them.
type receiver struct {
	*httptest.Server

	refuses atomic.Bool
}

// newWorld starts everything; it ends with the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	prometheus.Require(t)
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{
		NoControllerManager: true,
		CompactionInterval:  -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	w := &world{
		cluster:    cluster,
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
		bus:        newBus(t),
		receiver:   newReceiver(t),
	}
	if err := cluster.WriteKubeconfig(w.kubeconfig, controlplane.Restricted); err != nil {
		t.Fatal(err)
	}
	w.client, err = dynamic.NewForConfig(cluster.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		_, err := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
			Get(t.Context(), "kube-system", metav1.GetOptions{})
		return err
	})
	w.bind(t)
	w.permit(t, "*")
	binary := build.Agent(t)
	o := prometheus.Options{Scrape: []prometheus.Scrape{{Job: job, Labels: map[string]string{"namespace": namespace}}}}
	for range 2 {
		a := w.newAgent(t, binary)
		w.agents = append(w.agents, a)
		o.Scrape[0].Targets = append(o.Scrape[0].Targets, a.address)
	}
	election, err := filepath.Abs(rulesFiles[1]) // Prometheus resolves it against its own directory
	if err != nil {
		t.Fatal(err)
	}
	o.Rules = []string{soonRules(t), election}
	w.Server = prometheus.Start(t, o)
	w.startAgents(t)
	for _, a := range w.agents {
		wait.Eventually(t, time.Minute, func() error { return a.ready(t.Context()) })
	}
	return w
}

// soonRules is a copy of the chart's rules in which an event is old sooner.
func soonRules(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(rulesFiles[0])
	if err != nil {
		t.Fatal(err)
	}
	const old, soon = "kubecdc_queue_oldest_seconds > 60", "kubecdc_queue_oldest_seconds > 8"
	if strings.Count(string(text), old) != 1 {
		t.Fatalf("%s: %q is not there, or twice", rulesFiles[0], old)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, soon, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const role = "agent"

// clusterRoles and clusterRoleBindings.
func (w *world) rbac(resource string) dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{
		Group:    "rbac.authorization.k8s.io",
		Version:  "v1",
		Resource: resource,
	})
}

func (w *world) apply(t *testing.T, into dynamic.ResourceInterface, object map[string]any) {
	t.Helper()
	u := &unstructured.Unstructured{Object: object}
	if _, err := into.Apply(t.Context(), u.GetName(), u, metav1.ApplyOptions{
		FieldManager: "test",
		Force:        true,
	}); err != nil {
		t.Fatal(err)
	}
}

// bind gives the agents their role.
func (w *world) bind(t *testing.T) {
	t.Helper()
	w.apply(t, w.rbac("clusterrolebindings"), map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{
			"name": role,
		},
		"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{
			"apiGroup": "rbac.authorization.k8s.io",
			"kind":     "User",
			"name":     controlplane.Restricted,
		}},
	})
}

// permit sets the API groups that the agents may read, "" for the core group of Kubernetes. They
// also get the rights for their own objects.
func (w *world) permit(t *testing.T, groups ...any) {
	t.Helper()
	rule := func(groups, resources, verbs []any) any {
		return map[string]any{"apiGroups": groups, "resources": resources, "verbs": verbs}
	}
	w.apply(t, w.rbac("clusterroles"), map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": role},
		"rules": []any{
			rule(groups, []any{"*"}, []any{"get", "list", "watch"}),
			rule([]any{"", "coordination.k8s.io"}, []any{"configmaps", "leases"}, []any{"get", "create", "update"}),
		},
	})
}

func newBus(t *testing.T) *busServer {
	t.Helper()
	port, err := process.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := &busServer{options: server.Options{
		Host:              "127.0.0.1",
		Port:              port,
		JetStream:         true,
		StoreDir:          t.TempDir(),
		NoSigs:            true,
		NoLog:             true,
		JetStreamMaxStore: 1 << 30,
	}}
	b.start(t)
	t.Cleanup(b.stop)
	return b
}

func (b *busServer) url() string { return "nats://127.0.0.1:" + strconv.Itoa(b.options.Port) }

// start starts the server, or restarts it with its data.
func (b *busServer) start(t *testing.T) {
	t.Helper()
	o := b.options
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	b.server = s
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
}

func (b *busServer) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // a client that has gone needs no answer
		if r.refuses.Load() {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (w *world) newAgent(t *testing.T, binary string) *agent {
	t.Helper()
	port, err := process.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{address: "127.0.0.1:" + strconv.Itoa(port)}
	dir := t.TempDir()
	file := filepath.Join(dir, "kubecdc.yaml")
	config := fmt.Sprintf(`apiVersion: kubecdc.dev/v1
cluster: monitored
watch:
  - resources: [configmaps]
    where: name != "load-9"
  - resources: ["*"]
    except: [events, leases.coordination.k8s.io]
bus: {nats: {url: %q}}
checkpoint: {configMap: {namespace: default, name: kubecdc-checkpoint}}
leaderElection: {enabled: true, namespace: default}
relays:
  - name: search
    resources: [configmaps]
    refused: skip
    to: {http: {url: %q}}
server: {address: %q}
`, w.bus.url(), w.receiver.URL, a.address)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a.spec = process.Spec{
		Name: "kubecdc " + a.address, Log: filepath.Join(dir, "log"), Dir: dir,
		Argv: []string{binary, "run", "--config", file, "--kubeconfig", w.kubeconfig},
		Env:  []string{"GOMEMLIMIT=460MiB", "XDG_RUNTIME_DIR=" + dir}, // the limit of the chart
	}
	t.Cleanup(func() {
		if a.child == nil {
			return
		}
		if t.Failed() {
			t.Log(a.child.Failed(errors.New("end of its log")))
		}
		a.child.Kill()
	})
	return a
}

func (a *agent) start(t *testing.T) {
	t.Helper()
	var err error
	a.child, err = process.Start(a.spec)
	if err != nil {
		t.Fatal(err)
	}
}

func (a *agent) get(ctx context.Context, path string) (string, error) {
	select {
	case <-a.child.Done():
		return "", a.child.Failed(errors.New("has ended"))
	default:
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.address+path, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Close = true // no connection outlives the test
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), err
}

func (a *agent) ready(ctx context.Context) error {
	_, err := a.get(ctx, "/readyz")
	return err
}

// stopAgents ends them in order: the leader releases the Lease, so that the next agents do not wait
// until it expires.
func (w *world) stopAgents(t *testing.T) {
	t.Helper()
	for _, a := range w.agents {
		if err := a.child.Stop(30 * time.Second); err != nil {
			t.Error(err)
		}
	}
}

func (w *world) startAgents(t *testing.T) {
	t.Helper()
	for _, a := range w.agents {
		a.start(t)
	}
}

// leases of namespace default.
func (w *world) leases() dynamic.ResourceInterface {
	return w.client.Resource(
		schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).
		Namespace("default")
}

// configMaps of namespace default.
func (w *world) configMaps() dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
}

// write changes one of ten ConfigMaps.
func (w *world) write(ctx context.Context, n int) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "load-" + strconv.Itoa(n%10)},
		"data": map[string]any{"n": strconv.Itoa(n)},
	}}
	_, err := w.configMaps().Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
		FieldManager: "load",
		Force:        true,
	})
	return err
}

// load changes objects, about thirty times a second, until ctx ends. While the API server is away,
// it keeps trying. If no write has succeeded, it returns the error of the last one.
func (w *world) load(ctx context.Context) error {
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	written := false
	var last error
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			if !written {
				return fmt.Errorf("there was no load: %w", last)
			}
			return nil
		case <-tick.C:
		}
		if err := w.write(ctx, n); err == nil {
			written = true
		} else {
			last = err
		}
	}
}
