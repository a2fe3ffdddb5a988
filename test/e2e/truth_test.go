package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// truthResources are the resources that TestTruth's agent observes: those of the writers, and those
// that the controller manager and the API server write.
var truthResources = []string{
	"configmaps", "secrets", "serviceaccounts", "pods", "deployments.apps", "replicasets.apps", oracle.Widgets,
}

// TestTruth has writers change all kinds of objects at full speed and then compares the stream with
// etcd's own history.
func TestTruth(t *testing.T) {
	revisions := size(2_000, 5_000, 20_000)
	p := world.SharedPlane(t)
	namespaces := []string{"truth-a", "truth-b"}
	for _, ns := range namespaces {
		p.NewNamespace(t, ns)
	}
	for i := range 200 { // Objects that exist before the agent starts.
		name := fmt.Sprint("before-", i)
		ns := namespaces[i%2]
		cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": world.Meta(name), "data": obj{"text": name}}
		if _, err := p.API.Create(t.Context(), world.Collection("configmaps", ns), cm); err != nil {
			t.Fatal(err)
		}
		secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": world.Meta(name), "stringData": obj{
			"text": world.SecretValue(),
		}}
		if _, err := p.API.Create(t.Context(), world.Collection("secrets", ns), world.Applied(secret)); err != nil {
			t.Fatal(err)
		}
	}

	bus := world.StartBus(t)
	stock := world.Serve(t, p, truthResources...)
	before := p.Now(t)
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - resources: [" + strings.Join(truthResources, ", ") + "]",
	})
	s := world.ReadStream(t, bus, p.Reader())
	// Not completed: writes during a snapshot are the interesting part.
	snapshots := s.Started(t, truthResources...)
	for sc, snap := range snapshots {
		if snap.Rev < before {
			oracle.Fail(t, "snapshot of %s at revision %d, which is older than the agent (%d)", sc.Text, snap.Rev,
				before)
		}
	}

	begin, count := time.Now(), p.History.Count(truthResources...)
	written := func() int { return p.History.Count(truthResources...) - count }
	ws := &world.Writers{API: p.API, Done: func() bool { return written() >= revisions }}
	var steps []func(context.Context) error
	for _, ns := range namespaces {
		for i := range 3 {
			steps = append(steps, ws.Writer(fmt.Sprint("cm", i), ns, 15).ConfigMaps)
		}
		steps = append(steps,
			ws.Writer("secret", ns, 15).Secrets,
			ws.Writer("deploy", ns, 8).Deployments,
			ws.Writer("widget", ns, 15).Widgets,
			ws.Writer("left", ns, 3).Shared,
			ws.Writer("right", ns, 3).Shared,
		)
	}
	ws.Run(t, steps...)
	writing := time.Since(begin)

	// The controllers have work left.
	wait.Settled(t, 2*time.Second, 2*time.Minute, p.History.ChangesIn(namespaces...))
	until := p.Now(t)
	v := world.ViewOf(s.Started(t, truthResources...))
	v.Until = until
	history := p.History.Of(truthResources...)
	want := oracle.Expect(history, v)
	s.WaitFor(t, want, 20*time.Second)
	took := time.Since(begin)

	records := s.All()
	got := s.Judge(want, records, v)
	world.Report(t, p, s, got.Faults)
	world.Report(t, p, s, s.JudgeSnapshots(records))
	world.Report(t, p, s, stock.Compare(t, history, until))
	got.NoGaps(t)
	if live := written(); live < revisions {
		t.Errorf("%d revisions were written, want %d", live, revisions)
	}
	// The agent may be unable to distinguish two managers with the same second, but can do so for
	// most.
	if got.ChangersTold < got.Changers*9/10 {
		t.Errorf("changedBy tells of %d managers, of %d by the rule", got.ChangersTold, got.Changers)
	}
	compareLists(t, p, records, v, before)
	t.Logf("changedBy tells of %d managers, of %d by the rule", got.ChangersTold, got.Changers)
	t.Logf(
		"%d revisions in %s (%.0f/s; %d requests, %d of them refused as expected); %d records expected, %d on the bus (%s), %d duplicates; all there after %s (%.0f/s); %s",
		written(), writing.Round(time.Millisecond), float64(written())/writing.Seconds(),
		ws.Requests.Load(), ws.Tolerated.Load(), got.Expected, got.Records, world.MiB(s.Size()), got.Duplicates,
		took.Round(time.Millisecond), float64(got.Records)/took.Seconds(), countOps(records))
	if err := a.Stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
}

// countOps counts records by op.
func countOps(records []oracle.Record) string {
	n := make(map[string]int)
	for i := range records {
		n[records[i].Op+records[i].Stream]++
	}
	return strings.TrimPrefix(fmt.Sprint(n), "map")
}

// compareLists compares the state that a consumer has at some revisions with what the API server
// lists at them.
func compareLists(t *testing.T, p *world.Plane, records []oracle.Record, v oracle.View, from uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		rev := from + 1 + rng.Uint64N(v.Until-from)
		for _, resource := range truthResources {
			key := oracle.ObjectKey{Resource: resource, Namespace: "x", Name: "x"}
			if snap, ok := v.Snapshot(key); !ok || snap.Rev > rev {
				continue // The bus has no state for that time.
			}
			state := make(map[oracle.ObjectKey]*oracle.Record)
			for i := range records {
				if rec := &records[i]; rec.Key.Resource == resource && rec.Stream == "" && rec.Rev <= rev {
					state[rec.Key] = rec
					if rec.Op == oracle.Deleted {
						delete(state, rec.Key)
					}
				}
			}
			for _, listed := range listAt(t, p, resource, rev) {
				rec := state[listed.Key]
				switch {
				case rec == nil:
					oracle.Fail(t, "%s revision %d is listed at %d; the bus does not have it then", listed.Key,
						listed.Rev, rev)
				case rec.Rev != listed.Rev || rec.UID != listed.UID || rec.AfterDigest != listed.Digest:
					oracle.Fail(t,
						"%s revision %d is listed at %d; on the bus it is revision %d then, or another object",
						listed.Key, listed.Rev, rev, rec.Rev)
				}
				delete(state, listed.Key)
			}
			for key, rec := range state {
				oracle.Fail(t, "%s is not listed at %d; on the bus it is revision %d then", key, rev, rec.Rev)
			}
		}
	}
}

// listAt returns the objects of a resource exactly as they were at a revision.
func listAt(t *testing.T, p *world.Plane, resource string, rev uint64) []*oracle.Version {
	t.Helper()
	raw, err := p.API.Get(t.Context(),
		fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", world.Collection(resource, ""), rev))
	if err != nil {
		t.Fatalf("list %s at %d: %v", resource, rev, err)
	}
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatalf("list %s at %d: %v", resource, rev, err)
	}
	versions := make([]*oracle.Version, 0, len(list.Items))
	for _, item := range list.Items {
		object, err := oracle.DecodeObject(item)
		if err != nil {
			t.Fatalf("list %s at %d: %v", resource, rev, err)
		}
		// Items of built-in resources omit apiVersion and kind, which the list has.
		object["apiVersion"], object["kind"] = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
		listed, err := oracle.NewVersion(resource, 0, object)
		if err != nil {
			t.Fatalf("list %s at %d: %v", resource, rev, err)
		}
		versions = append(versions, listed)
	}
	return versions
}
