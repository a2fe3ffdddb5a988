package nats_test

import (
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }
