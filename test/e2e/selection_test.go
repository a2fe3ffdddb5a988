package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/oracle/selection"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestSelection runs agents with randomly drawn configurations, while writers move objects from one
// rule to another. The bus must have exactly the records that the rules select. An independent
// evaluation derives them from etcd's history.
func TestSelection(t *testing.T) {
	t.Parallel()
	p := world.SharedPlane(t) // Changes by controllers count, too.
	seed := world.EnvUint(t, "SELECTION_SEED", 1)
	n := world.EnvUint(t, "SELECTIONS", size[uint64](1, 3, 5))
	var total selectionTotals
	for i := range n {
		t.Run(fmt.Sprint("SELECTION_SEED=", seed+i), func(t *testing.T) {
			runSelection(t, p, seed+i, &total)
		})
	}
	t.Logf(
		"%d selections: %d changes sent, %d withheld %v, %d mutations of rules and records noticed, %d copies behind crashes",
		n, total.sent, total.withheld, total.reasons, total.noticed, total.duplicates)
}

type selectionTotals struct {
	sent, withheld, noticed, duplicates int
	reasons                             map[string]int
}

// selectionRun is one configuration with its agent.
type selectionRun struct {
	*world.Plane
	*selection.Drawer
	config  *selection.Config
	written []string
	watched []string // The resources that the rules select, regardless of the writer.
	from    uint64
	stream  *world.Stream
	agent   *world.Agent
	bus     *world.Bus
	killed  []uint64 // Positions in the stream.
}

