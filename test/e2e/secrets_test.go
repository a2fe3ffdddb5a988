package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	vaults    = "vaults." + oracle.WidgetsGroup
	plantedIn = "planted"
)

// planted is a set of objects with values that must not leak, and the search for these values.
type planted struct {
	*world.Plane
	hay *oracle.Haystack
	n   int
	// where has the place in which each value was planted.
	where map[string]string
	// last has the revision of the last write of each object.
	last map[oracle.ObjectKey]uint64
}

// value plants a new value in a place. It includes characters that each format escapes differently.
func (p *planted) value(where string) string {
	v := "\"" + rand.Text() + "\" <é>+/" + rand.Text()
	p.hay.Plant(v)
	p.where[v] = where
	return v
}

// plantedRules redact values outside of Secrets.
const plantedRules = `
  - resources: [secrets]
    namespaces: [planted]
  - resources: [deployments.apps]
    namespaces: [planted]
    where: 'op != "u" || int(after.spec.template.spec.containers[0].env[0].value) > 0'
    redact: ["spec.template.spec.containers[*].env[*].value"]
  - resources: [configmaps]
    namespaces: [planted]
    labelSelector: app=planted
    redact: ["data.token", "binaryData[*]"]
  - resources: [configmaps]
    namespaces: [planted]
    redact: ["data.token", "binaryData[*]"]
  - resources: [` + vaults + `]
    namespaces: [planted]
    redact: ["spec.tokens[*]", "spec.entries[*].value", "spec.keyed[*]"]
`

// openRules select the same objects and redact nothing.
const openRules = `
  - resources: [secrets, deployments.apps, configmaps, ` + vaults + `]
    namespaces: [planted]
`

// step writes an object of each kind under a name, with new values.
func (p *planted) step(t *testing.T, name string, large int) {
	t.Helper()
	p.n++
	put := func(resource, name string, o obj) {
		t.Helper()
		o["metadata"].(obj)["name"] = name
		o = world.Applied(o)
		annotations := o["metadata"].(obj)["annotations"].(obj)
		annotations["kapp.k14s.io/original"] = annotations[oracle.LastApplied] // Another tool stores a copy there.
		// Controllers copy tokens.
		annotations["openshift.io/token-secret.value"] = p.value("openshift annotation")
		annotations["vcluster.loft.sh/token-"+name] = p.value("vcluster annotation")
		if resource == "secrets" {
			annotations["example.com/backup"] = p.value("annotation of a Secret")
		}
		if resource == "configmaps" && o["data"].(obj)["release"] == nil {
			o["data"].(obj)["text"] = world.Noise(large) // It does not fit into an annotation.
		}
		all := world.Collection(resource, plantedIn)
		raw, err := p.API.Create(t.Context(), all, o)
		if apierrors.IsAlreadyExists(err) {
			raw, err = p.API.MergePatch(t.Context(), all+"/"+name, o)
		}
		p.wrote(t, resource, raw, err)
	}
	put("secrets", name, obj{
		"apiVersion": "v1", "kind": "Secret", "metadata": obj{},
		"stringData": obj{"password": p.value("stringData"), "json": `{"a":"` + p.value("stringData, JSON") + `"}`},
	})
	put("configmaps", name, obj{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": obj{"labels": obj{
			"app": []string{"planted", "other"}[p.n%2],
		}},
		"data": obj{"token": p.value("data.token"), "step": fmt.Sprint(p.n)},
	})
	put("configmaps", releaseOf(name), obj{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": obj{"labels": obj{"owner": "helm"}}, "data": obj{
			"release": p.value("Helm's release"),
		},
	})
	env := []obj{{"name": "A", "value": p.value("env")}, {"name": "B", "value": p.value("env")}}
	labels := obj{"app": name}
	put("deployments.apps", name, obj{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": obj{},
		"spec": obj{
			"replicas": 1, "selector": obj{"matchLabels": labels},
			"template": obj{"metadata": obj{"labels": labels}, "spec": obj{"containers": []obj{{
				"name":  "web",
				"image": "x",
				"env":   env,
			}}}},
		},
	})
	vault := obj{
		"apiVersion": oracle.WidgetsGroup + "/v1", "kind": "Vault", "metadata": world.Meta(name),
		"spec": obj{
			// managedFields includes the members of sets and the keys of lists, with their values.
			"tokens": []string{p.value("set")}, "keyed": []obj{{"key": p.value("list key"), "step": p.n}},
			// As Karmada, Open Cluster Management and Crossplane embed what they apply elsewhere.
			"manifests": []obj{
				{"apiVersion": "v1", "kind": "ConfigMap", "data": obj{"step": fmt.Sprint(p.n)}},
				{"apiVersion": "v1", "kind": "Secret", "metadata": obj{"name": name}, "data": obj{
					"k": p.value("embedded data"),
				}},
				{"wrapped": []obj{{"apiVersion": "v1", "kind": "Secret", "stringData": obj{
					"k": p.value("embedded stringData"),
				}}}},
			},
			"entries": []obj{{"value": p.value("entry"), "step": p.n}},
		},
	}
	raw, err := p.API.Apply(t.Context(), world.Collection(vaults, plantedIn)+"/"+name, "planter", vault)
	p.wrote(t, vaults, raw, err)
}

