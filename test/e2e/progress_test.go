package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	// spanBefore and spanAfter are how much longer an interruption may be than the fault. It begins
	// with the last frame, and bookmarks come each minute. It ends with the first proof.
	spanBefore = 65 * time.Second
	spanAfter  = 5 * time.Second
	// spanBlocked is how long after a fault the changes that the path sends at once may block a
	// watch.
	spanBlocked = 20 * time.Second
	// unseen is the longest delay of an observation that is no interruption: a process that stands
	// still for two seconds reports that.
	unseen = 2 * time.Second
	// calm is how long nobody writes before and after a list. Within it, all writes are observed.
	calm = unseen + 200*time.Millisecond
	// cached is how long the watch cache of an API server keeps a change at least. A path that
	// holds changes back for longer may make a resumed watch fail with 410 Expired.
	cached = 70 * time.Second
)

// progressResources are the resources of the tests of progress. Each is a scope.
var progressResources = []string{"configmaps", "secrets", oracle.Widgets}

// observed is an agent whose objects change in bursts. A second client lists them in between.
type observed struct {
	*world.Stage
	namespace string
	begun     time.Time // Before the agent was started.
	captured  time.Time // After its first snapshots.
	stop      func() []listing

	faults map[string][]injected // By resource, in order.
}

// injected is a fault that interrupted the observation of a scope, in the agent's time.
type injected struct {
	why         string
	from, until time.Time
	rev         uint64 // The revision of etcd at its end.
}

// listing is what the API server had at a time of the test. Nothing changed shortly before and
// after it.
type listing struct {
	resource string
	at       time.Time
	table    map[oracle.ObjectKey]uint64
}

// observe starts an agent and the bursts.
func observe(t *testing.T, namespace string, c world.AgentConfig) *observed {
	t.Helper()
	s := world.StageOn(t, world.SharedPlane(t), world.Luck())
	s.Delay = unseen
	s.NewNamespace(t, namespace)
	o := &observed{Stage: s, namespace: namespace, faults: make(map[string][]injected)}
	b := &bursts{plane: s.Plane, namespace: namespace}
	if err := b.burst(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Watch = fmt.Sprintf("  - resources: [configmaps, secrets, %s]\n    namespaces: [%s]", oracle.Widgets, namespace)
	o.begun = time.Now()
	s.Begin(t, c)
	s.Stream.Completed(t, progressResources...)
	o.captured = time.Now()
	o.stop = b.run(t)
	return o
}

// bursts changes objects of each resource, and lists them after each burst.
type bursts struct {
	plane     *world.Plane
	namespace string
	n         int
	listings  []listing
}

// run makes bursts until stop is called, which returns the lists.
func (b *bursts) run(t *testing.T) (stop func() []listing) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		for ctx.Err() == nil && err == nil {
			if err = b.burst(context.WithoutCancel(ctx)); err != nil {
				return
			}
			world.Pass(ctx, calm)
			if ctx.Err() != nil {
				return
			}
			if err = b.list(context.WithoutCancel(ctx)); err != nil {
				return
			}
			world.Pass(ctx, 300*time.Millisecond)
		}
	})
	once := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(once)
	return func() []listing {
		t.Helper()
		once()
		if err == nil { // It shows the agent that nothing changed before.
			err = b.burst(t.Context())
		}
		if err != nil {
			t.Fatalf("bursts: %v", err)
		}
		return b.listings
	}
}

