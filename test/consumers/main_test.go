package consumers_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/suite"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(4); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(func() int {
		// Leftover files fail the tests.
		defer func() { _ = os.RemoveAll(filepath.Join(os.TempDir(), goProgramsDir)) }()
		defer build.Remove()
		return m.Run()
	}))
}
