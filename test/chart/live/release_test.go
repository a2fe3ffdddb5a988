package live_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"

	"github.com/kubecdc/kubecdc/test/wait"
)

const defaultURL = "bus.nats.url=nats://nats.messaging:4222"

// withoutEnd spares the Job after an uninstall, where no Pods run.
const withoutEnd = ",uninstall.endScopes=false"

// TestRelease takes a release through its life, and a second one in another namespace at the same
// time.
func TestRelease(t *testing.T) {
	before := w.everything(t)
	for _, namespace := range []string{"left-shop", "right-shop"} {
		w.namespace(t, namespace, "restricted")
		w.mustHelm(t, "install", "kubecdc", w.chart, "--namespace", namespace, "--set", defaultURL+withoutEnd)
	}
	left, right := w.deployed(t, "left-shop"), w.deployed(t, "right-shop")
	for _, o := range left {
		if o.GetNamespace() == "" &&
			slices.ContainsFunc(right, func(p *unstructured.Unstructured) bool { return key(o) == key(p) }) {
			t.Errorf("both releases have %s", key(o))
		}
	}
	first, other := w.checksum(t, left), w.checksum(t, right)

	w.mustHelm(t, "upgrade", "kubecdc", w.chart, "--namespace", "left-shop", "--reuse-values", "--set",
		"config.queue.events=5000")
	changed := w.deployed(t, "left-shop")
	second := w.checksum(t, changed)
	if first == second {
		t.Error("an upgrade with another configuration has not changed the annotation checksum/config")
	}
	if text := w.configText(t, changed); !strings.Contains(text, "events: 5000") {
		t.Errorf("configuration after the upgrade:\n%s", text)
	}
	if again := w.checksum(t, w.deployed(t, "right-shop")); again != other {
		t.Errorf("the other release has changed from %s to %s", other, again)
	}
	// Nothing changed, so nothing is restarted.
	w.mustHelm(t, "upgrade", "kubecdc", w.chart, "--namespace", "right-shop", "--reuse-values", "--set",
		"podDisruptionBudget.enabled=false")
	if again := w.checksum(t, w.deployed(t, "right-shop")); again != other {
		t.Errorf("an upgrade that leaves the configuration alone restarts the pods: %s, %s before", again, other)
	}
	w.mustHelm(t, "rollback", "kubecdc", "1", "--namespace", "left-shop")
	if back := w.checksum(t, w.deployed(t, "left-shop")); back != first {
		t.Errorf("checksum after the rollback %s, want %s", back, first)
	}
	if was, is := w.configText(t, left), w.configText(t, w.deployed(t, "left-shop")); is != was {
		t.Errorf("configuration after the rollback:\n%s\nbefore:\n%s", is, was)
	}

	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", "left-shop", "--wait", "--timeout", "60s")
	for _, o := range w.deployed(t, "right-shop") {
		if _, err := w.get(t.Context(), o); err != nil {
			t.Errorf("uninstalling one release took from the other: %s: %v", key(o), err)
		}
	}
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", "right-shop", "--wait", "--timeout", "60s")
	w.nothingLeft(t, before, nil)
}

// deployed returns the objects of the release, by helm, as they are in the cluster.
func (w *world) deployed(t *testing.T, namespace string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, o := range objects(t, w.mustHelm(t, "get", "manifest", "kubecdc", "--namespace", namespace)) {
		found, err := w.get(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", key(o), err)
		}
		out = append(out, found)
	}
	if len(out) < 5 {
		t.Fatalf("release in %s: %d objects", namespace, len(out))
	}
	return out
}

func (w *world) checksum(t *testing.T, release []*unstructured.Unstructured) string {
	t.Helper()
	for _, o := range release {
		if template := podTemplate(t, o); template != nil {
			if sum := template.Annotations["checksum/config"]; sum != "" {
				return sum
			}
		}
	}
	t.Fatal("no pod template has the annotation checksum/config")
	return ""
}

func (w *world) configText(t *testing.T, release []*unstructured.Unstructured) string {
	t.Helper()
	for _, o := range release {
		if o.GetKind() == "ConfigMap" {
			if text, ok, _ := unstructured.NestedString(o.Object, "data", "kubecdc.yaml"); ok {
				return text
			}
		}
	}
	t.Fatal("no ConfigMap has a key kubecdc.yaml")
	return ""
}

// everything returns the keys of all objects in the cluster except those that come and go by
// themselves.
func (w *world) everything(t *testing.T) map[string]bool {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "events" || r.Name == "componentstatuses" ||
				r.Name == "pods" {
				continue
			}
			o := &unstructured.Unstructured{}
			o.SetAPIVersion(list.GroupVersion)
			o.SetKind(r.Kind)
			client, err := w.resource(o)
			if err != nil {
				t.Fatal(err)
			}
			found, err := client.List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range found.Items {
				if !strings.HasPrefix(found.Items[i].GetNamespace(), "matrix-") &&
					!strings.HasPrefix(found.Items[i].GetName(), "matrix-") {
					out[key(&found.Items[i])] = true
				}
			}
		}
	}
	return out
}

// nothingLeft fails the test if an uninstalled release left unexpected objects. Objects of every
// namespace do not count.
func (w *world) nothingLeft(t *testing.T, before map[string]bool, expected []string) {
	t.Helper()
	everywhere := func(k string) bool {
		return strings.HasPrefix(k, "Namespace ") || strings.HasPrefix(k, "Node ") ||
			strings.HasPrefix(k, "Lease.coordination.k8s.io kube-node-lease/") ||
			strings.HasPrefix(k, "CSINode") || strings.HasSuffix(k, "/kube-root-ca.crt") ||
			strings.HasPrefix(k, "ServiceAccount ") && strings.HasSuffix(k, "/default")
	}
	wait.Eventually(t, time.Minute, func() error {
		after := w.everything(t)
		var left, missing []string
		for k := range after {
			if !before[k] && !everywhere(k) && !slices.Contains(expected, k) {
				left = append(left, k)
			}
		}
		for _, k := range expected {
			if !after[k] {
				missing = append(missing, k)
			}
		}
		if len(left)+len(missing) > 0 {
			slices.Sort(left)
			text, _ := json.Marshal(map[string][]string{"left": left, "missing": missing})
			return fmt.Errorf("after uninstall: %s", text)
		}
		return nil
	})
}
