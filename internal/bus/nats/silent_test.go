package nats_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
)

// resumeWithin is the time after the death of a path, or its return, within which delivery resumes.
const resumeWithin = 20 * time.Second

// silentBus is a bus whose path to a real server can die silently.
func silentBus(t *testing.T) (*bustest.NATS, *bustest.Proxy) {
	t.Helper()
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	path := bustest.StartProxy(t, s.Addr().String())
	r := bustest.RunNATS(t, bustest.NATSConfig(path.URL()))
	if err := r.Publish(t.Context(), bustest.Event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	return r, path
}

// publishWithin publishes events of several objects, and fails the test unless the bus has all of
// them within resumeWithin of a moment.
func publishWithin(t *testing.T, r *bustest.NATS, body string, from time.Time) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), from.Add(resumeWithin))
	defer cancel()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := r.Publish(ctx, bustest.Event(fmt.Sprintf("web-%d", i), 2, body)); err != nil {
				t.Errorf("object %d: %v", i, err)
			}
		})
	}
	all.Wait()
	t.Logf("delivery resumed after %s", time.Since(from).Round(100*time.Millisecond))
}

func TestPathThatDiesSilently(t *testing.T) {
	t.Parallel()
	// Small events fit into the socket's buffer. Large ones fill it, and a write to the dead path
	// blocks.
	for name, body := range map[string]string{"small": `{}`, "large": `"` + strings.Repeat("x", 800<<10) + `"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, path := silentBus(t)
			path.Swallow(false)
			publishWithin(t, r, body, time.Now())
		})
	}
}

func TestPathThatStaysDeadForHalfAMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 40 s")
	}
	t.Parallel()
	r, path := silentBus(t)
	path.Swallow(true)
	var all sync.WaitGroup
	all.Go(func() {
		<-time.After(30 * time.Second)
		path.Swallow(false)
	})
	publishWithin(t, r, `{}`, time.Now().Add(30*time.Second))
	all.Wait()
}

// A server that answers PINGs is alive, however late it acknowledges.
func TestSlowServerIsNotCut(t *testing.T) {
	t.Parallel()
	s := startFakeServer(t, 1)
	s.behave()
	s.delay(15 * time.Second)
	r := bustest.RunNATS(t, bustest.NATSConfig("nats://"+s.l.Addr().String()))
	if err := r.Publish(t.Context(), bustest.Event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	if n := s.connections(); n != 1 || bustest.Lines(r.Log.String(), "connection to bus lost") > 0 {
		t.Errorf("%d connections, want 1", n)
	}
}
