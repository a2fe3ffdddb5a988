package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// certaintyStage is an agent that observes the ConfigMaps of a namespace. The test writes one of
// them.
type certaintyStage struct {
	*world.Stage

	namespace string
}

// settled is how long a test waits for its writes to be observed.
const settled = 1500 * time.Millisecond

func newCertaintyStage(t *testing.T, p *world.Plane, namespace, rule string) *certaintyStage {
	t.Helper()
	c := &certaintyStage{world.StageOn(t, p, world.Luck()), namespace}
	c.NewNamespace(t, namespace)
	c.MakeConfigMaps(t, namespace, "it", 1)
	c.Begin(t, world.AgentConfig{Watch: world.WatchConfigMaps(namespace) + rule})
	c.Stream.Completed(t, "configmaps")
	return c
}

// write changes the text of the object and returns the revision.
func (c *certaintyStage) write(t *testing.T, text string) uint64 {
	t.Helper()
	raw, err := c.Plane.API.MergePatch(t.Context(), world.Collection("configmaps", c.namespace)+"/it-0", obj{
		"data": obj{"text": text},
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := oracle.ReadVersion("configmaps", 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	return v.Rev
}

// mark makes the agent observe a change and take a snapshot, and waits for its completion. Without
// the change, the agent cannot know that it has everything up to here before the next bookmark.
func (c *certaintyStage) mark(t *testing.T) {
	t.Helper()
	c.MakeConfigMaps(t, c.namespace, fmt.Sprint("mark-", time.Now().UnixNano()), 1)
	ids := c.Agent.Snapshot(t, "configmaps", c.namespace)
	c.Await(t, "a snapshot", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.SnapshotCompleted && rec.Snapshot == ids[0]
	})
}

// signOfLife makes the agent observe a change and save its checkpoint. A later gap then begins
// after the earlier writes.
func (c *certaintyStage) signOfLife(t *testing.T) {
	t.Helper()
	c.MakeConfigMaps(t, c.namespace, fmt.Sprint("life-", time.Now().UnixNano()), 1)
	c.mark(t)
	world.Pass(t.Context(), 6*time.Second) // it is saved every 5 s
}

// at returns a moment without writes, at which all earlier writes have been observed.
func (c *certaintyStage) at(t *testing.T) time.Time {
	t.Helper()
	world.Pass(t.Context(), settled)
	now := time.Now()
	world.Pass(t.Context(), settled)
	return now
}

// final is the time after which an answer about a moment no longer changes: bookmarks and progress
// come each minute.
const final = 140 * time.Second

// says compares an answer with the truth, once it no longer changes. An exact answer must have the
// text; others must have one of the certainties.
func (c *certaintyStage) says(t *testing.T, what, moment, text string, certainties ...string) pastScope {
	t.Helper()
	var a pastAnswer
	wait.Eventually(t, final, func() error {
		a = ask(t, "configmaps", "it-0", "-n", c.namespace, "--at", moment, "--bus", c.Bus.URL)
		if len(a.Kubecdc.Scopes) != 1 {
			return fmt.Errorf("%s, at %s: %d scopes, want 1", what, moment, len(a.Kubecdc.Scopes))
		}
		if scope := a.Kubecdc.Scopes[0]; !slices.Contains(certainties, scope.Certainty) {
			return fmt.Errorf("%s, at %s: %+v, want %v", what, moment, scope, certainties)
		}
		return nil
	})
	scope := a.Kubecdc.Scopes[0]
	var o struct {
		Data struct{ Text string }
	}
	if len(a.Items) > 0 {
		if err := json.Unmarshal(a.Items[0], &o); err != nil {
			t.Fatal(err)
		}
	}
	if scope.Certainty == "exact" && o.Data.Text != text {
		oracle.Fail(t, "%s, at %s: exact, and the text is %q; it was %q", what, moment, o.Data.Text, text)
	}
	t.Logf("%s: %s, %q", what, scope.Certainty, o.Data.Text)
	return scope
}

func stamp(at time.Time) string { return at.Format(time.RFC3339Nano) }

// atRevision returns the notation of a moment.
func atRevision(rev uint64, history int) string {
	if history > 0 {
		return fmt.Sprintf("rv:%d/h%d", rev, history)
	}
	return fmt.Sprint("rv:", rev)
}

// TestCertaintyOfALostHistory asks for moments around a gap whose history was compacted.
func TestCertaintyOfALostHistory(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	c := newCertaintyStage(t, p, "lost", "")
	first := c.write(t, "first")
	c.mark(t)
	atFirst := c.at(t)
	c.signOfLife(t)
	c.Agent.Crash()
	lost := c.write(t, "lost")
	atLost := c.at(t)
	c.write(t, "second")
	c.CompactNow(t)
	c.KillAPIServer(0)
	c.StartServer(t, 0)
	c.Agent.Again(t)
	gap := c.Await(t, "a gap", func(rec *oracle.Record) bool { return rec.Stream == oracle.Gap && !rec.Recovered })
	c.Await(t, "a snapshot after the gap", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.SnapshotCompleted && rec.Position > gap.Position
	})
	third := c.Rewrite(t, c.namespace, "it-0", "third").Rev
	c.mark(t)
	atThird := c.at(t)
	c.mark(t)

	c.says(t, "before the gap", atRevision(first, 0), "first", "exact")
	// late: it was killed before its first progress
	c.says(t, "before the gap", stamp(atFirst), "first", "exact", "late")
	for _, moment := range []string{atRevision(lost, 0), stamp(atLost)} {
		if scope := c.says(t, "in the gap", moment, "", "uncertain"); scope.cause().Reason != "compacted" {
			t.Errorf("in the gap, at %s: %+v", moment, scope)
		}
	}
	for _, moment := range []string{atRevision(third, 0), stamp(atThird)} {
		c.says(t, "after the gap", moment, "third", "exact")
	}
}

// TestCertaintyOfARestore restores etcd from a copy. Its resourceVersions name two states, which
// the history number distinguishes.
func TestCertaintyOfARestore(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	c := newCertaintyStage(t, p, "restored", "")
	kept := c.Rewrite(t, c.namespace, "it-0", "kept").Rev
	c.signOfLife(t)
	dir := backup(t, p)
	c.MakeConfigMaps(t, c.namespace, "undone", 60) // the old history is longer than the new one
	undone := c.Rewrite(t, c.namespace, "it-0", "soon undone").Rev
	c.mark(t)
	atUndone := c.at(t)
	c.signOfLife(t)
	restore(t, p, dir)
	c.Await(t, "a snapshot of the second history", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.SnapshotCompleted && rec.History == 1
	})
	again := c.Rewrite(t, c.namespace, "it-0", "again").Rev
	c.mark(t)
	atAgain := c.at(t)
	c.mark(t)
	if again <= kept || again >= undone {
		t.Fatalf("revision %d of the new history is not one of the old one, which the restore undid from %d to %d",
			again, kept, undone)
	}

	c.says(t, "what the restore undid", atRevision(undone, 0), "soon undone", "exact")
	c.says(t, "what the restore undid", stamp(atUndone), "soon undone", "exact")
	c.says(t, "the same revision in the old history", atRevision(again, 0), "kept", "exact")
	c.says(t, "after the restore", atRevision(again, 1), "again", "exact")
	c.says(t, "after the restore", stamp(atAgain), "again", "exact")
	c.says(t, "before the second history was read", atRevision(kept, 1), "", "uncertain", "unknown")
	c.says(t, "a third history", atRevision(again, 2), "", "unknown")
}

