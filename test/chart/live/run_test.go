//go:build linux

package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubecdc/kubecdc/test/kubelet"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

const (
	// Addresses at which Pods reach the API server, whose certificate includes it, and the bus.
	serviceHost, servicePort = "10.96.0.1", "443"
	busHost                  = "10.96.0.20"
)

// nodes runs Pods for one test.
type nodes struct {
	*kubelet.Kubelet
	dir   string
	bus   *server.Server
	login []nats.Option
}

// site has the settings that differ between the nodes of the tests.
type site struct {
	nodes  []string              // nil: node-1 and node-2
	bus    func(*server.Options) // nil: unchanged
	login  []nats.Option         // for the bus
	routes map[string]string     // in addition to those to the API server and the bus
	hosts  map[string]string     // in addition to nats.messaging
}

// startNodes runs Pods on nodes until the test ends; they can reach the API server and a NATS
// server, nats.messaging.
func (w *world) startNodes(t *testing.T, s site) *nodes {
	t.Helper()
	names := s.nodes
	if names == nil {
		names = []string{"node-1", "node-2"}
	}
	if err := kubelet.Available(); err != nil {
		if os.Getenv("KUBECDC_CHART") == "require" {
			t.Fatalf("Pods cannot be run: %v", err)
		}
		t.Skipf("Pods cannot be run: %v", err)
	}
	n := &nodes{dir: t.TempDir(), login: s.login}
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(n.dir, "nats"),
		NoSigs: true, NoLog: true, JetStreamMaxStore: 64 << 30,
	}
	if s.bus != nil {
		s.bus(o)
	}
	var err error
	n.bus, err = server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	n.bus.Start()
	t.Cleanup(func() {
		n.bus.Shutdown()
		n.bus.WaitForShutdown()
	})
	if !n.bus.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	api, err := url.Parse(w.APIServerURL(0))
	if err != nil {
		t.Fatal(err)
	}
	routes := map[string]string{
		net.JoinHostPort(serviceHost, servicePort): api.Host,
		net.JoinHostPort(busHost, "4222"):          n.bus.Addr().String(),
	}
	maps.Copy(routes, s.routes)
	hosts := map[string]string{"nats.messaging": busHost}
	maps.Copy(hosts, s.hosts)
	n.Kubelet, err = kubelet.New(kubelet.Options{
		Config:        w.config,
		Nodes:         names,
		Dir:           filepath.Join(n.dir, "kubelet"),
		Image:         w.image,
		Routes:        routes,
		Hosts:         hosts,
		APIServerHost: serviceHost,
		APIServerPort: servicePort,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var g errgroup.Group
	g.Go(func() error { return n.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(g.Wait(), n.Errors()); err != nil {
			t.Errorf("kubelet: %v", err)
		}
		for _, name := range names {
			if err := w.client.CoreV1().Nodes().
				Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(n.dir, "kubelet", "logs", "*"))
			for _, file := range logs {
				text, _ := os.ReadFile(file)
				lines := strings.Split(strings.TrimSpace(string(text)), "\n")
				t.Logf("end of %s:\n%s", filepath.Base(file), strings.Join(lines[max(0, len(lines)-25):], "\n"))
			}
		}
	})
	return n
}

// image returns the image for a name: the agent as in its image recipe, or a NATS server. The tag
// is ignored.
func (w *world) image(name string) (kubelet.Image, error) {
	if strings.HasPrefix(name, "ghcr.io/kubecdc/kubecdc:") {
		return kubelet.Image{
			Entrypoint: []string{"/kubecdc"}, Cmd: []string{
				"run", "--config", "/etc/kubecdc/kubecdc.yaml",
			}, User: 65532,
			Files: map[string]string{"/kubecdc": w.agent},
		}, nil
	}
	if strings.HasPrefix(name, "docker.io/library/nats:") {
		path, err := w.nats()
		return kubelet.Image{
			Entrypoint: []string{"/nats-server"}, Cmd: []string{
				"--config", "nats-server.conf",
			}, Files: map[string]string{"/nats-server": path},
		}, err
	}
	return kubelet.Image{}, fmt.Errorf("no image %s here", name)
}

// ready returns the namespace's Pods of the component when the number is right and all are ready.
func (w *world) ready(t *testing.T, namespace, component string, count int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	wait.Eventually(t, time.Minute, func() error {
		list, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/component=" + component,
		})
		if err != nil {
			return err
		}
		pods = list.Items
		ready := 0
		for i := range pods {
			for _, c := range pods[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if len(pods) != count || ready != count {
			return fmt.Errorf("%d pods of %s, %d of them ready; want %d", len(pods), component, ready, count)
		}
		return nil
	})
	return pods
}

