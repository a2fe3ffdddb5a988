package relay_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// receiver takes events over HTTP and fails like real receivers: with 503, or without an answer
// after it has taken the event.
type receiver struct {
	mu   sync.Mutex
	seen map[string]bool
	last map[string]string // by uid, the highest sequence
	late []string          // first seen after a later version
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	e, err := consume.Parse(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fate := rand.IntN(10)
	if fate == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.mu.Lock()
	if e.Sequence < r.last[e.UID] && !r.seen[e.ID] {
		r.late = append(r.late, e.ID)
	}
	r.seen[e.ID] = true
	r.last[e.UID] = max(r.last[e.UID], e.Sequence)
	r.mu.Unlock()
	if fate == 1 {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// The stream's server restarts, the relay crashes and the receiver fails. All events arrive, and
// only duplicates are out of order.
func TestAllArrivesInOrderThroughRestartsAndFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(port int) *server.Server {
		s, err := server.NewServer(&server.Options{
			Host:      "127.0.0.1",
			Port:      port,
			JetStream: true,
			StoreDir:  dir,
			NoSigs:    true,
			NoLog:     true,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("server does not come up")
		}
		return s
	}
	s := open(-1)
	port := s.Addr().(*net.TCPAddr).Port
	shut := func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	t.Cleanup(func() { shut() })
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	b := &bus{t, s, s.ClientURL(), js}
	b.create()

	to := &receiver{seen: map[string]bool{}, last: map[string]string{}}
	web := httptest.NewServer(to)
	t.Cleanup(web.Close)
	begin := func(saves bool) *running {
		target, err := publishhttp.New(publishhttp.Config{URL: web.URL}, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		var sub driver.Subscription = b.subscription("r", driver.Beginning)
		if !saves {
			sub = unsaved{sub}
		}
		return start(t, relay.Options{Name: "r", Subscription: sub, Target: target, Grace: time.Millisecond})
	}
	sent := 0
	send := func() {
		for range 10 {
			sent++
			for o := range 8 {
				b.send(event("shop", fmt.Sprintf("web-%d", o), sent))
			}
		}
	}
	r := begin(true)
	for round := range 6 {
		send()
		waitFor(t, func() bool { return to.count() > sent*8-40 }) // in the middle of it
		if round%2 == 0 {
			shut()
			s = open(port)
			waitFor(t, func() bool {
				_, err := js.Stream(t.Context(), "KUBECDC")
				return err == nil
			})
		} else {
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			r = begin(round == 3)
		}
	}
	waitFor(t, func() bool { return to.count() == sent*8 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if len(to.late) > 0 {
		t.Errorf("out of order, and no copies: %v", to.late)
	}
}
