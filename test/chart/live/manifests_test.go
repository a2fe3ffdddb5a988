package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubecdc/kubecdc/test/wait"
)

// matrix returns the files of ../values.
func matrix(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../values/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 15 {
		t.Fatalf("%d files in ../values, want at least 15", len(files))
	}
	return files
}

// TestManifests applies everything that the chart renders. It fails on an unknown field, a value
// that validation rejects, or a Pod that admission rejects. The applied objects are deleted again.
func TestManifests(t *testing.T) {
	var mu sync.Mutex
	kinds := map[string]int{}
	t.Run("values", func(t *testing.T) {
		for i, file := range matrix(t) {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
				t.Parallel()
				rendered := w.manifests(t, file, fmt.Sprintf("matrix-%d", i))
				mu.Lock()
				defer mu.Unlock()
				for _, o := range rendered {
					kinds[o.GetKind()]++
				}
			})
		}
	})
	t.Logf("applied: %v", kinds)
	for _, kind := range []string{
		"Deployment", "DaemonSet", "ConfigMap", "Service", "ServiceAccount", "ClusterRole", "ClusterRoleBinding",
		"Role", "RoleBinding",
		"PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PodMonitor", "PrometheusRule", "StatefulSet",
		"Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no file of ../values renders a %s", kind)
		}
	}
}

// manifests applies the manifests of the file's values in the namespace and returns them.
func (w *world) manifests(t *testing.T, file, namespace string) []*unstructured.Unstructured {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(file), ".yaml")
	rendered := objects(t, w.mustHelm(t, "template", name, w.chart, "--values", file, "--namespace", namespace,
		"--api-versions", "monitoring.coreos.com/v1"))
	level := "restricted"
	for _, o := range rendered {
		if usesHostPath(t, o) {
			level = "privileged"
		}
	}
	w.namespace(t, namespace, level)
	for _, o := range rendered {
		if o.GetNamespace() != "" && o.GetNamespace() != namespace {
			w.someNamespace(t, o.GetNamespace())
		}
	}
	for _, o := range rendered {
		w.applyStrictly(t, o)
	}
	for _, o := range rendered {
		w.podOf(t, o, namespace, level)
		filesResolve(t, o, rendered)
	}
	return rendered
}

// filesResolve checks every file that the configuration of the object's Pod names. The file must be
// on a mounted volume. If that volume has selected keys of a Secret, the file must be one of them.
func filesResolve(t *testing.T, o *unstructured.Unstructured, rendered []*unstructured.Unstructured) {
	t.Helper()
	template := podTemplate(t, o)
	if template == nil {
		return
	}
	volumes := map[string]corev1.Volume{}
	var text string
	for _, v := range template.Spec.Volumes {
		volumes[v.Name] = v
		for _, other := range rendered {
			if v.ConfigMap != nil && other.GetKind() == "ConfigMap" && other.GetName() == v.ConfigMap.Name {
				text, _, _ = unstructured.NestedString(other.Object, "data", "kubecdc.yaml")
			}
		}
	}
	for _, m := range fileKey.FindAllStringSubmatch(text, -1) {
		file, found := strings.Trim(m[1], `"'`), ""
		for _, mount := range template.Spec.Containers[0].VolumeMounts {
			if rest, ok := strings.CutPrefix(file, mount.MountPath+"/"); ok {
				found = mount.Name
				if s := volumes[mount.Name].Secret; s != nil && len(s.Items) > 0 &&
					!slices.ContainsFunc(s.Items, func(k corev1.KeyToPath) bool { return k.Path == rest }) {
					t.Errorf("%s: %s: Secret %s is mounted there, but not that file", key(o), file, s.SecretName)
				}
			}
		}
		if found == "" {
			t.Errorf("%s: the configuration names %s, which is on no volume", key(o), file)
		} else if v, ok := volumes[found]; !ok {
			t.Errorf("%s: %s is mounted from %s, which is no volume", key(o), file, found)
		} else {
			t.Logf("%s is on volume %s", file, v.Name)
		}
	}
}

var fileKey = regexp.MustCompile(`(?m)^\s*(?:- )?[A-Za-z]*File: (\S+)$`)

// TestManifestsAreRefused proves that the check of TestManifests can fail.
func TestManifestsAreRefused(t *testing.T) {
	w.namespace(t, "refused", "restricted")
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{
			"name":      "refused",
			"namespace": "refused",
		},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "replica": int64(1),
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{
				"a": "b",
			}}, "spec": map[string]any{
				"containers": []any{map[string]any{"name": "c", "image": "i"}},
			}},
		},
	}}
	if err := w.apply(t.Context(), o); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("an unknown field: %v", err)
	}
	if err := w.createPod(t.Context(), "refused", podTemplate(t, o)); err == nil ||
		!strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("a Pod without a security context: %v", err)
	}
}

