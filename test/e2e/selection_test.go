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

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// TestSelection tells agents by configurations that are drawn what to send, has writers move objects from one rule to the other,
// and wants just that on the bus which the rules say: derived from etcd's history by an evaluation of its own.
func TestSelection(t *testing.T) {
	t.Parallel()
	p := startPlane(t, controlplane.Options{}) // What others write is counted, too.
	seed := envNumber(t, "SELECTION_SEED", 1)
	n := envNumber(t, "SELECTIONS", size[uint64](1, 3, 5))
	var total selectionTotals
	for i := range n {
		t.Run(fmt.Sprint("SELECTION_SEED=", seed+i), func(t *testing.T) {
			runSelection(t, p, seed+i, &total)
		})
	}
	t.Logf("%d selections: %d changes sent, %d withheld %v, %d mutations of rules and records noticed, %d copies behind crashes",
		n, total.sent, total.withheld, total.reasons, total.noticed, total.duplicates)
}

// envNumber is a number of the environment.
func envNumber(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

type selectionTotals struct {
	sent, withheld, noticed, duplicates int
	reasons                             map[string]int
}

// selectionRun is one configuration with its agent.
type selectionRun struct {
	*plane
	*drawer
	config  *picked
	written []string
	watched []string // The resources that rules take, whoever writes them.
	from    uint64
	stream  *stream
	agent   *agent
	bus     *bus
	killed  []uint64 // Positions in the stream.
}

func runSelection(t *testing.T, p *plane, seed uint64, total *selectionTotals) {
	t.Helper()
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 7)), prefix: fmt.Sprintf("sel%d-", seed)}
	r := &selectionRun{plane: p, drawer: d}
	r.config, r.written = d.config()
	crash := d.luck(35)
	if r.config.Redaction.Key != nil {
		r.config.Redaction.KeyFile = filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(r.config.Redaction.KeyFile, append(slices.Clone(r.config.Redaction.Key), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, resource := range slices.Concat(r.written, writtenBeside()) {
		if len(r.config.clauses(resource)) > 0 {
			r.watched = append(r.watched, resource)
		}
	}
	t.Logf("crash %t, written: %v\n%s\n%s", crash, r.written, r.config.watch(), r.config.rest())
	for _, ns := range d.namespaces() {
		p.newNamespace(t, ns)
	}
	defer r.clear(t)
	r.write(t, 80, nil)
	r.from = p.now(t)
	r.bus = startBus(t)
	r.agent = startAgent(t, p, agentConfig{Bus: r.bus, Watch: r.config.watch(), Extra: r.config.rest()})
	reader := p.reader()
	reader.Content = func(_ objectKey, object map[string]any) (digest, []string) { return exact(object), nil }
	r.stream = readStream(t, r.bus, reader)
	begins := r.begins(t)
	r.write(t, 400, r.meanwhile(t, crash))

	until, want := r.await(t, begins)
	records := r.stream.all()
	got := judgeChosen(want, records, until, r.killed...)
	r.report(t, got.Faults)
	r.judgeMarks(t, want, records)
	if !crash {
		r.compareCounts(t, begins)
	}
	if err := r.agent.stop(time.Minute); err != nil {
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

// clear leaves nothing to those who come after.
func (r *selectionRun) clear(t testing.TB) {
	ctx := context.WithoutCancel(t.Context())
	for _, ns := range r.namespaces() {
		if err := r.api.remove(ctx, "/api/v1/namespaces/"+ns); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Errorf("remove namespace %s: %v", ns, err)
		}
	}
}

// write has writers take so many steps, while meanwhile is done. It ends when both have.
func (r *selectionRun) write(t *testing.T, steps int64, meanwhile func(context.Context) error) {
	t.Helper()
	var taken atomic.Int64
	var busy atomic.Bool
	busy.Store(meanwhile != nil)
	ws := &writers{api: r.api, done: func() bool { return taken.Load() >= steps && !busy.Load() }}
	var movers []func(context.Context) error
	for i := range 2 {
		for _, resource := range r.written {
			for _, ns := range r.namespaces() {
				w := ws.writer(fmt.Sprint("m", i), ns, 4)
				w.rng = rand.New(rand.NewPCG(r.Uint64(), 1))
				m := &mover{writer: w, resource: resource}
				movers = append(movers, m.step)
			}
		}
	}
	// A few at a time, each with all of its objects: the API server is to be busy, not this machine.
	var all []func(context.Context) error
	const many = 4
	for i := range many {
		next := i
		all = append(all, func(ctx context.Context) error {
			step := movers[next]
			if next += many; next >= len(movers) {
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
	ws.run(t, all...)
	wg.Wait()
}

// meanwhile has a namespace go and come back, and where crash is set the agent killed and started again.
func (r *selectionRun) meanwhile(t *testing.T, crash bool) func(context.Context) error {
	return func(ctx context.Context) error {
		uri := "/api/v1/namespaces/" + r.prefix + "tmp"
		if err := r.api.remove(ctx, uri); err != nil {
			return err
		}
		if crash {
			r.crash(t)
		}
		err := await(ctx, 2*time.Minute, func() error {
			_, err := r.api.get(ctx, uri)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("the namespace is still there"), err)
		})
		if err != nil {
			return err
		}
		_, err = r.api.create(ctx, "/api/v1/namespaces", obj{"apiVersion": "v1", "kind": "Namespace", "metadata": meta(r.prefix + "tmp")})
		return err
	}
}

// crash kills the agent, and starts it again behind some changes.
func (r *selectionRun) crash(t *testing.T) {
	r.agent.crash()
	position, err := r.stream.end(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	r.killed = append(r.killed, position)
	pass(t.Context(), 300*time.Millisecond)
	r.agent.again(t)
}

// end is the position of the last record that the bus has.
func (s *stream) end(ctx context.Context) (uint64, error) {
	stream, err := s.js.Stream(ctx, streamName)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// place is where an informer is: the namespace is "" where it is one over all.
type place struct{ resource, namespace string }

func (r *selectionRun) place(resource, namespace string) place {
	if scopes := r.config.scopes(resource); len(scopes) > 0 && scopes[0] == "" {
		namespace = ""
	}
	return place{resource, namespace}
}

// begins waits until each scope that the rules make has sent its snapshot, and returns where an object's began.
func (r *selectionRun) begins(t *testing.T) func(objectKey) (snapshot, bool) {
	t.Helper()
	wanted := make(map[place]bool)
	for _, resource := range r.watched {
		for _, ns := range r.config.scopes(resource) {
			wanted[place{resource, ns}] = true
		}
	}
	found := make(map[place]snapshot)
	eventually(t, time.Minute, func() error {
		if r.agent.ended() {
			t.Fatalf("the agent has ended: %v", r.agent.err)
		}
		for _, rec := range r.stream.all() {
			if rec.Stream == snapshotCompleted {
				found[r.place(rec.Scope.Resource, rec.Scope.Namespaces)] = snapshot{ID: rec.Snapshot, Rev: rec.Rev}
			}
		}
		for place := range wanted {
			if _, ok := found[place]; !ok {
				return fmt.Errorf("no snapshot of %v on the bus; there are those of %v", place, slices.Collect(maps.Keys(found)))
			}
		}
		return nil
	})
	for place := range found {
		if !wanted[place] {
			t.Errorf("a snapshot of %v, which no rule makes", place)
		}
	}
	return func(key objectKey) (snapshot, bool) {
		snap, ok := found[r.place(key.Resource, key.Namespace)]
		return snap, ok
	}
}

// await waits until all that is to be sent is on the bus, or nothing has come for a while.
func (r *selectionRun) await(t *testing.T, begins func(objectKey) (snapshot, bool)) (uint64, map[objectKey][]chosen) {
	t.Helper()
	until := r.now(t)
	want := r.config.choose(r.archive(t, r.from, until, r.watched...), begins, until)
	const idle = 30 * time.Second
	begin := time.Now()
	eventually(t, comingLimit, func() error {
		r.stream.mu.Lock()
		defer r.stream.mu.Unlock()
		for _, list := range want {
			for i := range list {
				if list[i].Reason == "" && !r.stream.seen[list[i].ID] && (time.Since(r.stream.latest) < idle || time.Since(begin) < idle) {
					return errors.New("not yet")
				}
			}
		}
		return nil
	})
	return until, want
}

// compareCounts holds what the agent counts as withheld against what is to be, once nothing moves any more.
func (r *selectionRun) compareCounts(t *testing.T, begins func(objectKey) (snapshot, bool)) {
	t.Helper()
	var diff string
	err := await(t.Context(), time.Minute, func() error {
		text, err := r.agent.get(t.Context(), "/metrics")
		if err != nil {
			return err
		}
		until := r.now(t)
		want := withheldCounts(r.config.choose(r.archive(t, r.from, until, r.watched...), begins, until))
		diff = cmp.Diff(want, readWithheld(t, text))
		if diff != "" {
			return errors.New("the counts differ")
		}
		return nil
	})
	if err != nil {
		t.Errorf("withheld, by resource and reason: %v (-etcd +metric)\n%s", err, diff)
	}
}

// readWithheld is what the agent counts as withheld, by resource and reason.
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
			counts[parseScope(scope).Resource+" "+reason] += int(n)
		}
	}
	return counts
}

// judgeMarks holds the marks of the snapshots, one for each scope, against the reads: started says how many objects there are,
// completed how many of them were sent.
func (r *selectionRun) judgeMarks(t *testing.T, want map[objectKey][]chosen, records []record) {
	t.Helper()
	there, sent, started := make(map[place]int), make(map[place]int), make(map[place]*record)
	for key, list := range want {
		for i := range list {
			if e := &list[i]; e.Op == read {
				if there[r.place(key.Resource, key.Namespace)]++; e.Reason == "" {
					sent[r.place(key.Resource, key.Namespace)]++
				}
			}
		}
	}
	for i := range records {
		rec := &records[i]
		at := r.place(rec.Scope.Resource, rec.Scope.Namespaces)
		switch rec.Stream {
		case snapshotStarted:
			if first := started[at]; first != nil && first.ID != rec.ID {
				t.Errorf("%s: a second snapshot of this scope, behind %s", rec.ID, first.ID)
			}
			if started[at] = rec; rec.Objects != there[at] {
				t.Errorf("%s says %d objects, there are %d", rec.ID, rec.Objects, there[at])
			}
		case snapshotCompleted:
			if rec.Objects != sent[at] || started[at] == nil || started[at].Scope != rec.Scope {
				t.Errorf("%s says %d objects, %d are to be sent; it began with %v", rec.ID, rec.Objects, sent[at], started[at])
			}
		}
	}
}

// report fails the test with the faults, a few of each kind with what differs.
func (r *selectionRun) report(t *testing.T, faults []selectionFault) {
	t.Helper()
	slices.SortStableFunc(faults, compareFaults)
	shown := make(map[string]int)
	for _, f := range faults {
		if shown[f.Kind]++; shown[f.Kind] > 3 {
			continue
		}
		t.Errorf("VERDICT: %.1500s", f.fault) // CI never runs a test with a verdict again.
		if f.Content == "" {
			continue
		}
		body, err := r.stream.body(t.Context(), f.Lane, f.Position)
		if err != nil {
			t.Log(err)
			continue
		}
		event, err := decodeObject(body)
		if err != nil {
			t.Log(err)
			continue
		}
		t.Logf("%s: (-rules +bus)\n%.3000s", f.Content, cmp.Diff(f.Want, at(event, "data", f.Content)))
	}
	for kind, n := range shown {
		t.Errorf("%d faults of kind %q", n, kind)
	}
}
