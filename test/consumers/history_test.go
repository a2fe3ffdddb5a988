package consumers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

// row is an object as the example programs print it.
type row struct {
	Source     string `json:"source"`
	ClusterUID string `json:"clusteruid"`
	Resource   string `json:"resource"`
	UID        string `json:"uid"`
	Object     any    `json:"object"`
}

// key identifies the object.
func (r *row) key() string {
	return strings.Join([]string{r.Source, r.ClusterUID, r.Resource, r.UID}, " ")
}

// history returns the stream of two clusters, and the objects that exist in them at its end, as
// their API servers would list them, independent of the records. cut: the stream no longer has its
// first half, but a snapshot of all objects.
func history(t testing.TB, seed uint64, cut bool) ([]record, map[string]row) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	return live(t, rng, cut, newCluster(t, fmt.Sprintf("prod-eu-%d", seed), rng),
		newCluster(t, fmt.Sprintf("dev.local.%d", seed), rng))
}

// twins returns the stream of two clusters of one name, and of an aggregated API of the first one.
// That serves each resource in a group of its own. Objects of all three have the same uids.
func twins(t testing.TB) ([]record, map[string]row) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 3))
	one := newCluster(t, "twins", rng)
	other := newCluster(t, "twins", rng)
	projected := newCluster(t, "twins", rng)
	other.uid = "uid-of-the-other" // its agent has the writer of the first one
	projected.run.writer = "writer-of-projected"
	for _, s := range projected.scopes {
		r := *s.resource
		r.Group = "projected.example.com"
		s.name = strings.Replace(s.name, s.resource.String(), r.String(), 1)
		s.resource = &r
	}
	return live(t, rng, false, one, other, projected)
}

// live returns the stream of clusters whose histories have everything that may happen to a stream,
// and the objects that exist at its end.
func live(t testing.TB, rng *rand.Rand, cut bool, clusters ...*cluster) ([]record, map[string]row) {
	t.Helper()
	var streams [][]record
	for _, c := range clusters {
		for range 20 {
			c.change(c.scopes[rng.IntN(len(c.scopes))]) // before the agent starts
		}
		c.startRun()
		c.snapshots()
		for range 250 {
			c.step()
		}
		c.late()
		c.progress()
		if cut {
			n := len(c.records) / 2
			c.records = c.records[n:]
			c.snapshots()
		}
		streams = append(streams, c.records)
	}
	return merged(rng, streams...), exist(t, clusters...)
}

// merged merges the records of several streams and keeps the order of each.
func merged(rng *rand.Rand, streams ...[]record) []record {
	var records []record
	var of []int // for each record to come, its stream
	for i, s := range streams {
		of = append(of, slices.Repeat([]int{i}, len(s))...)
	}
	rng.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	next := make([]int, len(streams))
	for _, i := range of {
		records = append(records, streams[i][next[i]])
		next[i]++
	}
	return records
}

// exist returns the objects that match their selectors, by key.
func exist(t testing.TB, clusters ...*cluster) map[string]row {
	t.Helper()
	rows := map[string]row{}
	for _, c := range clusters {
		for uid, f := range c.objects {
			if !f.shown {
				continue
			}
			r := row{Source: "/kubernetes/" + c.name, ClusterUID: c.uid, UID: uid, Resource: f.scope.resource.String()}
			if err := json.Unmarshal([]byte(f.json), &r.Object); err != nil {
				t.Fatal(err)
			}
			rows[r.key()] = r
		}
	}
	return rows
}

// step is one event in the cluster, usually a change that the agent observes.
func (c *cluster) step() {
	s := c.scopes[c.rng.IntN(len(c.scopes))]
	unseen := func() {
		for range 1 + c.rng.IntN(8) {
			c.change(s)
		}
	}
	switch c.rng.IntN(41) {
	case 0, 1:
		from := c.rv
		unseen()
		if from != c.rv {
			c.relist(s, from, object.Expired)
		}
	case 2: // The agent was down and lost its state.
		for _, s = range c.scopes {
			unseen()
		}
		c.restart()
		c.snapshots()
	case 3, 4, 5:
		unseen()
		c.snapshot(s, true)
	case 6, 7, 8:
		c.snapshot(s, false)
		unseen()
		c.snapshot(s, true)
	case 9, 10:
		c.copies()
	case 11, 12, 13, 14:
		c.late()
	case 15:
		c.save()
	case 16:
		c.restore()
	case 40:
		c.reform(s)
		if c.rng.IntN(2) == 0 {
			c.send(c.change(s))
			c.snapshot(s, false)
			unseen()
		}
		c.snapshot(s, true)
	case 17, 18:
		c.part(s)
	case 19, 20:
		c.progress()
	case 21:
		c.restart()
	case 22:
		c.startOrEnd(s)
	default:
		c.send(c.change(s))
	}
}

