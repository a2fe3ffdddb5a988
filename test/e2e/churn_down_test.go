package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestGoneWhileDown deletes a definition while no agent runs. The fate of its objects can no longer
// be found out: the next agent sends a gap and an empty snapshot, so that consumers drop the
// objects. After a new definition of the same name, its first objects are created, not read.
func TestGoneWhileDown(t *testing.T) {
	slow(t)
	t.Parallel()
	p := churnPlane(t, world.BarePlane(t))
	k := newKind(p, "gone", "pears")
	if err := k.define(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, c := k.collection("churn-a"), &churner{kind: k, rng: rand.New(rand.NewPCG(3, 42))}
	create := func(name string) {
		t.Helper()
		wait.Eventually(t, time.Minute, func() error { // It is served a moment later.
			_, err := p.API.Create(t.Context(), all, c.object(name))
			return err
		})
	}
	create("one")
	create("two")
	bus := world.StartBus(t)
	config := world.AgentConfig{
		Bus:        bus,
		Watch:      churnWatch("gone"),
		Checkpoint: fmt.Sprintf("{file: {path: %q}}", filepath.Join(t.TempDir(), "checkpoint.json")),
	}
	a := world.StartAgent(t, p, config)
	s := world.ReadStream(t, bus, p.Reader())
	first := s.Completed(t, k.resource())
	a.Ready(t)
	if err := p.API.Remove(t.Context(), all+"/one"); err != nil {
		t.Fatal(err)
	}
	v := world.ViewOf(first)
	p.Now(t)
	s.WaitFor(t, oracle.Expect(p.History.Of(k.resource()), v), 30*time.Second)
	if err := a.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}

	create("three") // The agent never observes it.
	if err := k.undefine(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone := p.Now(t)
	begin := len(s.All())
	world.StartAgent(t, p, config)
	wait.Eventually(t, time.Minute, func() error {
		for _, rec := range s.All()[begin:] {
			if rec.Stream == oracle.SnapshotCompleted {
				return nil
			}
		}
		return fmt.Errorf("the bus has no snapshot of the resource that is gone")
	})
	records := s.All()[begin:]
	if g := records[0]; g.Stream != oracle.Gap || g.Recovered || g.Reason != "expired" || g.To < gone {
		oracle.Fail(t, "the first record of the second run is %+v, want a gap that ends at %d or behind", g, gone)
	}
	for _, rec := range records {
		if rec.Op != "" || rec.Stream == oracle.SnapshotCompleted && rec.Objects != 0 {
			oracle.Fail(t, "the bus has op %q of %s, and %d objects in a snapshot, where nothing is", rec.Op, rec.Key,
				rec.Objects)
		}
	}

	if err := k.define(t.Context()); err != nil {
		t.Fatal(err)
	}
	create("four")
	v.Later = churnView(startsOf(t, s, []*kind{k})).Later
	v.Until = p.Now(t)
	s.WaitFor(t, map[oracle.ObjectKey][]oracle.Expectation{{}: {born(t, p, k, "four")}}, time.Minute)
	v.Later = churnView(startsOf(t, s, []*kind{k})).Later
	want, records := oracle.Expect(p.History.Of(k.resource()), v), s.All()
	got := s.Judge(want, records, v)
	world.Report(t, p, s, got.Faults)
	world.Report(t, p, s, s.JudgeSnapshots(records))
	if len(got.Gaps) != 1 || got.Swept != 1 {
		oracle.Fail(t, "%d gaps, and %d objects swept away, want one of each", len(got.Gaps), got.Swept)
	}
}

// born returns the expectation for an object that was just created.
func born(t *testing.T, p *world.Plane, k *kind, name string) oracle.Expectation {
	t.Helper()
	versions := p.History.Of(k.resource())[oracle.ObjectKey{Resource: k.resource(), Namespace: "churn-a", Name: name}]
	if len(versions) != 1 {
		t.Fatalf("etcd has %d versions of %s, want one", len(versions), name)
	}
	return oracle.Expectation{ID: oracle.ChangeID(versions[0]), Op: oracle.Created}
}
