//go:build linux

package live_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/test/wait"
)

// TestRolloutThatCannotLead renames the cluster, so that no agent can resume from the existing
// checkpoint. The update stops at its first pod, which reports the reason, and the leader keeps
// working. After a rollback everything is as before.
func TestRolloutThatCannotLead(t *testing.T) {
	const namespace = "kubecdc-rollout"
	n := w.startNodes(t, site{})
	w.namespace(t, namespace, "restricted")
	w.mustHelm(t, "install", "kubecdc", w.chart, "--namespace", namespace, "--set", defaultURL, "--set", "replicas=1",
		"--set-json", `config.watch=[{"resources":["configmaps"]}]`, "--wait", "--timeout", "120s")
	leader := w.ready(t, namespace, "agent", 1)[0]
	checkpoints := w.client.CoreV1().ConfigMaps(namespace)
	wait.Eventually(t, time.Minute, func() error {
		c, err := checkpoints.Get(t.Context(), "kubecdc-checkpoint", metav1.GetOptions{})
		if err == nil && c.Data["checkpoint.json"] == "" {
			err = fmt.Errorf("the checkpoint is empty: %v", c.Data)
		}
		return err
	})

	w.mustHelm(t, "upgrade", "kubecdc", w.chart, "--namespace", namespace, "--reuse-values", "--set",
		"config.cluster=renamed")
	var next corev1.Pod
	wait.Eventually(t, time.Minute, func() error {
		pods, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/component=agent",
		})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Name != leader.Name {
				next = p
			}
		}
		if said := n.Log(namespace, next.Name); next.Name == "" ||
			!strings.Contains(said, `the name is now "renamed"`) {
			return fmt.Errorf("%d pods; the new one, %q, does not say that the cluster has another name:\n%s",
				len(pods.Items), next.Name, said)
		}
		return nil
	})
	if text, err := n.ask(t, &leader, "/readyz?verbose"); err != nil || !strings.Contains(text, "leader: leads") {
		t.Errorf("the leader has to work on: %v\n%s", err, text)
	}
	if strings.Contains(n.Log(namespace, next.Name), "this agent leads") {
		t.Error("the new pod has led")
	}
	d, err := w.client.AppsV1().Deployments(namespace).Get(t.Context(), "kubecdc", metav1.GetOptions{})
	if err != nil || d.Status.AvailableReplicas != 1 || d.Status.UnavailableReplicas != 1 {
		t.Errorf("the update has to stop at one pod that is not ready: %v, %+v", err, d.Status)
	}

	w.mustHelm(t, "rollback", "kubecdc", "1", "--namespace", namespace, "--wait", "--timeout", "120s")
	if still := w.ready(t, namespace, "agent", 1)[0]; still.Name != leader.Name {
		t.Errorf("%s has to be there still, and %s is", leader.Name, still.Name)
	}
	w.scale(t, namespace, "kubecdc", 0)
	w.ready(t, namespace, "agent", 0)
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", namespace, "--wait", "--timeout", "120s")
}
