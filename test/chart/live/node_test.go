//go:build linux

package live_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubecdc/kubecdc/test/wait"
)

// TestRunNode installs the chart with an agent on each node and a central agent, and follows a Pod
// from its creation to a node and to its end.
func TestRunNode(t *testing.T) {
	for _, c := range []struct {
		name, level string
		args        []string
		checkpoints []string // leftovers of the agents on the nodes
	}{
		{"node", "privileged", []string{"--set", "mode=node"}, nil},
		{
			"restricted", "restricted",
			[]string{"--set", "mode=both,node.checkpoint=configMap"},
			[]string{"kubecdc-checkpoint-node-1", "kubecdc-checkpoint-node-2"},
		},
	} {
		t.Run(c.name, func(t *testing.T) { testNode(t, c.name, c.level, c.args, c.checkpoints) })
	}
}

func testNode(t *testing.T, name, level string, args, checkpoints []string) {
	before := w.everything(t)
	n := w.startNodes(t, site{})
	namespace, shop := "kubecdc-"+name, "shop-"+name
	w.namespace(t, namespace, level)
	w.namespace(t, shop, "restricted")
	all := []string{"install", "kubecdc", w.chart, "--namespace", namespace, "--set", defaultURL}
	w.mustHelm(t, append(all, args...)...)
	agents := w.ready(t, namespace, "node", 2)
	central := w.ready(t, namespace, "agent", 2)
	n.leader(t, central)
	on := []string{agents[0].Spec.NodeName, agents[1].Spec.NodeName}
	slices.Sort(on)
	if !slices.Equal(on, []string{"node-1", "node-2"}) {
		t.Errorf("agents are on %v", on)
	}
	for _, node := range on {
		_, err := os.Stat(n.HostPath(node, fmt.Sprintf("/var/lib/kubecdc/%s/kubecdc/checkpoint.json", namespace)))
		if level == "privileged" && err != nil {
			// The checkpoint is saved after changes, every few seconds.
			wait.Eventually(t, 30*time.Second, func() error {
				_, err := os.Stat(
					n.HostPath(node, fmt.Sprintf("/var/lib/kubecdc/%s/kubecdc/checkpoint.json", namespace)))
				return err
			})
		}
	}

	// A Pod without a node, which is then bound to one.
	pods := w.client.CoreV1().Pods(shop)
	yes := true
	no := false
	user := int64(65532)
	made, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "waits", Labels: map[string]string{"app": "waits"}},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "kubecdc.dev/test"}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{
					Type: corev1.SeccompProfileTypeRuntimeDefault,
				},
			},
			Containers: []corev1.Container{{
				Name: "c", Image: "ghcr.io/kubecdc/kubecdc:any", Command: []string{"/kubecdc"}, Args: []string{
					"version",
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			RestartPolicy: corev1.RestartPolicyNever,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Patch(t.Context(), made.Name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/schedulingGates"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, 30*time.Second, func() error {
		p, err := pods.Get(t.Context(), made.Name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("pod is %s on %q", p.Status.Phase, p.Spec.NodeName)
		}
		return err
	})
	if err := pods.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ops := n.operations(t, shop, made.Name)
	// Each of the two agents publishes in order, but their records may interleave.
	for _, of := range []string{"cl", "ed"} { // the central agent, the agent on the node
		first, last := strings.Index(ops, of[:1]), strings.Index(ops, of[1:])
		if strings.Count(ops, of[:1]) != 1 || strings.Count(ops, of[1:]) != 1 || first > last {
			t.Errorf("operations of a pod: %q; want one created, left, entered and deleted", ops)
		}
	}

	w.mustHelm(t, "upgrade", "kubecdc", w.chart, "--namespace", namespace, "--reuse-values", "--set",
		"config.queue.events=5000")
	wait.Eventually(t, time.Minute, func() error {
		for _, p := range w.ready(t, namespace, "node", 2) {
			if p.Name == agents[0].Name || p.Name == agents[1].Name {
				return fmt.Errorf("%s has outlived the upgrade so far", p.Name)
			}
		}
		return nil
	})
	wait.Eventually(t, time.Minute, func() error {
		for _, p := range w.ready(t, namespace, "agent", 2) {
			if p.Name == central[0].Name || p.Name == central[1].Name {
				return fmt.Errorf("%s has outlived the upgrade so far", p.Name)
			}
		}
		return nil
	})

	n.ended(t, namespace, 4, true)
	w.audit.nothingRefused(t, namespace, agents[0].Spec.ServiceAccountName)
	w.audit.nothingRefused(t, namespace, central[0].Spec.ServiceAccountName)

	if checkpoints != nil {
		n.sentNoCheckpoint(t, shop, namespace+"-kubecdc-checkpoints")
		// As in the chart's README, for agents that need a role for their checkpoint.
		w.scale(t, namespace, "kubecdc", 0)
		foreground := metav1.DeletePropagationForeground
		err := w.client.AppsV1().DaemonSets(namespace).Delete(t.Context(), "kubecdc-node", metav1.DeleteOptions{
			PropagationPolicy: &foreground,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.ready(t, namespace, "agent", 0)
		w.ready(t, namespace, "node", 0)
		n.ended(t, namespace, 8, true)
	}
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", namespace, "--wait", "--timeout", "120s")
	w.ready(t, namespace, "agent", 0)
	w.ready(t, namespace, "node", 0)
	n.ended(t, namespace, 8, false)
	n.scopesEnded(t)
	left := []string{
		"ConfigMap " + namespace + "/kubecdc-central-checkpoint", "Lease.coordination.k8s.io " + namespace + "/kubecdc",
	}
	if checkpoints != nil {
		left = append(left, "ConfigMap "+shop+"/last")
	}
	for _, name := range checkpoints {
		left = append(left, "ConfigMap "+namespace+"-kubecdc-checkpoints/"+name)
	}
	w.nothingLeft(t, before, left)
	if checkpoints != nil {
		w.removeNamespace(t, namespace+"-kubecdc-checkpoints") // which the uninstall kept
	}
}

// sentNoCheckpoint checks that no agent has sent a ConfigMap of the namespace. It makes one
// elsewhere and waits for its event.
func (n *nodes) sentNoCheckpoint(t *testing.T, elsewhere, namespace string) {
	t.Helper()
	sub := n.subscribe(t, n.bus.ClientURL(), "kubecdc.*.object.core.configmaps.*.*")
	made, err := w.client.CoreV1().ConfigMaps(elsewhere).Create(t.Context(), configMap("last"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	saved, err := w.client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(saved.Items) < 3 {
		t.Fatalf("%d ConfigMaps in %s: %v", len(saved.Items), namespace, err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		m, err := sub.NextMsg(time.Until(deadline))
		if err != nil {
			t.Fatalf("no event of ConfigMap %s/%s: %v", elsewhere, made.Name, err)
		}
		switch {
		case strings.Contains(m.Subject, "."+namespace+"."):
			t.Errorf("an agent sent %s", m.Subject)
		case strings.HasSuffix(m.Subject, "."+elsewhere+"."+made.Name):
			return
		}
	}
}

// operations returns the operations on the Pod in the order on the bus, up to its deletion.
func (n *nodes) operations(t *testing.T, namespace, name string) string {
	t.Helper()
	sub := n.subscribe(t, n.bus.ClientURL(), fmt.Sprintf("kubecdc.*.object.core.pods.%s.%s", namespace, name))
	var ops string
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(ops, "d") || !strings.Contains(ops, "l") {
		m, err := sub.NextMsg(time.Until(deadline))
		if err != nil {
			t.Fatalf("operations so far: %q: %v", ops, err)
		}
		var ev struct{ Op string }
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			t.Fatal(err)
		}
		ops += ev.Op
	}
	return ops
}