// releaseOf returns the name of the ConfigMap in which Helm stores a release.
func releaseOf(name string) string { return "sh.helm.release.v1." + name + ".v1" }

// wrote records the revision in the API server's answer.
func (p *planted) wrote(t *testing.T, resource string, raw []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	v, err := oracle.ReadVersion(resource, 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	p.last[v.Key] = v.Rev
}

// remove deletes the objects of one name.
func (p *planted) remove(t *testing.T, name string) {
	t.Helper()
	for _, resource := range []string{"secrets", "configmaps", "deployments.apps", vaults} {
		if err := p.API.Remove(t.Context(), world.Collection(resource, plantedIn)+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.API.Remove(t.Context(), world.Collection("configmaps", plantedIn)+"/"+releaseOf(name)); err != nil {
		t.Fatal(err)
	}
}

// plant creates the objects that exist before any agent.
func plant(t *testing.T) *planted {
	t.Helper()
	p := &planted{
		// Without a watch cache, the API server loses history when etcd compacts it.
		Plane: world.StartPlane(t, controlplane.Options{NoControllerManager: true, Uncached: []string{
			"secrets", "configmaps", "deployments.apps", vaults,
		}}),
		hay: oracle.NewHaystack(), where: make(map[string]string), last: make(map[oracle.ObjectKey]uint64),
	}
	p.NewNamespace(t, plantedIn)
	crd := obj{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": obj{"name": vaults},
		"spec": obj{
			"group": oracle.WidgetsGroup, "scope": "Namespaced",
			"names": obj{"plural": "vaults", "singular": "vault", "kind": "Vault", "listKind": "VaultList"},
			"versions": []obj{{"name": "v1", "served": true, "storage": true, "schema": obj{"openAPIV3Schema": obj{
				"type": "object", "properties": obj{"spec": obj{"type": "object", "properties": obj{
					"tokens": obj{"type": "array", "x-kubernetes-list-type": "set", "items": obj{"type": "string"}},
					"entries": obj{"type": "array", "items": obj{
						"type":                                 "object",
						"x-kubernetes-preserve-unknown-fields": true,
					}},
					"manifests": obj{"type": "array", "items": obj{
						"type":                                 "object",
						"x-kubernetes-preserve-unknown-fields": true,
					}},
					"keyed": obj{
						"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"key"},
						"items": obj{"type": "object", "required": []string{"key"}, "properties": obj{
							"key": obj{"type": "string"}, "step": obj{"type": "integer"},
						}},
					},
				}}},
			}}}},
		},
	}
	if _, err := p.API.Create(t.Context(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		_, err := p.API.Get(t.Context(), world.Collection(vaults, plantedIn))
		return err
	})
	p.step(t, "first", 100)
	p.step(t, "large-first", 300<<10)
	return p
}

// leak is an agent, and everything that leaves it, by destination.
type leak struct {
	*world.Agent
	*planted
	stream     *world.Stream
	bus        *world.Bus // Nil means stdout.
	checkpoint string
	out        map[string][]byte
	traces     *rawTraces

	mu     sync.Mutex
	stdout bytes.Buffer
}

// Write implements io.Writer for the agent's stdout.
func (l *leak) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stdout.Write(text)
}

// watch starts an agent.
func (p *planted) watch(t *testing.T, rules, extra string, to *world.Bus) *leak {
	t.Helper()
	l := &leak{
		planted:    p,
		out:        make(map[string][]byte),
		checkpoint: filepath.Join(t.TempDir(), "checkpoint.json"),
		bus:        to,
		traces:     startRawTraces(t),
	}
	c := world.AgentConfig{
		Watch: rules, Checkpoint: fmt.Sprintf("{file: {path: %q}}", l.checkpoint),
		Extra: fmt.Sprintf(
			"log: {level: debug}\ntracing: {enabled: true, endpoint: %q, sampleRatio: 1}\nnoise: [managed-fields-only]\n",
			l.traces.URL) + extra,
	}
	// The search checks the contents of the events, not the reader.
	r := &oracle.Reader{Cluster: world.ClusterName, ClusterUID: p.UID, Shallow: true, MayTruncate: true}
	if to != nil {
		c.Bus = to
		l.Agent = world.StartAgent(t, p.Plane, c)
		l.stream = world.ReadStream(t, to, r)
	} else {
		l.Agent = world.StartAgent(t, p.Plane, c)
		t.Cleanup(func() { l.Agent.Finish(t) }) // Before the reader is waited for.
		l.stream = world.ReadLines(t, io.TeeReader(l.Agent.Stdout, l), r)
		t.Cleanup(func() { _ = l.Agent.Stop(time.Minute) }) // This ends the output; Finish reports the result.
	}
	return l
}

// look stores the responses of the running agent.
func (l *leak) look(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/metrics", "/status", "/readyz", "/healthz", "/"} {
		text, err := l.Agent.Get(t.Context(), path)
		if err != nil && path != "/" && path != "/healthz" { // These may not be served.
			t.Errorf("GET %s: %v", path, err)
		}
		if err != nil {
			text += err.Error()
		}
		l.out["GET "+path] = append(l.out["GET "+path], text...)
	}
}

// command stores the output of a command.
func (l *leak) command(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, build.SharedAgent(t), args...)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%.500s", strings.Join(args, " "), err, out)
	}
	l.out[strings.Join(args, " ")] = out
}

