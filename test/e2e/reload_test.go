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
)

// reloaded is an agent whose selection is changed while it runs, as a kubelet changes the files of a ConfigMap: a symlink is
// swapped.
type reloaded struct {
	*agent

	file, watch string // The configuration, and the selection that it has.
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

// applied waits until n changed configurations are in force.
func (r *reloaded) applied(ctx context.Context, n int) error {
	return await(ctx, time.Minute, func() error {
		got, err := r.metric(ctx, "kubecdc_config_reloads_total", `result="applied"`)
		if err == nil && int(got) < n {
			err = fmt.Errorf("%v changed configurations are in force, want %d", got, n)
		}
		return err
	})
}

// TestReload changes the selection twice while writers write. Of what stays, each revision is on the bus once; what is added is
// read; what is taken away is said farewell.
func TestReload(t *testing.T) {
	t.Parallel()
	revisions := size(1_000, 1_500, 2_000)
	stay := []string{"configmaps", widgets}
	selection := func(more string) string {
		// The same objects, by other rules: which rule takes them is no change of what is observed.
		return "  - resources: [configmaps, " + more + "]\n  - resources: [" + widgets + "]"
	}
	// Its agent observes all namespaces.
	p := startPlane(t, controlplane.Options{NoControllerManager: true})
	namespaces := []string{"reload-a", "reload-b"}
	for _, ns := range namespaces {
		p.newNamespace(t, ns)
	}
	bus := startBus(t)
	first := selection("secrets")
	a := &reloaded{agent: startAgent(t, p, agentConfig{Bus: bus, Watch: first}), watch: first}
	a.file = a.argv[slices.Index(a.argv, "--config")+1]
	s := readStream(t, bus, p.reader())
	s.completed(t, "configmaps", "secrets", widgets)

	all := append([]string{"secrets", "deployments.apps"}, stay...)
	count := p.history.count(all...)
	written := func() int { return p.history.count(all...) - count }
	var swapped atomic.Int64
	var at []uint64 // Revisions at which a selection was in force.
	ws := &writers{api: p.api, done: func() bool { return swapped.Load() == 2 && written() >= revisions }}
	// swap is one step of the one who changes the configuration: at a third, and at two thirds.
	swap := func(ctx context.Context) error {
		n := int(swapped.Load())
		due := func() error {
			if n == 2 && !ws.done() || written() < revisions*(n+1)/3 {
				return errors.New("not yet")
			}
			return nil
		}
		if await(ctx, time.Second, due) != nil || n == 2 {
			return nil // Called again.
		}
		watch := []string{
			"  - resources: [" + widgets + "]\n  - resources: [configmaps]\n  - resources: [deployments]",
			"  - resources: [configmaps]\n    labelSelector: no=such\n  - resources: [configmaps, " + widgets + ", secrets]",
		}[n]
		if err := a.swap(watch); err != nil {
			return err
		}
		if err := a.applied(ctx, n+1); err != nil {
			return err
		}
		rev, err := p.history.revision(ctx)
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
			ws.writer("cm", ns, 15).configMaps, ws.writer("secret", ns, 15).secrets,
			ws.writer("deploy", ns, 5).deployments, ws.writer("widget", ns, 15).widgets,
		)
	}
	ws.run(t, steps...)
	if len(at) != 2 {
		t.Fatalf("the selection was changed %d times", len(at))
	}
	settled(t, 2*time.Second, 2*time.Minute, p.history.changesIn(namespaces...))
	until := p.now(t)

	// What stays: the stream is that of an agent whose configuration was never touched, and has nothing twice.
	began := make(map[scope]snapshot)
	for sc, snap := range s.started(t, stay...) {
		if slices.Contains(stay, sc.Text) {
			began[sc] = snap
		}
	}
	v := viewOf(began)
	v.Until = until
	want := expect(p.history.of(stay...), v)
	s.waitFor(t, want, 20*time.Second)
	// What was added last is read, and the state of it is that of the API server.
	eventually(t, time.Minute, func() error {
		got := stateOf(s.all(), "secrets")
		return sameState(got, p.history.of("secrets"), until)
	})
	records := s.all()
	ofStay := slices.DeleteFunc(slices.Clone(records), func(r record) bool {
		return !slices.Contains(stay, r.Key.Resource) && !slices.Contains(stay, r.Scope.Text)
	})
	got := s.judge(want, ofStay, v)
	report(t, p, s, got.Faults)
	if got.Duplicates > 0 || len(got.Gaps) > 0 || got.Inferred > 0 {
		t.Errorf("of what stays: %d records twice, %d gaps, %d inferred deltas", got.Duplicates, len(got.Gaps), got.Inferred)
	}

	// What was taken away: a gap says so, and what the consumers knew has left; of Deployments nothing comes behind it.
	for i, resource := range []string{"secrets", "deployments.apps"} {
		farewell := slices.IndexFunc(records, func(r record) bool {
			return r.Stream == "gap" && r.Scope.Text == resource && r.Reason == "selection-changed"
		})
		if farewell < 0 {
			t.Errorf("no gap says that %s are no longer selected", resource)
			continue
		}
		known := 0
		for range stateOf(records[:farewell], resource) {
			known++
		}
		end := len(records)
		if again := slices.IndexFunc(records[farewell:], func(r record) bool {
			return r.Stream == snapshotStarted && r.Scope.Text == resource && r.Rev > at[i]
		}); again >= 0 {
			end = farewell + again
		}
		if still := stateOf(records[:end], resource); len(still) > 0 || known == 0 {
			t.Errorf("of %d %s that were known when they ceased to be selected, %d have not left", known, resource, len(still))
		}
		for _, r := range records[farewell:end] {
			if r.Key.Resource == resource && r.Op != left {
				t.Errorf("%s %s at %d behind the farewell", r.Op, r.Key, r.Rev)
			}
		}
	}
	for _, resource := range []string{"deployments.apps", "secrets"} {
		if n := slices.IndexFunc(records, func(r record) bool { return r.Op == read && r.Key.Resource == resource && r.Rev > 0 }); n < 0 {
			t.Errorf("none of %s was read", resource)
		}
	}
	if n, err := a.metric(t.Context(), "kubecdc_config_last_reload_successful"); err != nil || n != 1 {
		t.Errorf("last_reload_successful: %v, %v", n, err)
	}
	// Nothing else is a gap: what nobody read of what came back was not selected.
	for i := range records {
		if r := &records[i]; r.Stream == "gap" && (r.Reason != "selection-changed" || slices.Contains(stay, r.Scope.Text)) {
			t.Errorf("a gap of %s from %d to %d: %s", r.Scope.Text, r.From, r.To, r.Reason)
		}
	}
	t.Logf("%d revisions, the selection changed at %v; of what stays %d expected, %d on the bus, %d twice; all: %s",
		written(), at, got.Expected, got.Records, got.Duplicates, countOps(records))
}

// stateOf is what a consumer knows who has read the records: the last version of each object of a resource that exists and is
// selected. Later snapshots sweep.
func stateOf(records []record, resource string) map[objectKey]*record {
	state := make(map[objectKey]*record)
	seen := make(map[string]map[objectKey]bool) // By snapshot: what was told of since it began.
	for i := range records {
		r := &records[i]
		switch {
		case r.Scope.Resource == resource && r.Stream == snapshotStarted:
			seen[r.Snapshot] = make(map[objectKey]bool)
		case r.Scope.Resource == resource && r.Stream == snapshotCompleted:
			for key := range state {
				if told := seen[r.Snapshot]; told != nil && !told[key] {
					delete(state, key)
				}
			}
			delete(seen, r.Snapshot)
		case r.Stream == "" && r.Key.Resource == resource:
			for _, told := range seen {
				told[r.Key] = true
			}
			if r.Op == deleted || r.Op == left {
				delete(state, r.Key)
			} else {
				state[r.Key] = r
			}
		}
	}
	return state
}

// sameState compares what a consumer knows with etcd's history up to a revision.
func sameState(state map[objectKey]*record, history map[objectKey][]*version, until uint64) error {
	exist := 0
	for key, versions := range history {
		var last *version
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
