package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/wait"
)

var (
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func client(t *testing.T, cfg *rest.Config) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configMap(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": name},
		"data":       map[string]any{"key": value},
	}}
}

// wantValue fails unless the ConfigMap of the default namespace holds the value.
func wantValue(t *testing.T, c dynamic.Interface, name, want string) {
	t.Helper()
	obj, err := c.Resource(configMaps).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(obj.Object, "data", "key"); got != want {
		t.Fatalf("configmap %s: got %q, want %q", name, got, want)
	}
}

func create(t *testing.T, c dynamic.Interface, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := c.Resource(configMaps).Namespace("default").Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestOneServer runs tests against one control plane. They neither stop a component nor read each
// other's objects.
func TestOneServer(t *testing.T) {
	t.Parallel()
	cluster := start(t, controlplane.Options{
		Users:              []controlplane.User{{Name: "ops", Groups: []string{"system:masters", "ops"}}},
		CompactionInterval: -1,
	})
	for name, test := range map[string]func(*testing.T, *controlplane.Cluster){
		"a Deployment makes Pods":        deploymentMakesPods,
		"a restricted user needs a role": restrictedUserNeedsARole,
		"compaction ends history":        compactionEndsHistory,
		"a kubeconfig stands alone":      kubeconfigStandsAlone,
		"kubectl speaks to the cluster":  kubectlSpeaksToTheCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, cluster)
		})
	}
}

func deploymentMakesPods(t *testing.T, cluster *controlplane.Cluster) {
	admin := client(t, cluster.Config(controlplane.Admin))
	labels := map[string]any{"app": "web"}
	deployment := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1",
		"kind":       "Deployment",
		"metadata":   map[string]any{"name": "web"},
		"spec": map[string]any{
			"replicas": int64(3),
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{
					"containers": []any{map[string]any{"name": "web", "image": "example.invalid/web:1"}},
				},
			},
		},
	}}
	_, err := admin.Resource(deployments).Namespace("default").Create(t.Context(), deployment, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		list, err := admin.Resource(pods).Namespace("default").List(t.Context(), metav1.ListOptions{
			LabelSelector: "app=web",
		})
		if err == nil && len(list.Items) != 3 {
			err = fmt.Errorf("%d pods, want 3", len(list.Items))
		}
		return err
	})
}

func restrictedUserNeedsARole(t *testing.T, cluster *controlplane.Cluster) {
	list := func(user string) error {
		_, err := client(t, cluster.Config(user)).Resource(pods).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(controlplane.Restricted); !apierrors.IsForbidden(err) {
		t.Fatalf("restricted user: got %v, want forbidden", err)
	}
	if err := list("ops"); err != nil {
		t.Fatalf("user of Options.Users: %v", err)
	}

	const rbac = "rbac.authorization.k8s.io"
	admin := client(t, cluster.Config(controlplane.Admin))
	for resource, obj := range map[string]map[string]any{
		"clusterroles": {
			"kind":     "ClusterRole",
			"metadata": map[string]any{"name": "read-pods"},
			"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{
				"list",
			}}},
		},
		"clusterrolebindings": {
			"kind":     "ClusterRoleBinding",
			"metadata": map[string]any{"name": "restricted-reads-pods"},
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": "read-pods"},
			"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "User", "name": controlplane.Restricted}},
		},
	} {
		obj["apiVersion"] = rbac + "/v1"
		gvr := schema.GroupVersionResource{Group: rbac, Version: "v1", Resource: resource}
		if _, err := admin.Resource(gvr).
			Create(t.Context(), &unstructured.Unstructured{Object: obj}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wait.Eventually(t, time.Minute, func() error { return list(controlplane.Restricted) })
}

// compactionEndsHistory waits for an API server to drop the snapshots of its watch cache, which
// takes up to 15 s.
func compactionEndsHistory(t *testing.T, cluster *controlplane.Cluster) {
	admin := client(t, cluster.Config(controlplane.Admin))
	old := create(t, admin, configMap("a", "1")).GetResourceVersion()
	create(t, admin, configMap("b", "1"))
	exact := func() error {
		_, err := admin.Resource(configMaps).Namespace("default").List(t.Context(), metav1.ListOptions{
			ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		return err
	}
	if err := exact(); err != nil {
		t.Fatalf("before the compaction: %v", err)
	}
	if err := cluster.Compact(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		if err := exact(); !apierrors.IsResourceExpired(err) {
			return fmt.Errorf("list at a compacted resourceVersion: got reason %q, want expired",
				apierrors.ReasonForError(err))
		}
		return nil
	})
}

// TestTwoServers lets two API servers share their objects, also while one of them is stopped. The
// second server reaches etcd through a proxy and is cut off from it.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	var lagging *proxy.Proxy
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	cluster := start(t, controlplane.Options{
		APIServers: 2, NoControllerManager: true,
		EtcdFor: func(i int, endpoint string) (string, error) {
			if i == 0 {
				return "", nil
			}
			p, err := proxy.Listen(strings.TrimPrefix(endpoint, "http://"))
			if err != nil {
				return "", err
			}
			lagging = p
			wg.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			return "http://" + p.Addr(), nil
		},
	})
	first := client(t, cluster.ConfigFor(0, controlplane.Admin))
	second := client(t, cluster.ConfigFor(1, controlplane.Admin))
	create(t, first, configMap("shared", "a"))
	wantValue(t, second, "shared", "a")

	lagging.Hold(true)
	create(t, first, configMap("unseen", "b"))
	short, cancelShort := context.WithTimeout(t.Context(), time.Second)
	defer cancelShort()
	if _, err := second.Resource(configMaps).Namespace("default").
		Get(short, "unseen", metav1.GetOptions{}); err == nil {
		t.Error("the second server reaches etcd through a proxy that holds everything back")
	}
	lagging.Hold(false)
	wantValue(t, second, "unseen", "b")

	// The second server works while the first is stopped.
	cluster.StopAPIServer(0)
	if pid := cluster.APIServerPID(0); pid != 0 {
		t.Fatalf("stopped, but pid is %d", pid)
	}
	create(t, second, configMap("meanwhile", "c"))
	if err := cluster.StartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantValue(t, first, "meanwhile", "c")
}

func kubeconfigStandsAlone(t *testing.T, cluster *controlplane.Cluster) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(path, controlplane.Admin); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	create(t, client(t, cfg), configMap("by-file", "a"))
}

