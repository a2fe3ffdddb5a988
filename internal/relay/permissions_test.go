package relay_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/relay"
)

// The documented NATS permissions of a relay suffice, also to create its cursor, to reopen it and
// to show it.
func TestLeastPermissionsOfARelaySuffice(t *testing.T) {
	t.Run("as they are", func(t *testing.T) {
		expectRelayed(t, bustest.GuidePermissions(t, "a relay"), "", nats.InboxPrefix)
	})
	t.Run("private inbox", func(t *testing.T) {
		p := bustest.GuidePermissions(t, "a relay")
		p.Subscribe.Allow = []string{"_INBOX_relay.>"}
		expectRelayed(t, p, "", "_INBOX_relay.")
	})
	t.Run("leaf node", func(t *testing.T) {
		p := bustest.GuidePermissions(t, "a relay")
		for i, s := range p.Publish.Allow {
			s = strings.Replace(s, "$JS.API.", "$JS.hub.API.", 1)
			p.Publish.Allow[i] = strings.Replace(s, "$KV.", "$JS.hub.API.$KV.", 1)
		}
		expectRelayed(t, p, "hub", nats.InboxPrefix)
	})
}

// expectRelayed starts a relay three times; with a domain, at a leaf node of that domain's server.
func expectRelayed(t *testing.T, p *server.Permissions, domain, inbox string) {
	t.Helper()
	all := &server.User{Username: "all", Password: "secret"}
	limited := &server.User{Username: "relay", Password: "secret", Permissions: p}
	b := newBus(t, all, limited)
	url := b.url
	if domain != "" {
		b = newBusWith(t, &server.Options{JetStreamDomain: domain, LeafNode: server.LeafNodeOpts{
			Host: "127.0.0.1",
			Port: -1,
		}})
		url = b.leaf("leaf", all, limited)
	}
	log := &logBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the relays:\n%s", log)
		}
	})
	sub := func() driver.RelaySubscription {
		r := &driver.Relaying{Name: "r", Start: driver.Beginning, Objects: inNamespace("shop"), Log: log.logger()}
		return b.subscriptionOf(r, func(c *natsbus.Config) {
			c.URL = strings.Replace(url, "://", "://relay:secret@", 1)
			c.Domain = domain
			c.InboxPrefix = strings.TrimSuffix(inbox, ".")
		})
	}
	for rv := 1; rv < 4; rv++ {
		b.sendTo("kubecdc.prod.object.core.configmaps.shop.web", event("shop", "web", rv))
		to := newTarget()
		r := startLogging(t, relay.Options{Name: "r", Subscription: sub(), Target: to}, log.logger())
		to.wait(t, 1)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if n := len(to.ids()); n != 1 {
			t.Errorf("start %d: %d events, want the new one", rv, n)
		}
	}
	ps, err := sub().Status(t.Context())
	if err != nil || len(ps) != 1 || ps[0].At != 3 {
		t.Errorf("status: %v, %v", ps, err)
	}
	if strings.Contains(log.String(), "cannot filter") {
		t.Errorf("the server does not filter for the relay:\n%s", log)
	}
	if strings.Contains(strings.ToLower(log.String()), "permission") {
		t.Errorf("the log tells of permissions that are missing:\n%s", log)
	}
}

// Two relays of one name have the same consumers. The later one waits for them until the other one
// has ended.
func TestConfinedRelayIsTakenOver(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	if _, err := b.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "kubecdc-relay-shop"}); err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	start := func(to *target) *running {
		sub := b.subscriptionOf(
			&driver.Relaying{Name: "r", Start: driver.Beginning, Objects: inNamespace("shop"), Log: log.logger()},
			func(c *natsbus.Config) {
				c.Reader = &natsconfig.Reader{Consumers: "shop", Subjects: []string{
					"kubecdc.*.object.*.*.shop.*", "kubecdc.*.stream.*.*", "kubecdc.*.scope.*.*.*",
					"kubecdc.*.progress.*",
				}}
			})
		return startLogging(t, relay.Options{Name: "r", Subscription: sub, Target: to}, log.logger())
	}
	send := func(rv int) { b.sendTo("kubecdc.prod.object.core.configmaps.shop.web", event("shop", "web", rv)) }
	first, second := newTarget(), newTarget()
	r := start(first)
	send(1)
	first.wait(t, 1)
	takes := start(second)
	if err := r.wait(t); !errors.Is(err, subscription.ErrElsewhere) {
		t.Errorf("the first relay ends with %v", err)
	}
	send(2)
	second.wait(t, 1)
	if err := takes.stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "took over the cursor of another relay"); n != 1 {
		t.Errorf("%d warnings about the other relay:\n%s", n, log)
	}
	if !strings.Contains(log.String(), "is in use by another reader (host ") {
		t.Errorf("the log does not say why the relay waits:\n%s", log)
	}
}

// A missing bucket is created by an administrator.
func TestConfinedRelayCreatesNoBucket(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	sub := b.subscriptionOf(&driver.Relaying{Name: "r", Log: slog.New(slog.DiscardHandler)}, func(c *natsbus.Config) {
		c.Reader = &natsconfig.Reader{Consumers: "shop", Subjects: []string{"kubecdc.>"}}
	})
	defer sub.Close()
	err := sub.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "an administrator creates it (nats kv add kubecdc-relay-shop)") {
		t.Errorf("got %v", err)
	}
}
