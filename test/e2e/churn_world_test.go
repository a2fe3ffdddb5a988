package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// churnPatience is the limit for waiting for one condition: fifty resources at once are much for a
// small machine.
const churnPatience = 3 * time.Minute

// kind is a custom resource that is defined and deleted.
type kind struct {
	plane         *world.Plane
	plural, group string
	// version is the one that writers use.
	version atomic.Pointer[string]

	// For the goroutine that defines it.
	defined     []uint64    // The resourceVersion of each new definition.
	established []time.Time // When it became established.
	acts        []act
}

// act is an operation on a definition.
type act struct {
	What string // "define", "change" or "undefine"
	From uint64 // The revision before it.
	At   time.Time
	Gaps int // The number of gaps that it explains.
}

// doing records an operation before it is done.
func (k *kind) doing(ctx context.Context, what string) error {
	from, err := k.plane.History.Revision(ctx)
	k.acts = append(k.acts, act{What: what, From: from, At: time.Now()})
	return err
}

// cause returns the operation that explains a gap, or "" for none: the last one before the end of
// the gap. The API server ends watches some time after an operation, and twice if it deletes
// objects before the definition. So no operation explains more than two gaps.
func (k *kind) cause(g *oracle.Record) string {
	for i := len(k.acts) - 1; i >= 0; i-- {
		a := &k.acts[i]
		if a.From >= g.To {
			continue // It was done after the gap.
		}
		if a.Gaps < 2 {
			a.Gaps++
			return a.What
		}
		if a.From < g.From {
			break
		}
	}
	return ""
}

// hindered reports whether the definition changed or was deleted after a gap began and before it
// was announced: the agent's requests meanwhile may have failed.
func (k *kind) hindered(g *oracle.Record) bool {
	return slices.ContainsFunc(k.acts, func(a act) bool {
		return a.What != "define" && a.From >= g.From && a.At.Before(g.Stored)
	})
}

// explained returns the cause of a gap, and reports whether that cause explains the gap. History
// remains, so a gap is not recovered only if the definition changed or was deleted before the agent
// could list. Objects of a renewed kind may be read again.
func (k *kind) explained(g *oracle.Record, renewed bool) (cause string, ok bool) {
	if renewed && g.Reason == oracle.SelectionChanged && g.Recovered && g.From == g.To {
		return "another version", true
	}
	cause = k.cause(g)
	return cause, cause != "" && (g.Recovered || cause != "define" || k.hindered(g))
}

func newKind(p *world.Plane, test, plural string) *kind {
	k := &kind{plane: p, plural: plural, group: churnGroupOf(test)}
	k.writes("v1")
	return k
}

func churnGroupOf(test string) string { return test + "." + oracle.ChurnGroup }

func (k *kind) writes(version string) { k.version.Store(&version) }

func (k *kind) resource() string { return k.plural + "." + k.group }

func (k *kind) collection(namespace string) string {
	return "/apis/" + k.group + "/" + *k.version.Load() + "/namespaces/" + namespace + "/" + k.plural
}

// crdVersion returns an entry of spec.versions of a CRD.
func crdVersion(name string, served, storage bool) obj {
	return obj{
		"name": name, "served": served, "storage": storage,
		"schema": obj{"openAPIV3Schema": obj{
			"type": "object", "properties": obj{"spec": obj{
				"type":                                 "object",
				"x-kubernetes-preserve-unknown-fields": true,
			}},
		}},
	}
}

