package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// relabeller moves objects into and out of the selector team=payments. The next change of a name is
// drawn at random, so that every sequence occurs: created, changed, moved, deleted and created
// again, inside and outside.
type relabeller struct {
	*world.Writer
	// inside holds the side of each name. Names without an entry do not exist.
	inside   map[string]bool
	relabels *atomic.Int64
}

// step makes one change of one object.
func (r *relabeller) step(ctx context.Context) error {
	all := world.Collection("configmaps", r.Namespace)
	name := r.Name()
	uri := all + "/" + name
	r.N++
	make := func(inside bool) error {
		cm := obj{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": world.Meta(name, "labels", obj{
				"team": world.Team(inside),
			}),
			"data": obj{"step": fmt.Sprint(r.N)},
		}
		_, err := r.API.Create(ctx, all, cm)
		r.inside[name] = inside
		return err
	}
	relabel := func(inside bool, label any) error {
		patch := obj{"metadata": obj{"labels": obj{"team": label}}}
		if r.RNG.IntN(2) == 0 {
			patch["data"] = obj{"step": fmt.Sprint(r.N)}
		}
		_, err := r.API.MergePatch(ctx, uri, patch)
		r.inside[name] = inside
		r.relabels.Add(1)
		return err
	}
	inside, exists := r.inside[name]
	if !exists {
		return make(r.RNG.IntN(2) == 0)
	}
	switch r.RNG.IntN(10) {
	case 0, 1:
		_, err := r.API.MergePatch(ctx, uri, obj{"data": obj{"step": fmt.Sprint(r.N)}})
		return err
	case 2:
		delete(r.inside, name)
		return r.API.Remove(ctx, uri)
	case 3: // Another object of the same name at once, on either side.
		if err := r.API.Remove(ctx, uri); err != nil {
			return err
		}
		return make(r.RNG.IntN(2) == 0)
	case 4: // Out and in, or in and out, and then deleted, as fast as possible.
		if err := relabel(!inside, world.Team(!inside)); err != nil {
			return err
		}
		if err := relabel(inside, world.Team(inside)); err != nil {
			return err
		}
		delete(r.inside, name)
		return r.API.Remove(ctx, uri)
	case 5: // An object without the label is outside, too.
		return relabel(false, nil)
	default:
		return relabel(!inside, world.Team(!inside))
	}
}

// TestRelabelling moves objects into and out of a label selector that the API server applies. Its
// watch only sends ADDED and DELETED. The agent has to find out whether that means created,
// entered, left or deleted.
func TestRelabelling(t *testing.T) {
	slow(t)
	t.Parallel()
	relabels, objects := size[int64](300, 1_200, 3_000), size(40, 100, 200)
	const (
		namespace = "relabelling"
		writing   = 5
	)
	p := world.SharedPlane(t)
	p.NewNamespace(t, namespace)
	for i := range 20 { // Objects that exist before the agent starts, inside and outside.
		cm := obj{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": world.Meta(fmt.Sprint("before-", i), "labels", obj{"team": world.Team(i%2 == 0)}),
		}
		if _, err := p.API.Create(t.Context(), world.Collection("configmaps", namespace), cm); err != nil {
			t.Fatal(err)
		}
	}
	bus := world.StartBus(t)
	world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: [relabelling]
    labelSelector: team=payments
`})
	s := world.ReadStream(t, bus, p.Reader())
	s.Started(t, "configmaps")

	begin := time.Now()
	var done atomic.Int64
	ws := &world.Writers{API: p.API, Done: func() bool { return done.Load() >= relabels }}
	var steps []func(context.Context) error
	for i := range writing {
		r := &relabeller{
			Writer:   ws.Writer(fmt.Sprint("r", i), namespace, objects/writing),
			inside:   make(map[string]bool),
			relabels: &done,
		}
		steps = append(steps, r.step)
	}
	ws.Run(t, steps...)
	wrote := time.Since(begin)

	v := world.ViewOf(s.Started(t, "configmaps"))
	v.Until = p.Now(t)
	v.Selects = func(labels map[string]string) bool { return labels["team"] == "payments" }
	want := oracle.Expect(p.History.Of("configmaps"), v)
	s.WaitFor(t, want, 20*time.Second)
	took := time.Since(begin)
	records := s.All()
	got := s.Judge(want, records, v)
	world.Report(t, p, s, got.Faults)
	world.Report(t, p, s, s.JudgeSnapshots(records))
	got.NoGaps(t)

	// The test is only meaningful if each case occurred.
	ops, befores := make(map[string]int), 0
	for i := range records {
		ops[records[i].Op]++
		if records[i].Op == oracle.Entered && records[i].Before == oracle.Present {
			befores++
		}
	}
	for _, op := range []string{
		oracle.Created, oracle.Updated, oracle.Deleted, oracle.Read, oracle.Entered, oracle.Left,
	} {
		if ops[op] == 0 {
			t.Errorf("no event %q came up: %v", op, maps.Clone(ops))
		}
	}
	t.Logf(
		"%d relabels in %s; %d records expected, %d on the bus, %d duplicates; all there after %s; %d of %d entered with before; %s",
		done.Load(), wrote.Round(time.Millisecond), got.Expected, got.Records, got.Duplicates,
		took.Round(time.Millisecond),
		befores, ops[oracle.Entered], countOps(records))
}
