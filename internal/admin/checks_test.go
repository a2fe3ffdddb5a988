package admin

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubecdc/kubecdc/internal/leader"
)

// elections is an Election with a given state.
type elections struct {
	status leader.Status
	err    error
}

func (e *elections) Status() leader.Status { return e.status }
func (e *elections) Ready() error          { return e.err }

func TestChecksSayForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		c := NewChecks(nil,
			Probe{Name: "bus", Ready: func() error { return broken }},
			Probe{Name: "queue", Ready: func() error { return nil }, Aside: true, Detail: func() string {
				return "3 of 7 events"
			}},
			Probe{Name: "relay x", Ready: func() error { return errors.New("no receiver") }, Aside: true},
		)
		expect := func(ready bool, want string) {
			t.Helper()
			got := c.Look(time.Now())
			if diff := cmp.Diff(want, got.Text(time.Now())); diff != "" || got.Ready != ready {
				t.Errorf("ready %t (-want +got):\n%s", got.Ready, diff)
			}
		}
		pass := func(d time.Duration) {
			<-time.After(d)
		}
		expect(true, "[+] bus: ok\n[+] queue: ok, 3 of 7 events\n[-] relay x: no receiver\n")
		pass(90 * time.Second)
		expect(true,
			"[+] bus: ok (for 1m30s)\n[+] queue: ok, 3 of 7 events (for 1m30s)\n[-] relay x: no receiver (for 1m30s)\n")
		broken = errors.New("not connected")
		expect(false,
			"[-] bus: not connected\n[+] queue: ok, 3 of 7 events (for 1m30s)\n[-] relay x: no receiver (for 1m30s)\n")
		pass(2 * time.Hour)
		broken = errors.New("refused") // it is as broken as before
		expect(false,
			"[-] bus: refused (for 2h0m)\n[+] queue: ok, 3 of 7 events (for 2h1m)\n[-] relay x: no receiver (for 2h1m)\n")
		broken = nil
		expect(true, "[+] bus: ok\n[+] queue: ok, 3 of 7 events (for 2h1m)\n[-] relay x: no receiver (for 2h1m)\n")
	})
}

// A standby is ready once it has seen the Lease. Only probes of parts that a standby has are run.
func TestChecksOfAStandby(t *testing.T) {
	e := &elections{status: leader.Status{Seen: true, Holder: "kubecdc-1", Epoch: 3}}
	asked := 0
	var pending error
	c := NewChecks(e, Probe{Name: "bus", Ready: func() error {
		asked++
		return errors.New("there is none")
	}}, Probe{Name: "config", Ready: func() error { return pending }, Aside: true, Lasts: func() bool {
		return pending != nil
	}, Standby: true})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	metrics := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP kubecdc_agent_check_ok 1 for each check of /readyz that passes. A standby makes only the checks of the leader and of the configuration.
# TYPE kubecdc_agent_check_ok gauge
`+want)); err != nil {
			t.Error(err)
		}
	}
	ready := `
# HELP kubecdc_agent_ready 1 if /readyz reports that the agent is ready. A standby is ready.
# TYPE kubecdc_agent_ready gauge
kubecdc_agent_ready `
	now := time.Now()
	if r := c.Look(now); !r.Ready || !r.Standby ||
		r.Text(now) != "[+] leader: standby, kubecdc-1 leads\n[+] config: ok\n" || asked != 0 {
		t.Errorf("%+v, asked %d times", r, asked)
	}
	metrics("kubecdc_agent_check_ok{check=\"config\"} 1\nkubecdc_agent_check_ok{check=\"leader\"} 1" + ready + "1\n")
	pending = errors.New("it is not in force yet")
	if r := c.Look(now); r.Ready || !r.Standby ||
		!strings.HasSuffix(r.Text(now), "\n[-] config: it is not in force yet\n") {
		t.Errorf("%+v", r)
	}
	pending = nil
	e.status.Seen, e.err = false, errors.New("the API server has not told of the Lease yet")
	if r := c.Look(now); r.Ready || !r.Standby ||
		!strings.HasPrefix(r.Text(now), "[-] leader: the API server has not told") {
		t.Errorf("%+v", r)
	}
	e.status, e.err = leader.Status{Seen: true, Leading: true, Epoch: 4}, nil
	if r := c.Look(now); r.Ready || r.Standby ||
		r.Text(now) != "[+] leader: leads, epoch 4\n[-] bus: there is none\n[+] config: ok\n" {
		t.Errorf("%+v: %s", r, r.Text(now))
	}
	metrics(
		"kubecdc_agent_check_ok{check=\"bus\"} 0\nkubecdc_agent_check_ok{check=\"config\"} 1\nkubecdc_agent_check_ok{check=\"leader\"} 1" +
			ready + "0\n")
}
