package e2e_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/suite"
	"github.com/kubecdc/kubecdc/test/world"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(world.AsBusEnv); args != "" {
		if err := world.ServeBus(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := suite.Begin(7); err != nil {
		// Tests mostly wait, for example for a Lease to expire; two only wait, for two minutes.
		panic(err)
	}
	// Messages of client-go about requests that end with their test are of no interest.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(suite.Tests(func() int {
		code := m.Run()
		world.StopShared()
		build.Remove()
		return code
	}))
}

// notRacing skips a long test under the race detector if other tests cover its code there:
// TestFaults, and those of internal/informers and internal/leader.
func notRacing(t *testing.T) {
	t.Helper()
	if build.Racing() {
		t.Skip("it takes minutes, and what it does is raced elsewhere: TestFaults, internal/informers, internal/leader")
	}
}

// slow skips the test under -short: it is not in the fast tier.
func slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the fast tier: it runs without -short")
	}
}

// long reports whether the sizes are those of make test-long.
func long() bool { return os.Getenv("KUBECDC_E2E_LONG") == "1" }

// size selects how large a test is: few in the fast tier and under the race detector, many in make
// test-long, otherwise enough.
func size[N int | int64 | uint64](few, enough, many N) N {
	switch {
	case testing.Short() || build.Racing():
		return few
	case long():
		return many
	}
	return enough
}

// obj is short for the JSON of objects.
type obj = map[string]any
