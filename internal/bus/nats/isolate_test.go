package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// load publishes versions of several keys, in order for each key, until it is stopped or all are
// published.
type load struct {
	keys, versions int
	published      atomic.Int64
	wg             sync.WaitGroup
}

func startLoad(t *testing.T, r *bustest.NATS, keys, versions int) *load {
	t.Helper()
	l := &load{keys: keys, versions: versions}
	for k := range keys {
		l.wg.Go(func() {
			for v := range versions {
				if err := r.Publish(t.Context(),
					bustest.Event(fmt.Sprintf("web-%d", k), v+1, strings.Repeat("x", 500))); err != nil {
					t.Errorf("key %d version %d: %v", k, v+1, err)
					return
				}
				l.published.Add(1)
			}
		})
	}
	return l
}

func (l *load) reach(t *testing.T, part, of int) {
	t.Helper()
	n := int64(l.keys * l.versions * part / of)
	bustest.Wait(t, fmt.Sprintf("%d events published", n), func() bool {
		return l.published.Load() >= n || t.Failed()
	})
}

// check reads the stream: all versions of each key are there, in order. Duplicates have the id of
// the original.
func (l *load) check(t *testing.T, url string) {
	t.Helper()
	l.wg.Wait()
	next, known := map[string]int{}, map[string]bool{}
	for _, m := range bustest.Records(t, bustest.Admin(t, url), "KUBECDC") {
		name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		if !strings.HasPrefix(name, "web-") {
			continue
		}
		switch got := m.Header.Get("Nats-Msg-Id"); {
		case got == publishedID(bustest.Event(name, next[name]+1, "")):
			next[name]++
			known[got] = true
		case !known[got]:
			t.Fatalf("%s: record %d is not version %d", m.Subject, m.Sequence, next[name]+1)
		}
	}
	for k := range l.keys {
		if got := next[fmt.Sprintf("web-%d", k)]; got != l.versions {
			t.Errorf("key %d: %d versions, want %d", k, got, l.versions)
		}
	}
}

// An event that makes the server cut the connection is sent alone and at intervals, and others are
// not disturbed any more.
func TestEventThatCutsTheConnectionIsSentAlone(t *testing.T) {
	t.Parallel()
	const keys, versions = 48, 200
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	p.Poison("hemlock")
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	l := startLoad(t, r, keys, versions)
	l.reach(t, 1, 4)
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), bustest.Event("poisoned", 1, `{"drink":"hemlock"}`)) }()
	bustest.Wait(t, "cuts of a connection of its own", func() bool { return p.Poisonings() >= 4 })
	losses := bustest.Lines(r.Log.String(), "connection to bus lost")
	if losses > 2 {
		t.Errorf("%d connections of all events were lost, want two at most", losses)
	}
	l.check(t, s.ClientURL())
	if got := bustest.Lines(r.Log.String(), "connection to bus lost"); got != losses {
		t.Errorf("%d more connections of all events were lost", got-losses)
	}
	if log := r.Log.String(); bustest.Lines(log, "an isolated event is not acknowledged") != 1 ||
		!strings.Contains(log, "event_id=pods/uid-poisoned/1") || strings.Contains(log, "hemlock") {
		t.Errorf("want one line that names the event, without its body:\n%s", log)
	}
	p.Poison("")
	if err := <-done; err != nil {
		t.Errorf("after the cause has gone: %v", err)
	}
	if err := r.Publish(t.Context(), bustest.Event("poisoned", 2, `{}`)); err != nil {
		t.Errorf("the next version: %v", err)
	}
}

// The server gives the reason when it cuts the connection, and nats.go closes it for good.
func TestSubjectThatIsTooLongForTheServerIsSentAlone(t *testing.T) {
	t.Parallel()
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) { o.MaxControlLine = 512 })
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.Subject = "kubecdc.{cluster}.object.{resource}.{name}.{name}.{name}"
	r := bustest.RunNATS(t, cfg)
	l := startLoad(t, r, 8, 50)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Publish(ctx, bustest.Event(strings.Repeat("n", 250), 1, `{}`)) }()
	bustest.Wait(t, "it is sent alone", func() bool {
		return strings.Contains(r.Log.String(), "an isolated event is not acknowledged")
	})
	l.wg.Wait()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context canceled", err)
	}
}

func TestRestartsUnderLoadRefuseNothing(t *testing.T) {
	const keys, versions, restarts = 64, 120, 8
	dir := t.TempDir()
	s := bustest.StartAnyServer(t, dir, -1)
	port := bustest.PortOf(s)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	l := startLoad(t, r, keys, versions)
	for i := range restarts {
		l.reach(t, i+1, restarts+1)
		bustest.StopServer(s)
		s = bustest.StartAnyServer(t, dir, port)
	}
	l.check(t, s.ClientURL())
}

// Connections break all the time, with and without acknowledgements in flight.
func TestFlappingNetworkRefusesNothing(t *testing.T) {
	t.Parallel()
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	l := startLoad(t, r, 64, 60)
	for i := range 60 {
		<-time.After(time.Duration(20+i%7*10) * time.Millisecond)
		p.Drop(bustest.ToClient, i%3 == 0) // stored, and the acknowledgement is lost
		if i%3 != 0 {
			p.Cut()
		}
	}
	p.Drop(bustest.ToClient, false)
	p.Cut()
	l.check(t, s.ClientURL())
}

// The server goes down whenever it should store something, and in any case shortly after its start:
// no event causes that.
func TestServerThatCannotStayUpRefusesNothing(t *testing.T) {
	t.Parallel()
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	if err := r.Publish(t.Context(), bustest.Event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	p.Poison("kubecdc.prod-eu-1.object")
	ctx, healthy := context.WithCancel(t.Context())
	var crashing sync.WaitGroup
	crashing.Go(func() {
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		connections := 0
		for {
			select {
			case <-tick.C: // a handshake is not cut: on a slow machine none would complete
				if now := bustest.Lines(r.Log.String(), "connected to bus"); now > connections {
					connections = now
					p.Cut()
				}
			case <-ctx.Done():
				return
			}
		}
	})
	l := startLoad(t, r, 4, 10)
	bustest.Wait(t, "suspects to be sent alone", func() bool { return p.Poisonings() >= 20 })
	healthy()
	crashing.Wait()
	p.Poison("")
	l.wg.Wait()
}

// Events that are sent alone, or wait for that, end with Run.
func TestIsolatedEventsEndWithRun(t *testing.T) {
	t.Parallel()
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	if err := r.Publish(t.Context(), bustest.Event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	p.Hold(bustest.ToServer, true)
	p.Cut()
	const n = 16
	done := make(chan error, n)
	for k := range n {
		e := publish.NewEvent(bustest.Event(fmt.Sprintf("web-%d", k), 2, `{}`), func(err error) { done <- err },
			nil)
		e.Alone = k%2 == 0
		r.Bus.Publish(e)
	}
	r.Stop()
	for range n {
		if err := <-done; !errors.Is(err, publish.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	r.Bus.Publish(publish.NewEvent(bustest.Event("web-1", 3, `{}`), func(err error) { done <- err }, nil))
	if err := <-done; !errors.Is(err, publish.ErrClosed) {
		t.Errorf("after the end: got %v, want ErrClosed", err)
	}
}
