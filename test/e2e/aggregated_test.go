package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// annex is an agent on a cluster that aggregates other API servers.
type annex struct {
	*world.Plane
	*world.Stream
	agent      *world.Agent
	extensions []*extension
	beats      int
	spells     map[*extension][]spell
}

// spell is a time in which an extension was away, as its resourceVersions when it left and when it
// came back.
type spell struct{ From, To uint64 }

// beat creates objects that the cluster's own API server serves, and waits for their records.
func (x *annex) beat(t *testing.T) {
	t.Helper()
	x.beats++
	name := fmt.Sprint("beat-", x.beats)
	for _, o := range []obj{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": world.Meta(name)},
		{"apiVersion": "v1", "kind": "Event", "metadata": world.Meta(name), "involvedObject": obj{
			"namespace": extensionNamespace,
		}},
	} {
		if _, err := x.API.Create(t.Context(),
			world.Collection(strings.ToLower(o["kind"].(string))+"s", extensionNamespace), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, resource := range []string{"configmaps", "events.events.k8s.io"} {
		wait.Eventually(t, time.Minute, func() error {
			key := oracle.ObjectKey{Resource: resource, Namespace: extensionNamespace, Name: name}
			if !slices.ContainsFunc(x.All(),
				func(r oracle.Record) bool { return r.Key == key && (r.Op == oracle.Created || r.Op == oracle.Read) }) {
				return fmt.Errorf("no record of %s", key)
			}
			return nil
		})
	}
}

// caughtUp waits until a consumer of the bus has the same state as the extensions.
func (x *annex) caughtUp(t *testing.T) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		for _, e := range x.extensions {
			if err := sameState(stateOf(x.All(), e.resource()), e.history(), math.MaxUint64); err != nil {
				return fmt.Errorf("%s: %w", e.group, err)
			}
		}
		return nil
	})
}

// away stops the extensions, changes their objects, and restarts them. Meanwhile the bus gets no
// events for their objects, and all other resources continue.
func (x *annex) away(t *testing.T, what, refusal string, leave, comeBack func(e *extension)) {
	t.Helper()
	x.caughtUp(t)
	from := len(x.All())
	for _, e := range x.extensions {
		e.stop()
		leave(e)
		from := e.now()
		e.churn(t, 20)
		x.spells[e] = append(x.spells[e], spell{from, e.now()})
	}
	if refusal != "" { // The agent has detected it.
		wait.Eventually(t, time.Minute, func() error {
			for _, e := range x.extensions {
				reason, err := x.failureOf(t.Context(), e.resource())
				if err != nil {
					return err
				}
				if reason == "" || !strings.HasSuffix(refusal, "_"+reason) {
					return fmt.Errorf("no watch of %s was refused: %s, the status has %q", e.resource(), refusal,
						reason)
				}
			}
			return nil
		})
	}
	x.beat(t)
	for _, r := range x.All()[from:] {
		for _, e := range x.extensions {
			if r.Key.Resource == e.resource() || r.Scope.Resource == e.resource() && r.Stream != oracle.Progress {
				oracle.Fail(t, "%s: while %s is away, the bus has %s%s, id %s", what, e.resource(), r.Op, r.Stream,
					r.ID)
			}
		}
	}
	for _, e := range x.extensions {
		e.start(t)
		comeBack(e)
	}
	back := time.Now()
	x.caughtUp(t)
	t.Logf("%s: the changes made meanwhile are on the bus %s after the cluster has found it", what,
		time.Since(back).Round(time.Millisecond))
	for _, e := range x.extensions {
		e.churn(t, 20)
	}
	x.caughtUp(t)
}

// failureOf returns the class of the failure of a resource's scope, as the agent's status has it;
// "": its last request succeeded.
func (x *annex) failureOf(ctx context.Context, resource string) (string, error) {
	text, err := x.agent.Get(ctx, "/status")
	if err != nil {
		return "", err
	}
	var status struct {
		Scopes []struct{ Resource, Reason string }
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return "", err
	}
	for _, s := range status.Scopes {
		if s.Resource == resource {
			return s.Reason, nil
		}
	}
	return "", fmt.Errorf("the status has no scope of %s", resource)
}

