package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
)

// copyOf is what answers from the tenant's stream say.
const copyOf = "stream KUBECDC copies only kubecdc.*.object.*.*.shop.*, kubecdc.*.stream.*.*, kubecdc.*.scope.*.*.*, kubecdc.*.progress.* (nats stream info)"

// startTenant starts a bus with the account and the stream that the guide gives a tenant, whose
// namespace is shop. The agent's stream has the namespace bank as well.
func startTenant(t *testing.T, change func(*jetstream.StreamConfig)) (whole, tenant string) {
	t.Helper()
	guide := bustest.GuideOptions(t, bustest.GuideBlock(t, "a tenant's account"))
	options := &server.Options{Accounts: guide.Accounts, Users: guide.Users}
	for _, a := range options.Accounts {
		if a.GetName() == "SHOP" {
			options.Users = append(options.Users, &server.User{
				Username:    "shop",
				Password:    "secret",
				Account:     a,
				Permissions: bustest.GuidePermissions(t, "a reader"),
			})
		}
	}
	address := startJetStream(t, options)
	_, lines := recorded(t)
	for _, line := range lines {
		if strings.Contains(line, `"namespace":"shop"`) {
			lines = append(lines,
				strings.NewReplacer(`shop"`, `bank"`, `"u-`, `"b-`, `/u-`, `/b-`, `"settings"`, `"vault"`).
					Replace(line))
		}
	}
	fillBus(t, connect(t, "nats://"+address, nats.UserInfo("kube-admin", "secret")), lines)
	admin := connect(t, "nats://"+address, nats.UserInfo("shop-admin", "secret"))
	var config jetstream.StreamConfig
	if err := json.Unmarshal([]byte(bustest.GuideBlock(t, "a tenant's stream")), &config); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&config)
	}
	stream, err := admin.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	bustest.Wait(t, "the tenant's stream has its records", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs >= 36 && len(info.Sources) == 1 && info.Sources[0].Lag == 0
	})
	return "nats://kube-admin:secret@" + address, "nats://shop:secret@" + address
}

// A tenant's own stream answers about its namespace as the agent's stream does. It knows nothing of
// other namespaces, and says so.
func TestTenantIsNotCertainOfOthers(t *testing.T) {
	t.Parallel()
	whole, tenant := startTenant(t, nil)
	began := time.Now()
	for _, command := range [][]string{
		{"get", "cm", "-n", "shop", "--at", withinRecord, "-o", "json", "--exact"},
		{"get", "all", "-n", "shop", "--at", "rv:145", "-o", "json"},
		{"get", "cm/none", "-n", "shop", "--at", withinRecord},
		{"history", "deploy/web", "-n", "shop", "--until", withinRecord, "-o", "json", "--exact"},
		{"diff", "2026-11-20T14:02:00Z", withinRecord, "-n", "shop", "-o", "json", "--exact"},
		{"blame", "deploy/web", "-n", "shop", "--at", withinRecord},
	} {
		want, got := answerOf(t, append(command, "--bus", whole)...), answerOf(t, append(command, "--bus", tenant)...)
		if diff := gocmp.Diff(want, got); diff != "" || got.Code != exitOK && command[1] != "cm/none" {
			t.Errorf("%v: -agent's stream +tenant's\n%s", command, diff)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the answers took %s", took)
	}
	for _, command := range [][]string{
		{"get", "cm", "-n", "bank", "--at", withinRecord},
		{"get", "cm", "-A", "--at", withinRecord},
		{"get", "cm", "--at", "rv:145"},
		{"get", "all", "-A", "--at", withinRecord},
		{"get", "crd", "--at", withinRecord},
		{"get", "cm", "-n", "*", "--at", withinRecord},
		{"get", "cm/vault", "-n", "bank", "--at", withinRecord},
		{"history", "cm", "-n", "bank", "--until", withinRecord},
		{"history", "cm", "--since", "2026-11-20T14:02:00Z", "--until", withinRecord},
		{"diff", "2026-11-20T14:02:00Z", withinRecord, "-n", "bank"},
		{"blame", "cm/vault", "-n", "bank", "--at", withinRecord},
	} {
		got := answerOf(t, append(command, "--exact", "--bus", tenant)...)
		if got.Code != exitNotExact && got.Code != exitFailed || strings.Contains(got.Err, ": exact") ||
			!strings.Contains(got.Err, copyOf) {
			t.Errorf("%v: got %+v", command, got)
		}
	}
	got := answerOf(t, "tail", "--no-follow", "cm", "--bus", tenant)
	if !strings.Contains(got.Err, "not all of these objects are shown: "+copyOf) {
		t.Errorf("tail: got %+v", got)
	}
}

// Sources say what a stream has in several ways.
func TestSourcesOfATenantsStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		change  func(*jetstream.StreamConfig)
		isExact string // of the namespaces shop and bank
	}{
		{"a transform that keeps the subject", func(c *jetstream.StreamConfig) {
			c.Sources[0].SubjectTransforms[0].Destination = "kubecdc.{{wildcard(1)}}.object.{{wildcard(2)}}.{{wildcard(3)}}.shop.{{wildcard(4)}}"
		}, "shop"},
		{"the subjects of one cluster", func(c *jetstream.StreamConfig) {
			for i, s := range []string{
				"kubecdc.prod.object.*.*.shop.*", "kubecdc.prod.stream.>", "kubecdc.prod.scope.>",
				"kubecdc.prod.progress.>",
			} {
				c.Sources[0].SubjectTransforms[i].Source = s
			}
		}, "shop"},
		{"no progress of one's own", func(c *jetstream.StreamConfig) {
			c.Sources[0].SubjectTransforms[3].Source = "kubecdc.*.progress.5f"
		}, ""},
		{"a mirror of all", func(c *jetstream.StreamConfig) {
			c.Mirror, c.Sources = c.Sources[0], nil
			c.Mirror.SubjectTransforms = nil
		}, "shop bank"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, t.TempDir(), -1)
			js := connect(t, s.ClientURL())
			_, lines := recorded(t)
			fillBus(t, js, lines)
			var config jetstream.StreamConfig
			if err := json.Unmarshal([]byte(bustest.GuideBlock(t, "a tenant's stream")), &config); err != nil {
				t.Fatal(err)
			}
			config.Name, config.Sources[0].External = "TENANT", nil
			c.change(&config)
			stream, err := js.CreateStream(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			bustest.Wait(t, "the tenant's stream has its records", func() bool {
				info, err := stream.Info(t.Context())
				return err == nil && info.State.Msgs >= 20
			})
			for _, namespace := range []string{"shop", "bank"} {
				bustest.Wait(t, "the answer about "+namespace, func() bool {
					got := answerOf(t, "get", "cm", "-n", namespace, "--at", withinRecord, "--exact", "--bus",
						s.ClientURL(), "--stream", "TENANT")
					return strings.Contains(c.isExact, namespace) == (got.Code == exitOK)
				})
			}
		})
	}
}