// collect stores the contents of the files and of the bus.
func (l *leak) collect(t *testing.T) {
	t.Helper()
	for name, path := range map[string]string{"log": l.Agent.Log, "checkpoint": l.checkpoint} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		l.out[name] = text
	}
	l.out["traces"] = l.traces.bytes()
	if l.bus == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.out["stdout"] = bytes.Clone(l.stdout.Bytes())
		return
	}
	conn, err := nats.Connect(l.bus.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		l.collectStream(t, js, name)
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
}

// collectStream stores every message of a stream: records, dead letters, and events in the object
// store.
func (l *leak) collectStream(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	state := s.CachedInfo().State
	for seq := max(1, state.FirstSeq); seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // Rolled up: an object in the store has only one metadata message.
		}
		if err != nil {
			t.Fatal(err)
		}
		where := "stream " + name
		if m.Subject == world.DeadSubject() {
			where = "dead letters"
		}
		l.out["headers"] = fmt.Appendf(l.out["headers"], "%s %v\n", m.Subject, m.Header)
		l.out[where] = append(l.out[where], m.Data...) // Concatenated, because a value may span two chunks.
	}
}

// settle waits until the bus has the last revision of each written object.
func (l *leak) settle(t *testing.T) {
	t.Helper()
	wait.Eventually(t, 2*time.Minute, func() error {
		if l.Agent.Ended() {
			t.Fatalf("the agent has ended: %v", l.Agent.Err)
		}
		known := make(map[oracle.ObjectKey]uint64)
		records := l.stream.All()
		for i := range records {
			rec := &records[i]
			known[rec.Key] = max(known[rec.Key], rec.Rev)
		}
		for _, letter := range l.stream.Dead() {
			known[letter.Key] = max(known[letter.Key], letter.Rev)
		}
		for key, rev := range l.last {
			if known[key] < rev {
				return fmt.Errorf("%s has records up to revision %d, want %d", key, known[key], rev)
			}
		}
		return nil
	})
	l.look(t)
}

