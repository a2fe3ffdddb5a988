package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/suite"
)

// asParent makes this test binary a program that starts a control plane and waits to be killed.
const asParent = "CONTROLPLANE_TEST_AS_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asParent); dir != "" {
		os.Exit(parent(context.Background(), dir))
	}
	if err := suite.Begin(1); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(m.Run))
}

// parent says on stdout which processes it has started, as a JSON list of their ids.
func parent(ctx context.Context, dir string) int {
	cluster, err := controlplane.Start(ctx, controlplane.Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Stop()
	_ = json.NewEncoder(os.Stdout).Encode([]int{cluster.EtcdPID(), cluster.APIServerPID(0), cluster.ControllerManagerPID()})
	select {}
}

// start runs a control plane for the length of the test and logs how long it took to be ready.
func start(t *testing.T, opts controlplane.Options) *controlplane.Cluster {
	t.Helper()
	if _, err := controlplane.Build(t.Context(), os.Stderr); err != nil { // Not part of the time to ready.
		t.Fatal(err)
	}
	begin := time.Now()
	cluster, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	t.Logf("ready after %s", time.Since(begin).Round(time.Millisecond))
	return cluster
}
