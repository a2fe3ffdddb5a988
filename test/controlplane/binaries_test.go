package controlplane_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

func TestBinariesOfKubebuilderAssets(t *testing.T) {
	long(t)
	multi, err := controlplane.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' %s \"$@\"\n", multi, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", dir)

	cluster, err := controlplane.Start(t.Context(), controlplane.Options{Output: io.Discard})
	if err == nil {
		cluster.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "kube-controller-manager")) {
		t.Fatalf("got %v, want that the controller manager is missing", err)
	}
	start(t, controlplane.Options{NoControllerManager: true})
}
