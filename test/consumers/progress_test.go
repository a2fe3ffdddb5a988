package consumers_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// agentRun is the present run of a cluster's agent.
type agentRun struct {
	writer   string
	epoch    uint64
	began    int
	number   uint64          // of its last progress
	observes map[string]bool // by the name of a scope
}

func (r *agentRun) String() string { return fmt.Sprintf("%d-%d", r.epoch, r.began) }

// startRun starts the next run of the agent, which starts all scopes.
func (c *cluster) startRun() {
	r := agentRun{
		writer:   c.run.writer,
		epoch:    c.run.epoch,
		began:    c.run.began + 1 + c.rng.IntN(500),
		observes: map[string]bool{},
	}
	if c.rng.IntN(3) == 0 { // of another leader, whose clock may be behind
		r.epoch, r.began = r.epoch+1, c.rng.IntN(500)
	}
	c.run, c.encoder = r, nil
	for _, s := range c.scopes {
		c.stream(s, object.StreamEvent{Kind: object.ScopeStarted, ResourceVersion: c.rv, Continued: true})
	}
}

// restart starts the next run. The bus gets some records of the last one later.
func (c *cluster) restart() {
	n, known := len(c.records), c.reached
	c.reached = map[string]consume.Reached{} // none of these records counts
	if c.rng.IntN(2) == 0 {
		c.stream(c.scopes[c.rng.IntN(len(c.scopes))], object.StreamEvent{
			Kind:            object.ScopeEnded,
			ResourceVersion: c.rv,
			End:             object.TakenOver,
		})
	}
	c.progress()
	late := slices.Clone(c.records[n:])
	c.records, c.reached = c.records[:n], known
	c.startRun()
	c.records = append(c.records, late...)
}

// startOrEnd ends the observation of a scope, or starts it again.
func (c *cluster) startOrEnd(s *scope) {
	if c.run.observes[s.name] {
		c.stream(s, object.StreamEvent{Kind: object.ScopeEnded, ResourceVersion: c.rv, End: object.Deselected})
		return
	}
	c.stream(s, object.StreamEvent{Kind: object.ScopeStarted, ResourceVersion: c.rv})
}

// noteObservation notes what a stream event says about a scope. A snapshot of a part starts none.
func (c *cluster) noteObservation(kind object.StreamKind, name string) {
	isWhole := slices.ContainsFunc(c.scopes, func(s *scope) bool { return s.name == name })
	reached := c.reached[name]
	switch {
	case !isWhole:
		return
	case kind == object.ScopeStarted, kind == object.SnapshotStarted:
		c.run.observes[name], reached.Ended = true, false
	case kind == object.ScopeEnded:
		c.run.observes[name], reached.Ended = false, true
	}
	if !reached.Time.IsZero() {
		c.reached[name] = reached
	}
}

// progress sends the progress of the agent. Some scopes have an entry of their own, and some of
// these claim nothing.
func (c *cluster) progress() {
	c.run.number++
	to := time.Unix(0, c.clock).UTC()
	sent := to.Add(time.Millisecond)
	r := &object.Report{
		Number:        c.run.number,
		Since:         to.Add(-10 * time.Minute),
		To:            to,
		SnapshotBegan: to.Add(-time.Hour),
	}
	var others []object.ScopeReport // one for each resource
	for _, s := range c.scopes {
		entry := object.ScopeReport{Resource: s.resource, Scope: s.name, ResourceVersion: c.rv, History: c.history}
		kind := c.rng.IntN(6)
		switch {
		case !c.run.observes[s.name]:
			continue
		case kind == 0:
			entry.ResourceVersion, entry.History = 0, 0
			c.reach(s.name, sent, time.Time{}, 0)
			r.Scopes = append(r.Scopes, entry)
		case kind == 1:
			entry.ResourceVersion -= c.rng.Uint64N(9)
			entry.To = to.Add(-time.Second)
			entry.Interruptions = []object.Interruption{{
				From:  to.Add(-time.Minute),
				Until: to.Add(-time.Second),
				Why:   object.InterruptedCut,
			}}
			entry.Hidden = []object.HiddenSpan{{From: object.Point{ResourceVersion: 7}}}
			c.reach(s.name, sent, entry.To, entry.ResourceVersion)
			r.Scopes = append(r.Scopes, entry)
		default:
			c.reach(s.name, sent, to, entry.ResourceVersion)
			i := slices.IndexFunc(others, func(o object.ScopeReport) bool { return o.Resource == s.resource })
			if i < 0 {
				entry.Scope = ""
				i, others = len(others), append(others, entry)
			}
			others[i].Count++
		}
	}
	r.Scopes = append(r.Scopes, others...)
	c.send(&object.Delta{Report: r})
}

