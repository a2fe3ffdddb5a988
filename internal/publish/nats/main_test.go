package nats_test

import (
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
)

func TestMain(m *testing.M) { os.Exit(publishtest.Main(m)) }
