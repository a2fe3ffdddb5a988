package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// reloaded is an agent whose selection is changed while it runs, as a kubelet changes the files of
// a ConfigMap: by swapping a symlink.
type reloaded struct {
	*world.Agent

	file, watch string // The configuration file, and its current selection.
	swaps       int
}

func (r *reloaded) swap(watch string) error {
	text, err := os.ReadFile(r.file)
	if err != nil {
		return err
	}
	if strings.Count(string(text), r.watch) != 1 {
		return fmt.Errorf("the configuration does not have its selection once:\n%s", text)
	}
	r.swaps++
	dir := fmt.Sprintf("%s.%d", r.file, r.swaps)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	next := filepath.Join(dir, "kubecdc.yaml")
	if err := os.WriteFile(next, []byte(strings.Replace(string(text), r.watch, watch, 1)), 0o600); err != nil {
		return err
	}
	link := r.file + ".link"
	if err := os.Symlink(next, link); err != nil {
		return err
	}
	r.watch = watch
	return os.Rename(link, r.file)
}

// applied waits until n changed configurations are in effect.
func (r *reloaded) applied(ctx context.Context, n int) error {
	return wait.For(ctx, time.Minute, func() error {
		got, err := r.Metric(ctx, "kubecdc_config_reloads_total", `result="applied"`)
		if err == nil && int(got) < n {
			err = fmt.Errorf("%v changed configurations are in force, want %d", got, n)
		}
		return err
	})
}

// TestReload changes the selection twice while writers write. Each revision of a resource that
// stays selected is on the bus once. An added resource is read. For a removed one, the bus has a
// gap and "left" records.
func TestReload(t *testing.T) {
	t.Parallel()
	revisions := size(1_000, 1_500, 2_000)
	stay := []string{"configmaps", oracle.Widgets}
	selection := func(more string) string {
		// Other rules select the same objects: the observed objects do not change.
		return "  - resources: [configmaps, " + more + "]\n  - resources: [" + oracle.Widgets + "]"
	}
	// Its agent observes all namespaces.
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	namespaces := []string{"reload-a", "reload-b"}
	for _, ns := range namespaces {
		p.NewNamespace(t, ns)
	}
	bus := world.StartBus(t)
	first := selection("secrets")
	a := &reloaded{Agent: world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: first}), watch: first}
	a.file = a.Argv[slices.Index(a.Argv, "--config")+1]
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, "configmaps", "secrets", oracle.Widgets)

	all := append([]string{"secrets", "deployments.apps"}, stay...)
	count := p.History.Count(all...)
	written := func() int { return p.History.Count(all...) - count }
	var swapped atomic.Int64
	var at []uint64 // Revisions at which a selection was in effect.
	ws := &world.Writers{API: p.API, Done: func() bool { return swapped.Load() == 2 && written() >= revisions }}
	// swap is a writer step that changes the configuration: after one third and after two thirds of
	// the revisions.
	swap := func(ctx context.Context) error {
		n := int(swapped.Load())
		due := func() error {
			if n == 2 && !ws.Done() || written() < revisions*(n+1)/3 {
				return errors.New("not yet")
			}
			return nil
		}
		if wait.For(ctx, time.Second, due) != nil || n == 2 {
			return nil // Called again.
		}
		watch := []string{
			"  - resources: [" + oracle.Widgets + "]\n  - resources: [configmaps]\n  - resources: [deployments]",
			"  - resources: [configmaps]\n    labelSelector: no=such\n  - resources: [configmaps, " + oracle.Widgets +
				", secrets]",
		}[n]
		if err := a.swap(watch); err != nil {
			return err
		}
		if err := a.applied(ctx, n+1); err != nil {
			return err
		}
		rev, err := p.History.Revision(ctx)
		if err != nil {
			return err
		}
		at = append(at, rev)
		swapped.Add(1)
		return nil
	}
	steps := []func(context.Context) error{swap}
	for _, ns := range namespaces {
		steps = append(steps,
			ws.Writer("cm", ns, 15).ConfigMaps, ws.Writer("secret", ns, 15).Secrets,
			ws.Writer("deploy", ns, 5).Deployments, ws.Writer("widget", ns, 15).Widgets,
		)
	}
	ws.Run(t, steps...)
	if len(at) != 2 {
		t.Fatalf("the selection was changed %d times", len(at))
	}
	wait.Settled(t, 2*time.Second, 2*time.Minute, p.History.ChangesIn(namespaces...))
	until := p.Now(t)

	// Resources that stay: their stream is that of an agent whose configuration never changed,
	// without duplicates.
	began := make(map[oracle.Scope]oracle.Snapshot)
	for sc, snap := range s.Started(t, stay...) {
		if slices.Contains(stay, sc.Text) {
			began[sc] = snap
		}
	}
	v := world.ViewOf(began)
	v.Until = until
	want := oracle.Expect(p.History.Of(stay...), v)
	s.WaitFor(t, want, 20*time.Second)
	// The resource that was added last is read, and its state is that of the API server.
	wait.Eventually(t, time.Minute, func() error {
		got := stateOf(s.All(), "secrets")
		return sameState(got, p.History.Of("secrets"), until)
	})
	records := s.All()
	ofStay := slices.DeleteFunc(slices.Clone(records), func(r oracle.Record) bool {
		return !slices.Contains(stay, r.Key.Resource) && !slices.Contains(stay, r.Scope.Text)
	})
	got := s.Judge(want, ofStay, v)
	world.Report(t, p, s, got.Faults)
	if got.Duplicates > 0 || len(got.Gaps) > 0 || got.Inferred > 0 {
		oracle.Fail(t, "of what stays: %d records twice, %d gaps, %d inferred deltas", got.Duplicates, len(got.Gaps),
			got.Inferred)
	}

	// Removed resources: a gap reports the change, and the objects that consumers had have left. No
	// other record of the resource follows until its next snapshot.
	for i, resource := range []string{"secrets", "deployments.apps"} {
		farewell := slices.IndexFunc(records, func(r oracle.Record) bool {
			return r.Stream == "gap" && r.Scope.Text == resource && r.Reason == "selection-changed"
		})
		if farewell < 0 {
			oracle.Fail(t, "no gap says that %s are no longer selected", resource)
			continue
		}
		known := 0
		for range stateOf(records[:farewell], resource) {
			known++
		}
		end := len(records)
		if again := slices.IndexFunc(records[farewell:], func(r oracle.Record) bool {
			return r.Stream == oracle.SnapshotStarted && r.Scope.Text == resource && r.Rev > at[i]
		}); again >= 0 {
			end = farewell + again
		}
		if still := stateOf(records[:end], resource); len(still) > 0 || known == 0 {
			oracle.Fail(t, "of %d %s that were known when they ceased to be selected, %d have not left", known,
				resource, len(still))
		}
		for _, r := range records[farewell:end] {
			if r.Key.Resource == resource && r.Op != oracle.Left {
				oracle.Fail(t, "%s %s at %d after the tombstone", r.Op, r.Key, r.Rev)
			}
		}
	}
	for _, resource := range []string{"deployments.apps", "secrets"} {
		if n := slices.IndexFunc(records, func(r oracle.Record) bool {
			return r.Op == oracle.Read && r.Key.Resource == resource && r.Rev > 0
		}); n < 0 {
			t.Errorf("none of %s was read", resource)
		}
	}
	if n, err := a.Metric(t.Context(), "kubecdc_config_last_reload_successful"); err != nil || n != 1 {
		t.Errorf("last_reload_successful: %v, %v", n, err)
	}
	// There are no other gaps: changes that were missed before a resource was added back were not
	// selected.
	for i := range records {
		if r := &records[i]; r.Stream == "gap" &&
			(r.Reason != "selection-changed" || slices.Contains(stay, r.Scope.Text)) {
			oracle.Fail(t, "a gap of %s from %d to %d: %s", r.Scope.Text, r.From, r.To, r.Reason)
		}
	}
	t.Logf("%d revisions, the selection changed at %v; of what stays %d expected, %d on the bus, %d twice; all: %s",
		written(), at, got.Expected, got.Records, got.Duplicates, countOps(records))
}

