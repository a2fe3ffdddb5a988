package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

func (x *trial) writePlain(ctx context.Context, n int) error {
	for _, p := range slices.Concat(x.plain, x.rough, x.led, []*topic{x.buffered, x.machines.pods}) {
		for k := range 3 {
			if err := p.write(ctx, x.plane.API, 4+3*n+k, 5); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *trial) writeQuiet(ctx context.Context, n int) error {
	if slices.Contains(x.topics, x.events) {
		if err := x.events.write(ctx, x.plane.API, 4+n, 5); err != nil {
			return err
		}
	}
	if n%20 != 7 {
		return nil
	}
	for _, p := range slices.Concat(x.quiet, x.still) {
		if err := p.write(ctx, x.plane.API, 4+n, 4); err != nil {
			return err
		}
	}
	return nil
}

// writeEnded writes what may not be observed, and at some beats changes what is.
func (x *trial) writeEnded(ctx context.Context, n int) error {
	now := func() time.Time { return time.Now() }
	end := func(p *topic) { p.holds[len(p.holds)-1].until = now() }
	switch n % 130 { // In ten minutes.
	case 3:
		if err := x.apples.undefine(ctx); err != nil {
			return err
		}
		end(x.defined)
		clear(x.defined.exists)
	case 8, 18:
		if err := x.apples.define(ctx); err != nil {
			return err
		}
		x.defined.holds = append(x.defined.holds, span{from: now()})
	case 13:
		if err := x.apples.undefine(ctx); err != nil {
			return err
		}
		end(x.defined)
		clear(x.defined.exists)
	case 5: // Endpoints are no longer selected.
		if err := x.steady.swap(x.steadyRules(selectorRule)); err != nil {
			return err
		}
		end(x.left)
	case 10: // They are again, and a scope without a selector replaces one with it.
		if err := x.steady.swap(x.steadyRules(leftRule + "\n" + movedRule)); err != nil {
			return err
		}
		x.left.holds = append(x.left.holds, span{from: now()})
	}
	some := []*topic{x.left, x.moved}
	if x.defined.holds[len(x.defined.holds)-1].until.IsZero() {
		some = append(some, x.defined)
	}
	for _, p := range some {
		if err := p.write(ctx, x.plane.API, 4+n, 4); err != nil {
			return err
		}
	}
	name := fmt.Sprint("other-", n%3) // Outside of the selector, and then gone.
	other := x.moved.make(name, fmt.Sprint(n))
	other["metadata"].(obj)["labels"] = obj{"team": "search"}
	if n%6 >= 3 {
		return x.plane.API.Remove(ctx, x.moved.collection()+"/"+name)
	}
	_, err := x.plane.API.Create(ctx, x.moved.collection(), other)
	return err
}

// newFiltered returns topics with an agent that withholds some changes, one for each kind of
// filter.
func newFiltered(api *world.API) []*topic {
	where := newTopic("filtered", "configmaps", "q-where", "ConfigMap", nil)
	where.withhold = func(ctx context.Context, n int) error {
		return where.update(ctx, api, "it-0", fmt.Sprint("noise-", n))
	}
	operations := newTopic("filtered", "secrets", "q-ops", "Secret", nil)
	operations.withhold = func(ctx context.Context, n int) error {
		name := fmt.Sprint("it-", n%4)
		if !operations.exists[name] {
			return nil
		}
		delete(operations.exists, name)
		return api.Remove(ctx, operations.collection()+"/"+name)
	}
	out := []*topic{where, operations}
	noisy := func(resource, kind string, body obj, patch func(n int) (path string, change obj)) {
		p := newTopic("filtered", resource, "q-noise", kind, body)
		p.withhold = func(ctx context.Context, n int) error {
			path, change := patch(n)
			_, err := api.MergePatch(ctx, p.collection()+path, change)
			return err
		}
		out = append(out, p)
	}
	noisy(oracle.Widgets, "Widget", nil, func(n int) (string, obj) {
		return "/it-0/status", obj{"status": obj{"n": n}}
	})
	noisy("leases.coordination.k8s.io", "Lease", obj{"spec": obj{"holderIdentity": "a"}}, func(int) (string, obj) {
		return "/it-0", obj{"spec": obj{"renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")}}
	})
	addresses := func(n int) []obj {
		return []obj{{"addresses": []obj{{"ip": fmt.Sprint("10.0.0.", 1+n%250)}}, "ports": []obj{{"port": 80}}}}
	}
	noisy("endpoints", "Endpoints", obj{"subsets": addresses(0)}, func(n int) (string, obj) {
		return "/it-0", obj{"subsets": addresses(n + 1)}
	})
	// Another manager applies the same value.
	managed := newTopic("filtered", "serviceaccounts", "q-noise", "ServiceAccount", nil)
	managed.withhold = func(ctx context.Context, n int) error {
		o := obj{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": obj{"name": "it-0", "labels": obj{
			"team": "payments",
		}}}
		_, err := api.Apply(ctx, managed.collection()+"/it-0", fmt.Sprint("manager-", n), o)
		return err
	}
	return append(out, managed)
}

// writeFiltered makes changes that filters withhold, takes a snapshot, and makes others.
func (x *trial) writeFiltered(ctx context.Context, n int) error {
	const cycle = 32 // Much longer than a minute: spans that are nearer count as one.
	api := x.plane.API
	all := x.filtered
	switch n % cycle {
	case 0:
		for _, p := range all {
			p.hide()
		}
		fallthrough
	case 1, 2:
		for _, p := range all {
			if err := p.withhold(ctx, n); err != nil {
				return fmt.Errorf("%s: %w", p.collection(), err)
			}
		}
		return nil
	case 3:
		return x.snapshotFiltered(ctx, all)
	}
	for _, p := range all {
		name := fmt.Sprint("it-", n%4)
		if p.exists[name] {
			if err := p.update(ctx, api, name, fmt.Sprint("step-", n)); err != nil {
				return err
			}
			continue
		}
		if _, err := api.Create(ctx, p.collection(), p.make(name, fmt.Sprint("step-", n))); err != nil {
			return err
		}
		p.exists[name] = true
	}
	return nil
}

// snapshotFiltered takes a snapshot of filtered topics, after which their answers are exact.
func (x *trial) snapshotFiltered(ctx context.Context, all []*topic) error {
	var ids []string
	for _, p := range all {
		err := wait.For(ctx, 90*time.Second, func() error { // The agent may be killed, or still be catching up.
			some, err := x.filters.RequestSnapshot(ctx, p.resource, p.namespace)
			ids = append(ids, some...)
			return err
		})
		if err != nil {
			return err
		}
	}
	err := wait.For(ctx, time.Minute, func() error {
		done := 0
		for _, rec := range x.stream.All() {
			if rec.Stream == oracle.SnapshotCompleted && slices.Contains(ids, rec.Snapshot) {
				done++
			}
		}
		if done < len(ids) {
			return errors.New("the snapshots are not complete")
		}
		return nil
	})
	x.shown.Store(time.Now().UnixNano())
	for _, p := range all { // The agent learns a little later that the snapshot is acknowledged.
		p.show(time.Now().Add(grace))
	}
	return err
}