func runSelection(t *testing.T, p *world.Plane, seed uint64, total *selectionTotals) {
	t.Helper()
	d := &selection.Drawer{Rand: rand.New(rand.NewPCG(seed, 7)), Prefix: fmt.Sprintf("sel%d-", seed)}
	r := &selectionRun{Plane: p, Drawer: d}
	r.config, r.written = d.Config()
	crash := d.Luck(35)
	if r.config.Redaction.Key != nil {
		r.config.Redaction.KeyFile = filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(r.config.Redaction.KeyFile, append(slices.Clone(r.config.Redaction.Key), '\n'),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, resource := range slices.Concat(r.written, selection.WrittenBeside()) {
		if len(r.config.Clauses(resource)) > 0 {
			r.watched = append(r.watched, resource)
		}
	}
	t.Logf("crash %t, written: %v\n%s\n%s", crash, r.written, r.config.Watch(), r.config.Rest())
	for _, ns := range d.Namespaces() {
		p.NewNamespace(t, ns)
	}
	defer r.clear(t)
	r.write(t, 80, nil)
	r.from = p.Now(t)
	r.bus = world.StartBus(t)
	r.agent = world.StartAgent(t, p, world.AgentConfig{Bus: r.bus, Watch: r.config.Watch(), Extra: r.config.Rest()})
	reader := p.Reader()
	reader.Content = func(_ oracle.ObjectKey, object map[string]any) (oracle.Digest, []string) {
		return selection.Exact(object), nil
	}
	r.stream = world.ReadStream(t, r.bus, reader)
	begins := r.begins(t)
	r.write(t, 400, r.meanwhile(t, crash))

	until, want := r.await(t, begins)
	records := r.stream.All()
	got := selection.Judge(want, records, until, r.killed...)
	r.report(t, got.Faults)
	r.judgeMarks(t, want, records)
	if !crash {
		r.compareCounts(t, begins)
	}
	if err := r.agent.Stop(time.Minute); err != nil {
		t.Errorf("agent: %v", err)
	}
	if got.Sent == 0 {
		t.Error("nothing is to be sent: this selection shows nothing")
	}
	total.sent += got.Sent
	total.withheld += got.Withheld
	total.duplicates += got.Duplicates
	if total.reasons == nil {
		total.reasons = make(map[string]int)
	}
	for _, list := range want {
		for i := range list {
			if reason := list[i].Reason; reason != "" {
				total.reasons[reason]++
			}
		}
	}
	if !t.Failed() {
		total.noticed += r.falsify(t, want, records, until, begins)
	}
	t.Logf("%d changes sent, %d withheld, %d copies", got.Sent, got.Withheld, got.Duplicates)
}

// clear deletes the namespaces of the run.
func (r *selectionRun) clear(t testing.TB) {
	ctx := context.WithoutCancel(t.Context())
	for _, ns := range r.Namespaces() {
		if err := r.API.Remove(ctx, "/api/v1/namespaces/"+ns); err != nil && !apierrors.IsNotFound(err) &&
			!apierrors.IsConflict(err) {
			t.Errorf("remove namespace %s: %v", ns, err)
		}
	}
}

// write runs writers for that many steps, and runs meanwhile at the same time. It returns when both
// have ended.
func (r *selectionRun) write(t *testing.T, steps int64, meanwhile func(context.Context) error) {
	t.Helper()
	var taken atomic.Int64
	var busy atomic.Bool
	busy.Store(meanwhile != nil)
	ws := &world.Writers{API: r.API, Done: func() bool { return taken.Load() >= steps && !busy.Load() }}
	var movers []func(context.Context) error
	for i := range 2 {
		for _, resource := range r.written {
			for _, ns := range r.Namespaces() {
				w := ws.Writer(fmt.Sprint("m", i), ns, 4)
				w.RNG = rand.New(rand.NewPCG(r.Uint64(), 1))
				m := &mover{Writer: w, resource: resource}
				movers = append(movers, m.step)
			}
		}
	}
	// A few at a time, each with all of its objects: the load is for the API server, not for this
	// machine.
	var all []func(context.Context) error
	const many = 4
	for i := range many {
		next := i
		all = append(all, func(ctx context.Context) error {
			step := movers[next]
			next += many
			if next >= len(movers) {
				next = i
			}
			taken.Add(1)
			return step(ctx)
		})
	}
	var wg sync.WaitGroup
	if meanwhile != nil {
		wg.Go(func() {
			defer busy.Store(false)
			if err := meanwhile(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	ws.Run(t, all...)
	wg.Wait()
}

// meanwhile deletes a namespace and creates it again. If crash is set, it also kills the agent and
// starts it again.
func (r *selectionRun) meanwhile(t *testing.T, crash bool) func(context.Context) error {
	return func(ctx context.Context) error {
		uri := "/api/v1/namespaces/" + r.Prefix + "tmp"
		if err := r.API.Remove(ctx, uri); err != nil {
			return err
		}
		if crash {
			r.crash(t)
		}
		err := wait.For(ctx, 2*time.Minute, func() error {
			_, err := r.API.Get(ctx, uri)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("the namespace is still there"), err)
		})
		if err != nil {
			return err
		}
		_, err = r.API.Create(ctx, "/api/v1/namespaces", obj{
			"apiVersion": "v1",
			"kind":       "Namespace",
			"metadata":   world.Meta(r.Prefix + "tmp"),
		})
		return err
	}
}

// crash kills the agent, and starts it again after some changes.
func (r *selectionRun) crash(t *testing.T) {
	r.agent.Crash()
	position, err := r.stream.End(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	r.killed = append(r.killed, position)
	world.Pass(t.Context(), 300*time.Millisecond)
	r.agent.Again(t)
}

// place is the scope of an informer: namespace is "" if the informer covers all namespaces.
type place struct{ resource, namespace string }

func (r *selectionRun) place(resource, namespace string) place {
	if scopes := r.config.Scopes(resource); len(scopes) > 0 && scopes[0] == "" {
		namespace = ""
	}
	return place{resource, namespace}
}

// begins waits until each scope of the rules has sent its snapshot, and returns a function that
// returns the snapshot of an object's scope.
func (r *selectionRun) begins(t *testing.T) func(oracle.ObjectKey) (oracle.Snapshot, bool) {
	t.Helper()
	wanted := make(map[place]bool)
	for _, resource := range r.watched {
		for _, ns := range r.config.Scopes(resource) {
			wanted[place{resource, ns}] = true
		}
	}
	found := make(map[place]oracle.Snapshot)
	wait.Eventually(t, time.Minute, func() error {
		if r.agent.Ended() {
			t.Fatalf("the agent has ended: %v", r.agent.Err)
		}
		for _, rec := range r.stream.All() {
			if rec.Stream == oracle.SnapshotCompleted {
				found[r.place(rec.Scope.Resource, rec.Scope.Namespaces)] = oracle.Snapshot{
					ID:  rec.Snapshot,
					Rev: rec.Rev,
				}
			}
		}
		for place := range wanted {
			if _, ok := found[place]; !ok {
				return fmt.Errorf("no snapshot of %v on the bus; there are those of %v", place,
					slices.Collect(maps.Keys(found)))
			}
		}
		return nil
	})
	for place := range found {
		if !wanted[place] {
			oracle.Fail(t, "a snapshot of %v, which no rule makes", place)
		}
	}
	return func(key oracle.ObjectKey) (oracle.Snapshot, bool) {
		snap, ok := found[r.place(key.Resource, key.Namespace)]
		return snap, ok
	}
}

// await waits until all expected records are on the bus, or none has come for a while.
func (r *selectionRun) await(
	t *testing.T, begins func(oracle.ObjectKey) (oracle.Snapshot, bool),
) (uint64, map[oracle.ObjectKey][]selection.Chosen) {
	t.Helper()
	until := r.Now(t)
	want := r.config.Choose(selection.ReadArchive(t, r.History, r.from, until, r.watched...), begins, until)
	const idle = 30 * time.Second
	begin := time.Now()
	wait.Eventually(t, world.ComingLimit, func() error {
		quiet := r.stream.Quiet()
		for _, list := range want {
			for i := range list {
				if list[i].Reason == "" && !r.stream.Has(list[i].ID) && (quiet < idle || time.Since(begin) < idle) {
					return errors.New("not yet")
				}
			}
		}
		return nil
	})
	return until, want
}

// compareCounts waits until the agent's counts of withheld events are the expected ones.
func (r *selectionRun) compareCounts(t *testing.T, begins func(oracle.ObjectKey) (oracle.Snapshot, bool)) {
	t.Helper()
	var diff string
	err := wait.For(t.Context(), time.Minute, func() error {
		text, err := r.agent.Get(t.Context(), "/metrics")
		if err != nil {
			return err
		}
		until := r.Now(t)
		want := selection.WithheldCounts(
			r.config.Choose(selection.ReadArchive(t, r.History, r.from, until, r.watched...), begins, until))
		diff = cmp.Diff(want, readWithheld(t, text))
		if diff != "" {
			return errors.New("the counts differ")
		}
		return nil
	})
	if err != nil {
		oracle.Fail(t, "withheld, by resource and reason: %v (-etcd +metric)\n%s", err, diff)
	}
}

// readWithheld returns the agent's counts of withheld events, by resource and reason.
func readWithheld(t testing.TB, metrics string) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for line := range strings.Lines(metrics) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "kubecdc_informer_withheld_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		var reason, scope string
		for label := range strings.SplitSeq(strings.TrimSuffix(labels, `"`), `",`) {
			name, text, _ := strings.Cut(label, `="`)
			switch name {
			case "reason":
				reason = text
			case "scope":
				scope = text
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		if n > 0 {
			counts[oracle.ParseScope(scope).Resource+" "+reason] += int(n)
		}
	}
	return counts
}

// judgeMarks compares the stream events of the snapshots, one pair for each scope, with the reads.
// The start has the number of objects, and the completion the number of those that were sent.
func (r *selectionRun) judgeMarks(t *testing.T, want map[oracle.ObjectKey][]selection.Chosen, records []oracle.Record) {
	t.Helper()
	there := make(map[place]int)
	sent := make(map[place]int)
	started := make(map[place]*oracle.Record)
	for key, list := range want {
		for i := range list {
			if e := &list[i]; e.Op == oracle.Read {
				there[r.place(key.Resource, key.Namespace)]++
				if e.Reason == "" {
					sent[r.place(key.Resource, key.Namespace)]++
				}
			}
		}
	}
	for i := range records {
		rec := &records[i]
		at := r.place(rec.Scope.Resource, rec.Scope.Namespaces)
		switch rec.Stream {
		case oracle.SnapshotStarted:
			if first := started[at]; first != nil && first.ID != rec.ID {
				oracle.Fail(t, "%s: a second snapshot of this scope, behind %s", rec.ID, first.ID)
			}
			started[at] = rec
			if rec.Objects != there[at] {
				oracle.Fail(t, "%s says %d objects, there are %d", rec.ID, rec.Objects, there[at])
			}
		case oracle.SnapshotCompleted:
			if rec.Objects != sent[at] || started[at] == nil || started[at].Scope != rec.Scope {
				oracle.Fail(t, "%s says %d objects, %d are to be sent; it began with %v", rec.ID, rec.Objects, sent[at],
					started[at])
			}
		}
	}
}

// report fails the test with a few faults of each kind, and logs the differences.
func (r *selectionRun) report(t *testing.T, faults []selection.Fault) {
	t.Helper()
	slices.SortStableFunc(faults, selection.CompareFaults)
	shown := make(map[string]int)
	for _, f := range faults {
		shown[f.Kind]++
		if shown[f.Kind] > 3 {
			continue
		}
		oracle.Fail(t, "%.1500s", f.Fault)
		if f.Content == "" {
			continue
		}
		body, err := r.stream.Body(t.Context(), f.Lane, f.Position)
		if err != nil {
			t.Log(err)
			continue
		}
		event, err := oracle.DecodeObject(body)
		if err != nil {
			t.Log(err)
			continue
		}
		t.Logf("%s: (-rules +bus)\n%.3000s", f.Content, cmp.Diff(f.Want, selection.At(event, "data", f.Content)))
	}
	for kind, n := range shown {
		t.Errorf("%d faults of kind %q", n, kind)
	}
}
