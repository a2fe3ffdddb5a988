package publish_test

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

	"github.com/kubecdc/kubecdc/internal/publish"
)

// load publishes versions of several keys, each key's one after the other, until it is told to stop or all are there.
type load struct {
	keys, versions int
	published      atomic.Int64
	wg             sync.WaitGroup
}

func startLoad(t *testing.T, r *running, keys, versions int) *load {
	t.Helper()
	l := &load{keys: keys, versions: versions}
	for k := range keys {
		l.wg.Go(func() {
			for v := range versions {
				if err := r.Publish(t.Context(), event(fmt.Sprintf("web-%d", k), v+1, strings.Repeat("x", 500))); err != nil {
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
	wait(t, fmt.Sprintf("%d events published", n), func() bool { return l.published.Load() >= n || t.Failed() })
}

// check reads the stream: all versions of each key are there, in order. What is there twice has the id that it had.
func (l *load) check(t *testing.T, url string) {
	t.Helper()
	l.wg.Wait()
	next, known := map[string]int{}, map[string]bool{}
	for _, m := range records(t, admin(t, url), "KUBECDC") {
		name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		if !strings.HasPrefix(name, "web-") {
			continue
		}
		switch got := m.Header.Get("Nats-Msg-Id"); {
		case got == publishedID(event(name, next[name]+1, "")):
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

func TestEventThatCutsTheConnectionIsRefused(t *testing.T) {
	t.Parallel()
	const keys, versions = 48, 200
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	p.Poison("hemlock")
	r := run(t, testConfig(p.URL()))
	l := startLoad(t, r, keys, versions)
	l.reach(t, 1, 4)
	err := r.Publish(t.Context(), event("poisoned", 1, `{"drink":"hemlock"}`))
	if !errors.Is(err, publish.ErrRefused) || errors.Is(err, publish.ErrTooLarge) || !strings.Contains(err.Error(), "also when it is sent alone") {
		t.Errorf("got %v, want ErrRefused with the reason", err)
	}
	if strings.Contains(err.Error(), "hemlock") {
		t.Errorf("the error holds the body: %v", err)
	}
	l.check(t, s.ClientURL())
	if got := p.Poisonings(); got < 4 {
		t.Errorf("refused after %d cuts, want two among others and two alone", got)
	}
	if err := r.Publish(t.Context(), event("poisoned", 2, `{}`)); err != nil {
		t.Errorf("the next version: %v", err)
	}
}

// The server says why it cuts the connection, and nats.go closes it for good.
func TestSubjectThatIsTooLongForTheServerIsRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1, func(o *server.Options) { o.MaxControlLine = 512 })
	cfg := testConfig(s.ClientURL())
	cfg.Subject = "kubecdc.{cluster}.object.{resource}.{name}.{name}.{name}"
	r := run(t, cfg)
	l := startLoad(t, r, 8, 50)
	err := r.Publish(t.Context(), event(strings.Repeat("n", 250), 1, `{}`))
	if !errors.Is(err, publish.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
	l.wg.Wait()
}

func TestRestartsUnderLoadRefuseNothing(t *testing.T) {
	const keys, versions, restarts = 64, 120, 8
	dir := t.TempDir()
	s := startServer(t, dir, -1)
	port := portOf(s)
	r := run(t, testConfig(s.ClientURL()))
	l := startLoad(t, r, keys, versions)
	for i := range restarts {
		l.reach(t, i+1, restarts+1)
		stop(s)
		s = startServer(t, dir, port)
	}
	l.check(t, s.ClientURL())
}

// Connections break all the time, with acknowledgements on their way and without.
func TestFlappingNetworkRefusesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	r := run(t, testConfig(p.URL()))
	l := startLoad(t, r, 64, 60)
	for i := range 60 {
		<-time.After(time.Duration(20+i%7*10) * time.Millisecond)
		p.Drop(toClient, i%3 == 0) // stored, and nobody learns of it
		if i%3 != 0 {
			p.Cut()
		}
	}
	p.Drop(toClient, false)
	p.Cut()
	l.check(t, s.ClientURL())
}

// The server goes down whenever it is to store something, and a moment after its start in any case: it is no event's fault.
func TestServerThatCannotStayUpRefusesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	r := run(t, testConfig(p.URL()))
	if err := r.Publish(t.Context(), event("web-0", 1, `{}`)); err != nil {
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
			case <-tick.C: // a handshake is not cut: on a slow machine none would come to its end
				if now := lines(r.log.String(), "connected to bus"); now > connections {
					connections = now
					p.Cut()
				}
			case <-ctx.Done():
				return
			}
		}
	})
	l := startLoad(t, r, 4, 10)
	wait(t, "suspects to be sent alone", func() bool { return p.Poisonings() >= 20 })
	healthy()
	crashing.Wait()
	p.Poison("")
	l.wg.Wait()
}

// Whoever waits for its turn, or is sent alone, returns when its context ends, and when Run does.
func TestSuspectsEndWithTheirContext(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	r := run(t, testConfig(p.URL()))
	if err := r.Publish(t.Context(), event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	p.Poison("kubecdc.prod-eu-1.object")
	ctx, cancel := context.WithCancel(t.Context())
	var cancelled, closed sync.WaitGroup
	for k := range 16 {
		c, wg, want := ctx, &cancelled, context.Canceled
		if k%2 == 0 {
			c, wg, want = context.WithoutCancel(ctx), &closed, publish.ErrClosed
		}
		wg.Go(func() {
			if err := r.Publish(c, event(fmt.Sprintf("web-%d", k), 2, `{}`)); !errors.Is(err, want) && !errors.Is(err, publish.ErrRefused) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
	wait(t, "suspects to be sent alone", func() bool { return strings.Contains(r.log.String(), "each of these is sent alone") })
	cancel()
	cancelled.Wait()
	r.stop()
	closed.Wait()
}
