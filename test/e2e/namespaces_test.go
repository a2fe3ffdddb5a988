package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestNamespacesAllowed runs an agent whose rules select namespaces by a pattern, or all. It may
// read ConfigMaps in two of three namespaces, and Secrets in one. A namespace with its RoleBinding
// is added, and one is deleted. The bus must have exactly the permitted objects.
func TestNamespacesAllowed(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.BarePlane(t)
	p.NewNamespace(t, "tenants")
	for name, patterns := range map[string]string{"glob": `["glob-*"]`, "all": "[]"} {
		t.Run(name, func(t *testing.T) { testNamespacesAllowed(t, p, name, patterns) })
	}
}

func testNamespacesAllowed(t *testing.T, p *world.Plane, name, patterns string) {
	ns := func(s string) string { return name + "-" + s }
	for _, s := range []string{"both", "one", "none"} {
		p.NewNamespace(t, ns(s))
	}
	kubeconfig := serviceAccount(t, p, "tenants", name)
	user := "system:serviceaccount:tenants:" + name
	grantNamespaces(t, p, name)
	grantIn(t, p, name, ns("both"), "configmaps", "secrets")
	grantIn(t, p, name, ns("one"), "configmaps")
	awaitReview(t, p, user, atom{Verb: "watch", Resource: "namespaces"}, true)
	awaitReview(t, p, user, atom{Namespace: ns("both"), Verb: "watch", Resource: "secrets"}, true)
	awaitReview(t, p, user, atom{Namespace: ns("one"), Verb: "watch", Resource: "configmaps"}, true)

	var steps atomic.Int64
	ws := &world.Writers{API: p.API, Done: func() bool { return steps.Load() >= 200 }}
	write := func(namespaces ...string) {
		steps.Store(0)
		var all []func(context.Context) error
		for _, s := range namespaces {
			cm, secret := ws.Writer("cm", ns(s), 5), ws.Writer("secret", ns(s), 5)
			all = append(all, func(ctx context.Context) error {
				steps.Add(1)
				if cm.RNG.IntN(2) == 0 {
					return cm.ConfigMaps(ctx)
				}
				return secret.Secrets(ctx)
			})
		}
		ws.Run(t, all...)
	}
	write("both", "one", "none")

	bus := world.StartBus(t)
	config := world.AgentConfig{
		Bus: bus, Kubeconfig: kubeconfig, Watch: "  - resources: [configmaps, secrets]\n    namespaces: " + patterns,
		Checkpoint: fmt.Sprintf("{file: {path: %q}}", filepath.Join(t.TempDir(), "checkpoint.json")),
	}
	a := world.StartAgent(t, p, config)
	a.Ready(t)
	s := world.ReadStream(t, bus, p.Reader())
	write("both", "one", "none")

	// A namespace is added. Its objects are created before the agent may read them, and one of them
	// is deleted by then.
	p.NewNamespace(t, ns("new"))
	all := world.Collection("configmaps", ns("new"))
	for _, cm := range []string{"short", "long"} {
		if _, err := p.API.Create(t.Context(), all, obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": obj{
			"name": cm,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.API.Remove(t.Context(), all+"/short"); err != nil {
		t.Fatal(err)
	}
	grantIn(t, p, name, ns("new"), "configmaps")
	wait.Eventually(t, time.Minute, func() error {
		for sc := range s.Completed(t, "configmaps") {
			if sc.Namespaces == ns("new") {
				return nil
			}
		}
		return errors.New("the new namespace is not observed")
	})
	write("new", "both", "none")

	// The next agent resumes where this one ended.
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
	write("new", "both", "one", "none")
	a = world.StartAgent(t, p, config)
	a.Ready(t)
	write("new", "both", "one", "none")

	// A namespace is deleted as by the namespace controller: first its objects, and with them the
	// agent's permissions.
	endNamespace(t, p, ns("one"))
	write("new", "both", "none")

	want := map[string][]string{"configmaps": {ns("both"), ns("new"), ns("one")}, "secrets": {ns("both")}}
	var snapshots map[oracle.Scope]oracle.Snapshot
	wait.Eventually(t, time.Minute, func() error {
		snapshots = s.Completed(t, "configmaps", "secrets")
		got := map[string][]string{}
		for sc := range snapshots {
			got[sc.Resource] = append(got[sc.Resource], sc.Namespaces)
		}
		for resource, namespaces := range want {
			slices.Sort(got[resource])
			if !slices.Equal(got[resource], namespaces) {
				return fmt.Errorf("snapshots of %s are complete in %q, want %q", resource, got[resource], namespaces)
			}
		}
		return nil
	})
	v := world.ViewOf(snapshots)
	v.Until = p.Now(t)
	expected := oracle.Expect(p.History.Of("configmaps", "secrets"), v)
	s.WaitFor(t, expected, 30*time.Second)
	records := s.All()
	got := s.Judge(expected, records, v)
	world.Report(t, p, s, got.Faults)
	world.Report(t, p, s, s.JudgeSnapshots(records))
	got.NoGaps(t)
	ops := map[string]map[string]int{}
	for i := range records {
		if key := records[i].Key; records[i].Op != "" {
			if ops[key.Namespace] == nil {
				ops[key.Namespace] = map[string]int{}
			}
			ops[key.Namespace][records[i].Op]++
		}
	}
	if ops[ns("new")][oracle.Read] > 0 || ops[ns("new")]["c"] == 0 || ops[ns("both")][oracle.Read] == 0 ||
		ops[ns("one")]["d"] == 0 || ops[ns("none")] != nil {
		oracle.Fail(t, "operations by namespace: %v", ops)
	}
	status, err := a.Get(t.Context(), "/readyz")
	if err != nil {
		t.Errorf("the agent is not ready: %v\n%s", err, status)
	}
	t.Logf("%d records expected, %d on the bus, by namespace: %v", got.Expected, got.Records, ops)
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
}

// grantNamespaces lets an account read the namespaces.
func grantNamespaces(t *testing.T, p *world.Plane, account string) {
	t.Helper()
	applyAccess(t, p, []byte(strings.ReplaceAll(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: [{apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{kind: ServiceAccount, name: NAME, namespace: tenants}]
`, "NAME", account)))
}

// grantIn lets an account list and watch resources in a namespace.
func grantIn(t *testing.T, p *world.Plane, account, namespace string, resources ...string) {
	t.Helper()
	applyAccess(t, p,
		[]byte(strings.NewReplacer("NAMESPACE", namespace, "RESOURCES", strings.Join(resources, ", "), "NAME", account).
			Replace(
				`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NAME, namespace: NAMESPACE}
rules: [{apiGroups: [""], resources: [RESOURCES], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NAME, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}
subjects: [{kind: ServiceAccount, name: NAME, namespace: tenants}]
`)))
}

// endNamespace deletes a namespace as the namespace controller does.
func endNamespace(t *testing.T, p *world.Plane, namespace string) {
	t.Helper()
	uri := "/api/v1/namespaces/" + namespace
	if err := p.API.Remove(t.Context(), uri); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{
		"configmaps", "secrets", "rolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io",
	} {
		for key, versions := range p.History.Of(resource) {
			if last := versions[len(versions)-1]; key.Namespace == namespace && !last.Deleted {
				// It may have a finalizer.
				_, _ = p.API.MergePatch(t.Context(), world.Collection(resource, namespace)+"/"+key.Name, obj{
					"metadata": obj{"finalizers": nil},
				})
			}
		}
		if err := p.API.Remove(t.Context(), world.Collection(resource, namespace)); err != nil {
			t.Fatal(err)
		}
	}
	ns := obj{"apiVersion": "v1", "kind": "Namespace", "metadata": obj{"name": namespace}, "spec": obj{
		"finalizers": []string{},
	}}
	if _, err := p.API.Replace(t.Context(), uri+"/finalize", ns); err != nil {
		t.Fatal(err)
	}
}