// TestCertaintyOfOneLostScope makes an agent lose the position of one scope while it is down.
// Versions of that scope are lost, and an answer for them reports that. Those of the other scope
// are found, and remain exact. On NATS the agent detects that the bus has more, and announces a
// gap. On Kafka it cannot detect that.
func TestCertaintyOfOneLostScope(t *testing.T) {
	slow(t)
	t.Parallel()
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		s := world.StageOn(t, world.BarePlane(t), world.Luck())
		loseOneScope(t, s, s.Bus.URL)
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		s := world.NewKafkaStage(t, 1, world.Luck())
		k := s.Server.(*world.Kafka)
		loseOneScope(t, s, "kafka://"+k.Inside()[0]+"/"+k.Topic)
	})
}

func loseOneScope(t *testing.T, s *world.Stage, bus string) {
	const namespace, lost, kept = "half-lost", "configmaps", "serviceaccounts"
	c := &certaintyStage{s, namespace}
	c.NewNamespace(t, namespace)
	c.MakeConfigMaps(t, namespace, "it", 1)
	if _, err := c.Plane.API.Create(t.Context(), world.Collection(kept, namespace), obj{
		"metadata": world.Meta("it-0"),
	}); err != nil {
		t.Fatal(err)
	}
	c.Begin(t, world.AgentConfig{
		Watch: "  - {resources: [" + lost + ", " + kept + "], namespaces: [" + namespace + "]}",
	})
	c.Stream.Completed(t, lost, kept)
	patch := func(resource string, metadata obj) uint64 {
		raw, err := c.Plane.API.MergePatch(t.Context(), world.Collection(resource, namespace)+"/it-0", obj{
			"metadata": metadata,
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err := oracle.ReadVersion(resource, 0, raw)
		if err != nil {
			t.Fatal(err)
		}
		return v.Rev
	}
	// Both objects have the text at the returned revision. Each scope then gets a later revision,
	// so its state at the returned one is known.
	write := func(text string) uint64 {
		patch(lost, obj{"labels": obj{"text": text}})
		rev := patch(kept, obj{"labels": obj{"text": text}})
		for _, resource := range []string{lost, kept} {
			patch(resource, obj{"annotations": obj{"after": text}})
		}
		return rev
	}
	first := write("first")
	atFirst := c.at(t)
	for _, resource := range []string{lost, kept} { // the agent observes both after that moment
		patch(resource, obj{"annotations": obj{"later": "first"}})
	}
	world.Pass(t.Context(), settled)
	if err := c.Agent.Stop(time.Minute); err != nil { // it sends progress, and saves its checkpoint
		t.Fatal(err)
	}
	unseen := write("unseen")
	write("second")
	before := c.Await(t, "the first snapshot", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.SnapshotCompleted && rec.Scope.Resource == lost
	}).Snapshot
	forgetScope(t, c.Checkpoint, lost)
	c.Agent.Again(t)
	c.Await(t, "another snapshot of the lost scope", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.SnapshotCompleted && rec.Scope.Resource == lost && rec.Snapshot != before
	})
	if !slices.ContainsFunc(c.Stream.All(), func(rec oracle.Record) bool { return rec.Stream == oracle.Gap }) {
		oracle.Fail(t, "no gap was announced")
	}
	third := write("third")
	atThird := c.at(t)
	for _, resource := range []string{lost, kept} {
		patch(resource, obj{"annotations": obj{"later": "third"}})
		ids := c.Agent.Snapshot(t, resource, namespace)
		c.Await(t, "a snapshot", func(rec *oracle.Record) bool {
			return rec.Stream == oracle.SnapshotCompleted && rec.Snapshot == ids[0]
		})
	}
	for _, x := range []struct{ moment, text, lost string }{
		{atRevision(first, 0), "first", "exact"},
		{stamp(atFirst), "first", "exact"},
		{atRevision(unseen, 0), "unseen", "uncertain"},
		{atRevision(third, 0), "third", "exact"},
		{stamp(atThird), "third", "exact"},
	} {
		var a pastAnswer
		wait.Eventually(t, final, func() error {
			a = ask(t, lost+","+kept, "it-0", "-n", namespace, "--at", x.moment, "--bus", bus)
			certainties := map[string]string{}
			for _, scope := range a.Kubecdc.Scopes {
				certainties[scope.Resource] = scope.Certainty
			}
			if want := map[string]string{
				lost: x.lost,
				kept: "exact",
			}; !maps.Equal(certainties, want) || a.Kubecdc.Certainty != x.lost {
				return fmt.Errorf("at %s: %v (%s), want %v", x.moment, certainties, a.Kubecdc.Certainty, want)
			}
			return nil
		})
		for _, item := range a.Items {
			var o struct {
				Kind     string
				Metadata struct{ Labels map[string]string }
			}
			if err := json.Unmarshal(item, &o); err != nil {
				t.Fatal(err)
			}
			if got := o.Metadata.Labels["text"]; (o.Kind == "ServiceAccount" || x.lost == "exact") && got != x.text {
				oracle.Fail(t, "at %s: %s with %q, want %q", x.moment, o.Kind, got, x.text)
			}
		}
		if len(a.Items) != 2 {
			t.Errorf("at %s: %d objects, want 2", x.moment, len(a.Items))
		}
	}
}

