package controlplane_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/suite"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(4); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(m.Run))
}

// start runs a control plane for the duration of the test and logs how long it took to be ready.
func start(t *testing.T, opts controlplane.Options) *controlplane.Cluster {
	t.Helper()
	long(t)
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

func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane, which takes seconds")
	}
}
