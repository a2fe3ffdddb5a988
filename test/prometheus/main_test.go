package prometheus_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/suite"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(4); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(m.Run))
}