// forgetScope removes the scopes of a resource from a checkpoint.
func forgetScope(t *testing.T, file, resource string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := checkpoint.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	n := len(d.Scopes)
	maps.DeleteFunc(d.Scopes, func(scope string, _ checkpoint.Scope) bool { return strings.HasPrefix(scope, resource) })
	if len(d.Scopes) != n-1 {
		t.Fatalf("the checkpoint has %d scopes, %d without %s", n, len(d.Scopes), resource)
	}
	raw, err = d.Encode()
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCertaintyOfFilters asks how many versions a filter has withheld.
func TestCertaintyOfFilters(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCertaintyStage(t, world.BarePlane(t), "filtered",
		"\n    where: '!has(after.data) || after.data.text != \"noise\" && !after.data.text.startsWith(\"noise-\")'")
	first := c.write(t, "first")
	for i := range 3 {
		c.write(t, fmt.Sprint("noise-", i))
	}
	last := c.write(t, "last")
	// so that the snapshot is later than last: a snapshot does not report withheld versions
	c.MakeConfigMaps(t, c.namespace, "other", 1)
	c.mark(t)
	wait.Eventually(t, time.Minute, func() error {
		a := ask(t, "configmaps", "it-0", "-n", c.namespace, "--at", fmt.Sprint("rv:", last), "--bus", c.Bus.URL)
		if len(a.Kubecdc.Scopes) != 1 || a.Kubecdc.Scopes[0].Certainty != "exact" || a.Kubecdc.Scopes[0].Skipped != 3 {
			return fmt.Errorf("%+v, want exact, and 3 withheld", a.Kubecdc.Scopes)
		}
		return nil
	})
	if scope := c.says(t, "while versions are withheld", fmt.Sprint("rv:", last-1), "first",
		"uncertain"); scope.Skipped != 3 {
		t.Errorf("%d versions withheld after revision %d, want 3", scope.Skipped, first)
	}
}
