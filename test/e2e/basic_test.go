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
)

// makeConfigMaps makes n ConfigMaps, called prefix-0 and so on.
func (p *plane) makeConfigMaps(t testing.TB, namespace, prefix string, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprint(prefix, "-", i)
		cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name), "data": obj{"text": name}}
		if _, err := p.api.create(t.Context(), collection("configmaps", namespace), cm); err != nil {
			t.Fatal(err)
		}
	}
}

// changeConfigMaps updates each of them, deletes every third and makes every sixth again.
func (p *plane) changeConfigMaps(t testing.TB, namespace, prefix string, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprint(prefix, "-", i)
		uri := collection("configmaps", namespace) + "/" + name
		if _, err := p.api.mergePatch(t.Context(), uri, obj{"data": obj{"text": "changed", "more": "yes"}}); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := p.api.remove(t.Context(), uri); err != nil {
				t.Fatal(err)
			}
		}
		if i%6 == 0 {
			cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name), "data": obj{"text": "again"}}
			if _, err := p.api.create(t.Context(), collection("configmaps", namespace), cm); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSnapshotThenLive shows what each snapshot mode sends first, and that every change behind it follows.
func TestSnapshotThenLive(t *testing.T) {
	slow(t)
	t.Parallel()
	const objects = 10
	p := sharedPlane(t)
	for _, mode := range []string{"initial", "always", "never"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			namespace := "snapshot-" + mode
			p.newNamespace(t, namespace)
			p.makeConfigMaps(t, namespace, "old", objects)
			bus := startBus(t)
			a := startAgent(t, p, agentConfig{Bus: bus, Snapshot: mode, Watch: fmt.Sprintf(`
  - resources: [configmaps]
    namespaces: [%s]
`, namespace)})
			s := readStream(t, bus, p.reader())
			a.ready(t)
			var v view
			if mode == "never" {
				ready := p.now(t)
				v.NoReads = true
				v.Snapshot = func(key objectKey) (snapshot, bool) { return snapshot{Rev: ready}, key.Namespace == namespace }
			} else {
				v = viewOf(s.completed(t, "configmaps"))
			}
			p.changeConfigMaps(t, namespace, "old", objects)
			p.makeConfigMaps(t, namespace, "new", objects)
			p.changeConfigMaps(t, namespace, "new", objects)
			got := check(t, p, s, v, "configmaps")
			got.noGaps(t)
			if got.Expected < 4*objects {
				t.Errorf("%d records expected, that is too few for what was done", got.Expected)
			}
			if mode == "never" {
				for _, rec := range s.all() {
					if rec.Op == read || strings.HasPrefix(rec.Stream, "snapshot") {
						t.Errorf("%s on the bus, though no snapshot is wanted", rec.ID)
					}
				}
			}
		})
	}
}

