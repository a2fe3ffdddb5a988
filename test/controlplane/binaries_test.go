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

// TestInstalledBinaries looks for binaries as the demo does: in KUBEBUILDER_ASSETS, then on PATH.
func TestInstalledBinaries(t *testing.T) {
	install := func(names ...string) string {
		dir := t.TempDir()
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	envtest := install("etcd", "kube-apiserver", "kubectl")
	all := install("etcd", "kube-apiserver", "kube-controller-manager")
	partial, none := install("etcd"), install()
	for name, c := range map[string]struct {
		assets, path               string
		want                       string // directory; "": none
		controllerManager, kubectl bool
		err                        string
	}{
		"none":                            {path: none},
		"envtest":                         {assets: envtest, path: none, want: envtest, kubectl: true},
		"envtest before PATH":             {assets: envtest, path: all, want: envtest, kubectl: true},
		"PATH":                            {path: all, want: all, controllerManager: true},
		"PATH with etcd only":             {path: partial},
		"a directory without API server":  {assets: partial, path: all, err: filepath.Join(partial, "kube-apiserver")},
		"binaries of several directories": {path: partial + ":" + envtest, want: partial, kubectl: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", c.assets)
			t.Setenv("PATH", c.path)
			found, err := controlplane.Installed()
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got error %v, want one with %q", err, c.err)
			}
			if (found != nil) != (c.want != "") {
				t.Fatalf("got binaries %v, want those of %q", found, c.want)
			}
			if found == nil {
				return
			}
			if found.Dir() != c.want || found.HasControllerManager() != c.controllerManager ||
				found.HasKubectl() != c.kubectl {
				t.Errorf("got %s, controller manager %v, kubectl %v; want %s, %v, %v",
					found.Dir(), found.HasControllerManager(), found.HasKubectl(), c.want, c.controllerManager,
					c.kubectl)
			}
		})
	}
}
