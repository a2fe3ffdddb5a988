package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// TestKilledInsideSnapshot kills the agent again and again while it takes its first snapshot.
func TestKilledInsideSnapshot(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "killed-inside", 3_000
	s := stageOn(t, sharedPlane(t), luck())
	s.newNamespace(t, namespace)
	s.makeMany(t, namespace, "old", objects)
	s.busProxy.Delay(60 * time.Millisecond)
	s.begin(t, agentConfig{Watch: watchConfigMaps(namespace), Extra: "queue: {events: 64}"})
	s.stream.started(t, "configmaps")
	for i := range 3 {
		n := len(s.stream.all())
		eventually(t, time.Minute, func() error {
			if len(s.stream.all()) < n+300 {
				return errors.New("too few reads to be in the middle")
			}
			return nil
		})
		if i == 1 { // Once the cursor has been saved.
			s.busProxy.Hold(true)
			pass(t.Context(), 6*time.Second)
		}
		for _, rec := range s.stream.all() {
			if rec.Stream == snapshotCompleted {
				t.Fatal("the snapshot was completed before the agent could be killed")
			}
		}
		s.agent.crash()
		s.busProxy.Hold(false)
		s.change(t, namespace, 10*i) // The first time: nothing.
		s.makeConfigMaps(t, namespace, fmt.Sprint("later-", i), 3)
		s.agent.again(t)
	}
	s.busProxy.Delay(0)
	s.stream.completed(t, "configmaps")
	got := s.judge(t, nil, "configmaps")
	got.noGaps(t)
	if n := len(snapshotsOf(s.stream.all(), 0)); n != 1 {
		t.Errorf("%d snapshots, want one that is continued", n)
	}
	t.Logf("%d records, %d duplicates", got.Records, got.Duplicates)
}

// TestSnapshotOnDemand asks for snapshots, by the command and by snapshot.every, while objects change.
func TestSnapshotOnDemand(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "on-demand", 600
	s := resumeStage(t, namespace, objects, agentConfig{})
	s.stream.completed(t, "configmaps")
	sw := &steadyWriters{apis: []*api{s.plane.api}, every: 10 * time.Millisecond}
	var steps []func(*writers) func(context.Context) error
	for i := range 3 {
		steps = append(steps, func(ws *writers) func(context.Context) error {
			return ws.writer(fmt.Sprint("cm", i), namespace, 20).configMaps
		})
	}
	stop := sw.run(t, steps...)
	asked := make(map[string]bool)
	for range 4 {
		pass(t.Context(), time.Second)
		for _, id := range s.agent.snapshot(t, "configmaps", namespace) {
			asked[id] = true
			s.await(t, "completed "+id, func(rec *record) bool { return rec.Stream == snapshotCompleted && rec.Snapshot == id })
		}
	}
	stop()
	got := s.judge(t, func(started *record) bool { return asked[started.Snapshot] }, "configmaps")
	got.noGaps(t)
	if n := len(snapshotsOf(s.stream.all(), 0)); n != 1+len(asked) || len(asked) != 4 {
		t.Errorf("%d snapshots of which %d were asked for, want 5 and 4", n, len(asked))
	}
	if got.Swept != 0 {
		t.Errorf("%d objects are swept by a snapshot, though no deletion was missed", got.Swept)
	}
	t.Logf("%d records, %d revisions", got.Records, s.history.count("configmaps"))
}

// snapshot has the agent take one, and returns the ids.
func (a *agent) snapshot(t testing.TB, resource, namespace string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), a.argv[0], "snapshot", resource, "-n", namespace, "-o", "json", "--agent", a.url).Output()
	if err != nil {
		t.Fatalf("kubecdc snapshot: %v, %s", err, out)
	}
	var answer struct {
		Snapshots []struct {
			Snapshot string `json:"snapshot"`
		} `json:"snapshots"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, started := range answer.Snapshots {
		ids = append(ids, started.Snapshot)
	}
	return ids
}

// TestSnapshotEvery has snapshots come by themselves, at the least distance that can be configured.
func TestSnapshotEvery(t *testing.T) {
	slow(t)
	t.Parallel()
	onlyLong(t, "three minutes")
	const namespace, objects = "every", 300
	s := resumeStage(t, namespace, objects, agentConfig{Snapshot: "initial, every: 1m"})
	s.stream.completed(t, "configmaps")
	sw := &steadyWriters{apis: []*api{s.plane.api}, every: 50 * time.Millisecond}
	stop := sw.run(t, func(ws *writers) func(context.Context) error { return ws.writer("cm", namespace, 20).configMaps })
	eventually(t, 3*time.Minute, func() error {
		n := 0
		for _, rec := range s.stream.all() {
			if rec.Stream == snapshotCompleted {
				n++
			}
		}
		if n < 3 {
			return fmt.Errorf("%d snapshots are completed", n)
		}
		return nil
	})
	stop()
	s.stopAgent(t)
	got := s.judge(t, func(*record) bool { return true }, "configmaps")
	got.noGaps(t)

	// Two minutes are enough for progress, too.
	told := 0
	for _, rec := range s.stream.all() {
		if rec.Stream == progress {
			told++
		}
	}
	if told < 3 {
		t.Errorf("%d progress events in two minutes and a shutdown, want at least 3", told)
	}
	if last := s.stream.all()[len(s.stream.all())-1]; last.Stream != progress || last.Rev < s.history.latestOf(namespace) {
		t.Errorf("the last record is %s, want progress up to revision %d or later", last.ID, s.history.latestOf(namespace))
	}
}

// latestOf is the last revision of the ConfigMaps of a namespace.
func (h *history) latestOf(namespace string) uint64 {
	var last uint64
	for key, list := range h.of("configmaps") {
		if key.Namespace == namespace {
			last = max(last, list[len(list)-1].Rev)
		}
	}
	return last
}
