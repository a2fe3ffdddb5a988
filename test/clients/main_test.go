package clients_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/suite"
	"github.com/kubecdc/kubecdc/test/world"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(2); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(func() int {
		defer build.Remove()
		defer world.StopShared()
		return m.Run()
	}))
}
