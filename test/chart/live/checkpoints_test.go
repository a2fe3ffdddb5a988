package live_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/test/wait"
)

// TestTokenOfNodeConfiguresNobody tries what root on a node can do with the token of the node's
// agent: it may write the checkpoint of its node, and nothing that another agent reads.
func TestTokenOfNodeConfiguresNobody(t *testing.T) {
	const namespace = "kubecdc-attack"
	const checkpoints = namespace + "-kubecdc-checkpoints"
	w.namespace(t, namespace, "restricted")
	w.mustHelm(t, "install", "kubecdc", w.chart, "--namespace", namespace, "--set", defaultURL+withoutEnd,
		"--set", "mode=both,node.checkpoint=configMap")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := w.run(ctx, "uninstall", "kubecdc", "--namespace", namespace); err != nil {
			t.Error(err)
		}
		err := w.client.CoreV1().Namespaces().Delete(ctx, checkpoints, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	a := w.tokenOfPod(t, namespace, "node-a")
	b := w.tokenOfPod(t, namespace, "node-b")

	release := a.CoreV1().ConfigMaps(namespace)
	for _, config := range []string{"kubecdc", "kubecdc-node"} {
		replaced := configMap(config)
		replaced.Data = map[string]string{"kubecdc.yaml": "redaction: {secrets: false}"}
		_, err := release.Update(t.Context(), replaced, metav1.UpdateOptions{})
		refused(t, "replaces the configuration "+config, err)
		patch := []byte(`{"data":{"kubecdc.yaml":""}}`)
		_, err = release.Patch(t.Context(), config, types.MergePatchType, patch, metav1.PatchOptions{})
		refused(t, "patches the configuration "+config, err)
		err = release.Delete(t.Context(), config, metav1.DeleteOptions{})
		refused(t, "deletes the configuration "+config, err)
	}
	_, err := release.Create(t.Context(), configMap("kubecdc-central-checkpoint"), metav1.CreateOptions{})
	refused(t, "creates the checkpoint of the central agent", err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "kubecdc"}}
	_, err = a.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{})
	refused(t, "takes the lead", err)
	if t.Failed() {
		return
	}

	own := "kubecdc-checkpoint-node-a"
	other := "kubecdc-checkpoint-node-b"
	foreign := "kubecdc-checkpoint-node-c"
	kept := a.CoreV1().ConfigMaps(checkpoints)
	// An API server applies a new policy within seconds.
	wait.Eventually(t, time.Minute, func() error {
		_, err := kept.Create(t.Context(), configMap(foreign), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("a node creates the checkpoint of another: %w", err)
		}
		return nil
	})
	made, err := kept.Create(t.Context(), configMap(own), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("the agent creates its own checkpoint: %v", err)
	}
	made.Data = map[string]string{"checkpoint.json": "{}"}
	if _, err := kept.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Errorf("the agent updates its own checkpoint: %v", err)
	}
	_, err = b.CoreV1().ConfigMaps(checkpoints).Create(t.Context(), configMap(other), metav1.CreateOptions{})
	if err != nil {
		t.Errorf("the other agent creates its own checkpoint: %v", err)
	}

	_, err = kept.Update(t.Context(), configMap(other), metav1.UpdateOptions{})
	refused(t, "replaces the checkpoint of another node", err)
	generated := configMap("")
	generated.GenerateName = own
	_, err = kept.Create(t.Context(), generated, metav1.CreateOptions{})
	refused(t, "creates a ConfigMap with a generated name", err)
	unbound := w.tokenOf(t, namespace, nil).CoreV1().ConfigMaps(checkpoints)
	_, err = unbound.Update(t.Context(), configMap(own), metav1.UpdateOptions{})
	refused(t, "writes a checkpoint with a token of no node", err)

	// The policy does not depend on the role: it refuses the same with every permission there.
	w.permitAll(t, checkpoints, namespace, "kubecdc-node")
	wait.Eventually(t, time.Minute, func() error {
		_, err := kept.List(t.Context(), metav1.ListOptions{}) // which the policy does not concern
		return err
	})
	apply := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + foreign + `"}}`)
	_, err = kept.Patch(t.Context(), foreign, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "attack"})
	refused(t, "applies the checkpoint of another node", err)
	_, err = kept.Patch(t.Context(), other, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	refused(t, "patches the checkpoint of another node", err)
	refused(t, "deletes the checkpoint of another node", kept.Delete(t.Context(), other, metav1.DeleteOptions{}))
	refused(t, "deletes all checkpoints",
		kept.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	if err := kept.Delete(t.Context(), own, metav1.DeleteOptions{}); err != nil {
		t.Errorf("the agent deletes its own checkpoint: %v", err)
	}

	// The policy concerns nobody else: an administrator writes there, and the controllers empty the
	// namespace.
	admin := w.client.CoreV1().ConfigMaps(checkpoints)
	if _, err := admin.Get(t.Context(), other, metav1.GetOptions{}); err != nil {
		t.Errorf("the checkpoint of another node: %v", err)
	}
	if _, err := admin.Create(t.Context(), configMap(foreign), metav1.CreateOptions{}); err != nil {
		t.Errorf("an administrator creates a ConfigMap: %v", err)
	}
	w.removeNamespace(t, checkpoints)
}

// TestCheckpointsOutliveRelease uninstalls a release and installs it again, which then finds the
// checkpoints of its agents on nodes. No second release can write them.
func TestCheckpointsOutliveRelease(t *testing.T) {
	const namespace = "kubecdc-again"
	const checkpoints = namespace + "-kubecdc-checkpoints"
	w.namespace(t, namespace, "restricted")
	install := []string{
		"install", "kubecdc", w.chart, "--namespace", namespace, "--set", defaultURL + withoutEnd,
		"--set", "mode=node,node.checkpoint=configMap",
	}
	w.mustHelm(t, install...)
	kept := w.client.CoreV1().ConfigMaps(checkpoints)
	made, err := kept.Create(t.Context(), configMap("kubecdc-checkpoint-node-a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", namespace)
	w.mustHelm(t, install...)
	found, err := kept.Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil || found.UID != made.UID {
		t.Errorf("the checkpoint after the second installation: %v, uid %s, was %s", err, found.UID, made.UID)
	}
	w.namespace(t, "kubecdc-second", "restricted")
	_, err = w.run(t.Context(), "install", "kubecdc", w.chart, "--namespace", "kubecdc-second", "--set",
		defaultURL+withoutEnd,
		"--set", "mode=node,node.checkpoint=configMap,node.checkpointNamespace="+checkpoints)
	if err == nil || !strings.Contains(err.Error(), `ValidatingAdmissionPolicy "`+checkpoints+`.kubecdc-checkpoint"`) {
		t.Errorf("a second release with the same ConfigMaps: %v; want the policy to be in the way", err)
	}
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", namespace)
	w.removeNamespace(t, checkpoints)
}

// refused reports an attack that the API server did not refuse.
func refused(t *testing.T, attack string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("a node %s: %v; want it to be forbidden", attack, err)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// tokenOfPod returns a client with the token that the agent's Pod on a node gets from its kubelet.
func (w *world) tokenOfPod(t *testing.T, namespace, node string) kubernetes.Interface {
	t.Helper()
	set, err := w.client.AppsV1().DaemonSets(namespace).Get(t.Context(), "kubecdc-node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-on-" + node}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName = node
	made, err := w.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w.tokenOf(t, namespace, &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: made.Name, UID: made.UID,
	})
}

// tokenOf returns a client with a token of the ServiceAccount of the agents on nodes.
func (w *world) tokenOf(
	t *testing.T, namespace string, bound *authenticationv1.BoundObjectReference,
) kubernetes.Interface {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	accounts := w.client.CoreV1().ServiceAccounts(namespace)
	answer, err := accounts.CreateToken(t.Context(), "kubecdc-node", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.config)
	config.BearerToken = answer.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// permitAll binds an account to every permission in a namespace.
func (w *world) permitAll(t *testing.T, in, namespace, account string) {
	t.Helper()
	_, err := w.client.RbacV1().RoleBindings(in).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// removeNamespace deletes a namespace and waits until it is gone.
func (w *world) removeNamespace(t *testing.T, name string) {
	t.Helper()
	if err := w.client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		_, err := w.client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s is not gone: %w", name, err)
		}
		return nil
	})
}