func kubectlSpeaksToTheCluster(t *testing.T, c *controlplane.Cluster) {
	dir := t.TempDir()
	kubeconfig, kubectl := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "kubectl")
	if err := errors.Join(c.WriteKubeconfig(kubeconfig, controlplane.Admin), c.WriteKubectl(kubectl)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig, "get", "namespace", "default", "-o",
		"name")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "namespace/default\n" {
		t.Errorf("kubectl get (%v): %s", err, out)
	}
	err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig, "get", "namespace", "none").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("what does not exist: %v, want exit status 1", err)
	}
}

// TestRestartsKeepDataAndAddress restarts each component, and the control plane on its directory.
// In addition, another process takes a component's port while the component is down: the start
// reports that, and succeeds when the port is free again.
func TestRestartsKeepDataAndAddress(t *testing.T) {
	t.Parallel()
	opts := controlplane.Options{Dir: t.TempDir(), NoControllerManager: true}
	cluster := start(t, opts)
	admin := client(t, cluster.Config(controlplane.Admin))
	create(t, admin, configMap("kept", "a"))

	// afterTheft ends a component, takes its port until the first start has failed, and starts the
	// component again.
	afterTheft := func(url string, kill func(), start func() error) error {
		_, address, _ := strings.Cut(url, "://")
		kill()
		thief, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		err = start()
		if err := thief.Close(); err != nil {
			return err
		}
		if !errors.Is(err, controlplane.ErrPortTaken) {
			return fmt.Errorf("got %w, want a taken port", err)
		}
		return start()
	}
	apiServerPID := func() int { return cluster.APIServerPID(0) }
	for _, restart := range []struct {
		name string
		do   func() error
		pid  func() int
	}{
		{"api server with other flags", func() error {
			return cluster.RestartAPIServer(t.Context(), 0, "--watch-cache=false")
		}, apiServerPID},
		{"api server, port taken", func() error {
			return afterTheft(cluster.APIServerURL(0), func() { cluster.KillAPIServer(0) }, func() error {
				return cluster.StartAPIServer(t.Context(), 0)
			})
		}, apiServerPID},
		{"etcd", func() error { return cluster.RestartEtcd(t.Context()) }, cluster.EtcdPID},
		{"etcd, port taken", func() error {
			return afterTheft(cluster.EtcdEndpoint(), cluster.KillEtcd, func() error {
				return cluster.StartEtcd(t.Context())
			})
		}, cluster.EtcdPID},
	} {
		t.Run(restart.name, func(t *testing.T) {
			before := restart.pid()
			if err := restart.do(); err != nil {
				t.Fatal(err)
			}
			if after := restart.pid(); after == before || after == 0 {
				t.Fatalf("pid %d after the restart, %d before", after, before)
			}
			// The same client: the address, the token and the certificate are still the same.
			wait.Eventually(t, time.Minute, func() error {
				_, err := admin.Resource(configMaps).Namespace("default").Get(t.Context(), "kept", metav1.GetOptions{})
				return err
			})
			wantValue(t, admin, "kept", "a")
		})
	}
	t.Run("another control plane of the directory", func(t *testing.T) {
		cluster.Stop()
		second := start(t, opts)
		wantValue(t, client(t, second.Config(controlplane.Admin)), "kept", "a")
	})
}