// ask sends an HTTP request to the Pod, at the port of its readiness probe.
func (n *nodes) ask(t *testing.T, pod *corev1.Pod, path string) (string, error) {
	t.Helper()
	client, err := n.Client(pod.Namespace, pod.Name)
	if err != nil {
		return "", err
	}
	c := &pod.Spec.Containers[0]
	url := fmt.Sprintf("http://pod:%d%s", c.Ports[0].ContainerPort, path)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
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

// leader returns the index of the one Pod that leads. The others must report that they are on
// standby.
func (n *nodes) leader(t *testing.T, pods []corev1.Pod) int {
	t.Helper()
	leader := -1
	wait.Eventually(t, 30*time.Second, func() error {
		leader = -1
		for i := range pods {
			text, err := n.ask(t, &pods[i], "/readyz?verbose")
			if err != nil {
				return err
			}
			switch {
			case strings.Contains(text, "leader: standby"):
			case leader >= 0:
				return fmt.Errorf("two pods lead; the second says:\n%s", text)
			default:
				leader = i
			}
		}
		if leader < 0 {
			return errors.New("no pod leads")
		}
		return nil
	})
	return leader
}

// writer changes a ConfigMap repeatedly and records the versions.
type writer struct {
	namespace, name string
	versions        map[string]bool // resourceVersions
}

// write writes until ctx ends.
func (w *world) write(ctx context.Context, namespace, name string) (*writer, error) {
	out := &writer{namespace: namespace, name: name, versions: map[string]bool{}}
	client := w.client.CoreV1().ConfigMaps(namespace)
	o, err := client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; err == nil; i++ {
		out.versions[o.ResourceVersion] = true
		select {
		case <-ctx.Done():
			return out, nil
		case <-tick.C:
		}
		patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, i)
		// Not ctx: the result of a canceled write would be unknown.
		o, err = client.Patch(context.WithoutCancel(ctx), name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
	}
	return nil, err
}

// subscribe reads the stream's records on the subject from the first one.
func (n *nodes) subscribe(t *testing.T, url, subject string) *nats.Subscription {
	t.Helper()
	// Connection errors show up when the test reads from the connection.
	options := append([]nats.Option{nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, n.login...)
	conn, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	sub, err := js.SubscribeSync(subject, nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// whole waits until the bus has every version of the writer, and fails the test on a duplicate.
func (n *nodes) whole(t *testing.T, wr *writer) {
	t.Helper()
	n.wholeAt(t, n.bus.ClientURL(), wr)
}

func (n *nodes) wholeAt(t *testing.T, url string, wr *writer) {
	t.Helper()
	sub := n.subscribe(t, url, fmt.Sprintf("kubecdc.*.object.core.configmaps.%s.%s", wr.namespace, wr.name))
	seen := map[string]int{}
	missing := len(wr.versions)
	deadline := time.Now().Add(30 * time.Second)
	for missing > 0 {
		m, err := sub.NextMsg(time.Until(deadline))
		if err != nil {
			oracle.Fail(t, "%d of %d versions of %s are not on the bus: %v", missing, len(wr.versions), wr.name, err)
			t.FailNow()
		}
		var ev struct{ Op, ResourceVersion string }
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Op == "r" { // of a snapshot: a version that may have come before
			continue
		}
		seen[ev.ResourceVersion]++
		if seen[ev.ResourceVersion] == 1 && wr.versions[ev.ResourceVersion] {
			missing--
		} else {
			oracle.Fail(t, "version %s of %s is on the bus %d times; written by this test: %t",
				ev.ResourceVersion, wr.name, seen[ev.ResourceVersion], wr.versions[ev.ResourceVersion])
		}
	}
	t.Logf("%d versions of %s/%s are on the bus, each once", len(wr.versions), wr.namespace, wr.name)
}

// scopesEnded checks that the bus has an end of each scope that an agent has started. After that,
// helm has uninstalled the agents.
func (n *nodes) scopesEnded(t *testing.T) {
	t.Helper()
	sub := n.subscribe(t, n.bus.ClientURL(), "kubecdc.*.scope.>")
	open := map[string]bool{} // by writer and scope
	scopes := 0
	for {
		m, err := sub.NextMsg(2 * time.Second)
		if errors.Is(err, nats.ErrTimeout) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var ev struct {
			Type, Scope string
			Data        struct{ Writer, End string }
		}
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			t.Fatal(err)
		}
		scope := ev.Data.Writer + " " + ev.Scope
		switch {
		case strings.HasSuffix(ev.Type, ".scope.started"):
			open[scope] = true
			scopes++
		case strings.HasSuffix(ev.Type, ".scope.ended"):
			delete(open, scope)
		}
	}
	if scopes == 0 || len(open) > 0 {
		t.Errorf("%d starts of scopes, and %d have no end: %v", scopes, len(open), slices.Sorted(maps.Keys(open)))
	}
}

// ended checks that containers of the namespace ended when asked and in time and, if well is set,
// with exit code 0.
func (n *nodes) ended(t *testing.T, namespace string, atLeast int, well bool) {
	t.Helper()
	count, longest := 0, time.Duration(0)
	for _, e := range n.Terminations() {
		if e.Namespace != namespace {
			continue
		}
		count++
		longest = max(longest, e.Took)
		if e.Killed || well && e.ExitCode != 0 {
			t.Errorf("%s, asked to end within %s: exit code %d after %s, killed: %t", e.Pod, e.Grace, e.ExitCode,
				e.Took, e.Killed)
		}
	}
	if count < atLeast {
		t.Errorf("%d containers have ended, want at least %d", count, atLeast)
	}
	t.Logf("%d containers ended as asked, the slowest in %s", count, longest.Round(time.Millisecond))
}
