package walk_test

import (
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/test/suite"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(2); err != nil {
		panic(err)
	}
	os.Exit(suite.Tests(m.Run).Run())
}