// define makes the definition and waits until it is established.
func (k *kind) define(ctx context.Context) error {
	if err := k.doing(ctx, "define"); err != nil {
		return err
	}
	crd := obj{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": obj{
			"name": k.resource(),
		},
		"spec": obj{
			"group": k.group, "scope": "Namespaced",
			"names": obj{
				"plural":   k.plural,
				"singular": k.plural + "x",
				"kind":     "K" + k.plural,
				"listKind": "K" + k.plural + "List",
			},
			"versions": []obj{crdVersion("v1", true, true)},
		},
	}
	k.writes("v1")
	raw, err := k.plane.API.Create(ctx, crds, crd)
	if err != nil {
		return fmt.Errorf("define %s: %w", k.plural, err)
	}
	var made struct {
		Metadata struct {
			ResourceVersion uint64 `json:"resourceVersion,string"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return fmt.Errorf("define %s: %w", k.plural, err)
	}
	k.defined = append(k.defined, made.Metadata.ResourceVersion)
	return wait.For(ctx, churnPatience, func() error {
		raw, err := k.plane.API.Get(ctx, crds+"/"+k.resource())
		if err != nil {
			return err
		}
		var c struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		for _, cond := range c.Status.Conditions {
			if cond.Type == "Established" && cond.Status == "True" {
				k.established = append(k.established, time.Now())
				return nil
			}
		}
		return fmt.Errorf("%s is not established", k.plural)
	})
}

// change gives the definition other versions.
func (k *kind) change(ctx context.Context, versions ...obj) error {
	if err := k.doing(ctx, "change"); err != nil {
		return err
	}
	_, err := k.plane.API.MergePatch(ctx, crds+"/"+k.resource(), obj{"spec": obj{"versions": versions}})
	if err != nil {
		return fmt.Errorf("change %s: %w", k.plural, err)
	}
	return nil
}

// written waits for n more revisions of objects.
func (k *kind) written(ctx context.Context, n int) error {
	want := k.plane.History.Count(k.resource()) + n
	return wait.For(ctx, churnPatience, func() error {
		if have := k.plane.History.Count(k.resource()); have < want {
			return fmt.Errorf("%s has %d revisions of %d", k.plural, have, want)
		}
		return nil
	})
}

// delivered waits until the bus has a record of the resource at etcd's current revision or later.
func (k *kind) delivered(ctx context.Context, s *world.Stream) error {
	rev, err := k.plane.History.Revision(ctx)
	if err != nil {
		return err
	}
	seen := 0
	return wait.For(ctx, churnPatience, func() error {
		all := s.All()
		for i := range all[seen:] {
			if rec := &all[seen+i]; rec.Key.Resource == k.resource() && rec.Rev >= rev {
				return nil
			}
		}
		seen = len(all)
		return fmt.Errorf("the bus has nothing of %s from revision %d on", k.plural, rev)
	})
}

// unserved waits until the API server no longer serves the resource.
func (k *kind) unserved(ctx context.Context) error {
	return wait.For(ctx, churnPatience, func() error {
		if _, err := k.plane.API.Get(ctx, k.collection("churn-a")); !apierrors.IsNotFound(err) {
			return errors.Join(fmt.Errorf("%s is still served", k.plural), err)
		}
		return nil
	})
}

// undefine deletes the definition and waits until it and all its objects are gone.
func (k *kind) undefine(ctx context.Context) error {
	if err := k.doing(ctx, "undefine"); err != nil {
		return err
	}
	if err := k.plane.API.Remove(ctx, crds+"/"+k.resource()); err != nil {
		return fmt.Errorf("undefine %s: %w", k.plural, err)
	}
	return wait.For(ctx, churnPatience, func() error {
		if _, err := k.plane.API.Get(ctx, crds+"/"+k.resource()); !apierrors.IsNotFound(err) {
			return errors.Join(fmt.Errorf("%s is still there", k.plural), err)
		}
		return nil
	})
}

// churner writes to a resource that may not exist.
type churner struct {
	*kind
	rng       *rand.Rand
	namespace string
	n         int
}

func (c *churner) object(name string) obj {
	c.n++
	return obj{
		"apiVersion": c.group + "/" + *c.version.Load(), "kind": "K" + c.plural, "metadata": obj{
			"name":   name,
			"labels": obj{"n": fmt.Sprint(c.n)},
		},
		"spec": obj{"n": c.n, "text": fmt.Sprintf("%d \"quoted\" é %x", c.n, c.rng.Uint64())},
	}
}

// step changes an object. It ignores tolerable errors, such as a missing resource.
func (c *churner) step(ctx context.Context) error {
	api, all := c.plane.API, c.collection(c.namespace)
	name := fmt.Sprint("o-", c.rng.IntN(6))
	uri := all + "/" + name
	var err error
	switch c.rng.IntN(7) {
	case 0, 1:
		_, err = api.Create(ctx, all, c.object(name))
	case 2, 3:
		_, err = api.MergePatch(ctx, uri, obj{"spec": obj{"n": c.rng.IntN(1000), "more": nil}})
	case 4:
		o := c.object(name)
		delete(o["metadata"].(obj), "labels")
		_, err = api.Apply(ctx, uri, "red", o)
	case 5:
		err = api.Remove(ctx, uri)
	case 6: // Created and deleted at once.
		if _, err = api.Create(ctx, all, c.object(name)); err == nil {
			err = api.Remove(ctx, uri)
		}
	}
	if churnTolerable(err) || ctx.Err() != nil {
		return nil
	}
	return err
}

// churnTolerable reports whether an error is acceptable for a write to a resource that is being
// defined, changed or deleted. etcd's history shows whether the write took place.
func churnTolerable(err error) bool {
	var uerr *url.Error
	return world.Tolerable(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsForbidden(err) ||
		apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInvalid(err) ||
		errors.As(err, &uerr)
}

// write runs n writers until stop is called, which returns their first error. Each writer pauses
// now and then, so that the resources share the machine.
func (k *kind) write(ctx context.Context, n int, pace time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			seed := uint64(i)
			for _, c := range k.plural {
				seed = seed*131 + uint64(c)
			}
			c := &churner{kind: k, rng: rand.New(rand.NewPCG(seed, 42)), namespace: []string{"churn-a", "churn-b"}[i%2]}
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for {
				if err := c.step(ctx); err != nil {
					errs[i] = err
					return
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() error {
		cancel()
		wg.Wait()
		return errors.Join(errs...)
	}
}

// startsOf waits until the bus has the start of a snapshot of each kind, and returns all starts, by
// resource, in order.
func startsOf(t *testing.T, s *world.Stream, kinds []*kind) map[string][]oracle.Record {
	t.Helper()
	var resources []string
	for _, k := range kinds {
		resources = append(resources, k.resource())
	}
	return startsOfResources(t, s, resources...)
}

// startsOfResources is startsOf for resources by name.
func startsOfResources(t *testing.T, s *world.Stream, resources ...string) map[string][]oracle.Record {
	t.Helper()
	var out map[string][]oracle.Record
	wait.Eventually(t, time.Minute, func() error {
		out = map[string][]oracle.Record{}
		seen := map[string]bool{}
		for _, rec := range s.All() {
			if rec.Stream == oracle.SnapshotStarted && !seen[rec.ID] {
				seen[rec.ID] = true
				out[rec.Scope.Resource] = append(out[rec.Scope.Resource], rec)
			}
		}
		for _, resource := range resources {
			if len(out[resource]) == 0 {
				return fmt.Errorf("the bus has no snapshot of %s", resource)
			}
		}
		return nil
	})
	return out
}

// churnView returns the view of an agent whose scopes began with these snapshots.
func churnView(starts map[string][]oracle.Record) oracle.View {
	of := func(key oracle.ObjectKey) (out []oracle.Snapshot) {
		for _, rec := range starts[key.Resource] {
			out = append(out, oracle.Snapshot{ID: rec.Snapshot, Rev: rec.Rev})
		}
		return out
	}
	return oracle.View{
		Snapshot: func(key oracle.ObjectKey) (oracle.Snapshot, bool) {
			all := of(key)
			if len(all) == 0 {
				return oracle.Snapshot{}, false
			}
			return all[0], true
		},
		Later: func(key oracle.ObjectKey) []oracle.Snapshot { return of(key)[1:] },
	}
}

// arrived waits until the bus has all expected records, except those that a gap covers. It does not
// wait for silence, because the progress events of fifty scopes never cease. It returns the records
// and the oracle's verdict, and fails the test at the limit.
func arrived(
	t *testing.T, s *world.Stream, kinds []*kind, want func(oracle.View) map[oracle.ObjectKey][]oracle.Expectation,
	until uint64,
) (records []oracle.Record, got oracle.Verdict) {
	t.Helper()
	err := wait.For(t.Context(), churnPatience, func() error {
		v := churnView(startsOf(t, s, kinds)) // A snapshot may have started since.
		v.Until = until
		records = s.All()
		got = s.Judge(want(v), records, v)
		for _, f := range got.Faults {
			if f.Kind == "missing" || f.Kind == "final state" {
				world.Pass(t.Context(), time.Second) // Judging is expensive.
				return fmt.Errorf("%v", f)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("after %s: %v", churnPatience, err)
	}
	return records, got
}
