package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestDiffLive changes objects after a moment of the record and compares that moment with the
// running cluster, for each way in which an agent withholds the values of Secrets.
func TestDiffLive(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	for mode, redaction := range map[string]string{
		"remove": "redaction: {mode: remove}",
		"hash":   fmt.Sprintf("redaction: {mode: hash, keyFile: %q}", hashKey(t)),
		"plain":  "redaction: {secrets: false}",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := &liveWorld{Plane: p, t: t, namespace: "live-" + mode, bus: world.StartBus(t)}
			p.NewNamespace(t, l.namespace)
			for _, name := range []string{"same", "changed", "gone", "relabelled"} {
				l.configMap(name, "a")
			}
			l.configMap("late", "b")
			l.secret("token", map[string]string{"same": "1", "changed": "1", "gone": "1"})
			world.StartAgent(t, p, world.AgentConfig{
				Bus: l.bus,
				Watch: "  - {resources: [configmaps], namespaces: [" + l.namespace +
					"], labelSelector: team=a, redact: [data.password]}\n" +
					"  - {resources: [secrets], namespaces: [" + l.namespace + "], fieldSelector: metadata.name=token}",
				Extra: "strip: [metadata.managedFields, metadata.annotations.stripped]\n" + redaction,
			})
			s := world.ReadStream(t, l.bus, p.Reader())
			s.Completed(t, "configmaps", "secrets")
			made := time.Now()
			wait.Eventually(t, 5*time.Second, func() error { // creationTimestamp has whole seconds
				if d := time.Since(made); d < 1100*time.Millisecond {
					return fmt.Errorf("%s have passed", d)
				}
				return nil
			})
			l.configMap("before", "a")
			wait.Eventually(t, 20*time.Second, func() error {
				for _, rec := range s.All() {
					if rec.Key.Name == "before" {
						return nil
					}
				}
				return fmt.Errorf("%d records, none of configmap before", len(s.All()))
			})
			at := fmt.Sprint("rv:", p.Now(t))
			if d := l.diff(at); len(d) > 0 {
				t.Errorf("nothing has changed, and the difference is %v", d)
			}

			l.patch("configmaps", "changed", map[string]any{
				"data":     map[string]any{"text": "2", "password": world.SecretValue()},
				"metadata": map[string]any{"annotations": map[string]string{"stripped": "other"}},
			})
			l.patch("configmaps", "relabelled", map[string]any{"metadata": map[string]any{"labels": map[string]string{
				"team": "b",
			}}})
			l.patch("configmaps", "late", map[string]any{"metadata": map[string]any{"labels": map[string]string{
				"team": "a",
			}}})
			l.remove("configmaps", "gone")
			l.configMap("new", "a")
			l.configMap("elsewhere", "b")
			l.patch("secrets", "token", map[string]any{
				"data": map[string]any{
					"changed": []byte(world.SecretValue()),
					"new":     []byte(world.SecretValue()),
					"gone":    nil,
				},
			})

			d := l.diff(at)
			var ops []string
			for _, x := range d {
				ops = append(ops, x.Op+" "+x.Resource+"/"+x.Name)
			}
			slices.Sort(ops)
			want := []string{
				"created configmaps/new", "deleted configmaps/gone", "entered configmaps/late",
				"left configmaps/relabelled",
				"updated configmaps/changed", "updated secrets/token",
			}
			if !slices.Equal(ops, want) {
				t.Errorf("got %q, want %q", ops, want)
			}
			l.judgeChanged(d["changed"])
			l.judgeSecret(mode, d["token"])
			if got := d["relabelled"]; got.After != nil || got.Before == nil {
				t.Errorf("an object that left: %+v", got)
			}
		})
	}
}

// TestDiffLiveOwnObjects compares a moment with the running cluster, in which only the agent's own
// checkpoint and Lease were created.
func TestDiffLiveOwnObjects(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	const namespace = "live-own"
	bus := world.StartBus(t)
	p.NewNamespace(t, namespace)
	world.StartAgent(t, p, world.AgentConfig{
		Bus:        bus,
		Watch:      "  - {resources: [configmaps, leases.coordination.k8s.io], namespaces: [" + namespace + "]}",
		Checkpoint: "{configMap: {namespace: " + namespace + ", name: state}}",
		Extra:      "leaderElection: {enabled: true, lease: lead, namespace: " + namespace + "}",
	})
	world.ReadStream(t, bus, p.Reader()).Completed(t, "configmaps", "leases.coordination.k8s.io")
	at := fmt.Sprint("rv:", p.Now(t))
	wait.Eventually(t, 60*time.Second, func() error { // the first checkpoint has no scopes yet
		cmd := exec.CommandContext(t.Context(), build.SharedAgent(t), "diff", at, "live", "--bus", bus.URL,
			"--kubeconfig", p.Kubeconfig, "-o", "table")
		var said strings.Builder
		cmd.Stderr = &said
		raw, err := cmd.Output()
		own := "never captures its own checkpoint and Lease: configmaps " + namespace +
			"/state, leases.coordination.k8s.io " + namespace + "/lead\n"
		if err != nil || !strings.Contains(said.String(), own) ||
			!strings.Contains(said.String(), "No differences found.") {
			return fmt.Errorf("%w, %s, %s", err, raw, said.String())
		}
		return nil
	})
}

func hashKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return key
}

type liveWorld struct {
	*world.Plane
	t         *testing.T
	namespace string
	bus       *world.Bus
}

type liveDifference struct {
	Op, Resource, Name string
	Before, After      map[string]any
}

// diff returns what `kubecdc diff AT live` finds, by the names of objects. No planted value may be
// in what the command prints.
func (l *liveWorld) diff(at string) map[string]liveDifference {
	l.t.Helper()
	out := map[string]liveDifference{}
	for _, format := range []string{"json", "wide", ""} {
		cmd := exec.CommandContext(l.t.Context(), build.SharedAgent(l.t), "diff", at, "live", "--bus", l.bus.URL,
			"--kubeconfig", l.Kubeconfig)
		if format != "" {
			cmd.Args = append(cmd.Args, "-o", format)
		}
		var said strings.Builder
		cmd.Stderr = &said
		raw, err := cmd.Output()
		if err != nil {
			l.t.Fatalf("%v: %v: %s", cmd.Args, err, said.String())
		}
		for _, found := range oracle.NewNeedles(world.SecretMark).
			In(oracle.Message{Body: append(raw, said.String()...)}) {
			oracle.Fail(l.t, "%v: %s", cmd.Args, found)
		}
		if format != "json" {
			continue
		}
		var answer struct{ Differences []liveDifference }
		if err := json.Unmarshal(raw, &answer); err != nil {
			l.t.Fatalf("%v: %v", err, string(raw))
		}
		for _, d := range answer.Differences {
			out[d.Name] = d
		}
	}
	return out
}

// judgeChanged checks a ConfigMap with a changed value, a value that the record redacts and one
// that it strips.
func (l *liveWorld) judgeChanged(d liveDifference) {
	l.t.Helper()
	for n, o := range []map[string]any{d.Before, d.After} {
		data, _ := o["data"].(map[string]any)
		if data["text"] != fmt.Sprint(n+1) || data["password"] != nil {
			l.t.Errorf("data of version %d: %v", n, data)
		}
		metadata, _ := o["metadata"].(map[string]any)
		if metadata["managedFields"] != nil || metadata["annotations"] != nil {
			annotations, _ := metadata["annotations"].(map[string]any)
			if len(annotations) > 0 || metadata["managedFields"] != nil {
				l.t.Errorf("version %d has what the record strips: %v", n, metadata)
			}
		}
	}
}

func (l *liveWorld) judgeSecret(mode string, d liveDifference) {
	l.t.Helper()
	before := map[string]any{"same": "***", "changed": "***", "gone": "***"}
	after := map[string]any{"same": "***", "changed": "***", "new": "***"}
	switch mode {
	case "remove":
		before, after = nil, nil
	case "plain":
		before["changed"], after["changed"] = "*** (before)", "*** (after)"
	}
	for n, want := range []map[string]any{before, after} {
		o := []map[string]any{d.Before, d.After}[n]
		got, _ := o["data"].(map[string]any)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			l.t.Errorf("data of the Secret in version %d: got %v, want %v", n, got, want)
		}
	}
}

func (l *liveWorld) configMap(name, team string) {
	l.t.Helper()
	l.create("configmaps", map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "labels": map[string]string{
			"team": team,
		}, "annotations": map[string]string{"stripped": "yes"}},
		"data": map[string]string{"text": "1", "password": world.SecretValue()},
	})
}

func (l *liveWorld) secret(name string, data map[string]string) {
	l.t.Helper()
	l.create("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}, "stringData": data,
	})
}

func (l *liveWorld) create(resource string, o map[string]any) {
	l.t.Helper()
	if _, err := l.API.Create(l.t.Context(), world.Collection(resource, l.namespace), o); err != nil {
		l.t.Fatal(err)
	}
}

func (l *liveWorld) patch(resource, name string, patch map[string]any) {
	l.t.Helper()
	if _, err := l.API.MergePatch(l.t.Context(), world.Collection(resource, l.namespace)+"/"+name, patch); err != nil {
		l.t.Fatal(err)
	}
}

func (l *liveWorld) remove(resource, name string) {
	l.t.Helper()
	if err := l.API.Remove(l.t.Context(), world.Collection(resource, l.namespace)+"/"+name); err != nil {
		l.t.Fatal(err)
	}
}
