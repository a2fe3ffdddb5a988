package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/config"
)

func TestLoggedHostHoldsNoPassword(t *testing.T) {
	for host, want := range map[string]string{
		"https://admin:hunter2@127.0.0.1:6443": "https://admin:xxxxx@127.0.0.1:6443",
		"127.0.0.1:6443":                       "http://127.0.0.1:6443",
		"https://rancher.example/k8s/c-1":      "https://rancher.example/k8s/c-1",
	} {
		if got := (&Cluster{REST: &rest.Config{Host: host}}).Host(); got != want {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
	}
	// One that cannot be read is not repeated.
	if _, err := newIdleInformers(config.Default(), &rest.Config{
		Host: "admin:hunter2@[::1",
	}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestAPodIsFound(t *testing.T) {
	if _, err := rest.InClusterConfig(); !errors.Is(err, rest.ErrNotInCluster) {
		t.Skip("this is a pod")
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "dev", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
		"contexts": [{"name": "dev", "context": {"cluster": "c"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := (&Options{Kubeconfig: file}).FindCluster()
	if err != nil || c.namespace != "" {
		t.Errorf("%v: outside of a pod its namespace is %q", err, c.namespace)
	}
}
