package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/kafka"
)

// asParent makes this test binary a program that starts a node and waits to be killed.
const asParent = "KAFKA_TEST_AS_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asParent); dir != "" {
		os.Exit(parent(context.Background(), dir))
	}
	goleak.VerifyTestMain(m)
}

// parent says on stdout which process it has started.
func parent(ctx context.Context, dir string) int {
	cluster, err := kafka.New(ctx, kafka.Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Stop()
	_ = json.NewEncoder(os.Stdout).Encode(cluster.Node(0).PID())
	select {}
}
