package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// churnPlane gives a control plane the namespaces of the churners.
func churnPlane(t *testing.T, p *world.Plane) *world.Plane {
	t.Helper()
	p.NewNamespace(t, "churn-a")
	p.NewNamespace(t, "churn-b")
	return p
}

func churnWatch(test string) string { return `  - resources: ["*.` + churnGroupOf(test) + `"]` }

// TestBirth defines a resource while the agent watches. Its first objects are created, not read,
// including one that is deleted before the agent can have listed it. There is no gap.
func TestBirth(t *testing.T) {
	slow(t)
	t.Parallel()
	p := churnPlane(t, world.BarePlane(t))
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: churnWatch("birth")})
	a.Ready(t)
	s := world.ReadStream(t, bus, p.Reader())

	k := newKind(p, "birth", "apples")
	for round := range 2 { // The second time under the same name.
		if err := k.define(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := &churner{kind: k}
		c.rng = rand.New(rand.NewPCG(uint64(round), 42))
		all := k.collection("churn-a")
		for _, name := range []string{"short", "long"} {
			wait.Eventually(t, time.Minute, func() error { // It is served a moment later.
				_, err := p.API.Create(t.Context(), all, c.object(name))
				return err
			})
		}
		if err := p.API.Remove(t.Context(), all+"/short"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.API.MergePatch(t.Context(), all+"/long", obj{"spec": obj{"n": 7}}); err != nil {
			t.Fatal(err)
		}
		starts := startsOf(t, s, []*kind{k})
		v := churnView(starts)
		s.WaitFor(t, oracle.Expect(p.History.Of(k.resource()), v), 30*time.Second)
		if round == 0 {
			if err := k.undefine(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.Now(t)
			s.WaitFor(t, oracle.Expect(p.History.Of(k.resource()), v), 30*time.Second)
			wait.Eventually(t, time.Minute, func() error { // The agent drops its scope.
				n, err := a.Metric(t.Context(), "kubecdc_informer_scopes")
				if err == nil && n != 0 {
					err = fmt.Errorf("%v scopes are observed, where nothing is defined", n)
				}
				return err
			})
		}
	}

	v := churnView(startsOf(t, s, []*kind{k}))
	v.Until = p.Now(t)
	want := oracle.Expect(p.History.Of(k.resource()), v)
	s.WaitFor(t, want, 30*time.Second)
	records := s.All()
	got := s.Judge(want, records, v)
	world.Report(t, p, s, got.Faults)
	world.Report(t, p, s, s.JudgeSnapshots(records))
	got.NoGaps(t)
	var ops []string
	for i := range records {
		if records[i].Op != "" {
			ops = append(ops, records[i].Key.Name+" "+records[i].Op)
		}
	}
	slices.Sort(ops)
	one := []string{"long c", "long c", "long d", "long u", "long u", "short c", "short c", "short d", "short d"}
	if !slices.Equal(ops, one) {
		oracle.Fail(t, "the bus has %q, want %q", ops, one)
	}
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
}

// TestChurn defines, changes, deletes and redefines many custom resources while writers write
// continuously, and compares the stream with etcd's history.
func TestChurn(t *testing.T) {
	slow(t)
	t.Parallel()
	const before, rounds, atOnce = 5, 2, 8
	resources := size(20, 20, 50)
	hasty := func(n int) bool { return n%5 == 3 } // Deleted right after a change.
	// Served in another version: objects may be read again, as after a restart.
	renewed := func(n int) bool { return n%10 == 4 }
	// The definitions keep the API server busy: a controller manager and other tests would add to
	// that.
	p := churnPlane(t, world.StartPlane(t, controlplane.Options{NoControllerManager: true}))
	var kinds []*kind
	for n := range resources {
		kinds = append(kinds, newKind(p, "many", fmt.Sprintf("things%02d", n)))
	}
	old := kinds[:before] // Defined before the agent starts.
	for _, k := range old {
		if err := k.define(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := &churner{kind: k, rng: rand.New(rand.NewPCG(1, 42))}
		wait.Eventually(t, time.Minute, func() error {
			_, err := p.API.Create(t.Context(), k.collection("churn-a"), c.object("first"))
			return err
		})
	}
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: churnWatch("many")})
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, old[0].resource())
	a.Ready(t)

	begin := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(atOnce)
	for n, k := range kinds {
		g.Go(func() error {
			stop := k.write(ctx, 2, 25*time.Millisecond)
			for round := range rounds {
				if round > 0 || n >= before {
					if err := k.define(ctx); err != nil {
						return err
					}
				}
				if err := k.written(ctx, 20); err != nil {
					return err
				}
				if n%2 == 0 || hasty(n) { // Another storage version, and another preferred one.
					if err := k.change(ctx, crdVersion("v1", true, false), crdVersion("v2", true, true)); err != nil {
						return err
					}
					if err := k.written(ctx, 20); err != nil {
						return err
					}
				}
				if renewed(n) { // The old version is no longer served.
					if err := k.change(ctx, crdVersion("v1", false, false), crdVersion("v2", true, true)); err != nil {
						return err
					}
					k.writes("v2")
					if err := k.written(ctx, 20); err != nil {
						return err
					}
				}
				if n%10 == 1 { // No version is served for a while: that deletes nothing.
					if err := k.change(ctx, crdVersion("v1", false, true)); err != nil {
						return err
					}
					if err := k.unserved(ctx); err != nil {
						return err
					}
					if err := k.change(ctx, crdVersion("v1", true, true)); err != nil {
						return err
					}
					if err := k.written(ctx, 20); err != nil {
						return err
					}
				}
				if !hasty(n) {
					// Otherwise it goes while the agent may still be reading missed changes: they
					// cannot be read then.
					if err := k.delivered(ctx, s); err != nil {
						return err
					}
				}
				if round < rounds-1 || n%3 == 0 { // Deleted while it is written to.
					if err := k.undefine(ctx); err != nil {
						return err
					}
				}
			}
			return stop()
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	churned := time.Since(begin)

	var names []string
	for _, k := range kinds {
		names = append(names, k.resource())
	}
	until := p.Now(t)
	records, got := arrived(t, s, kinds, func(v oracle.View) map[oracle.ObjectKey][]oracle.Expectation {
		return oracle.Expect(p.History.Of(names...), v)
	}, until)
	world.Report(t, p, s, got.Faults)
	world.Report(t, p, s, s.JudgeSnapshots(records))

	starts := startsOf(t, s, kinds)
	var late []time.Duration
	reads, kept := 0, 0
	for n, k := range kinds {
		for i, at := range k.established {
			if n < before && i == 0 {
				continue
			}
			// If it was defined again before its informer ended, that informer may have continued.
			born := slices.IndexFunc(starts[k.resource()], func(rec oracle.Record) bool {
				return rec.Rev >= k.defined[i] && (i+1 == len(k.defined) || rec.Rev < k.defined[i+1])
			})
			if born < 0 {
				kept++
				continue
			}
			late = append(late, max(0, starts[k.resource()][born].Stored.Sub(at)))
		}
	}
	for i := range records {
		n := slices.IndexFunc(kinds, func(k *kind) bool { return k.resource() == records[i].Key.Resource })
		if records[i].Op == oracle.Read && n >= before && !renewed(n) {
			reads++
		}
	}
	if reads > 0 {
		oracle.Fail(t, "%d objects were read of what was defined while the agent watched", reads)
	}
	whole := 0
	for i := range got.Gaps {
		for _, start := range starts[got.Gaps[i].Scope.Resource] {
			if start.Rev == got.Gaps[i].From {
				whole--
			}
		}
	}
	whole += len(late)
	slices.Sort(late)
	// Each gap has a cause: an operation on the definition that made the API server end the watch.
	recovered, causes := 0, make(map[string]int)
	for i := range got.Gaps {
		g := &got.Gaps[i]
		n := slices.IndexFunc(kinds, func(k *kind) bool { return k.resource() == g.Scope.Resource })
		if g.Recovered {
			recovered++
		}
		cause, ok := kinds[n].explained(g, renewed(n))
		causes[cause]++
		if !ok {
			oracle.Fail(t, "gap of %s from %d to %d (%s, recovered %t), explained by %q of what was done: %v",
				g.Scope.Text, g.From, g.To, g.Reason, g.Recovered, cause, kinds[n].acts)
		}
	}
	t.Logf(
		"%d resources defined %d times, changed and deleted for %s, %d revisions of their objects; %d records expected, %d on the bus (%s), %d duplicates; "+
			"%d gaps (%d recovered, because of %v), %d records inside them, %d inferred; %d of %d births without a gap, %d informers went on",
		resources, len(late)+kept+before, churned.Round(time.Millisecond), p.History.Count(names...), got.Expected,
		got.Records, countOps(records), got.Duplicates,
		len(got.Gaps), recovered, causes, got.InGaps, got.Inferred, whole, len(late), kept)
	t.Logf("from established to the first record of the resource: median %s, worst %s",
		late[len(late)/2].Round(time.Millisecond), late[len(late)-1].Round(time.Millisecond))
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
}