// reach notes what a progress says about a scope. rv 0: it claims nothing.
func (c *cluster) reach(name string, sent, to time.Time, rv uint64) {
	r := c.reached[name]
	r.Time = sent
	r.Writer = c.run.writer
	r.Run = c.run.String()
	r.Ended = false
	var known uint64
	if r.ResourceVersion != "" {
		if _, err := fmt.Sscan(r.ResourceVersion, &known); err != nil {
			c.t.Fatal(err)
		}
	}
	if rv != 0 && cmp.Or(cmp.Compare(c.history, r.History), cmp.Compare(rv, known)) >= 0 {
		r.ResourceVersion, r.History = object.FormatVersion(rv), c.history
	}
	if rv != 0 && to.After(r.To) {
		r.To = to
	}
	c.reached[name] = r
}

// twice returns the records with a second copy of each, up to 30 records later.
func twice(rng *rand.Rand, records []record) []record {
	type at struct {
		place int
		record
	}
	all := make([]at, 0, 2*len(records))
	for i, r := range records {
		all = append(all, at{2 * i, r}, at{2*i + 1 + 2*rng.IntN(30), r})
	}
	slices.SortStableFunc(all, func(a, b at) int { return cmp.Compare(a.place, b.place) })
	out := make([]record, 0, len(all))
	for _, a := range all {
		out = append(out, a.record)
	}
	return out
}

// agents returns the stream of two clusters of one name, with every kind of event. Each record
// comes twice. Records of a run come after the first ones of a later run.
func agents(t testing.TB, seed uint64) ([]record, map[string]row, []*cluster) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 4))
	one, other := newCluster(t, "agents", rng), newCluster(t, "agents", rng)
	other.uid = "uid-of-the-other-agents"
	records, exist := live(t, rng, false, one, other)
	return twice(rng, records), exist, []*cluster{one, other}
}

// TestTracker reads streams of agents. The Tracker must end with the objects that exist, and with
// what the agents have said last about each scope.
func TestTracker(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			records, exist, clusters := agents(t, seed)
			var tracker consume.Tracker
			kinds := map[string]int{}
			for _, r := range records {
				e, err := consume.FromMessage(r.Header, r.Body)
				if err != nil {
					t.Fatal(err)
				}
				kinds[e.Type.Name()]++
				tracker.Apply(e)
			}
			for _, kind := range []string{
				"object.created", "object.updated", "object.deleted", "object.read", "object.entered", "object.left",
				"gap",
				"snapshot.started", "snapshot.completed", "scope.started", "scope.ended", "progress",
			} {
				if kinds[kind] < 4 {
					t.Errorf("%d events of type %s: the test shows too little", kinds[kind], kind)
				}
			}
			checkObjects(t, exist, &tracker)
			for _, c := range clusters {
				c.checkReached(t, &tracker)
			}
		})
	}
}

func checkObjects(t *testing.T, exist map[string]row, tracker *consume.Tracker) {
	t.Helper()
	var got []string
	for o := range tracker.All() {
		r := row{Source: o.Source, ClusterUID: o.ClusterUID, Resource: o.Resource, UID: o.UID}
		got = append(got, r.key())
	}
	slices.Sort(got)
	if diff := gocmp.Diff(slices.Sorted(maps.Keys(exist)), got); diff != "" {
		t.Errorf("objects: -want +got\n%s", diff)
	}
}

func (c *cluster) checkReached(t *testing.T, tracker *consume.Tracker) {
	t.Helper()
	reached := map[string]consume.Reached{}
	for _, s := range c.scopes {
		r, ok := tracker.Reached(consume.ClusterKey{Source: "/kubernetes/" + c.name, UID: c.uid}, s.name)
		if ok {
			reached[s.name] = r
		}
	}
	if diff := gocmp.Diff(c.reached, reached); diff != "" || len(reached) != len(c.scopes) {
		t.Errorf("progress of %d of %d scopes: -want +got\n%s", len(reached), len(c.scopes), diff)
	}
}
