//go:build linux

package live_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubecdc/kubecdc/test/wait"
)

// TestRunCluster installs the chart as its README says, and nothing else. It observes the two
// agents through an upgrade, a rollback and to the end.
func TestRunCluster(t *testing.T) {
	before := w.everything(t)
	n := w.startNodes(t, site{})
	w.namespace(t, "kubecdc-run", "restricted")
	w.namespace(t, "shop-run", "restricted")
	w.mustHelm(t, "install", "kubecdc", w.chart, "--namespace", "kubecdc-run", "--set", defaultURL, "--wait",
		"--timeout", "120s")
	pods := w.ready(t, "kubecdc-run", "agent", 2)
	leader := n.leader(t, pods)
	// The standby checks the Lease each second.
	wait.Eventually(t, 30*time.Second, func() error {
		status, err := n.ask(t, &pods[1-leader], "/readyz?verbose")
		if err == nil && !strings.Contains(status, pods[leader].Name) {
			err = fmt.Errorf("/readyz of the standby does not name the leader %s:\n%s", pods[leader].Name, status)
		}
		return err
	})
	if metrics, err := n.ask(t, &pods[leader], "/metrics"); err != nil || !strings.Contains(metrics, "kubecdc_") {
		t.Errorf("/metrics: %v\n%.300s", err, metrics)
	}
	account := pods[0].Spec.ServiceAccountName
	// As in NOTES.txt.
	table, err := n.Exec(t.Context(), "kubecdc-run", pods[leader].Name, "/kubecdc", "status")
	if err != nil || !strings.Contains(string(table), "configmaps") {
		t.Errorf("kubecdc status in the pod: %v\n%s", err, table)
	}
	// The first snapshot may be in progress still.
	wait.Eventually(t, 30*time.Second, func() error {
		said, err := n.Exec(t.Context(), "kubecdc-run", pods[leader].Name, "/kubecdc", "snapshot", "configmaps")
		hasBegun := strings.Contains(string(said), "configmaps") && strings.Contains(string(said), "begun")
		if err == nil && !hasBegun {
			err = fmt.Errorf("kubecdc snapshot in the pod says:\n%s", said)
		}
		return err
	})

	// Every version is on the bus once, whatever helm does meanwhile.
	writing, stop := context.WithCancel(t.Context())
	defer stop()
	var g errgroup.Group
	var written *writer
	g.Go(func() error {
		var err error
		written, err = w.write(writing, "shop-run", "written")
		return err
	})
	w.mustHelm(t, "upgrade", "kubecdc", w.chart, "--namespace", "kubecdc-run", "--reuse-values", "--set",
		"config.queue.events=5000",
		"--wait", "--timeout", "120s")
	for _, p := range w.ready(t, "kubecdc-run", "agent", 2) {
		if p.Name == pods[0].Name || p.Name == pods[1].Name {
			t.Errorf("%s has outlived the upgrade", p.Name)
		}
	}
	w.mustHelm(t, "rollback", "kubecdc", "1", "--namespace", "kubecdc-run", "--wait", "--timeout", "120s")
	n.leader(t, w.ready(t, "kubecdc-run", "agent", 2))
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	n.whole(t, written)

	// As in the chart's README: the agents end before their permissions are removed.
	w.scale(t, "kubecdc-run", "kubecdc", 0)
	w.ready(t, "kubecdc-run", "agent", 0)
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", "kubecdc-run", "--wait", "--timeout", "120s")
	n.ended(t, "kubecdc-run", 6, true)
	n.scopesEnded(t)
	w.audit.nothingRefused(t, "kubecdc-run", account)
	// Objects that the agent itself created remain.
	left := []string{
		"ConfigMap kubecdc-run/kubecdc-checkpoint", "Lease.coordination.k8s.io kubecdc-run/kubecdc",
		"ConfigMap shop-run/written",
	}
	w.nothingLeft(t, before, left)

	// The next release resumes where this one ended.
	meanwhile, stop := context.WithCancel(t.Context())
	ticks := time.AfterFunc(time.Second, stop)
	defer ticks.Stop()
	between, err := w.write(meanwhile, "shop-run", "between")
	if err != nil {
		t.Fatal(err)
	}
	w.mustHelm(t, "install", "kubecdc", w.chart, "--namespace", "kubecdc-run", "--set", defaultURL, "--wait",
		"--timeout", "120s")
	n.leader(t, w.ready(t, "kubecdc-run", "agent", 2))
	n.whole(t, between)
	n.whole(t, written)

	// When uninstalled while they run, the agents lose their roles before they can save, and report
	// that. They still end in time, and a new release misses nothing.
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", "kubecdc-run", "--wait", "--timeout", "120s")
	w.ready(t, "kubecdc-run", "agent", 0)
	n.ended(t, "kubecdc-run", 8, false)
	n.scopesEnded(t)
	w.nothingLeft(t, before, append(left, "ConfigMap shop-run/between"))
}

// TestRunWithoutRule removes one rule from the chart's role before the agent runs. The audit log
// must show the refused requests, which other tests look for, and the agent must report the missing
// permission.
func TestRunWithoutRule(t *testing.T) {
	const namespace = "kubecdc-rule"
	w.namespace(t, namespace, "restricted")
	w.mustHelm(t, "install", "kubecdc", w.chart, "--namespace", namespace, "--set", defaultURL, "--set", "replicas=1",
		"--set-json", `config.watch=[{"resources":["services"]},{"resources":["deployments.apps"]}]`)
	roles := w.client.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), namespace+":kubecdc", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := len(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, "deployments")
	})
	if len(role.Rules) != before-1 {
		t.Fatalf("rules of the role: %v; want one for deployments", role.Rules)
	}
	role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := w.startNodes(t, site{})
	wait.Eventually(t, time.Minute, func() error {
		refused, asked := w.audit.refused(t, namespace, "kubecdc")
		if len(refused) == 0 {
			return fmt.Errorf("%d requests, none of them refused, and the role is %v", asked, role.Rules)
		}
		deployments := false
		for _, what := range refused {
			deployments = deployments || strings.Contains(what, "/apis/apps/v1/deployments")
			// If the request for all namespaces is refused, the agent lists the namespaces: it may
			// be allowed in some of them.
			if !strings.HasPrefix(what, "403: ") ||
				!strings.Contains(what, "/apis/apps/v1/deployments") && !strings.Contains(what, "/api/v1/namespaces?") {
				t.Errorf("refused: %s; want deployments alone", what)
			}
		}
		if !deployments {
			return fmt.Errorf("refused: %v", refused)
		}
		return nil
	})
	pods, err := w.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods: %v", len(pods.Items), err)
	}
	wait.Eventually(t, time.Minute, func() error {
		if said := n.Log(namespace, pods.Items[0].Name); !strings.Contains(said, "forbidden") ||
			!strings.Contains(said, "deployments") {
			return fmt.Errorf("the log does not say that deployments are forbidden:\n%s", said)
		}
		return nil
	})
	w.mustHelm(t, "uninstall", "kubecdc", "--namespace", namespace, "--wait", "--timeout", "120s")
	w.ready(t, namespace, "agent", 0)
}

// scale scales the Deployment of a release.
func (w *world) scale(t *testing.T, namespace, deployment string, replicas int) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	_, err := w.client.AppsV1().Deployments(namespace).
		Patch(t.Context(), deployment, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