// TestAggregated stops and restarts two API servers that the cluster aggregates: unavailable,
// unregistered, and unregistered while the agent is down too. Their absence deletes nothing.
// Changes made meanwhile are sent, and a gap reports lost history. The histories of the two servers
// are the truth.
func TestAggregated(t *testing.T) {
	slow(t)
	t.Parallel()
	// Aggregated API servers that are away disturb the discovery of every agent.
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	p.NewNamespace(t, extensionNamespace)
	if _, err := p.API.Create(t.Context(), world.Collection("services", extensionNamespace), obj{
		"apiVersion": "v1", "kind": "Service", "metadata": world.Meta("annex"), "spec": obj{
			"type":         "ExternalName",
			"externalName": "127.0.0.1",
		},
	}); err != nil {
		t.Fatal(err)
	}
	// One numbers its versions from above etcd's revisions, the other from below: they are
	// unrelated.
	exact := newExtension(t, p, "exact.annex.e2e.kubecdc.dev", true, 5_000_000)
	plain := newExtension(t, p, "plain.annex.e2e.kubecdc.dev", false, 10)
	x := &annex{Plane: p, extensions: []*extension{exact, plain}, spells: map[*extension][]spell{}}
	for _, e := range x.extensions {
		e.churn(t, 10)
		e.start(t)
		e.register(t)
	}
	apples := newKind(p, "annex", "apples")
	if err := apples.define(t.Context()); err != nil {
		t.Fatal(err)
	}
	bus := world.StartBus(t)
	x.agent = world.StartAgent(t, p, world.AgentConfig{
		Bus: bus, Watch: fmt.Sprintf("  - resources: [configmaps]\n    namespaces: [%s]\n"+
			"  - resources: [events.events.k8s.io]\n"+
			"  - resources: [\"*.%s\", \"*.%s\", \"*.%s\"]", extensionNamespace, exact.group, plain.group,
			apples.group),
	})
	x.agent.Ready(t)
	x.Stream = world.ReadStream(t, bus, p.Reader())
	starts := x.Completed(t, "configmaps", exact.resource(), plain.resource(), apples.resource())
	stop := writeOn(t, p)
	defer stop()
	for _, e := range x.extensions {
		e.churn(t, 30)
	}

	x.away(t, "unavailable", "watch_server_error",
		func(e *extension) { e.available(t, "False") }, func(e *extension) { e.available(t, "True") })
	x.away(t, "unregistered", "watch_not_found",
		func(e *extension) { e.unregister(t) }, func(e *extension) {
			e.forget()
			e.register(t)
		})
	x.caughtUp(t)
	if err := x.agent.Stop(time.Minute); err != nil {
		t.Fatalf("agent: %v", err)
	}
	if err := apples.undefine(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.away(t, "one unavailable, one unregistered, and the agent restarted", "",
		func(e *extension) {
			if e == exact {
				e.available(t, "False")
				return
			}
			e.unregister(t)
			x.agent.Again(t)
			x.agent.Ready(t)
			// One unavailable extension does not keep the agent from detecting that the definition
			// of another resource is gone.
			wait.Eventually(t, time.Minute, func() error {
				if n := len(startsOfResources(t, x.Stream, apples.resource())[apples.resource()]); n != 2 {
					return fmt.Errorf("the bus has %d snapshots of %s, which was deleted", n, apples.resource())
				}
				return nil
			})
			if err := x.agent.Stop(time.Minute); err != nil {
				t.Fatalf("agent: %v", err)
			}
			x.agent.Again(t) // The agent keeps its position in a resource that is not served at one start.
			x.agent.Ready(t)
		}, func(e *extension) {
			if e == exact {
				e.available(t, "True")
			} else {
				e.register(t)
			}
		})
	stop()

	// An extension that returns with all its history is resumed as if it had never been away. If a
	// watch cannot resume, exact lists recover the missed changes. If these fail as well, the gap
	// is marked as not recovered.
	x.judge(t, exact.resource(), exact.history(), churnView(startsOfResources(t, x.Stream, exact.resource())),
		lostSpell{spell: x.spells[exact][1], Recovered: true})
	x.judge(t, plain.resource(), plain.history(), churnView(startsOfResources(t, x.Stream, plain.resource())),
		lostSpell{spell: x.spells[plain][1]}, lostSpell{spell: x.spells[plain][2]})
	if n := len(startsOfResources(t, x.Stream, exact.resource())[exact.resource()]); n != 1 {
		oracle.Fail(t, "%s was read %d times", exact.resource(), n)
	}
	v := world.ViewOf(starts)
	v.Until = p.Now(t)
	x.judge(t, "configmaps", p.History.Of("configmaps"), v)
	if err := x.agent.Stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
}

// lostSpell is an expected gap.
type lostSpell struct {
	spell
	Recovered bool
}

// judge compares the records of a resource with its history.
func (x *annex) judge(
	t *testing.T, resource string, history map[oracle.ObjectKey][]*oracle.Version, v oracle.View, lost ...lostSpell,
) {
	t.Helper()
	want := oracle.Expect(history, v)
	if len(lost) == 0 {
		x.WaitFor(t, want, 30*time.Second)
	}
	records := slices.DeleteFunc(slices.Clone(x.All()), func(r oracle.Record) bool {
		return r.Key.Resource != resource && r.Scope.Resource != resource
	})
	got := oracle.Judge(want, records, v)
	world.Report(t, x.Plane, x.Stream, got.Faults)
	world.Report(t, x.Plane, x.Stream, oracle.JudgeSnapshots(records))
	var gaps []lostSpell
	for i := range got.Gaps {
		g := &got.Gaps[i]
		gaps = append(gaps, lostSpell{spell{g.From, g.To}, g.Recovered})
		if g.Reason != oracle.Expired {
			oracle.Fail(t, "%s: gap from %d to %d: %s", resource, g.From, g.To, g.Reason)
		}
	}
	if !slices.Equal(gaps, lost) {
		oracle.Fail(t, "%s: gaps %+v, want %+v", resource, gaps, lost)
	}
	t.Logf("%s: %d records expected, %d on the bus (%s), %d gaps, %d records inside them, %d inferred", resource,
		got.Expected, got.Records,
		countOps(records), len(got.Gaps), got.InGaps, got.Inferred)
}

// writeOn changes a ConfigMap continuously until stop is called.
func writeOn(t *testing.T, p *world.Plane) (stop func()) {
	t.Helper()
	all := world.Collection("configmaps", extensionNamespace)
	if _, err := p.API.Create(t.Context(), all, obj{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   world.Meta("busy"),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := p.API.MergePatch(ctx, all+"/busy", obj{"data": obj{
				"n": fmt.Sprint(n),
			}}); err != nil && ctx.Err() == nil {
				t.Errorf("writer: %v", err)
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}

// TestReloadOnAnIdleExtension changes the selection of an aggregated resource to which nothing is
// written. The new scope begins, the old one ends, and the left events follow with the next
// version.
func TestReloadOnAnIdleExtension(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	p.NewNamespace(t, extensionNamespace)
	if _, err := p.API.Create(t.Context(), world.Collection("services", extensionNamespace), obj{
		"apiVersion": "v1", "kind": "Service", "metadata": world.Meta("annex"), "spec": obj{
			"type":         "ExternalName",
			"externalName": "127.0.0.1",
		},
	}); err != nil {
		t.Fatal(err)
	}
	e := newExtension(t, p, "idle.annex.e2e.kubecdc.dev", true, 5_000_000)
	e.churn(t, 10)
	e.start(t)
	e.register(t)
	bus := world.StartBus(t)
	rule := fmt.Sprintf("  - resources: [%q]\n", e.resource())
	first := rule + "  - resources: [configmaps]"
	a := &reloaded{Agent: world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: first}), watch: first}
	a.file = a.Argv[slices.Index(a.Argv, "--config")+1]
	a.Ready(t)
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, e.resource())
	notes := func() (n int) {
		for key, versions := range e.history() {
			if last := versions[len(versions)-1]; key.Resource == e.resource() && !last.Deleted {
				n++
			}
		}
		return n
	}()
	idle := e.now()
	// has waits until the bus has a number of records of one kind of a scope.
	has := func(what, scope, kind, op string, want int) (rev uint64) {
		t.Helper()
		wait.Eventually(t, time.Minute, func() error {
			n := 0
			for _, rec := range s.All() {
				isOfScope := rec.Scope.Text == scope || rec.Stream == "" && rec.Key.Resource == e.resource()
				if isOfScope && rec.Stream == kind && rec.Op == op {
					n, rev = n+1, rec.Rev
				}
			}
			if n != want {
				return fmt.Errorf("%s: %d records of kind %q, op %q of %s, want %d", what, n, kind, op, scope, want)
			}
			return nil
		})
		return rev
	}
	if err := a.swap(
		rule + fmt.Sprintf("    namespaces: [%s]\n  - resources: [configmaps]", extensionNamespace)); err != nil {
		t.Fatal(err)
	}
	within := e.resource() + "/" + extensionNamespace
	has("selected by namespace", e.resource(), oracle.ScopeEnded, "", 1)
	has("selected by namespace", within, oracle.ScopeStarted, "", 1)
	has("selected by namespace", within, oracle.SnapshotCompleted, "", 1)
	if err := a.swap("  - resources: [configmaps]"); err != nil {
		t.Fatal(err)
	}
	has("selected no more", within, oracle.ScopeEnded, "", 1)
	has("selected no more", within, "", oracle.Left, 0)
	if now := e.now(); now != idle {
		t.Fatalf("the extension has the version %d, and had %d", now, idle)
	}
	e.churn(t, 3)
	if rev := has("after the next version", within, "", oracle.Left, notes); rev != idle+1 {
		t.Errorf("the notes left at %d, want %d", rev, idle+1)
	}
}
