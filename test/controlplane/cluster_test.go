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

func TestDeploymentMakesPods(t *testing.T) {
	cluster := start(t, controlplane.Options{})
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
		list, err := admin.Resource(pods).Namespace("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(list.Items) != 3 {
			err = fmt.Errorf("%d pods, want 3", len(list.Items))
		}
		return err
	})
}

func TestRestrictedUserNeedsARole(t *testing.T) {
	cluster := start(t, controlplane.Options{
		NoControllerManager: true,
		Users:               []controlplane.User{{Name: "ops", Groups: []string{"system:masters", "ops"}}},
	})
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
			"rules":    []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"list"}}},
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
		if _, err := admin.Resource(gvr).Create(t.Context(), &unstructured.Unstructured{Object: obj}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wait.Eventually(t, time.Minute, func() error { return list(controlplane.Restricted) })
}

func TestServersShareTheirObjects(t *testing.T) {
	cluster := start(t, controlplane.Options{APIServers: 2, NoControllerManager: true})
	first := client(t, cluster.ConfigFor(0, controlplane.Admin))
	second := client(t, cluster.ConfigFor(1, controlplane.Admin))
	create(t, first, configMap("shared", "a"))
	wantValue(t, second, "shared", "a")

	// One of two down is not the end of the other.
	cluster.StopAPIServer(0)
	if pid := cluster.APIServerPID(0); pid != 0 {
		t.Fatalf("stopped, but pid is %d", pid)
	}
	create(t, second, configMap("meanwhile", "b"))
	if err := cluster.StartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantValue(t, first, "meanwhile", "b")
}

func TestRestartsKeepDataAndAddress(t *testing.T) {
	cluster := start(t, controlplane.Options{NoControllerManager: true})
	admin := client(t, cluster.Config(controlplane.Admin))
	create(t, admin, configMap("kept", "a"))

	for _, restart := range []struct {
		name string
		do   func() error
		pid  func() int
	}{
		{"api server stopped", func() error { return cluster.RestartAPIServer(t.Context(), 0) }, func() int { return cluster.APIServerPID(0) }},
		{"api server killed", func() error {
			cluster.KillAPIServer(0)
			return cluster.StartAPIServer(t.Context(), 0)
		}, func() int { return cluster.APIServerPID(0) }},
		{"api server with other flags", func() error {
			return cluster.RestartAPIServer(t.Context(), 0, "--watch-cache=false")
		}, func() int { return cluster.APIServerPID(0) }},
		{"etcd", func() error { return cluster.RestartEtcd(t.Context()) }, cluster.EtcdPID},
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
}

func TestCompactionEndsHistory(t *testing.T) {
	cluster := start(t, controlplane.Options{NoControllerManager: true, CompactionInterval: -1})
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
			return fmt.Errorf("list at a compacted resourceVersion: got reason %q, want expired", apierrors.ReasonForError(err))
		}
		return nil
	})
}

// TestServerWithEtcdOfItsOwn has the second server reach etcd through a proxy, and cuts it off there.
func TestServerWithEtcdOfItsOwn(t *testing.T) {
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
	first, second := client(t, cluster.ConfigFor(0, controlplane.Admin)), client(t, cluster.ConfigFor(1, controlplane.Admin))
	create(t, first, configMap("seen", "a"))
	wantValue(t, second, "seen", "a")
	lagging.Hold(true)
	create(t, first, configMap("unseen", "b"))
	short, cancelShort := context.WithTimeout(t.Context(), time.Second)
	defer cancelShort()
	if _, err := second.Resource(configMaps).Namespace("default").Get(short, "unseen", metav1.GetOptions{}); err == nil {
		t.Error("the second server reaches etcd through a proxy that holds everything back")
	}
	lagging.Hold(false)
	wantValue(t, second, "unseen", "b")
}

func TestKubeconfigStandsAlone(t *testing.T) {
	cluster := start(t, controlplane.Options{NoControllerManager: true})
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

func TestKubectlSpeaksToTheCluster(t *testing.T) {
	c := start(t, controlplane.Options{NoControllerManager: true})
	dir := t.TempDir()
	kubeconfig, kubectl := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "kubectl")
	if err := errors.Join(c.WriteKubeconfig(kubeconfig, controlplane.Admin), c.WriteKubectl(kubectl)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig, "get", "namespace", "default", "-o", "name")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "namespace/default\n" {
		t.Errorf("kubectl get (%v): %s", err, out)
	}
	err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig, "get", "namespace", "none").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("what does not exist: %v, want exit status 1", err)
	}
}

func TestTakenPortIsRecognized(t *testing.T) {
	cluster := start(t, controlplane.Options{NoControllerManager: true})
	for _, component := range []struct {
		name, url string
		stop      func()
		start     func() error
	}{
		{
			"etcd", cluster.EtcdEndpoint(),
			cluster.KillEtcd, func() error { return cluster.StartEtcd(t.Context()) },
		},
		{
			"kube-apiserver", cluster.APIServerURL(0),
			func() { cluster.KillAPIServer(0) }, func() error { return cluster.StartAPIServer(t.Context(), 0) },
		},
	} {
		t.Run(component.name, func(t *testing.T) {
			_, address, _ := strings.Cut(component.url, "://")
			component.stop()
			thief, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			err = component.start()
			if err := thief.Close(); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(err, controlplane.ErrPortTaken) {
				t.Errorf("got %v, want a taken port", err)
			}
			if err := component.start(); err != nil {
				t.Errorf("with the port free again: %v", err)
			}
		})
	}
}

func TestDirectoryOutlivesItsCluster(t *testing.T) {
	opts := controlplane.Options{Dir: t.TempDir(), NoControllerManager: true}
	first := start(t, opts)
	create(t, client(t, first.Config(controlplane.Admin)), configMap("kept", "a"))
	first.Stop()
	second := start(t, opts)
	wantValue(t, client(t, second.Config(controlplane.Admin)), "kept", "a")
}
