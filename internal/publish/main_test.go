package publish_test

import (
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestMain(m *testing.M) {
	publish.TakeForRemote()
	os.Exit(bustest.Main(m))
}

type (
	logBuffer = bustest.LogBuffer
)

const (
	toServer = bustest.ToServer
	toClient = bustest.ToClient
)

var (
	startServer = bustest.StartServer
	admin       = bustest.Admin
	records     = bustest.Records
	startProxy  = bustest.StartProxy
	wait        = bustest.Wait
	event       = bustest.Event
	lines       = bustest.Lines
	pods        = bustest.Pods
	discard     = bustest.Discard
	run         = bustest.RunNATS
	testConfig  = bustest.NATSConfig
)

// newObjectStore returns a claim store on a bus.
func newObjectStore(tb testing.TB, r *bustest.NATS) publish.ClaimStore {
	tb.Helper()
	return r.ObjectStore(driver.ObjectStore{Bucket: bustest.BucketName, Create: true}, r.Log.Logger(), nil)
}

func writeFile(tb testing.TB, file, content string) {
	tb.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}
