package past_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/suite"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(1); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(func() int {
		code := m.Run()
		build.Remove()
		return code
	}))
}
