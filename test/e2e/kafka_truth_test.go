package e2e_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestKafkaTruth kills the leader of a partition again and again. With NODES=1 that is the only
// broker, which is restarted.
func TestKafkaTruth(t *testing.T) {
	slow(t)
	kafka.Require(t)
	for _, tc := range []struct{ name, event string }{
		{"structured", ""},
		{"binary", "event: {mode: binary}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			k := world.StartKafka(t, kafka.Options{Nodes: world.KafkaNodes(t)})
			var kills atomic.Int64
			run := &busTruth{
				To: k, Namespace: "truth-kafka-" + tc.name, Revisions: revisions(6_000), Extra: tc.event,
				Trouble: func(ctx context.Context) error { return k.KillLeader(ctx, &kills) },
				Enough:  func() bool { return kills.Load() >= size[int64](2, 2, 3) },
			}
			got := run.run(t, world.SharedPlane(t))
			if got.Duplicates > 0 {
				oracle.Fail(t, "%d duplicates, of a producer that is idempotent", got.Duplicates)
			}
			t.Logf("%d leaders killed", kills.Load())
		})
	}
}
