package e2e_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/world"
)

// TestTruthCluster makes the leader of a JetStream cluster of three nodes step down again and
// again.
func TestTruthCluster(t *testing.T) {
	slow(t)
	t.Parallel()
	b := world.StartBusCluster(t)
	conn := b.Connect(t)
	var steps atomic.Int64
	run := &busTruth{
		To: b, Namespace: "truth-cluster", Revisions: revisions(6_000),
		Trouble: func(ctx context.Context) error { return world.StepDown(ctx, conn, 400*time.Millisecond, &steps) },
	}
	run.run(t, world.SharedPlane(t))
	if steps.Load() == 0 {
		t.Error("no leader has stepped down")
	}
	t.Logf("%d leaders stepped down", steps.Load())
}
