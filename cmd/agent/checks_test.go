package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/leader"
)

// elections is a leader.Elector as it says of itself.
type elections struct {
	status leader.Status
	err    error
}

func (e *elections) Status() leader.Status { return e.status }
func (e *elections) Ready() error          { return e.err }

func TestChecksSayForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		c := newChecks(
			probe{name: "bus", ready: func() error { return broken }},
			probe{name: "queue", ready: func() error { return nil }, aside: true, detail: func() string { return "3 of 7 events" }},
			probe{name: "relay x", ready: func() error { return errors.New("no receiver") }, aside: true},
		)
		expect := func(ready bool, want string) {
			t.Helper()
			got := c.look(time.Now())
			if diff := cmp.Diff(want, got.text(time.Now())); diff != "" || got.Ready != ready {
				t.Errorf("ready %t (-want +got):\n%s", got.Ready, diff)
			}
		}
		pass := func(d time.Duration) {
			<-time.After(d)
		}
		expect(true, "[+] bus: ok\n[+] queue: ok, 3 of 7 events\n[-] relay x: no receiver\n")
		pass(90 * time.Second)
		expect(true, "[+] bus: ok (for 1m30s)\n[+] queue: ok, 3 of 7 events (for 1m30s)\n[-] relay x: no receiver (for 1m30s)\n")
		broken = errors.New("not connected")
		expect(false, "[-] bus: not connected\n[+] queue: ok, 3 of 7 events (for 1m30s)\n[-] relay x: no receiver (for 1m30s)\n")
		pass(2 * time.Hour)
		broken = errors.New("refused") // it is as broken as before
		expect(false, "[-] bus: refused (for 2h0m)\n[+] queue: ok, 3 of 7 events (for 2h1m)\n[-] relay x: no receiver (for 2h1m)\n")
		broken = nil
		expect(true, "[+] bus: ok\n[+] queue: ok, 3 of 7 events (for 2h1m)\n[-] relay x: no receiver (for 2h1m)\n")
	})
}

// A standby is ready, once it has seen the Lease, and is asked for nothing that it has not.
func TestChecksOfAStandby(t *testing.T) {
	e := &elections{status: leader.Status{Seen: true, Holder: "kubecdc-1", Epoch: 3}}
	asked := 0
	c := newChecks(probe{name: "bus", ready: func() error {
		asked++
		return errors.New("there is none")
	}})
	c.election = e
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	metrics := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP kubecdc_agent_check_ok 1 for each check of /readyz that finds nothing wrong. A standby makes that of the leader alone.
# TYPE kubecdc_agent_check_ok gauge
`+want)); err != nil {
			t.Error(err)
		}
	}
	ready := `
# HELP kubecdc_agent_ready 1 where /readyz says that the agent is ready. A standby is.
# TYPE kubecdc_agent_ready gauge
kubecdc_agent_ready `
	now := time.Now()
	if r := c.look(now); !r.Ready || !r.Standby || r.text(now) != "[+] leader: standby, kubecdc-1 leads\n" || asked != 0 {
		t.Errorf("%+v, asked %d times", r, asked)
	}
	metrics(`kubecdc_agent_check_ok{check="leader"} 1` + ready + "1\n")
	e.status.Seen, e.err = false, errors.New("the API server has not told of the Lease yet")
	if r := c.look(now); r.Ready || !r.Standby || !strings.HasPrefix(r.text(now), "[-] leader: the API server has not told") {
		t.Errorf("%+v", r)
	}
	e.status, e.err = leader.Status{Seen: true, Leading: true, Epoch: 4}, nil
	if r := c.look(now); r.Ready || r.Standby || r.text(now) != "[+] leader: leads, epoch 4\n[-] bus: there is none\n" {
		t.Errorf("%+v: %s", r, r.text(now))
	}
	metrics("kubecdc_agent_check_ok{check=\"bus\"} 0\nkubecdc_agent_check_ok{check=\"leader\"} 1" + ready + "0\n")
}

// Only what a restart cures makes /healthz fail: a lock that is never given back.
func TestHealthOfAnAgentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged buffer
		hang := make(chan struct{})
		beats := 0
		s := newServer(serverOptions{
			registry: prometheus.NewRegistry(), log: slog.New(slog.NewTextHandler(&logged, nil)),
			checks: newChecks(probe{name: "bus", ready: func() error { return errors.New("away for days") }}),
			beat: func() {
				if beats++; beats == 3 {
					<-hang
				}
			},
		})
		go s.pulse.watch(t.Context())
		health := func() int {
			w := httptest.NewRecorder()
			s.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", http.NoBody))
			return w.Code
		}
		for _, step := range []struct {
			passes time.Duration
			want   int
		}{{0, http.StatusOK}, {2*beatEvery + time.Second, http.StatusOK}, {beatEvery, http.StatusOK}, {hangsAfter - 2*time.Second, http.StatusOK}, {2 * time.Second, http.StatusInternalServerError}} {
			<-time.After(step.passes)
			if got := health(); got != step.want {
				t.Errorf("%v later: %d, want %d", step.passes, got, step.want)
			}
		}
		if got := logged.String(); strings.Count(got, "the agent hangs") != 1 || !strings.Contains(got, "TestHealthOfAnAgentThatHangs") {
			t.Errorf("logged %.300s", got)
		}
		close(hang)
		synctest.Wait()
		if got := health(); got != http.StatusOK {
			t.Errorf("once it goes on: %d", got)
		}
	})
}

// Who asks and does not read is cut off; a profile, which is only begun, is not.
func TestWhoDoesNotReadIsCutOff(t *testing.T) {
	all := make([]scope.Status, 50_000) // more than the sockets hold
	for i := range all {
		all[i] = scope.Status{Scope: fmt.Sprintf("configmaps/namespace-%05d", i), Phase: scope.PhaseLive}
	}
	s := newServer(serverOptions{
		registry: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler), checks: newChecks(), pprof: true,
		status: func() (st statuses) {
			st.addScopes(slices.Clone(all))
			return st
		},
	})
	if s.WriteTimeout != readWithin || s.IdleTimeout != idleWithin {
		t.Errorf("timeouts %v and %v", s.WriteTimeout, s.IdleTimeout)
	}
	s.WriteTimeout = 200 * time.Millisecond
	closed := make(chan struct{}, 10)
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	l, err := listen(t.Context(), "127.0.0.1:0", true)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		if err := errors.Join(s.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
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
	if s.orders.WriteTimeout != 0 {
		t.Error("a profile that takes minutes is cut off")
	}
}
