package publish_test

import (
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
)

func TestMain(m *testing.M) {
	publish.TakeForRemote()
	os.Exit(publishtest.Main(m))
}

type (
	logBuffer = publishtest.LogBuffer
)

const (
	toServer = publishtest.ToServer
	toClient = publishtest.ToClient
)

var (
	startServer = publishtest.StartServer
	admin       = publishtest.Admin
	records     = publishtest.Records
	startProxy  = publishtest.StartProxy
	wait        = publishtest.Wait
	event       = publishtest.Event
	lines       = publishtest.Lines
	pods        = publishtest.Pods
	discard     = publishtest.Discard
	run         = publishtest.RunNATS
	testConfig  = publishtest.NATSConfig
)

// newObjectStore returns a claim store on a bus.
func newObjectStore(tb testing.TB, r *publishtest.NATS) publish.ClaimStore {
	tb.Helper()
	return r.ObjectStore(driver.ObjectStore{Bucket: publishtest.BucketName, Create: true}, r.Log.Logger(), nil)
}

func writeFile(tb testing.TB, file, content string) {
	tb.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}