// stateOf returns the state of a consumer that has read the records: the last version of each
// object of a resource that exists and is selected. Later snapshots sweep.
func stateOf(records []oracle.Record, resource string) map[oracle.ObjectKey]*oracle.Record {
	state := make(map[oracle.ObjectKey]*oracle.Record)
	seen := make(map[string]map[oracle.ObjectKey]bool) // By snapshot, the objects that had a record since it began.
	for i := range records {
		r := &records[i]
		switch {
		case r.Scope.Resource == resource && r.Stream == oracle.SnapshotStarted:
			seen[r.Snapshot] = make(map[oracle.ObjectKey]bool)
		case r.Scope.Resource == resource && r.Stream == oracle.SnapshotCompleted:
			for key := range state {
				if known := seen[r.Snapshot]; known != nil && !known[key] {
					delete(state, key)
				}
			}
			delete(seen, r.Snapshot)
		case r.Stream == "" && r.Key.Resource == resource:
			for _, known := range seen {
				known[r.Key] = true
			}
			if r.Op == oracle.Deleted || r.Op == oracle.Left {
				delete(state, r.Key)
			} else {
				state[r.Key] = r
			}
		}
	}
	return state
}

// sameState compares a consumer's state with etcd's history up to a revision.
func sameState(
	state map[oracle.ObjectKey]*oracle.Record, history map[oracle.ObjectKey][]*oracle.Version, until uint64,
) error {
	exist := 0
	for key, versions := range history {
		var last *oracle.Version
		for _, v := range versions {
			if v.Rev <= until {
				last = v
			}
		}
		if last == nil || last.Deleted {
			if state[key] != nil {
				return fmt.Errorf("%s is known to consumers, and does not exist", key)
			}
			continue
		}
		exist++
		if r := state[key]; r == nil || r.Rev != last.Rev || r.UID != last.UID || r.AfterDigest != last.Digest {
			return fmt.Errorf("%s is at revision %d in etcd, and not so to consumers", key, last.Rev)
		}
	}
	if len(state) != exist {
		return fmt.Errorf("consumers know %d objects, %d exist", len(state), exist)
	}
	return nil
}
