package relay_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/relay"

	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
)

// resumeWithin is the time after the death of a path, or its return, within which a relay resumes.
const resumeWithin = 20 * time.Second

// killPath makes a path die silently, for half a minute if all is true. It returns the moment from
// which new connections work.
func killPath(t *testing.T, path *bustest.Proxy, all bool) time.Time {
	t.Helper()
	path.Swallow(all)
	from := time.Now()
	if all {
		from = from.Add(30 * time.Second)
		heal := time.AfterFunc(time.Until(from), func() { path.Swallow(false) })
		t.Cleanup(func() { heal.Stop() })
	}
	return from
}

// wantWithin waits for a condition, and fails the test unless it holds within resumeWithin of a
// moment.
func wantWithin(t *testing.T, from time.Time, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Until(from.Add(resumeWithin)))
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not resumed within %s", resumeWithin)
		}
	}
	t.Logf("resumed after %s", time.Since(from).Round(100*time.Millisecond))
}

// The path to the bus, or to Slack, dies silently between two records. The receivers HTTP and NATS
// are buses, whose packages have such tests.
func TestPathThatDiesSilently(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("bus, all=%v", all), func(t *testing.T) {
			skipLong(t, all)
			t.Parallel()
			b, to := newBus(t), newTarget()
			path := bustest.StartProxy(t, b.server.Addr().String())
			sub := b.subscriptionOf(&driver.Relaying{Name: "r", Start: driver.Beginning, Log: bustest.Discard},
				func(c *natsbus.Config) { c.URL = path.URL() })
			start(t, relay.Options{Name: "r", Subscription: sub, Target: to})
			b.send(event("shop", "web", 1))
			to.wait(t, 1)
			from := killPath(t, path, all)
			b.send(event("shop", "web", 2))
			wantWithin(t, from, func() bool { return len(to.ids()) == 2 })
		})
		t.Run(fmt.Sprintf("Slack, all=%v", all), func(t *testing.T) {
			skipLong(t, all)
			t.Parallel()
			b, s := newBus(t), newStandIn(t)
			u, err := url.Parse(s.url)
			if err != nil {
				t.Fatal(err)
			}
			path := bustest.StartProxy(t, u.Host)
			s.url = "http://" + path.Addr()
			to := newSlack(t, s.webhook(t), bustest.Discard)
			start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
			b.send(event("shop", "web", 1))
			waitFor(t, func() bool { return len(s.taken()) == 1 })
			from := killPath(t, path, all)
			b.send(event("shop", "web", 2))
			wantWithin(t, from, func() bool { return len(s.taken()) == 2 })
		})
	}
}

func skipLong(t *testing.T, all bool) {
	t.Helper()
	if all && testing.Short() {
		t.Skip("takes 40 s")
	}
}
