package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"
)

// relabeller moves objects into and out of the selector team=payments. What it does next to a name depends on nothing
// but luck, so that every sequence comes up: created, changed, moved, deleted and made again, inside and outside.
type relabeller struct {
	*writer
	// inside is where each name is; not there: it does not exist.
	inside   map[string]bool
	relabels *atomic.Int64
}

func team(inside bool) string {
	if inside {
		return "payments"
	}
	return "search"
}

// step is one change of one object.
func (r *relabeller) step(ctx context.Context) error {
	all := collection("configmaps", r.namespace)
	name := r.name()
	uri := all + "/" + name
	r.n++
	make := func(inside bool) error {
		cm := obj{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, "labels", obj{"team": team(inside)}),
			"data": obj{"step": fmt.Sprint(r.n)},
		}
		_, err := r.api.create(ctx, all, cm)
		r.inside[name] = inside
		return err
	}
	relabel := func(inside bool, label any) error {
		patch := obj{"metadata": obj{"labels": obj{"team": label}}}
		if r.rng.IntN(2) == 0 {
			patch["data"] = obj{"step": fmt.Sprint(r.n)}
		}
		_, err := r.api.mergePatch(ctx, uri, patch)
		r.inside[name] = inside
		r.relabels.Add(1)
		return err
	}
	inside, exists := r.inside[name]
	if !exists {
		return make(r.rng.IntN(2) == 0)
	}
	switch r.rng.IntN(10) {
	case 0, 1:
		_, err := r.api.mergePatch(ctx, uri, obj{"data": obj{"step": fmt.Sprint(r.n)}})
		return err
	case 2:
		delete(r.inside, name)
		return r.api.remove(ctx, uri)
	case 3: // Another object of the same name at once, on either side.
		if err := r.api.remove(ctx, uri); err != nil {
			return err
		}
		return make(r.rng.IntN(2) == 0)
	case 4: // Out and in, or in and out, and then gone, as fast as can be.
		if err := relabel(!inside, team(!inside)); err != nil {
			return err
		}
		if err := relabel(inside, team(inside)); err != nil {
			return err
		}
		delete(r.inside, name)
		return r.api.remove(ctx, uri)
	case 5: // No label at all is outside, too.
		return relabel(false, nil)
	default:
		return relabel(!inside, team(!inside))
	}
}

// TestRelabelling has objects enter and leave a label selector that the API server applies. Its watch says no more than
// ADDED and DELETED; which of created, entered, left and deleted it was is for the agent to find out.
func TestRelabelling(t *testing.T) {
	slow(t)
	t.Parallel()
	relabels, objects := size[int64](300, 1_200, 3_000), size(40, 100, 200)
	const (
		namespace = "relabelling"
		writing   = 5
	)
	p := sharedPlane(t)
	p.newNamespace(t, namespace)
	for i := range 20 { // What there is before the agent, inside and outside.
		cm := obj{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": meta(fmt.Sprint("before-", i), "labels", obj{"team": team(i%2 == 0)}),
		}
		if _, err := p.api.create(t.Context(), collection("configmaps", namespace), cm); err != nil {
			t.Fatal(err)
		}
	}
	bus := startBus(t)
	startAgent(t, p, agentConfig{Bus: bus, Watch: `
  - resources: [configmaps]
    namespaces: [relabelling]
    labelSelector: team=payments
`})
	s := readStream(t, bus, p.reader())
	s.started(t, "configmaps")

	begin := time.Now()
	var done atomic.Int64
	ws := &writers{api: p.api, done: func() bool { return done.Load() >= relabels }}
	var steps []func(context.Context) error
	for i := range writing {
		r := &relabeller{
			writer: ws.writer(fmt.Sprint("r", i), namespace, objects/writing), inside: make(map[string]bool), relabels: &done,
		}
		steps = append(steps, r.step)
	}
	ws.run(t, steps...)
	wrote := time.Since(begin)

	v := viewOf(s.started(t, "configmaps"))
	v.Until = p.now(t)
	v.Selects = func(labels map[string]string) bool { return labels["team"] == "payments" }
	want := expect(p.history.of("configmaps"), v)
	s.waitFor(t, want, 20*time.Second)
	took := time.Since(begin)
	records := s.all()
	got := s.judge(want, records, v)
	report(t, p, s, got.Faults)
	report(t, p, s, s.judgeSnapshots(records))
	if len(got.Gaps) > 0 || got.Inferred > 0 {
		t.Errorf("%d gaps and %d inferred deltas, where no history was lost", len(got.Gaps), got.Inferred)
	}

	// The test is worth as much as what came up in it.
	ops, befores := make(map[string]int), 0
	for i := range records {
		ops[records[i].Op]++
		if records[i].Op == entered && records[i].Before == present {
			befores++
		}
	}
	for _, op := range []string{created, updated, deleted, read, entered, left} {
		if ops[op] == 0 {
			t.Errorf("no event %q came up: %v", op, maps.Clone(ops))
		}
	}
	t.Logf("%d relabels in %s; %d records expected, %d on the bus, %d duplicates; all there after %s; %d of %d entered with before; %s",
		done.Load(), wrote.Round(time.Millisecond), got.Expected, got.Records, got.Duplicates, took.Round(time.Millisecond),
		befores, ops[entered], countOps(records))
}