// TestPlantedSecrets plants values wherever Secrets and redacted fields can have them, and subjects
// agents to every kind of change and restart. It then searches everything that leaves the agents
// for the values and for parts of them. One agent redacts nothing, to show that the search works.
func TestPlantedSecrets(t *testing.T) {
	t.Parallel()
	p := plant(t)
	small := func() *world.Bus { // Large objects do not fit.
		o := world.BusOptions(server.RANDOM_PORT, t.TempDir())
		o.MaxPayload = 144 << 10
		return &world.Bus{URL: world.StartServer(t, o).ClientURL()}
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(rand.Text()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const limit = "event: {maxBytes: 131072}\n"
	hash := fmt.Sprintf("redaction: {mode: hash, keyFile: %q}\n", key)
	agents := map[string]*leak{
		// With nothing stripped, only redaction removes further copies of the values.
		"removed":      p.watch(t, plantedRules, limit+"strip: []\n", small()),
		"hashed":       p.watch(t, plantedRules, limit+hash+"strip: []\n", small()),
		"dead letters": p.watch(t, plantedRules, limit+hash+"claimCheck: {}\noversize: [patch, before]\n", small()),
		"stdout":       p.watch(t, plantedRules, "", nil),
		"open":         p.watch(t, openRules, limit+"redaction: {secrets: false}\n", small()),
	}
	const large = 300 << 10
	each := func(do func(l *leak)) {
		for _, l := range agents {
			do(l)
		}
	}
	settle := func() { each(func(l *leak) { l.settle(t) }) }
	again := func(end func(l *leak), meanwhile func()) {
		each(func(l *leak) {
			if l.bus != nil {
				end(l)
			}
		})
		meanwhile()
		each(func(l *leak) {
			if l.bus != nil {
				l.Agent.Again(t)
			}
		})
		settle()
	}
	settle()
	for i := range 3 {
		p.step(t, fmt.Sprint("live-", i%2), 100)
		p.step(t, "large", large)
	}
	p.remove(t, "live-0")
	settle()
	// Resumed from the checkpoint.
	again(func(l *leak) { l.Agent.Crash() }, func() {
		p.step(t, "live-1", 100)
		p.step(t, "large", large)
	})
	// History is lost: a gap, and another snapshot.
	again(func(l *leak) {
		if err := l.Agent.Stop(time.Minute); err != nil {
			t.Error(err)
		}
	}, func() {
		p.step(t, "live-1", 100)
		p.step(t, "born-in-the-gap", large)
		p.Now(t)
		if err := p.Compact(t.Context(), int64(p.Now(t))); err != nil {
			t.Fatal(err)
		}
	})
	p.step(t, "live-1", 100)
	settle()
	each(func(l *leak) {
		if l.bus == nil {
			return
		}
		for _, how := range [][]string{{"--diff"}, {"-o", "yaml"}, {"-o", "json"}, {"-o", "wide"}} {
			l.command(t, append([]string{"tail", "--bus", l.bus.URL, "--no-follow", "--since", "all"}, how...)...)
		}
		l.command(t, "status", "--agent", l.Agent.URL)
	})
	each(func(l *leak) {
		if err := l.Agent.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		l.collect(t)
	})

	for name, l := range agents {
		t.Run(name, func(t *testing.T) {
			if name == "open" {
				l.finds(t)
			} else {
				l.findsNothing(t)
			}
			if gaps := bytes.Count(l.out["stream "+world.StreamName], []byte(`"reason":"compacted"`)); l.bus != nil &&
				gaps == 0 {
				t.Error("no history was lost: this part of the test shows nothing")
			}
		})
	}
	for _, place := range []string{"dead letters"} {
		if len(agents["dead letters"].out[place]) == 0 {
			t.Errorf("nothing in the %s: this part of the test shows nothing", place)
		}
	}
}

// findsNothing fails the test if anything that left the agent has a planted value.
func (l *leak) findsNothing(t *testing.T) {
	t.Helper()
	total := 0
	for _, where := range []string{"log", "checkpoint", "traces", "GET /metrics", "GET /status", "GET /readyz"} {
		if len(l.out[where]) == 0 {
			t.Errorf("nothing of %s was kept: this part of the test shows nothing", where)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(l.out)) {
		if f := l.hay.Find(l.out[where]); f != "" {
			oracle.Fail(t, "%s: a planted value: %s", where, f)
		}
		total += len(l.out[where])
	}
	t.Logf("%d values, looked for in %s: %v", len(l.hay.Values), world.MiB(int64(total)),
		slices.Sorted(maps.Keys(l.out)))
}

// finds is findsNothing for an agent that redacts nothing: each value must be in its records. No
// other output may have a value, except that of tail.
func (l *leak) finds(t *testing.T) {
	t.Helper()
	var records []byte
	for where, text := range l.out {
		switch {
		case strings.HasPrefix(where, "stream "):
			records = append(records, text...)
		case strings.HasPrefix(where, "tail "):
		default:
			if f := l.hay.Find(text); f != "" {
				oracle.Fail(t, "%s: a planted value: %s", where, f)
			}
		}
	}
	found := l.hay.Found(records)
	missed := make(map[string]int)
	for v := range l.hay.Values {
		if !found[v] {
			missed[l.where[v]]++
		}
	}
	if len(missed) > 0 {
		t.Errorf("the search does not find what is there: %v", missed)
	}
	t.Logf("%d of %d values found where nothing is redacted", len(found), len(l.hay.Values))
}
