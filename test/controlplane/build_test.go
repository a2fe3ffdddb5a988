package controlplane_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// module writes a module that builds like test/cluster, but in a second instead of minutes.
func module(t *testing.T, program string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module example.invalid/m\n\ngo 1.26\n\nrequire k8s.io/kubernetes v1.99.1\n\nreplace k8s.io/kubernetes => ./kubernetes\n",
		"go.sum":             "",
		"kubernetes/go.mod":  "module k8s.io/kubernetes\n\ngo 1.26\n",
		"kubernetes/kube.go": "package kubernetes\n",
		"main.go":            program,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const program = "package main\n\nimport _ \"k8s.io/kubernetes\"\n\nfunc main() {}\n"

func TestConcurrentBuildersBuildOnce(t *testing.T) {
	t.Parallel()
	src, cache := module(t, program), t.TempDir()
	var said [4]bytes.Buffer
	var paths [4]string
	var g errgroup.Group
	for i := range paths {
		g.Go(func() (err error) {
			paths[i], err = controlplane.BuildFrom(t.Context(), src, "", cache, &said[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	builds := 0
	for i := range paths {
		builds += strings.Count(said[i].String(), "controlplane: built in")
		if paths[i] != paths[0] {
			t.Errorf("got %s and %s for one source", paths[0], paths[i])
		}
	}
	if builds != 1 {
		t.Errorf("built %d times, want once", builds)
	}

	var again bytes.Buffer
	if _, err := controlplane.BuildFrom(t.Context(), src, "", cache, &again); err != nil {
		t.Fatal(err)
	}
	if again.Len() != 0 {
		t.Errorf("nothing to build, but it says %q", again.String())
	}

	// Other sources are built into another binary.
	if err := os.WriteFile(filepath.Join(src, "main.go"), []byte(program+"\n// changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	changed, err := controlplane.BuildFrom(t.Context(), src, "", cache, &again)
	if err != nil {
		t.Fatal(err)
	}
	if changed == paths[0] {
		t.Errorf("changed source, same binary %s", changed)
	}
}

func TestVersionIsBuiltFromItsModules(t *testing.T) {
	t.Parallel()
	src, cache := module(t, program), t.TempDir()
	mod, err := os.ReadFile(filepath.Join(src, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(src, "versions", "v1.98.mod")
	if err := os.Mkdir(filepath.Dir(older), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		older: strings.ReplaceAll(string(mod), "v1.99.1", "v1.98.5"),
		filepath.Join(src, "versions", "v1.98.sum"): "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	paths := map[string]string{}
	for version, want := range map[string]string{"": "v1.99.1", "1.98": "v1.98.5"} {
		var said bytes.Buffer
		paths[version], err = controlplane.BuildFrom(t.Context(), src, version, cache, &said)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(said.String(), "kube-controller-manager "+want+"\n") {
			t.Errorf("version %q: it says %q, want %s", version, said.String(), want)
		}
	}
	if paths[""] == paths["1.98"] {
		t.Errorf("two versions, one binary: %s", paths[""])
	}
	_, err = controlplane.BuildFrom(t.Context(), src, "1.97", cache, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "v1.97.mod") {
		t.Errorf("a version without modules: got %v", err)
	}
}

func TestFailedBuildSaysWhyAndLeavesNoBinary(t *testing.T) {
	t.Parallel()
	src, cache := module(t, "package main\n\nfunc main() { undefined() }\n"), t.TempDir()
	var said bytes.Buffer
	_, err := controlplane.BuildFrom(t.Context(), src, "", cache, &said)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Fatalf("got %v, want what the compiler says", err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "controlplane-*[^k]"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
