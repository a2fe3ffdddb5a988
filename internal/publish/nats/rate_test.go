package nats_test

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
)

// While an isolated event is retried, others keep nine tenths of their rate, also those of its resource.
func TestRateBesideAnIsolatedEvent(t *testing.T) {
	s := publishtest.StartServer(t, t.TempDir(), -1)
	p := publishtest.StartProxy(t, s.Addr().String())
	p.Poison("hemlock")
	r := publishtest.RunNATS(t, publishtest.NATSConfig(p.URL()))
	l := publishtest.StartLoad(t, r.Bus, 64, time.Millisecond)
	l.Put(t, "hemlock")
	publishtest.Wait(t, "an isolated event", func() bool { return len(l.Isolated()) == 1 })
	l.RateBeside(t, p.Poisonings)
	l.Stop()
}
