package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// TestGoneWhileDown deletes a definition while no agent runs. Nobody can tell any more what became of the objects: the next agent says
// so, and that there is nothing, so that whoever has them drops them. Another one of that name begins with its birth.
func TestGoneWhileDown(t *testing.T) {
	slow(t)
	t.Parallel()
	p := churnPlane(t, barePlane(t))
	k := newKind(p, "gone", "pears")
	if err := k.define(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, c := k.collection("churn-a"), &churner{kind: k, rng: rand.New(rand.NewPCG(3, 42))}
	create := func(name string) {
		t.Helper()
		eventually(t, time.Minute, func() error { // It is served a moment later.
			_, err := p.api.create(t.Context(), all, c.object(name))
			return err
		})
	}
	create("one")
	create("two")
	bus := startBus(t)
	config := agentConfig{
		Bus: bus, Watch: churnWatch("gone"), Checkpoint: fmt.Sprintf("{file: {path: %q}}", filepath.Join(t.TempDir(), "checkpoint.json")),
	}
	a := startAgent(t, p, config)
	s := readStream(t, bus, p.reader())
	first := s.completed(t, k.resource())
	a.ready(t)
	if err := p.api.remove(t.Context(), all+"/one"); err != nil {
		t.Fatal(err)
	}
	v := viewOf(first)
	p.now(t)
	s.waitFor(t, expect(p.history.of(k.resource()), v), 30*time.Second)
	if err := a.stop(time.Minute); err != nil {
		t.Fatal(err)
	}

	create("three") // Nobody will hear of it.
	if err := k.undefine(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone := p.now(t)
	begin := len(s.all())
	startAgent(t, p, config)
	eventually(t, time.Minute, func() error {
		for _, rec := range s.all()[begin:] {
			if rec.Stream == snapshotCompleted {
				return nil
			}
		}
		return fmt.Errorf("the bus has no snapshot of the resource that is gone")
	})
	told := s.all()[begin:]
	if g := told[0]; g.Stream != gap || g.Recovered || g.Reason != "expired" || g.To < gone {
		t.Errorf("the first record of the second run is %+v, want a gap that ends at %d or behind", g, gone)
	}
	for _, rec := range told {
		if rec.Op != "" || rec.Stream == snapshotCompleted && rec.Objects != 0 {
			t.Errorf("the bus has op %q of %s, and %d objects in a snapshot, where nothing is", rec.Op, rec.Key, rec.Objects)
		}
	}

	if err := k.define(t.Context()); err != nil {
		t.Fatal(err)
	}
	create("four")
	v.Later = churnView(startsOf(t, s, []*kind{k})).Later
	v.Until = p.now(t)
	s.waitFor(t, map[objectKey][]expectation{{}: {born(t, p, k, "four")}}, time.Minute)
	v.Later = churnView(startsOf(t, s, []*kind{k})).Later
	want, records := expect(p.history.of(k.resource()), v), s.all()
	got := s.judge(want, records, v)
	report(t, p, s, got.Faults)
	report(t, p, s, s.judgeSnapshots(records))
	if len(got.Gaps) != 1 || got.Swept != 1 {
		t.Errorf("%d gaps, and %d objects swept away, want one of each", len(got.Gaps), got.Swept)
	}
}

// born is what the bus has to have of an object that was just created.
func born(t *testing.T, p *plane, k *kind, name string) expectation {
	t.Helper()
	versions := p.history.of(k.resource())[objectKey{Resource: k.resource(), Namespace: "churn-a", Name: name}]
	if len(versions) != 1 {
		t.Fatalf("etcd has %d versions of %s, want one", len(versions), name)
	}
	return expectation{ID: changeID(versions[0]), Op: created}
}
