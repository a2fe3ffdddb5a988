package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestSnapshotThenLive shows what each snapshot mode sends first, and that every later change
// follows.
func TestSnapshotThenLive(t *testing.T) {
	slow(t)
	t.Parallel()
	const objects = 10
	p := world.SharedPlane(t)
	for _, mode := range []string{"initial", "always", "never"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			namespace := "snapshot-" + mode
			p.NewNamespace(t, namespace)
			p.MakeConfigMaps(t, namespace, "old", objects)
			bus := world.StartBus(t)
			a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Snapshot: mode, Watch: fmt.Sprintf(`
  - resources: [configmaps]
    namespaces: [%s]
`, namespace)})
			s := world.ReadStream(t, bus, p.Reader())
			a.Ready(t)
			var v oracle.View
			if mode == "never" {
				ready := p.Now(t)
				v.NoReads = true
				v.Snapshot = func(key oracle.ObjectKey) (oracle.Snapshot, bool) {
					return oracle.Snapshot{Rev: ready}, key.Namespace == namespace
				}
			} else {
				v = world.ViewOf(s.Completed(t, "configmaps"))
			}
			p.ChangeConfigMaps(t, namespace, "old", objects)
			p.MakeConfigMaps(t, namespace, "new", objects)
			p.ChangeConfigMaps(t, namespace, "new", objects)
			got := world.Check(t, p, s, v, "configmaps")
			got.NoGaps(t)
			if got.Expected < 4*objects {
				t.Errorf("%d records expected, that is too few for what was done", got.Expected)
			}
			if mode == "never" {
				for _, rec := range s.All() {
					if rec.Op == oracle.Read || strings.HasPrefix(rec.Stream, "snapshot") {
						oracle.Fail(t, "%s on the bus, though no snapshot is wanted", rec.ID)
					}
				}
			}
		})
	}
}

