package nats_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// leastPermissions returns the permissions of the agent in docs/guides/nats.md, as a server reads
// them.
func leastPermissions(t *testing.T) *server.Permissions {
	t.Helper()
	return bustest.GuidePermissions(t, "the agent")
}

// A user who may read by sequence may read every subject of the stream. The agent alone needs that,
// to check duplicates.
func TestOnlyTheAgentMayReadBySequence(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guides/nats.md")
	if err != nil {
		t.Fatal(err)
	}
	const right = "STREAM.MSG.GET.KUBECDC"
	blocks := strings.Split(string(page), "permissions {")[1:]
	if len(blocks) < 3 || !strings.Contains(blocks[0], right) {
		t.Fatalf("%d sets of permissions, and the first is not the agent's", len(blocks))
	}
	for i, block := range blocks[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "MSG.GET") || strings.Contains(block, "$JS.API.>") {
			t.Errorf("set %d of a reader has %s", i+1, right)
		}
	}
}

func restricted(p *server.Permissions) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{{Username: "agent", Password: "secret", Permissions: p}}
	}
}

func TestLeastPermissionsSuffice(t *testing.T) {
	t.Parallel()
	s := bustest.StartServer(t, t.TempDir(), -1, restricted(leastPermissions(t)))
	expectWholeService(t, s, bustest.NATSConfig(""))
}

// The user may subscribe only to its own inbox.
func TestPrivateInboxSuffices(t *testing.T) {
	t.Parallel()
	permissions := leastPermissions(t)
	permissions.Subscribe.Allow = []string{"_INBOX.kubecdc.>"}
	s := bustest.StartServer(t, t.TempDir(), -1, restricted(permissions))
	cfg := bustest.NATSConfig("")
	cfg.InboxPrefix = "_INBOX.kubecdc"
	expectWholeService(t, s, cfg)
}

// The agent connects to a leaf node, which has a JetStream of its own, and publishes to the hub's.
func TestDomainOfTheHub(t *testing.T) {
	t.Parallel()
	hub := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode = server.LeafNodeOpts{Host: "127.0.0.1", Port: -1}
	})
	v, err := hub.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	permissions := leastPermissions(t)
	for i, p := range permissions.Publish.Allow {
		permissions.Publish.Allow[i] = strings.Replace(p, "$JS.API.", "$JS.hub.API.", 1)
	}
	leaf := bustest.StartServer(t, t.TempDir(), -1, restricted(permissions), func(o *server.Options) {
		o.Users = append(o.Users, &server.User{Username: "admin", Password: "secret"})
		o.ServerName, o.JetStreamDomain = "leaf", "leaf"
		o.LeafNode = server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{
			URLs: []*url.URL{{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(v.LeafNode.Port))}},
		}}}
	})
	bustest.Wait(t, "the leaf node to join", func() bool {
		return leaf.NumLeafNodes() == 1 && hub.NumLeafNodes() == 1
	})
	cfg := bustest.NATSConfig("")
	cfg.Domain = "hub"
	r := expectWholeService(t, leaf, cfg)
	s, err := bustest.Admin(t, hub.ClientURL()).Stream(t.Context(), natsconfig.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 6 {
		t.Errorf("the hub's stream has %d records, want 6", n)
	}

	// An event that a stream of the leaf node acknowledges may be missing on the hub.
	js := bustest.Admin(t, strings.Replace(leaf.ClientURL(), "//", "//admin:secret@", 1))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: natsconfig.DefaultStream, Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	for rv := 10; r.Metric(t, "kubecdc_publish_retries_total", "other_stream") == 0; rv++ { // the hub's may come first
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_ = r.Publish(ctx, bustest.Event("web-1", rv, `{}`))
		cancel()
	}
}

// expectWholeService publishes, reads, stores and has a connection cut, as the restricted user.
func expectWholeService(t *testing.T, s *server.Server, cfg natsbus.Config) *bustest.NATS {
	t.Helper()
	p := bustest.StartProxy(t, s.Addr().String())
	p.Poison("hemlock")
	cfg.URL = "nats://agent:secret@" + strings.TrimPrefix(p.URL(), "nats://")
	cfg.DeadLetter = "kubecdc.{cluster}.dead"
	r := bustest.RunNATS(t, cfg)
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	var ev encode.Event
	progress := &object.StreamEvent{
		Kind:            object.ScopeStarted,
		Resource:        bustest.Pods,
		Scope:           "pods",
		ResourceVersion: 7,
	}
	if err := encode.New(encode.Options{Cluster: "prod-eu-1"}).Encode(&ev, &object.Delta{
		Stream: progress,
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), &ev); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.LastStreamEvent(t.Context(), bustest.Pods); !ok || err != nil {
		t.Errorf("heard: %v, %v", ok, err)
	}
	for n := range uint64(2) {
		d := bustest.Progress(n+1, bustest.ScopeAt(bustest.Pods, "", 7))
		if err := r.Publish(t.Context(), bustest.EncodeProgress(t, encode.Structured, "0-1", d)); err != nil {
			t.Fatal(err)
		}
	}
	if last, ok, err := r.LastProgress(t.Context(), bustest.Writer); !ok || err != nil || len(last.Scopes) != 1 {
		t.Errorf("last progress: %+v, %v, %v", last, ok, err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), bustest.Event("web-1", 2, `hemlock`)) }()
	bustest.Wait(t, "it is sent alone", func() bool { return p.Poisonings() >= 3 })
	p.Poison("")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := r.DeadLetters.Publish(t.Context(), bustest.Event("web-1", 2, `{}`)); err != nil {
		t.Error(err)
	}
	store := r.ObjectStore(driver.ObjectStore{Bucket: "KUBECDC_LARGE", Create: true}, r.Log.Logger(), nil)
	for _, body := range []string{strings.Repeat("x", 300<<10), "y"} { // the second replaces the first
		if _, err := store.Put(t.Context(), "whole", "application/json", []byte(body), nil); err != nil {
			t.Error(err)
		}
	}
	if log := strings.ToLower(r.Log.String()); strings.Contains(log, "permission") {
		t.Errorf("the log tells of permissions that are missing:\n%s", r.Log)
	}
	return r
}

// The log names each missing permission, with a remedy.
func TestMissingPermissionIsLogged(t *testing.T) {
	for _, missing := range []string{"kubecdc.prod-eu-1.>", "$JS.API.STREAM.INFO.KUBECDC"} {
		permissions := leastPermissions(t)
		var rest []string
		for _, p := range permissions.Publish.Allow {
			if p != missing {
				rest = append(rest, p)
			}
		}
		permissions.Publish.Allow = rest
		s := bustest.StartServer(t, t.TempDir(), -1, restricted(permissions))
		cfg := bustest.NATSConfig("nats://agent:secret@" + s.Addr().String())
		cfg.AckTimeout = 50 * time.Millisecond
		r := bustest.RunNATS(t, cfg)
		done := make(chan error, 1)
		go func() { done <- r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)) }()
		bustest.Wait(t, "a line that names it", func() bool {
			log := r.Log.String()
			return strings.Contains(log, "the user lacks a permission on the bus that the agent needs") &&
				strings.Contains(log, strings.TrimSuffix(missing, ">")) && strings.Contains(log, "docs/guides/nats.md")
		})
		r.Stop()
		if err := <-done; err == nil {
			t.Errorf("without %s: published", missing)
		}
	}
}