// TestNamespaces shows that namespaces by name, by pattern and by exclusion take what they say, and nothing else.
func TestNamespaces(t *testing.T) {
	slow(t)
	p := sharedPlane(t)
	for _, tc := range []struct {
		name, namespaces string
		scopes           int
		in, out          []string
	}{
		{"literal", "[ns-lit-a, ns-lit-b]", 2, []string{"ns-lit-a", "ns-lit-b"}, []string{"ns-lit-c", "default"}},
		{"exclude", `["*", "!ns-exc-skip-*", "!kube-*"]`, 1, []string{"ns-exc-a", "default"}, []string{"ns-exc-skip-a", "kube-public"}},
		{"pattern", `["ns-pat-*"]`, 1, []string{"ns-pat-a", "ns-pat-b"}, []string{"ns-other", "default"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := append(append([]string{}, tc.in...), tc.out...)
			for _, ns := range all {
				p.newNamespace(t, ns)
				p.makeConfigMaps(t, ns, tc.name+"-old", 3)
			}
			bus := startBus(t)
			a := startAgent(t, p, agentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: ` + tc.namespaces + "\n"})
			s := readStream(t, bus, p.reader())
			a.ready(t)
			var snapshots map[scope]snapshot
			eventually(t, time.Minute, func() error {
				if snapshots = s.completed(t, "configmaps"); len(snapshots) != tc.scopes {
					return fmt.Errorf("snapshots of %d scopes, want %d: %v", len(snapshots), tc.scopes, snapshots)
				}
				return nil
			})
			for _, ns := range all {
				p.changeConfigMaps(t, ns, tc.name+"-old", 3)
				p.makeConfigMaps(t, ns, tc.name+"-new", 3)
			}
			// By the test's list, not by what the agent says of its scopes.
			v := view{Snapshot: func(key objectKey) (snapshot, bool) {
				snap, ok := viewOf(snapshots).Snapshot(key)
				for _, ns := range tc.out {
					ok = ok && key.Namespace != ns
				}
				for _, ns := range tc.in {
					if key.Namespace == ns && !ok {
						t.Errorf("namespace %s is in no scope: %v", ns, snapshots)
					}
				}
				return snap, ok
			}}
			got := check(t, p, s, v, "configmaps")
			got.noGaps(t)
			for _, rec := range s.all() {
				for _, ns := range tc.out {
					if rec.Key.Namespace == ns {
						t.Errorf("%s is on the bus, of namespace %s, which is not wanted", rec.ID, ns)
					}
				}
			}
		})
	}
}

// TestForbiddenResourceIsIsolated has an agent that may read ConfigMaps and not Secrets, until it may.
func TestForbiddenResourceIsIsolated(t *testing.T) {
	slow(t)
	const namespace = "forbidden"
	p := sharedPlane(t)
	p.newNamespace(t, namespace)
	p.makeConfigMaps(t, namespace, "old", 5)
	grant := func(resources ...string) {
		t.Helper()
		rules := []obj{{"apiGroups": []string{""}, "resources": resources, "verbs": []string{"get", "list", "watch"}}}
		role := obj{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta("e2e-restricted"), "rules": rules,
		}
		binding := obj{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta("e2e-restricted"),
			"roleRef":  obj{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-restricted"},
			"subjects": []obj{{"kind": "User", "name": controlplane.Restricted}},
		}
		const root = "/apis/rbac.authorization.k8s.io/v1/"
		for plural, o := range map[string]obj{"clusterroles": role, "clusterrolebindings": binding} {
			_, err := p.api.create(t.Context(), root+plural, o)
			if apierrors.IsAlreadyExists(err) {
				_, err = p.api.mergePatch(t.Context(), root+plural+"/e2e-restricted", o)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	grant("namespaces", "configmaps")
	client, err := newAPI(p.Config(controlplane.Restricted))
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(resource string) error {
		_, err := client.do(t.Context(), http.MethodGet, collection(resource, "")+"?limit=1", "", nil)
		return err
	}
	eventually(t, time.Minute, func() error { return allowed("configmaps") })
	if err := allowed("secrets"); !apierrors.IsForbidden(err) {
		t.Fatalf("secrets: got %v, want forbidden", err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(kubeconfig, controlplane.Restricted); err != nil {
		t.Fatal(err)
	}

	bus := startBus(t)
	a := startAgent(t, p, agentConfig{Bus: bus, Kubeconfig: kubeconfig, Watch: `
  - resources: [configmaps, secrets]
`})
	s := readStream(t, bus, p.reader())
	a.ready(t)
	s.completed(t, "configmaps")
	p.changeConfigMaps(t, namespace, "old", 5)
	eventually(t, time.Minute, func() error {
		n, err := a.metric(t.Context(), "kubecdc_informer_errors_total", `scope="secrets"`)
		if err == nil && n == 0 {
			err = errors.New("the metrics know of no error with secrets")
		}
		return err
	})
	p.makeConfigMaps(t, namespace, "new", 5)
	got := check(t, p, s, viewOf(s.completed(t, "configmaps")), "configmaps", "secrets")
	got.noGaps(t)

	grant("namespaces", "configmaps", "secrets")
	got = check(t, p, s, viewOf(s.completed(t, "configmaps", "secrets")), "configmaps", "secrets")
	got.noGaps(t)
}

// TestSIGTERMDrains stops the agent while the bus does not answer, and lets the bus go on at the same moment: what the
// agent has observed by then has to get there.
func TestSIGTERMDrains(t *testing.T) {
	slow(t)
	t.Parallel()
	const (
		namespace = "sigterm"
		objects   = 300
	)
	p := sharedPlane(t)
	p.newNamespace(t, namespace)
	bus := startBusProcess(t)
	a := startAgent(t, p, agentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: [sigterm]
`})
	s := readStream(t, bus, p.reader())
	v := viewOf(s.completed(t, "configmaps"))
	bus.freeze(t)
	p.makeConfigMaps(t, namespace, "new", objects)
	p.changeConfigMaps(t, namespace, "new", objects)
	v.Until = p.now(t)
	want := expect(p.history.of("configmaps"), v)
	live := 0
	for _, list := range want {
		for _, e := range list {
			if e.Op != read {
				live++
			}
		}
	}
	eventually(t, time.Minute, func() error {
		n := 0.0
		for _, op := range []string{created, updated, deleted} {
			// No metric yet is none.
			m, err := a.metric(t.Context(), "kubecdc_informer_deltas_total", fmt.Sprintf("op=%q", op))
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
	bus.thaw(t)
	if err := a.stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
	got := check(t, p, s, v, "configmaps")
	got.noGaps(t)
}

// TestSIGTERMInFullFlight stops the agent while writers write. Where it stops is its own affair, but what is on the bus
// has no holes: of each object everything up to some version, and nothing behind it.
func TestSIGTERMInFullFlight(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "sigterm-flight"
	p := sharedPlane(t)
	p.newNamespace(t, namespace)
	bus := startBus(t)
	a := startAgent(t, p, agentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: [sigterm-flight]
`})
	s := readStream(t, bus, p.reader())
	v := viewOf(s.completed(t, "configmaps"))
	count := p.history.countIn(namespace, "configmaps")
	written := func() int { return p.history.countIn(namespace, "configmaps") - count }
	var stopped atomic.Bool
	ws := &writers{api: p.api, done: func() bool {
		return written() >= 2_000 || stopped.Load() && written() >= 1_200
	}}
	var steps []func(context.Context) error
	for i := range 4 {
		steps = append(steps, ws.writer(fmt.Sprint("w", i), namespace, 10).configMaps)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		err := await(ctx, time.Minute, func() error {
			if written() < 1_000 {
				return errors.New("not yet")
			}
			return nil
		})
		if err == nil {
			err = a.stop(time.Minute)
		}
		stopped.Store(true)
		ended <- err
	}()
	ws.run(t, steps...)
	if err := <-ended; err != nil {
		t.Fatalf("agent, asked to stop: %v", err)
	}

	v.Until = p.now(t)
	want := expect(p.history.of("configmaps"), v)
	s.waitFor(t, want, 2*time.Second)
	last := make(map[objectKey]uint64)
	for _, rec := range s.all() {
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
		if want[key] = list[:n]; n == 0 {
			delete(want, key)
		}
		there += n
	}
	if there < 500 {
		t.Errorf("only %d records of the 1,000 revisions before the signal", there)
	}
	got := judge(want, s.all(), v)
	report(t, p, s, got.Faults)
	got.noGaps(t)
}

// TestStdoutBus reads the records from the agent's stdout.
func TestStdoutBus(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "stdout"
	p := sharedPlane(t)
	p.newNamespace(t, namespace)
	p.makeConfigMaps(t, namespace, "old", 10)
	a := startAgent(t, p, agentConfig{Watch: `
  - resources: [configmaps, secrets]
    namespaces: [stdout]
`})
	s := readLines(t, a.stdout, p.reader())
	v := viewOf(s.completed(t, "configmaps", "secrets"))
	p.changeConfigMaps(t, namespace, "old", 10)
	p.makeConfigMaps(t, namespace, "new", 10)
	secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": meta("a"), "stringData": obj{"token": secretValue()}}
	if _, err := p.api.create(t.Context(), collection("secrets", namespace), applied(secret)); err != nil {
		t.Fatal(err)
	}
	got := check(t, p, s, v, "configmaps", "secrets")
	got.noGaps(t)
	if err := a.stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
}