// TestNamespaces shows that namespaces by name, by pattern and by exclusion select exactly those
// namespaces.
func TestNamespaces(t *testing.T) {
	slow(t)
	p := world.SharedPlane(t)
	for _, tc := range []struct {
		name, namespaces string
		scopes           int
		in, out          []string
	}{
		{"literal", "[ns-lit-a, ns-lit-b]", 2, []string{"ns-lit-a", "ns-lit-b"}, []string{"ns-lit-c", "default"}},
		{"exclude", `["*", "!ns-exc-skip-*", "!kube-*"]`, 1, []string{"ns-exc-a", "default"}, []string{
			"ns-exc-skip-a", "kube-public",
		}},
		{"pattern", `["ns-pat-*"]`, 1, []string{"ns-pat-a", "ns-pat-b"}, []string{"ns-other", "default"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := append(append([]string{}, tc.in...), tc.out...)
			for _, ns := range all {
				p.NewNamespace(t, ns)
				p.MakeConfigMaps(t, ns, tc.name+"-old", 3)
			}
			bus := world.StartBus(t)
			a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: ` + tc.namespaces + "\n"})
			s := world.ReadStream(t, bus, p.Reader())
			a.Ready(t)
			var snapshots map[oracle.Scope]oracle.Snapshot
			wait.Eventually(t, time.Minute, func() error {
				snapshots = s.Completed(t, "configmaps")
				if len(snapshots) != tc.scopes {
					return fmt.Errorf("snapshots of %d scopes, want %d: %v", len(snapshots), tc.scopes, snapshots)
				}
				return nil
			})
			for _, ns := range all {
				p.ChangeConfigMaps(t, ns, tc.name+"-old", 3)
				p.MakeConfigMaps(t, ns, tc.name+"-new", 3)
			}
			// By the test's own list, not by the scopes that the agent reports.
			v := oracle.View{Snapshot: func(key oracle.ObjectKey) (oracle.Snapshot, bool) {
				snap, ok := world.ViewOf(snapshots).Snapshot(key)
				for _, ns := range tc.out {
					ok = ok && key.Namespace != ns
				}
				for _, ns := range tc.in {
					if key.Namespace == ns && !ok {
						oracle.Fail(t, "namespace %s is in no scope: %v", ns, snapshots)
					}
				}
				return snap, ok
			}}
			got := world.Check(t, p, s, v, "configmaps")
			got.NoGaps(t)
			for _, rec := range s.All() {
				for _, ns := range tc.out {
					if rec.Key.Namespace == ns {
						oracle.Fail(t, "%s is on the bus, of namespace %s, which is not wanted", rec.ID, ns)
					}
				}
			}
		})
	}
}

// TestForbiddenResourceIsIsolated runs an agent that may read ConfigMaps, and may read Secrets only
// later.
func TestForbiddenResourceIsIsolated(t *testing.T) {
	slow(t)
	const namespace = "forbidden"
	p := world.SharedPlane(t)
	p.NewNamespace(t, namespace)
	p.MakeConfigMaps(t, namespace, "old", 5)
	grant := func(resources ...string) {
		t.Helper()
		rules := []obj{{"apiGroups": []string{""}, "resources": resources, "verbs": []string{"get", "list", "watch"}}}
		role := obj{
			"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind":       "ClusterRole",
			"metadata":   world.Meta("e2e-restricted"),
			"rules":      rules,
		}
		binding := obj{
			"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind":       "ClusterRoleBinding",
			"metadata":   world.Meta("e2e-restricted"),
			"roleRef":    obj{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-restricted"},
			"subjects":   []obj{{"kind": "User", "name": controlplane.Restricted}},
		}
		const root = "/apis/rbac.authorization.k8s.io/v1/"
		for plural, o := range map[string]obj{"clusterroles": role, "clusterrolebindings": binding} {
			_, err := p.API.Create(t.Context(), root+plural, o)
			if apierrors.IsAlreadyExists(err) {
				_, err = p.API.MergePatch(t.Context(), root+plural+"/e2e-restricted", o)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	grant("namespaces", "configmaps")
	client, err := world.NewAPI(p.Config(controlplane.Restricted))
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(resource string) error {
		_, err := client.Do(t.Context(), http.MethodGet, world.Collection(resource, "")+"?limit=1", "", nil)
		return err
	}
	wait.Eventually(t, time.Minute, func() error { return allowed("configmaps") })
	if err := allowed("secrets"); !apierrors.IsForbidden(err) {
		t.Fatalf("secrets: got %v, want forbidden", err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(kubeconfig, controlplane.Restricted); err != nil {
		t.Fatal(err)
	}

	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Kubeconfig: kubeconfig, Watch: `
  - resources: [configmaps, secrets]
`})
	s := world.ReadStream(t, bus, p.Reader())
	a.Ready(t)
	s.Completed(t, "configmaps")
	p.ChangeConfigMaps(t, namespace, "old", 5)
	wait.Eventually(t, time.Minute, func() error {
		n, err := a.Metric(t.Context(), "kubecdc_informer_errors_total", `reason="list_forbidden"`)
		if err == nil && n == 0 {
			err = errors.New("the metrics know of no error with secrets")
		}
		return err
	})
	p.MakeConfigMaps(t, namespace, "new", 5)
	got := world.Check(t, p, s, world.ViewOf(s.Completed(t, "configmaps")), "configmaps", "secrets")
	got.NoGaps(t)

	grant("namespaces", "configmaps", "secrets")
	got = world.Check(t, p, s, world.ViewOf(s.Completed(t, "configmaps", "secrets")), "configmaps", "secrets")
	got.NoGaps(t)
}

// TestSIGTERMDrains stops the agent while the bus does not answer, and resumes the bus at the same
// moment. All changes that the agent has observed by then must reach the bus.
func TestSIGTERMDrains(t *testing.T) {
	slow(t)
	t.Parallel()
	const (
		namespace = "sigterm"
		objects   = 300
	)
	p := world.SharedPlane(t)
	p.NewNamespace(t, namespace)
	bus := world.StartBusProcess(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: [sigterm]
`})
	s := world.ReadStream(t, bus, p.Reader())
	v := world.ViewOf(s.Completed(t, "configmaps"))
	bus.Freeze(t)
	p.MakeConfigMaps(t, namespace, "new", objects)
	p.ChangeConfigMaps(t, namespace, "new", objects)
	v.Until = p.Now(t)
	want := oracle.Expect(p.History.Of("configmaps"), v)
	live := 0
	for _, list := range want {
		for _, e := range list {
			if e.Op != oracle.Read {
				live++
			}
		}
	}
	wait.Eventually(t, time.Minute, func() error {
		n := 0.0
		for _, op := range []string{oracle.Created, oracle.Updated, oracle.Deleted} {
			// A metric that does not exist yet counts as zero.
			m, err := a.Metric(t.Context(), "kubecdc_informer_deltas_total", fmt.Sprintf("op=%q", op))
			if err != nil {
				return err
			}
			n += m
		}
		if int(n) < live {
			return fmt.Errorf("the agent has observed %.0f of %d changes", n, live)
		}
		return nil
	})
	bus.Thaw(t)
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
	got := world.Check(t, p, s, v, "configmaps")
	got.NoGaps(t)
}

// TestSIGTERMInFullFlight stops the agent while writers write. It may stop anywhere, but the stream
// must have no holes: each object has all records up to some version, and none after that.
func TestSIGTERMInFullFlight(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "sigterm-flight"
	p := world.SharedPlane(t)
	p.NewNamespace(t, namespace)
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: [sigterm-flight]
`})
	s := world.ReadStream(t, bus, p.Reader())
	v := world.ViewOf(s.Completed(t, "configmaps"))
	count := p.History.CountIn(namespace, "configmaps")
	written := func() int { return p.History.CountIn(namespace, "configmaps") - count }
	var stopped atomic.Bool
	ws := &world.Writers{API: p.API, Done: func() bool {
		return written() >= 2_000 || stopped.Load() && written() >= 1_200
	}}
	var steps []func(context.Context) error
	for i := range 4 {
		steps = append(steps, ws.Writer(fmt.Sprint("w", i), namespace, 10).ConfigMaps)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		err := wait.For(ctx, time.Minute, func() error {
			if written() < 1_000 {
				return errors.New("not yet")
			}
			return nil
		})
		if err == nil {
			err = a.Stop(time.Minute)
		}
		stopped.Store(true)
		ended <- err
	}()
	ws.Run(t, steps...)
	if err := <-ended; err != nil {
		t.Fatalf("agent, asked to stop: %v", err)
	}

	v.Until = p.Now(t)
	want := oracle.Expect(p.History.Of("configmaps"), v)
	s.WaitFor(t, want, 2*time.Second)
	last := make(map[oracle.ObjectKey]uint64)
	for _, rec := range s.All() {
		if rec.Stream == "" {
			last[rec.Key] = max(last[rec.Key], rec.Rev)
		}
	}
	there := 0
	for key, list := range want {
		n := 0
		for n < len(list) && list[n].Rev <= last[key] {
			n++
		}
		want[key] = list[:n]
		if n == 0 {
			delete(want, key)
		}
		there += n
	}
	if there < 500 {
		t.Errorf("only %d records of the 1,000 revisions before the signal", there)
	}
	got := oracle.Judge(want, s.All(), v)
	world.Report(t, p, s, got.Faults)
	got.NoGaps(t)
}

// TestStdoutBus reads the records from the agent's stdout.
func TestStdoutBus(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "stdout"
	p := world.SharedPlane(t)
	p.NewNamespace(t, namespace)
	p.MakeConfigMaps(t, namespace, "old", 10)
	a := world.StartAgent(t, p, world.AgentConfig{Watch: `
  - resources: [configmaps, secrets]
    namespaces: [stdout]
`})
	s := world.ReadLines(t, a.Stdout, p.Reader())
	v := world.ViewOf(s.Completed(t, "configmaps", "secrets"))
	p.ChangeConfigMaps(t, namespace, "old", 10)
	p.MakeConfigMaps(t, namespace, "new", 10)
	secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": world.Meta("a"), "stringData": obj{
		"token": world.SecretValue(),
	}}
	if _, err := p.API.Create(t.Context(), world.Collection("secrets", namespace), world.Applied(secret)); err != nil {
		t.Fatal(err)
	}
	got := world.Check(t, p, s, v, "configmaps", "secrets")
	got.NoGaps(t)
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
}
