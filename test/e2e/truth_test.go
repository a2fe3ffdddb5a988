package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// truthResources are what TestTruth's agent observes: what the writers write, and what the controller manager and the
// API server write by themselves.
var truthResources = []string{
	"configmaps", "secrets", "serviceaccounts", "pods", "deployments.apps", "replicasets.apps", widgets,
}

// TestTruth has writers change all kinds of objects at full speed and then compares the stream with etcd's own history.
func TestTruth(t *testing.T) {
	revisions := size(2_000, 5_000, 20_000)
	p := sharedPlane(t)
	namespaces := []string{"truth-a", "truth-b"}
	for _, ns := range namespaces {
		p.newNamespace(t, ns)
	}
	for i := range 200 { // What there is before the agent.
		name := fmt.Sprint("before-", i)
		ns := namespaces[i%2]
		cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name), "data": obj{"text": name}}
		if _, err := p.api.create(t.Context(), collection("configmaps", ns), cm); err != nil {
			t.Fatal(err)
		}
		secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": meta(name), "stringData": obj{"text": secretValue()}}
		if _, err := p.api.create(t.Context(), collection("secrets", ns), applied(secret)); err != nil {
			t.Fatal(err)
		}
	}

	bus := startBus(t)
	stock := serve(t, p, truthResources...)
	before := p.now(t)
	a := startAgent(t, p, agentConfig{Bus: bus, Watch: "  - resources: [" + strings.Join(truthResources, ", ") + "]"})
	s := readStream(t, bus, p.reader())
	// Not completed: what is written while a snapshot is being sent is the interesting part.
	snapshots := s.started(t, truthResources...)
	for sc, snap := range snapshots {
		if snap.Rev < before {
			t.Errorf("snapshot of %s at revision %d, which is older than the agent (%d)", sc.Text, snap.Rev, before)
		}
	}

	begin, count := time.Now(), p.history.count(truthResources...)
	written := func() int { return p.history.count(truthResources...) - count }
	ws := &writers{api: p.api, done: func() bool { return written() >= revisions }}
	var steps []func(context.Context) error
	for _, ns := range namespaces {
		for i := range 3 {
			steps = append(steps, ws.writer(fmt.Sprint("cm", i), ns, 15).configMaps)
		}
		steps = append(steps,
			ws.writer("secret", ns, 15).secrets,
			ws.writer("deploy", ns, 8).deployments,
			ws.writer("widget", ns, 15).widgets,
			ws.writer("left", ns, 3).shared,
			ws.writer("right", ns, 3).shared,
		)
	}
	ws.run(t, steps...)
	writing := time.Since(begin)

	// The controllers have work left.
	settled(t, 2*time.Second, 2*time.Minute, p.history.changesIn(namespaces...))
	until := p.now(t)
	v := viewOf(s.started(t, truthResources...))
	v.Until = until
	history := p.history.of(truthResources...)
	want := expect(history, v)
	s.waitFor(t, want, 20*time.Second)
	took := time.Since(begin)

	records := s.all()
	got := s.judge(want, records, v)
	report(t, p, s, got.Faults)
	report(t, p, s, s.judgeSnapshots(records))
	report(t, p, s, stock.compare(t, history, until))
	if len(got.Gaps) > 0 || got.Inferred > 0 {
		t.Errorf("%d gaps and %d inferred deltas, where no history was lost", len(got.Gaps), got.Inferred)
	}
	if live := written(); live < revisions {
		t.Errorf("%d revisions were written, want %d", live, revisions)
	}
	// The agent may not be able to tell one of two managers of the same second; most it can.
	if got.ChangersTold < got.Changers*9/10 {
		t.Errorf("changedBy tells of %d managers, of %d by the rule", got.ChangersTold, got.Changers)
	}
	compareLists(t, p, records, v, before)
	t.Logf("changedBy tells of %d managers, of %d by the rule", got.ChangersTold, got.Changers)
	t.Logf("%d revisions in %s (%.0f/s; %d requests, %d of them refused as expected); %d records expected, %d on the bus (%s), %d duplicates; all there after %s (%.0f/s); %s",
		written(), writing.Round(time.Millisecond), float64(written())/writing.Seconds(),
		ws.requests.Load(), ws.tolerated.Load(), got.Expected, got.Records, mib(s.size()), got.Duplicates,
		took.Round(time.Millisecond), float64(got.Records)/took.Seconds(), countOps(records))
	if err := a.stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
}

// countOps counts records by op.
func countOps(records []record) string {
	n := make(map[string]int)
	for i := range records {
		n[records[i].Op+records[i].Stream]++
	}
	return strings.TrimPrefix(fmt.Sprint(n), "map")
}

// compareLists compares the state that a consumer has at some revisions with what the API server lists at them.
func compareLists(t *testing.T, p *plane, records []record, v view, from uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		rev := from + 1 + rng.Uint64N(v.Until-from)
		for _, resource := range truthResources {
			key := objectKey{Resource: resource, Namespace: "x", Name: "x"}
			if snap, ok := v.Snapshot(key); !ok || snap.Rev > rev {
				continue // The bus knows nothing of then.
			}
			state := make(map[objectKey]*record)
			for i := range records {
				if rec := &records[i]; rec.Key.Resource == resource && rec.Stream == "" && rec.Rev <= rev {
					if state[rec.Key] = rec; rec.Op == deleted {
						delete(state, rec.Key)
					}
				}
			}
			for _, listed := range p.listAt(t, resource, rev) {
				rec := state[listed.Key]
				switch {
				case rec == nil:
					t.Errorf("%s revision %d is listed at %d; the bus does not have it then", listed.Key, listed.Rev, rev)
				case rec.Rev != listed.Rev || rec.UID != listed.UID || rec.AfterDigest != listed.Digest:
					t.Errorf("%s revision %d is listed at %d; on the bus it is revision %d then, or another object", listed.Key, listed.Rev, rev, rec.Rev)
				}
				delete(state, listed.Key)
			}
			for key, rec := range state {
				t.Errorf("%s is not listed at %d; on the bus it is revision %d then", key, rev, rec.Rev)
			}
		}
	}
}

// listAt is the objects of a resource exactly as they were at a revision.
func (p *plane) listAt(t *testing.T, resource string, rev uint64) []*version {
	t.Helper()
	raw, err := p.api.get(t.Context(), fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", collection(resource, ""), rev))
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
	versions := make([]*version, 0, len(list.Items))
	for _, item := range list.Items {
		object, err := decodeObject(item)
		if err != nil {
			t.Fatalf("list %s at %d: %v", resource, rev, err)
		}
		// Items of built-in resources leave out what the list says.
		object["apiVersion"], object["kind"] = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
		listed, err := newVersion(resource, 0, object)
		if err != nil {
			t.Fatalf("list %s at %d: %v", resource, rev, err)
		}
		versions = append(versions, listed)
	}
	return versions
}
