package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestAuditExample runs the agent with the configuration of examples/audit, with a local bus, key
// and webhook. The webhook must get each change of a Secret, a Role, a RoleBinding and the spec of
// a Deployment at least once, in order. It must get no other objects and no value of a Secret.
func TestAuditExample(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	const namespace = "audited"
	p.NewNamespace(t, namespace)

	text, err := os.ReadFile("../../examples/audit/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Config struct {
			Watch     []any
			Redaction struct{ Mode string }
			Relays    []obj
		}
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(rand.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hook := world.StartReceiver(t, nil)
	to := values.Config.Relays[0]["to"].(obj)["http"].(obj)
	to["url"], to["tokenFile"] = hook.URL, file("token")
	watch, err := yaml.Marshal(values.Config.Watch)
	if err != nil {
		t.Fatal(err)
	}
	extra, err := yaml.Marshal(obj{
		"redaction": obj{"mode": values.Config.Redaction.Mode, "keyFile": file("key")}, "relays": values.Config.Relays,
	})
	if err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	ops := map[string]string{} // by resource and name, in the order of arrival, copies left out
	seen := map[string]bool{}
	var bodies [][]byte
	var reading sync.WaitGroup
	t.Cleanup(reading.Wait)
	reading.Go(func() {
		_ = hook.Each(t.Context(), func(m oracle.Message) { // ends with the test
			var e struct{ ID, Op, Resource, Namespace, Name string }
			if err := json.Unmarshal(m.Body, &e); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			bodies = append(bodies, m.Body)
			if e.Namespace == namespace && !seen[e.ID] {
				seen[e.ID] = true
				ops[e.Resource+"/"+e.Name] += e.Op
			}
		})
	})
	a := world.StartAgent(t, p, world.AgentConfig{Bus: world.StartBus(t), Watch: string(watch), Extra: string(extra)})
	a.Ready(t)

	must := func(_ []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	api, ctx := p.API, t.Context()
	secrets := world.Collection("secrets", namespace)
	roles := world.Collection("roles.rbac.authorization.k8s.io", namespace)
	bindings := world.Collection("rolebindings.rbac.authorization.k8s.io", namespace)
	deployments := world.Collection("deployments.apps", namespace)
	passwords := []string{world.SecretValue(), world.SecretValue()}
	must(api.Create(ctx, secrets, obj{
		"apiVersion": "v1",
		"kind":       "Secret",
		"metadata":   world.Meta("db"),
		"stringData": obj{"password": passwords[0]},
	}))
	must(api.MergePatch(ctx, secrets+"/db", obj{"stringData": obj{"password": passwords[1]}}))
	must(api.Create(ctx, roles, obj{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": world.Meta("reader"),
		"rules": []obj{{"apiGroups": []string{""}, "resources": []string{"secrets"}, "verbs": []string{"get"}}},
	}))
	must(api.Create(ctx, bindings, obj{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": world.Meta("readers"),
		"roleRef":  obj{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
		"subjects": []obj{{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}},
	}))
	labels := obj{"app": "web"}
	must(api.Create(ctx, deployments, obj{
		"apiVersion": "apps/v1",
		"kind":       "Deployment",
		"metadata":   world.Meta("web"),
		"spec": obj{
			"replicas": 0, "selector": obj{"matchLabels": labels}, "template": obj{"metadata": obj{
				"labels": labels,
			}, "spec": obj{"containers": []obj{{"name": "web", "image": "web:1"}}}},
		},
	}))
	must(api.MergePatch(ctx, deployments+"/web", obj{"metadata": obj{"annotations": obj{"note": "not audited"}}}))
	must(api.MergePatch(ctx, deployments+"/web", obj{"spec": obj{"paused": true}}))
	p.NewConfigMap(t, namespace, "unrelated")
	if err := api.Remove(ctx, bindings+"/readers"); err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"secrets/db":           "cu",
		"roles/reader":         "c",
		"rolebindings/readers": "cd",
		"deployments/web":      "cu",
	}
	wait.Eventually(t, time.Minute, func() error {
		mu.Lock()
		defer mu.Unlock()
		for object, op := range want {
			if ops[object] != op {
				return fmt.Errorf("the webhook has %q of %s, want %q", ops[object], object, op)
			}
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for object := range ops {
		if _, ok := want[object]; !ok && object != "serviceaccounts/default" {
			oracle.Fail(t, "the webhook has %s of %s", ops[object], object)
		}
	}
	for _, body := range bodies {
		for _, p := range passwords {
			if bytes.Contains(body, []byte(p)) ||
				bytes.Contains(body, []byte(base64.StdEncoding.EncodeToString([]byte(p)))) {
				oracle.Fail(t, "the value of a Secret: %s", body)
			}
		}
	}
	if n := bytes.Count(bytes.Join(bodies, nil), []byte("hmac-sha256:")); n < 3 {
		t.Errorf("%d hashes of values, want those of both versions", n)
	}
}