// burst updates two objects of each resource, and creates or deletes a third one.
func (b *bursts) burst(ctx context.Context) error {
	b.n++
	text := fmt.Sprint("burst ", b.n)
	for _, resource := range progressResources {
		all := world.Collection(resource, b.namespace)
		content := obj{"data": obj{"text": text}}
		head := obj{"apiVersion": "v1", "kind": "ConfigMap"}
		switch resource {
		case "secrets":
			content = obj{"data": obj{"text": base64.StdEncoding.EncodeToString([]byte(text))}}
			head["kind"] = "Secret"
		case oracle.Widgets:
			content = obj{"spec": obj{"text": text}}
			head = obj{"apiVersion": oracle.WidgetsGroup + "/v1", "kind": "Widget"}
		}
		for i := range 3 {
			name := fmt.Sprint("it-", i)
			if i == 2 && b.n%2 == 0 {
				if err := b.plane.API.Remove(ctx, all+"/"+name); err != nil {
					return err
				}
				continue
			}
			_, err := b.plane.API.MergePatch(ctx, all+"/"+name, content)
			if apierrors.IsNotFound(err) {
				o := maps.Clone(content)
				maps.Copy(o, head)
				o["metadata"] = world.Meta(name)
				_, err = b.plane.API.Create(ctx, all, o)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// list lists each resource. Nothing changes meanwhile.
func (b *bursts) list(ctx context.Context) error {
	for _, resource := range progressResources {
		before := time.Now()
		raw, err := b.plane.API.Get(ctx, world.Collection(resource, b.namespace))
		if err != nil {
			return err
		}
		at := before.Add(time.Since(before) / 2)
		l := listing{resource: resource, at: at, table: make(map[oracle.ObjectKey]uint64)}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			v, err := oracle.ReadVersion(resource, 0, item)
			if err != nil {
				return err
			}
			l.table[v.Key] = v.Rev
		}
		b.listings = append(b.listings, l)
	}
	return nil
}

// scopeOf returns the name of the scope of a resource, which the agent has chosen.
func (o *observed) scopeOf(t *testing.T, resource string) oracle.Scope {
	t.Helper()
	for sc := range o.Stream.Started(t, resource) {
		if sc.Resource == resource {
			return sc
		}
	}
	t.Fatalf("no scope of %s", resource)
	return oracle.Scope{}
}

// inject begins a fault of some resources, ends it after a time, and notes it.
func (o *observed) inject(
	t *testing.T, why string, begin func(), lasts time.Duration, end func(), resources ...string,
) {
	t.Helper()
	begin()
	x := injected{why: why, from: time.Now()}
	world.Pass(t.Context(), lasts)
	x.until = time.Now()
	end()
	o.note(t, x, resources...)
}

// note notes a fault that has just ended.
func (o *observed) note(t *testing.T, x injected, resources ...string) {
	t.Helper()
	x.rev = o.Now(t)
	for _, resource := range resources {
		o.faults[resource] = append(o.faults[resource], x)
	}
}

// wall returns the agent's time at a time of the test's.
func (o *observed) wall(at time.Time) time.Time {
	if o.Clock == nil {
		return at
	}
	return o.Clock(at)
}

// awaitReport waits for a progress of the current run of the agent.
func (o *observed) awaitReport(t *testing.T, what string, is func(*oracle.Record) bool) *oracle.Record {
	t.Helper()
	var found *oracle.Record
	wait.Eventually(t, 90*time.Second, func() error {
		all := o.Stream.All()
		for i := range all {
			if all[i].Report != nil && is(&all[i]) {
				found = &all[i]
				return nil
			}
		}
		return errors.New("no progress: " + what)
	})
	return found
}

// judge stops the agent and judges its record.
func (o *observed) judge(t *testing.T) {
	t.Helper()
	listings := o.stop()
	world.Pass(t.Context(), calm)
	o.StopAgent(t)
	o.awaitReport(t, "the last one", func(rec *oracle.Record) bool {
		return rec.Report.Ends && !rec.Time.Before(o.wall(listings[len(listings)-1].at))
	})
	o.judgeObjects(t)
	records := o.Stream.All()
	observers := oracle.ObserversOf(records)
	for _, resource := range progressResources {
		sc := o.scopeOf(t, resource)
		all := observers.Of(sc.Text)
		if len(all) != 1 {
			oracle.Fail(t, "%d writers report on %s, want one", len(all), sc.Text)
			continue
		}
		o.judgeInterruptions(t, all[0], records)
		o.judgeLists(t, sc, observers, records, listings)
	}
}

// judgeObjects judges the deltas and gaps. Only a resource that was held back for long may have
// gaps.
func (o *observed) judgeObjects(t *testing.T) {
	t.Helper()
	expires := make(map[string]bool)
	for resource, all := range o.faults {
		for _, f := range all {
			if f.until.Sub(f.from) >= cached {
				expires[resource] = true
				o.Losses = append(o.Losses, oracle.Loss{Rev: f.rev})
			}
		}
	}
	got := o.Judge(t, nil, progressResources...)
	for _, gap := range got.Gaps {
		if gap.Reason != oracle.Expired || !gap.Recovered || !expires[gap.Scope.Resource] {
			oracle.Fail(t, "%s (%s, recovered %t), where no history was lost", gap.ID, gap.Reason, gap.Recovered)
		}
	}
	if got.Inferred > 0 && len(got.Gaps) == 0 {
		oracle.Fail(t, "%d inferred deltas without a gap", got.Inferred)
	}
}

// judgeInterruptions compares what the agent has reported of a scope with what was done to it.
func (o *observed) judgeInterruptions(t *testing.T, said *oracle.Observation, records []oracle.Record) {
	t.Helper()
	if said.Open != nil {
		oracle.Fail(t, "%s: the interruption from %s (%s) is not over", said.Text, said.Open.From, said.Open.Why)
	}
	left := slices.DeleteFunc(slices.Clone(said.Said), func(x oracle.Interruption) bool {
		return x.Why == oracle.InterruptedStart && !x.From.After(o.captured) // Of the first run.
	})
	for _, f := range o.faults[said.Resource] {
		proof := o.proof(said.Scope, f.rev, records)
		i := slices.IndexFunc(left, func(x oracle.Interruption) bool {
			return x.Why == f.why && !x.From.After(f.from) && !x.Until.Before(f.until)
		})
		if i < 0 {
			oracle.Fail(t, "%s: no interruption (%s) has the time from %s until %s", said.Text, f.why, f.from, f.until)
			continue
		}
		x := left[i]
		left = slices.Delete(left, i, i+1)
		before, after := f.from.Sub(x.From), x.Until.Sub(proof)
		if before > spanBefore || after > spanAfter {
			oracle.Fail(t,
				"%s: the interruption (%s), %s until %s, begins %s before the fault, and ends %s after the proof",
				said.Text, x.Why, x.From, x.Until, before, after)
		}
		t.Logf("%s: %s, reported from %s before the fault until %s after its end, %s after the proof",
			said.Text, x.Why, before, x.Until.Sub(f.until), after)
	}
	for _, x := range left {
		if o.followsFault(said.Resource, x) {
			continue
		}
		oracle.Fail(t, "%s: an interruption (%s) from %s until %s, where nothing was done",
			said.Text, x.Why, x.From, x.Until)
	}
}

// followsFault reports whether an interruption lies in the seconds after a fault. The path then
// sends all that it has held back at once, which may block the watch.
func (o *observed) followsFault(resource string, x oracle.Interruption) bool {
	return slices.ContainsFunc(o.faults[resource], func(f injected) bool {
		begins := !x.From.Before(f.until) && !x.From.After(f.until.Add(spanAfter))
		return x.Why == "blocked" && begins && !x.Until.After(f.until.Add(spanBlocked))
	})
}

// proof returns the agent's time of the first record that shows a scope after a revision.
func (o *observed) proof(sc oracle.Scope, rev uint64, records []oracle.Record) time.Time {
	for i := range records {
		rec := &records[i]
		if rec.Op != "" && rec.Op != oracle.Read && sc.Has(rec.Key) && rec.Rev > rev {
			return rec.Time
		}
	}
	return time.Time{}
}

// judgeLists compares lists with the records. The records prove that they have the state of a
// scope, or there was a fault.
func (o *observed) judgeLists(
	t *testing.T, sc oracle.Scope, observers *oracle.Observers, records []oracle.Record, listings []listing,
) {
	t.Helper()
	exact, inside := 0, 0
	for _, l := range listings {
		if l.resource != sc.Resource {
			continue
		}
		at := o.wall(l.at)
		if !observers.Exact(sc.Text, at) {
			inside++
			if !o.excuses(sc, at, records, observers.Of(sc.Text)[0].Said) {
				oracle.Fail(t, "%s: the state at %s is not known, where nothing was done", sc.Text, at)
			}
			continue
		}
		exact++
		got := oracle.TableAt(records, sc, at)
		if !maps.Equal(got, l.table) {
			oracle.Fail(t, "%s at %s: exact, and the records have %v; the API server had %v", sc.Text, at, got, l.table)
		}
	}
	if exact < 8 || len(o.faults[sc.Resource]) > 0 && inside == 0 || exact+inside < 20 {
		t.Errorf("%s: %d lists compared, and %d inside of interruptions: too few", sc.Text, exact, inside)
	}
	t.Logf("%s: %d lists compared, %d inside of interruptions", sc.Text, exact, inside)
}

// excuses reports whether a fault may be why the state of a resource is not known at a time. The
// state shortly after the first snapshot may be unknown too.
func (o *observed) excuses(sc oracle.Scope, at time.Time, records []oracle.Record, said []oracle.Interruption) bool {
	if at.Before(o.captured.Add(spanAfter)) {
		return true
	}
	isFollowed := slices.ContainsFunc(said, func(x oracle.Interruption) bool {
		return o.followsFault(sc.Resource, x) && !at.Before(x.From) && !at.After(x.Until)
	})
	return isFollowed || slices.ContainsFunc(o.faults[sc.Resource], func(f injected) bool {
		return at.After(f.from.Add(-spanBefore)) && at.Before(o.proof(sc, f.rev, records).Add(spanAfter))
	})
}

// TestProgressOfABadPath cuts the watch of one resource, and later keeps back what the API server
// sends of another one. The progress says so. Meanwhile it keeps back what the API server sends of
// a third one, which has shown no bookmark. The agent finds that out from a list of metadata.
func TestProgressOfABadPath(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	p := world.SharedPlane(t)
	g := world.StartGateway(t, p)
	o := observe(t, "bad-path", world.AgentConfig{Kubeconfig: g.Kubeconfig(t, p)})
	world.Pass(t.Context(), 4*time.Second)
	g.Hold("widgets", true)
	held := injected{why: oracle.InterruptedSilent, from: time.Now()}
	o.inject(t, oracle.InterruptedCut,
		func() { g.Cut("configmaps", true) }, 40*time.Second, func() { g.Cut("configmaps", false) }, "configmaps")
	// Only a watch that has shown a bookmark is known to be silent.
	world.Pass(t.Context(), time.Until(o.captured.Add(70*time.Second)))
	o.inject(t, oracle.InterruptedSilent,
		func() { g.Hold("secrets", true) }, 75*time.Second, func() { g.Hold("secrets", false) }, "secrets")
	o.awaitHealth(t, 20*time.Second, "stale", "held_back")
	o.awaitReport(t, "with an interruption of the widgets that is not over", func(rec *oracle.Record) bool {
		return slices.ContainsFunc(rec.Report.Entries, func(e oracle.Entry) bool {
			return e.Resource == oracle.Widgets &&
				slices.ContainsFunc(e.Interruptions, func(x oracle.Interruption) bool {
					return x.Why == oracle.InterruptedSilent && x.Until.IsZero()
				})
		})
	})
	// A watch of 30 s, whose end is another interruption, follows the proof after two minutes. The
	// agent gives it up after a minute. The next one lasts.
	world.Pass(t.Context(), time.Until(held.from.Add(190*time.Second)))
	held.until = time.Now()
	g.Hold("widgets", false)
	o.note(t, held, oracle.Widgets)
	world.Pass(t.Context(), 30*time.Second)
	o.awaitHealth(t, 20*time.Second, "ok", "")
	o.judge(t)
}

// TestBufferingProxy has a proxy that buffers the watches of one resource. The agent finds it, gets
// the changes nevertheless, and says after the third time what it is. Nothing is lost.
func TestBufferingProxy(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	onlyLong(t, "six minutes")
	p := world.SharedPlane(t)
	g := world.StartGateway(t, p)
	g.Buffer("widgets", true)
	o := observe(t, "buffering", world.AgentConfig{Kubeconfig: g.Kubeconfig(t, p)})
	held := injected{why: oracle.InterruptedSilent, from: o.begun}
	o.awaitHealth(t, 150*time.Second, "stale", "held_back")
	for n := range 4 { // Watches of 30 s.
		found := o.Now(t)
		wait.Eventually(t, 45*time.Second, func() error {
			all := o.Stream.All()
			for i := range all {
				if all[i].Op != "" && all[i].Key.Resource == oracle.Widgets && all[i].Rev > found {
					return nil
				}
			}
			return fmt.Errorf("%d: the bus has no change of widgets after revision %d", n, found)
		})
	}
	log, err := os.ReadFile(o.Agent.Log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "a proxy seems to buffer watches"); n != 1 {
		oracle.Fail(t, "it is said %d times that a proxy buffers", n)
	}
	held.until = time.Now()
	g.Buffer("widgets", false)
	o.note(t, held, oracle.Widgets)
	o.awaitHealth(t, 30*time.Second, "ok", "")
	o.stop()
	world.Pass(t.Context(), calm)
	o.StopAgent(t)
	o.judgeObjects(t)
}

// awaitHealth waits until the status says a health of the scope of the widgets. All others are
// well.
func (o *observed) awaitHealth(t *testing.T, within time.Duration, health, reason string) {
	t.Helper()
	wait.Eventually(t, within, func() error {
		text, err := o.Agent.Get(t.Context(), "/status")
		if err != nil {
			return err
		}
		var status struct {
			Ready  bool
			Scopes []struct{ Resource, Health, Reason, Error string }
		}
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			return err
		}
		for _, s := range status.Scopes {
			isIt := s.Resource == oracle.Widgets
			switch {
			case isIt && (s.Health != health || s.Reason != reason || (s.Error == "") != (reason == "")):
				return fmt.Errorf("%+v", s)
			case !isIt && s.Health != "ok":
				return fmt.Errorf("%+v", s)
			}
		}
		if status.Ready != (health == "ok") || len(status.Scopes) != len(progressResources) {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
}

// TestProgressOfAProcess stops the agent's process for a while, ends it, and kills it.
func TestProgressOfAProcess(t *testing.T) {
	slow(t)
	notRacing(t)
	// Not beside others: its limits are times of an idle machine.
	o := observe(t, "bad-process", world.AgentConfig{})
	world.Pass(t.Context(), 4*time.Second)
	signal := func(s syscall.Signal) {
		if err := o.Agent.Cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	o.inject(t, oracle.InterruptedStopped,
		func() { signal(syscall.SIGSTOP) }, 30*time.Second, func() { signal(syscall.SIGCONT) }, progressResources...)
	world.Pass(t.Context(), 10*time.Second)
	again := func() { o.Agent.Again(t) }
	o.inject(t, oracle.InterruptedStart, func() { o.StopAgent(t) }, 10*time.Second, again, progressResources...)
	started := time.Now()
	o.awaitReport(t, "one of the second run", func(rec *oracle.Record) bool {
		return rec.Time.After(started) && rec.Report.Number == 1
	})

	o.inject(t, oracle.InterruptedStart, func() { o.Agent.Crash() }, 10*time.Second, again, progressResources...)
	world.Pass(t.Context(), 12*time.Second)
	o.judge(t)
}

// TestProgressOfAClock sets the agent's wall clock back by 30 s.
func TestProgressOfAClock(t *testing.T) {
	slow(t)
	notRacing(t)
	// Not beside others: its limits are times of an idle machine.
	const step = 30 * time.Second
	shift := filepath.Join(t.TempDir(), "shift")
	o := observe(t, "bad-clock", world.AgentConfig{
		Binary: shiftedAgent(t), Env: []string{"KUBECDC_TEST_CLOCK=" + shift},
	})
	world.Pass(t.Context(), 8*time.Second)
	before := time.Now()
	if err := os.WriteFile(shift+".new", []byte("-"+step.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(shift+".new", shift); err != nil {
		t.Fatal(err)
	}
	set := time.Now()
	o.Clock = func(at time.Time) time.Time {
		if at.Before(set) {
			return at
		}
		return at.Add(-step)
	}
	// The agent reads its clock twice a second. Times between two readings are those before the
	// step.
	const reading = time.Second
	x := injected{why: oracle.InterruptedStepped, from: set.Add(reading - step), until: before.Add(-reading)}
	o.note(t, x, progressResources...)
	world.Pass(t.Context(), step+35*time.Second)
	o.judge(t)
}

// beginsAtLastProgress fails the test if a gap begins before what the last progress before it says.
func beginsAtLastProgress(t *testing.T, s *world.Stage, gap *oracle.Record) {
	t.Helper()
	var before []oracle.Record
	for _, rec := range s.Stream.All() {
		if rec.Position < gap.Position {
			before = append(before, rec)
		}
	}
	all := oracle.ObserversOf(before).Of(gap.Scope.Text)
	if len(all) != 1 || all[0].Rev == 0 || all[0].To.IsZero() {
		t.Fatalf("before %s, no progress of one writer claims anything: %+v", gap.ID, all)
	}
	// A checkpoint keeps times in whole seconds.
	last := all[0]
	if gap.From < last.Rev || gap.Since.Before(last.To.Truncate(time.Second)) {
		oracle.Fail(t, "%s begins at revision %d, since %s; the last progress has everything up to revision %d and %s",
			gap.ID, gap.From, gap.Since, last.Rev, last.To)
	}
}

// TestLostCheckpointBeginsAtTheLastProgress removes the checkpoint of an agent, and one of its two
// resources from its selection. The agent takes from its last progress where the gap begins, and
// which scope has ended.
func TestLostCheckpointBeginsAtTheLastProgress(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	const namespace = "last-progress"
	s := world.StageOn(t, world.SharedPlane(t), world.Luck())
	s.NewNamespace(t, namespace)
	s.MakeConfigMaps(t, namespace, "old", 20)
	s.Begin(t, world.AgentConfig{Watch: "  - resources: [configmaps, secrets]\n    namespaces: [" + namespace + "]"})
	s.Stream.Completed(t, "configmaps", "secrets")
	s.NewNamespace(t, namespace+"-other")
	s.MakeConfigMaps(t, namespace+"-other", "new", 3)
	seen := s.Now(t)
	world.Pass(t.Context(), 62*time.Second) // A bookmark shows a revision that no event of the scopes has.
	s.StopAgent(t)
	last := &s.Stream.All()[0]
	wait.Eventually(t, 10*time.Second, func() error {
		all := s.Stream.All()
		for i := range all {
			p := all[i].Report
			if p != nil && p.Ends {
				last = &all[i]
				return nil
			}
		}
		return errors.New("no last progress")
	})
	if !last.Report.Reaches("configmaps", seen) || !last.Report.Reaches("secrets", seen) {
		t.Fatalf("%s does not reach revision %d: the test shows nothing", last.ID, seen)
	}
	n := len(s.Stream.All())
	if err := os.Remove(s.Checkpoint); err != nil {
		t.Fatal(err)
	}
	s.Agent.Reconfigure(t, "[configmaps, secrets]", "[configmaps]")
	s.MakeConfigMaps(t, namespace, "missed", 2)
	s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t), Final: true})
	s.Agent.Again(t)
	gap := s.Await(t, "a gap", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.Gap && rec.Scope.Resource == "configmaps"
	})
	beginsAtLastProgress(t, s, gap)
	s.Await(t, "the end of the scope of secrets", func(rec *oracle.Record) bool {
		isNew := rec.Writer == last.Writer && rec.Run != last.Run
		return rec.Stream == oracle.ScopeEnded && rec.Scope.Resource == "secrets" && isNew
	})
	got := s.Judge(t, nil, "configmaps", "secrets")
	for _, g := range got.Gaps { // The scope that ends may have one too.
		if g.Reason != oracle.CheckpointLost && (g.Reason != oracle.SelectionChanged || g.Scope.Resource != "secrets") {
			oracle.Fail(t, "%s: %s, want that the checkpoint is lost", g.ID, g.Reason)
		}
		beginsAtLastProgress(t, s, &g)
	}
	ends := 0
	for _, rec := range s.Since(n) {
		if rec.Stream == oracle.ScopeEnded {
			ends++
		}
	}
	if ends != 1 {
		oracle.Fail(t, "%d scopes end, want that of secrets", ends)
	}
}