func (w *world) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	m, err := w.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return w.dynamic.Resource(m.Resource), nil
	}
	return w.dynamic.Resource(m.Resource).Namespace(o.GetNamespace()), nil
}

// apply is a server-side apply that rejects unknown and duplicate fields.
func (w *world) apply(ctx context.Context, o *unstructured.Unstructured) error {
	client, err := w.resource(o)
	if err != nil {
		return fmt.Errorf("%s: %w", key(o), err)
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	yes := true
	_, err = client.Patch(ctx, o.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "chart", Force: &yes, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return fmt.Errorf("%s: %w", key(o), err)
	}
	return nil
}

func (w *world) applyStrictly(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if err := w.apply(t.Context(), o); err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() {
		client, err := w.resource(o)
		if err == nil {
			err = client.Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete %s: %v", key(o), err)
		}
	})
}

// podTemplate returns the Pod template of the object, or nil if it has none.
func podTemplate(t *testing.T, o *unstructured.Unstructured) *corev1.PodTemplateSpec {
	t.Helper()
	if !slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, o.GetKind()) {
		return nil
	}
	raw, _, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	template := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw, template, true); err != nil {
		t.Fatalf("%s: template: %v", key(o), err)
	}
	// The volumes include the volume claims of a StatefulSet.
	claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, c := range claims {
		name, _, _ := unstructured.NestedString(c.(map[string]any), "metadata", "name")
		v := corev1.Volume{Name: name}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + o.GetName() + "-0"}
		template.Spec.Volumes = append(template.Spec.Volumes, v)
	}
	return template
}

func usesHostPath(t *testing.T, o *unstructured.Unstructured) bool {
	t.Helper()
	template := podTemplate(t, o)
	return template != nil &&
		slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
}

// podOf creates a Pod from the object's template in the namespace, which enforces level. If that is
// not the restricted level, it also tries a restricted namespace, which must reject a Pod with a
// hostPath and accept any other Pod.
func (w *world) podOf(t *testing.T, o *unstructured.Unstructured, namespace, level string) {
	t.Helper()
	template := podTemplate(t, o)
	if template == nil {
		return
	}
	if class := template.Spec.PriorityClassName; class != "" && !strings.HasPrefix(class, "system-") {
		_, err := w.client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Value: 1000,
		}, metav1.CreateOptions{})
		if err := ignoreExists(err); err != nil {
			t.Fatal(err)
		}
	}
	// A Pod needs its ServiceAccount, which the values may expect to exist.
	_, err := w.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: template.Spec.ServiceAccountName},
	}, metav1.CreateOptions{})
	if template.Spec.ServiceAccountName != "" {
		if err := ignoreExists(err); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.createPod(t.Context(), namespace, template); err != nil {
		t.Errorf("Pod of %s in a namespace that enforces %s: %v", key(o), level, err)
	}
	if level == "restricted" {
		return
	}
	restricted := namespace + "-restricted"
	w.someNamespace(t, restricted)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: template.Spec.ServiceAccountName}}
	if _, err := w.client.CoreV1().ServiceAccounts(restricted).
		Create(t.Context(), account, metav1.CreateOptions{}); ignoreExists(err) != nil {
		t.Fatal(err)
	}
	err = w.createPod(t.Context(), restricted, template)
	switch host := usesHostPath(t, o); {
	case host && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hostPath")):
		t.Errorf("Pod of %s, which has a hostPath, in a restricted namespace: %v; want it to be refused", key(o), err)
	case !host && err != nil:
		t.Errorf("Pod of %s in a restricted namespace: %v", key(o), err)
	}
}

// createPod creates the template's Pod and deletes it.
func (w *world) createPod(ctx context.Context, namespace string, template *corev1.PodTemplateSpec) error {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName, pod.Namespace = "template-", namespace
	made, err := w.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict,
	})
	if err != nil {
		return err
	}
	now := int64(0)
	return w.client.CoreV1().Pods(namespace).Delete(ctx, made.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// someNamespace creates a restricted namespace unless it exists. It waits while an earlier one is
// being deleted, and does not delete it.
func (w *world) someNamespace(t *testing.T, name string) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		ns, err := w.client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case err == nil && ns.DeletionTimestamp != nil:
			return fmt.Errorf("namespace %s is being deleted", name)
		case !apierrors.IsNotFound(err):
			return err
		}
		_, err = w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}, metav1.CreateOptions{})
		return ignoreExists(err)
	})
}
