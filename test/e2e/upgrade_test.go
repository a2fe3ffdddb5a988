package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// beforeCommit is the commit of the agent that an upgrade starts from. KUBECDC_UPGRADE_FROM names
// another commit.
const beforeCommit = "fff1a666633a7eab8ce9cbe6261e05bebabcf30c"

// buildingBefore is held while a test builds that agent: tests run in parallel, and one build is
// enough.
var buildingBefore sync.Mutex

// agentBefore is the path of the binary of the commit that an upgrade starts from. It is built once
// for each user of the machine. If the clone is shallow, the test is skipped.
func agentBefore(t testing.TB) string {
	t.Helper()
	commit := beforeCommit
	if from := os.Getenv("KUBECDC_UPGRADE_FROM"); from != "" {
		full, err := git(t.Context(), "rev-parse", "--verify", from+"^{commit}")
		if err != nil {
			t.Fatalf("KUBECDC_UPGRADE_FROM: no commit %s in this clone: %s", from, full)
		}
		commit = full
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "kubecdc")
	path := filepath.Join(dir, "agent-"+commit[:12])
	buildingBefore.Lock()
	defer buildingBefore.Unlock()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	requireCommit(t, commit)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	archive := filepath.Join(scratch, "src.tar")
	command(t, filepath.Join("..", ".."), "git", "archive", "--output", archive, commit)
	command(t, scratch, "tar", "-xf", archive)
	building := fmt.Sprintf("%s.%d", path, os.Getpid()) // Renamed when it is complete: other processes may look for it.
	command(t, scratch, "go", "build", "-trimpath", "-ldflags", "-X main.version=before", "-o", building, "./cmd/agent")
	if err := os.Rename(building, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// requireCommit skips the test if the clone is too shallow to have the commit. In CI, a full clone
// without it is an error.
func requireCommit(t testing.TB, commit string) {
	t.Helper()
	if _, err := git(t.Context(), "cat-file", "-e", commit+"^{commit}"); err == nil {
		return
	}
	shallow, err := git(t.Context(), "rev-parse", "--is-shallow-repository")
	if whole := err == nil && shallow == "false"; whole && os.Getenv("CI") != "" {
		t.Fatalf("the clone is whole and has no commit %s, from which this test upgrades", commit)
	}
	t.Skipf("no commit %s, from which this test upgrades: run `git fetch --unshallow`", commit)
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// command runs a program in a directory.
func command(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

// TestUpgrade replaces the earlier agent with that of this tree, rolls back, and upgrades again,
// while writers change objects. All of them use one checkpoint.
func TestUpgrade(t *testing.T) {
	slow(t)
	t.Parallel()
	upgrade(t, &busTruth{To: world.StartBus(t), Namespace: "upgrade"})
}

// TestKafkaUpgrade is TestUpgrade with Kafka.
func TestKafkaUpgrade(t *testing.T) {
	slow(t)
	t.Parallel()
	kafka.Require(t)
	upgrade(t, &busTruth{To: world.StartKafka(t, kafka.Options{
		Nodes: world.KafkaNodes(t),
	}), Namespace: "upgrade-kafka"})
}

func upgrade(t *testing.T, b *busTruth) {
	t.Helper()
	p := world.SharedPlane(t)
	before := agentBefore(t)
	now := build.SharedAgent(t)
	b.Binary, b.Reader = before, p.Reader()
	b.Reader.Former = true
	b.begin(t, p)
	sw := &world.SteadyWriters{Every: 10 * time.Millisecond, APIs: []*world.API{p.API}}
	stopWriting := sw.Run(t,
		func(ws *world.Writers) func(context.Context) error {
			return ws.Writer("cm0", b.Namespace, 15).ConfigMaps
		},
		func(ws *world.Writers) func(context.Context) error {
			return ws.Writer("cm1", b.Namespace, 15).ConfigMaps
		},
		func(ws *world.Writers) func(context.Context) error {
			return ws.Writer("secret", b.Namespace, 15).Secrets
		},
		func(ws *world.Writers) func(context.Context) error {
			return ws.Writer("widget", b.Namespace, 15).Widgets
		},
		func(ws *world.Writers) func(context.Context) error { return ws.Writer("left", b.Namespace, 3).Shared },
		func(ws *world.Writers) func(context.Context) error { return ws.Writer("right", b.Namespace, 3).Shared },
	)
	for i, binary := range []string{before, now, before, now} {
		if i > 0 {
			if err := b.agent.Stop(time.Minute); err != nil {
				t.Fatalf("agent %d, asked to stop: %v", i, err)
			}
			b.agent.Argv[0] = binary
			b.agent.Again(t)
		}
		b.agent.Ready(t)
		b.runs(t, binary == before)
		b.caughtUp(t, p)
		b.saved(t)
	}
	stopWriting()
	got := b.judge(t, p)
	b.once(t, got)
}

// runs checks which of the two binaries is running.
func (b *busTruth) runs(t testing.TB, before bool) {
	t.Helper()
	text, err := b.agent.Get(t.Context(), "/metrics")
	if err != nil || !strings.Contains(text, "kubecdc_build_info{") {
		t.Fatalf("the agent does not say which binary runs: %v", err)
	}
	if got := strings.Contains(text, `version="before"`); got != before {
		t.Fatalf("the binary of before runs: %t, want %t", got, before)
	}
}

// caughtUp waits until the bus has a change of each resource that was made after the call.
func (b *busTruth) caughtUp(t testing.TB, p *world.Plane) {
	t.Helper()
	rev := p.Now(t)
	wait.Eventually(t, time.Minute, func() error {
		seen := make(map[string]bool)
		for _, rec := range b.stream.All() {
			if rec.Stream == "" && rec.Rev > rev {
				seen[rec.Key.Resource] = true
			}
		}
		for _, resource := range busResources {
			if !seen[resource] {
				return fmt.Errorf("the bus has no change of %s after revision %d", resource, rev)
			}
		}
		return nil
	})
}

// saved waits until the agent has saved its checkpoint once more.
func (b *busTruth) saved(t testing.TB) {
	t.Helper()
	const name = "kubecdc_checkpoint_saves_total"
	first, err := b.agent.Metric(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		n, err := b.agent.Metric(t.Context(), name)
		if err == nil && n <= first {
			err = errors.New("the checkpoint is not saved")
		}
		return err
	})
}

// once checks that each scope had one snapshot, no record was written twice, and no id has a
// history number.
func (b *busTruth) once(t testing.TB, got oracle.Verdict) {
	t.Helper()
	if got.Duplicates > 0 {
		oracle.Fail(t, "%d duplicates, where every agent has drained its queue", got.Duplicates)
	}
	oneHistory(t, b.stream.All())
}

func oneHistory(t testing.TB, records []oracle.Record) {
	t.Helper()
	for _, rec := range records {
		if rec.History != 0 {
			oracle.Fail(t, "%s has a history number: etcd was never restored", rec.ID)
			break
		}
	}
	for _, rec := range records {
		if rec.Stream == "gap" {
			oracle.Fail(t, "%s: an upgrade makes no gap", rec.ID)
		}
	}
	for scope, n := range snapshotCounts(records) {
		if n != 1 {
			oracle.Fail(t, "%d snapshots of %s, want one", n, scope)
		}
	}
}

// TestUpgradeElected does a rolling update of a Deployment: the agent of this tree is a standby
// until the earlier one releases the Lease, and vice versa. The checkpoint is in a ConfigMap.
func TestUpgradeElected(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	reader := p.Reader()
	reader.Former = true
	e := newElectionRead(t, p, "upgrade-elected", reader)
	before := agentBefore(t)
	e.binary, e.Former = before, true
	e.begin(t, 1)
	for _, binary := range []string{"", before, ""} {
		old, epoch := e.leader(t), e.epoch()
		e.checkpointed(t)
		e.binary = binary
		e.standsBy(t, e.join(t))
		old.update(t)
		e.after(t, epoch)
	}
	outcome, terms := e.judgeTerms(t, "upgrade")
	if outcome.Duplicates != 0 || len(terms) != 4 {
		t.Errorf("%d duplicates and %d leaders, want none and 4", outcome.Duplicates, len(terms))
	}
	oneHistory(t, e.Stream.All())
	t.Log(&outcome)
}
