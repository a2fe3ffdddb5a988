package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// idle has no scopes.
type idle struct{}

func (idle) Status() []informer.Status { return nil }
func (idle) Ready() error              { return nil }

func (idle) Snapshot(context.Context, string, string) ([]store.Started, error) {
	return nil, errors.New("pods is not captured")
}

// Commands are accepted at the socket only, and not over HTTP from any address. 127.0.0.6 is the
// address at which the sidecar of a service mesh forwards what comes from the network.
func TestCommandsAreNotAcceptedOverHTTP(t *testing.T) {
	s := New(Options{Registry: prometheus.NewRegistry(), Checks: NewChecks(nil), Informers: idle{}, Profiles: true})
	for _, command := range []struct{ method, path string }{
		{http.MethodPost, "/snapshot"}, {http.MethodGet, "/debug/pprof/"}, {http.MethodGet, "/debug/pprof/heap"}, {
			http.MethodGet, "/debug/pprof/trace",
		},
	} {
		for _, peer := range []string{"127.0.0.6:5000", "127.0.0.1:5000", "[::1]:5000", "10.0.0.7:5000", "@"} {
			for _, host := range []string{
				"localhost", "localhost:8080", "127.0.0.1:8080", "kubecdc.kubecdc.svc:8080", "evil.example",
			} {
				r := httptest.NewRequestWithContext(t.Context(), command.method, command.path, strings.NewReader("{}"))
				r.RemoteAddr, r.Host = peer, host
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
				if w.Code != http.StatusForbidden ||
					!strings.Contains(w.Body.String(), "kubectl exec POD -- /kubecdc snapshot") {
					t.Errorf("%s from %s to %s: got %d %.100s", command.path, peer, host, w.Code, w.Body)
				}
			}
		}
		w := httptest.NewRecorder()
		s.SocketHandler().
			ServeHTTP(w,
				httptest.NewRequestWithContext(t.Context(), command.method, command.path+"?seconds=0.01",
					strings.NewReader("{}")))
		if w.Code == http.StatusForbidden || w.Code == http.StatusMethodNotAllowed ||
			command.path != "/snapshot" && w.Code != http.StatusOK {
			t.Errorf("%s at the socket: got %d %.100s", command.path, w.Code, w.Body)
		}
	}
}

// /healthz fails only because of what a restart cures: a lock that is never released.
func TestHealthOfAnAgentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		hang := make(chan struct{})
		attempts := 0
		s := New(Options{
			Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&logged, nil)),
			Checks: NewChecks(nil, Probe{Name: "bus", Ready: func() error { return errors.New("away for days") }}),
			AcquireLocks: func() {
				attempts++
				if attempts == 3 {
					<-hang
				}
			},
		})
		go s.watchdog.run(t.Context())
		health := func() int {
			w := httptest.NewRecorder()
			s.Handler().
				ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", http.NoBody))
			return w.Code
		}
		for _, step := range []struct {
			passes time.Duration
			want   int
		}{{0, http.StatusOK}, {2*watchdogInterval + time.Second, http.StatusOK}, {watchdogInterval, http.StatusOK}, {
			hangsAfter - 2*time.Second, http.StatusOK,
		}, {2 * time.Second, http.StatusInternalServerError}} {
			<-time.After(step.passes)
			if got := health(); got != step.want {
				t.Errorf("%v later: %d, want %d", step.passes, got, step.want)
			}
		}
		if got := logged.String(); strings.Count(got, "the agent hangs") != 1 ||
			!strings.Contains(got, "TestHealthOfAnAgentThatHangs") {
			t.Errorf("logged %.300s", got)
		}
		close(hang)
		synctest.Wait()
		if got := health(); got != http.StatusOK {
			t.Errorf("once it goes on: %d", got)
		}
	})
}

// The server closes the connection of a client that does not read. It does not close that of a
// profile, which has only begun.
func TestWhoDoesNotReadIsCutOff(t *testing.T) {
	all := make([]informer.Status, 50_000) // more than the sockets hold
	for i := range all {
		all[i] = informer.Status{Scope: fmt.Sprintf("configmaps/namespace-%05d", i), Phase: informer.PhaseLive}
	}
	s := New(Options{
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Checks: NewChecks(nil), Profiles: true,
		Status: func() (st Status) {
			st.AddScopes(slices.Clone(all))
			return st
		},
	})
	if s.http.WriteTimeout != writeTimeout || s.http.IdleTimeout != idleTimeout {
		t.Errorf("timeouts %v and %v", s.http.WriteTimeout, s.http.IdleTimeout)
	}
	s.http.WriteTimeout = 200 * time.Millisecond
	closed := make(chan struct{}, 10)
	s.http.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(l) }()
	defer func() {
		if err := errors.Join(s.http.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /status?scopes=100000 HTTP/1.1\r\nHost: agent\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the connection of one who does not read is there still")
	}
	if s.socket.WriteTimeout != 0 {
		t.Error("a profile that takes minutes is cut off")
	}
}

// Scrapes that nobody reads, and idle connections, fill neither memory nor the port: /healthz
// answers.
func TestConnectionsDoNotFillThePort(t *testing.T) {
	registry := prometheus.NewRegistry()
	many := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "many", Help: "Many series."}, []string{"n"})
	registry.MustRegister(many)
	for n := range 5_000 {
		many.WithLabelValues(fmt.Sprint("series-", n)).Set(float64(n))
	}
	s := New(Options{Registry: registry, Checks: NewChecks(nil), Informers: idle{}})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l, nil) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	addr := l.Addr().String()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for n := range 1_000 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n%3 > 0 { // the others are idle
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") // fails if it was closed
		}
		if n%100 > 0 {
			continue
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/healthz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 128<<20 {
		t.Errorf("the process took %d MiB more", grown>>20)
	}
}

// A web page of an attacker that resolves its name to 127.0.0.1 reads nothing from an agent that
// listens there.
func TestForeignHostsAreRefusedOnLoopback(t *testing.T) {
	s := New(Options{Registry: prometheus.NewRegistry(), Checks: NewChecks(nil), Informers: idle{}})
	local := localOnly(s.Handler())
	for host, want := range map[string]int{
		"localhost:8080": http.StatusOK,
		"127.0.0.1:8080": http.StatusOK,
		"[::1]:8080":     http.StatusOK,
		"evil.example":   http.StatusForbidden,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		local.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
}
