package chart_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/chart"
)

const (
	namespace = "kubecdc" // of the releases
	release   = "kubecdc"
)

// object is a manifest.
type object = map[string]any

// helm is the command.
type helm struct{ path, chart string }

func newHelm(t *testing.T) *helm {
	t.Helper()
	path, err := chart.Helm(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := chart.Dir()
	if err != nil {
		t.Fatal(err)
	}
	return &helm{path: path, chart: dir}
}

// template renders a release. The error includes helm's message.
func (h *helm) template(ctx context.Context, name string, args ...string) (string, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, h.path,
		append([]string{"template", name, h.chart, "--namespace", namespace}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm template: %w\n%s", err, said.String())
	}
	return out.String(), nil
}

// objects renders a release and reads its manifests.
func (h *helm) objects(t *testing.T, name string, args ...string) []object {
	t.Helper()
	text, err := h.template(t.Context(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// parse reads manifests as helm prints them.
func parse(t *testing.T, text string) []object {
	t.Helper()
	var all []object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		var o object
		if err == nil {
			err = yaml.UnmarshalStrict(document, &o) // a duplicate key is an error
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// at returns the value under the keys, or nil if there is none.
func at(v any, keys ...string) any {
	for _, key := range keys {
		m, _ := v.(object)
		v = m[key]
	}
	return v
}

func text(v any, keys ...string) string {
	s, _ := at(v, keys...).(string)
	return s
}

func items(v any, keys ...string) []any {
	list, _ := at(v, keys...).([]any)
	return list
}

// ofKind returns the objects of a kind.
func ofKind(all []object, kind string) []object {
	var some []object
	for _, o := range all {
		if o["kind"] == kind {
			some = append(some, o)
		}
	}
	return some
}

// named returns the object of the kind and name, or nil if there is none.
func named(all []object, kind, name string) object {
	for _, o := range ofKind(all, kind) {
		if text(o, "metadata", "name") == name {
			return o
		}
	}
	return nil
}

// valuesFile is one of the matrix.
type valuesFile struct {
	name, path string
	head       map[string]string // of comments as "# want: …"
}

func valuesFiles(t *testing.T, dir string) []valuesFile {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files := make([]valuesFile, 0, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := valuesFile{name: strings.TrimSuffix(filepath.Base(path), ".yaml"), path: path, head: map[string]string{}}
		for line := range strings.Lines(string(data)) {
			rest, comment := strings.CutPrefix(line, "# ")
			if !comment {
				break
			}
			if key, value, ok := strings.Cut(rest, ": "); ok {
				f.head[key] = strings.TrimSpace(value)
			}
		}
		files = append(files, f)
	}
	return files
}

// release is the name of the release that the file is for.
func (f *valuesFile) release() string {
	if name := f.head["release"]; name != "" {
		return name
	}
	return release
}

// agent is the binary of kubecdc.
type agent struct{ path string }

func buildAgent(t *testing.T) *agent {
	t.Helper()
	path, err := build.AgentIn(t.Context(), t.TempDir(), "CGO_ENABLED=0")
	if err != nil {
		t.Fatal(err)
	}
	return &agent{path}
}

// run runs a command of kubecdc with a configuration on its standard input.
func (a *agent) run(t *testing.T, configuration string, env []string, args ...string) string {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), a.path, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "NODE_NAME=node-1"}, env...)
	cmd.Stdin = strings.NewReader(configuration)
	cmd.Stdout = &out
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubecdc %s: %v\n%s%s\nof\n%s", strings.Join(args, " "), err, out.String(), said.String(),
			configuration)
	}
	return out.String()
}