func (c *cluster) snapshots() {
	for _, s := range c.scopes {
		c.snapshot(s, true)
	}
}

// widened is a history in which an object left a selection and was read again, unchanged, because
// the selection became wider. The read has the sequence of the left event.
func widened(t testing.TB) ([]record, map[string]row) {
	t.Helper()
	c := newCluster(t, "widened", rand.New(rand.NewPCG(1, 1)))
	narrow := *c.scopes[0]
	narrow.name = "deployments.apps?labelSelector=team=payments"
	f := c.version(&narrow, nil, true)
	c.send(&object.Delta{Op: object.Created, Ref: f.ref, After: f.body, ResourceVersion: f.rv})
	left := c.version(&narrow, f.ref, false)
	c.send(&object.Delta{Op: object.Left, Ref: f.ref, Before: f.body, ResourceVersion: left.rv, Previous: f.rv})
	wide := *left
	wide.scope, wide.shown = c.scopes[0], true
	c.objects[f.ref.UID] = &wide
	at := object.StreamEvent{Kind: object.SnapshotStarted, Snapshot: "wider", ResourceVersion: c.rv, Objects: 1}
	c.stream(wide.scope, at)
	c.send(&object.Delta{
		Op:              object.Read,
		Ref:             f.ref,
		After:           wide.body,
		ResourceVersion: wide.rv,
		Snapshot:        at.Snapshot,
	})
	at.Kind = object.SnapshotCompleted
	c.stream(wide.scope, at)
	return c.records, exist(t, c)
}

// overtaken is a history in which a change was in flight when history was lost. It arrives after
// the start of the snapshot that follows the gap. Its object was deleted inside the gap.
func overtaken(t testing.TB) ([]record, map[string]row) {
	t.Helper()
	c := newCluster(t, "overtaken", rand.New(rand.NewPCG(1, 2)))
	s := c.scopes[0]
	f := c.version(s, nil, true)
	c.send(&object.Delta{Op: object.Created, Ref: f.ref, After: f.body, ResourceVersion: f.rv})
	before := f.rv
	now := c.version(s, f.ref, true)
	delete(c.objects, f.ref.UID)
	c.rv += 10
	c.stream(s, object.StreamEvent{Kind: object.Gap, From: before, To: c.rv, Reason: object.Compacted})
	at := object.StreamEvent{Kind: object.SnapshotStarted, Snapshot: "overtakes", ResourceVersion: c.rv}
	c.stream(s, at)
	c.send(&object.Delta{
		Op:              object.Updated,
		Ref:             f.ref,
		Before:          f.body,
		After:           now.body,
		ResourceVersion: now.rv,
		Previous:        before,
	})
	at.Kind = object.SnapshotCompleted
	c.stream(s, at)
	return c.records, exist(t, c)
}

// selectedAgain is a history in which a scope was no longer selected, and selected again. Its
// objects did not change. The read has a lower sequence than the left event. A copy of the left
// event comes late.
func selectedAgain(t testing.TB) ([]record, map[string]row) {
	t.Helper()
	c := newCluster(t, "selected-again", rand.New(rand.NewPCG(1, 2)))
	s := c.scopes[0]
	f := c.version(s, nil, true)
	c.objects[f.ref.UID] = f
	c.send(&object.Delta{Op: object.Created, Ref: f.ref, After: f.body, ResourceVersion: f.rv})
	c.rv += 10
	ends := &object.Delta{
		Op:              object.Left,
		Ref:             f.ref,
		Before:          f.body,
		ResourceVersion: c.rv,
		Previous:        f.rv,
		Inferred:        true,
	}
	c.send(ends)
	c.rv += 10
	at := object.StreamEvent{Kind: object.SnapshotStarted, Snapshot: "again", ResourceVersion: c.rv, Objects: 1}
	c.stream(s, at)
	c.send(&object.Delta{Op: object.Read, Ref: f.ref, After: f.body, ResourceVersion: f.rv, Snapshot: at.Snapshot})
	c.send(ends)
	at.Kind = object.SnapshotCompleted
	c.stream(s, at)
	return c.records, exist(t, c)
}
