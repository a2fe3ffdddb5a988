package live_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// run runs helm against the cluster and returns what it prints.
func (w *world) run(ctx context.Context, args ...string) (string, error) {
	home := filepath.Join(w.dir, "helm")
	cmd := exec.CommandContext(ctx, w.helm, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, &stderr, out)
	}
	return string(out), nil
}

func (w *world) mustHelm(t testing.TB, args ...string) string {
	t.Helper()
	out, err := w.run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects returns the objects of a text with YAML documents.
func objects(t testing.TB, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// namespace creates a namespace that enforces the pod security level, and removes it when the test
// ends.
func (w *world) namespace(t testing.TB, name, level string) {
	t.Helper()
	_, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := w.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// key returns the key of an object.
func key(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName())
}

// get returns the object as it is in the cluster.
func (w *world) get(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	client, err := w.resource(o)
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, o.GetName(), metav1.GetOptions{})
}
