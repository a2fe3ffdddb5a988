package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/agent"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// drawnRecord is a record on the bus, drawn at random.
type drawnRecord struct {
	delta *object.Delta
	body  string
	dead  bool
}

// draw draws a record of an object, of the stream, or a dead letter.
func drawRecord(rng *rand.Rand, n int) drawnRecord {
	type kind struct{ group, resource, kind string }
	kinds := []kind{
		{"", "pods", "Pod"},
		{"apps", "deployments", "Deployment"},
		{"", "services", "Service"},
		{"serving.knative.dev", "services", "Service"},
		{"demo.example.com", "widgets", "Widget"},
		{"", "nodes", "Node"},
	}
	k := kinds[rng.IntN(len(kinds))]
	resource := &object.Resource{Group: k.group, Name: k.resource}
	apiVersion := strings.TrimPrefix(k.group+"/v1", "/")
	if rng.IntN(6) == 0 {
		kind := []string{"gap", "snapshot.started", "progress"}[rng.IntN(3)]
		return drawnRecord{
			delta: &object.Delta{Stream: &object.StreamEvent{Resource: resource}},
			body: fmt.Sprintf(
				`{"specversion":"1.0","id":"r%d","source":"/kubernetes/c","type":"dev.kubecdc.%s","time":"2026-11-20T15:00:00Z","cluster":"c.d","apiversion":%q,"kind":%q,`+
					`"resource":%q,"scope":%[5]q,"data":{"snapshot":"s","resourceVersion":"1","fromResourceVersion":"1","toResourceVersion":"2","reason":"expired"}}`,
				n, kind, apiVersion, k.kind, k.resource),
		}
	}
	namespace := []string{"shop", "other", "team-a"}[rng.IntN(3)]
	if k.resource == "nodes" {
		namespace = ""
	}
	name := []string{"web", "web.v1", "web-1", strings.Repeat("long.", 60)}[rng.IntN(4)]
	op := []string{"created", "updated", "deleted"}[rng.IntN(3)]
	dead := ""
	if rng.IntN(20) == 0 {
		dead = `"deadletterreason":"too large",`
	}
	return drawnRecord{
		delta: &object.Delta{Ref: object.NewRef(resource, namespace, name, "u")},
		dead:  dead != "",
		body: fmt.Sprintf(
			`{"specversion":"1.0","id":"r%d","source":"/kubernetes/c","type":"dev.kubecdc.object.%s","time":"2026-11-20T15:00:00Z","cluster":"c.d",%s"apiversion":%q,"kind":%q,`+
				`"resource":%q,"namespace":%q,"name":%q,"uid":"u","op":%q,"sequence":"%020d","data":{"op":%[9]q,"resourceVersion":"%d","after":{}}}`,
			n, op, dead, apiVersion, k.kind, k.resource, namespace, name, op[:1], n, n),
	}
}

// drawnStream is a stream of drawn records. Each template makes the subjects of the records up to
// the next one's.
func drawnStream(
	t *testing.T, js jetstream.JetStream, rng *rand.Rand, name string, records int, templates ...string,
) []drawnRecord {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{
		"kubecdc.>",
	}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	var all []drawnRecord
	for i, template := range templates {
		subjects, err := subject.New(template, "c.d")
		if err != nil {
			t.Fatal(err)
		}
		for n := range records / len(templates) {
			r := drawRecord(rng, i*records+n)
			subject := string(subjects.Append(nil, r.delta))
			if r.dead {
				subject = "kubecdc.c%2Ed.dead"
			}
			if _, err := js.Publish(t.Context(), subject, []byte(r.body)); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}

// drawnTemplates are what agents may be configured with, for the reader (known) and for those who
// wrote.
func drawnTemplates(rng *rand.Rand) (known string, written []string) {
	const (
		short    = "kubecdc.{cluster}.object.{group}.{resource}.{namespace}"
		turned   = "kubecdc.{cluster}.object.{namespace}.{group}.{resource}.{name}"
		dashed   = "kubecdc.{cluster}.o.{resource}-{group}.{namespace}.{name}"
		five     = "kubecdc.{cluster}.{resource}.{namespace}.{name}"
		standard = subject.Default
	)
	all := []string{standard, standard, short, turned, dashed, five}
	written = []string{all[rng.IntN(len(all))]}
	if rng.IntN(3) == 0 { // The template was changed.
		written = append(written, all[rng.IntN(len(all))])
	}
	if rng.IntN(2) == 0 {
		return written[len(written)-1], written
	}
	return standard, written
}

// wanted holds a record against what is asked for.
func wanted(t *testing.T, all []drawnRecord, match func(*consume.Event) bool) []string {
	t.Helper()
	var ids []string
	for _, r := range all {
		e, err := consume.Parse([]byte(r.body))
		if err != nil {
			t.Fatal(err)
		}
		if match(e) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// drawings is how many configurations the tests of filters draw.
func drawings(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("FILTERS"), "25"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func filterBus(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	s := startServer(t, t.TempDir(), -1)
	js = connect(t, s.ClientURL())
	return s.ClientURL(), js
}

// The server leaves out exactly the records that tail would not show, for any filter and any
// template of subjects.
func TestTailFilteredByTheServerShowsTheSame(t *testing.T) {
	url, js := filterBus(t)
	args := [][]string{
		nil,
		{"pods"},
		{"po", "web"},
		{"pods/web.v1", "deploy/web"},
		{"svc"},
		{"services.serving.knative.dev"},
		{"widgets"},
		{"widget.demo.example.com", "web-1"},
		{"no"},
		{"all"},
		{"pods", "web*"},
		{"pods,deployments.apps", strings.Repeat("long.", 60)},
		{"widgets.demo.example.com"},
		{"events"},
	}
	for i := range drawings(t) {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		known, written := drawnTemplates(rng)
		selection := console.Selection{
			Args:      args[rng.IntN(len(args))],
			Namespace: []string{"", "", "shop", "team-*"}[rng.IntN(4)],
			Progress:  rng.IntN(2) == 0,
		}
		name := fmt.Sprint("S", i)
		all := drawnStream(t, js, rng, name, 60, written...)
		filter, err := console.NewFilter(selection)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "kubecdc.yaml")
		text := fmt.Sprintf(
			"apiVersion: kubecdc.dev/v1\ncluster: c.d\nbus: {nats: {url: %q, subject: %q, stream: {name: %s}}}\n", url,
			known, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		src, _, err := (&tailFlags{Options: agent.Options{
			Config: file,
		}, noFollow: true}).open(t.Context(), filter, nil, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			e, err := src.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if filter.Match(e) {
				got = append(got, e.ID)
			}
		}
		src.Close()
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(wanted(t, all, filter.Match), got); diff != "" {
			t.Errorf("%+v, template %s, subjects of %q: -all, filtered here +filtered by the server\n%s", selection,
				known, written, diff)
		}
	}
}

// collector is the target of a relay.
type collector struct {
	mu  sync.Mutex
	ids []string
}

func (c *collector) Publish(e *publish.Event) {
	c.mu.Lock()
	c.ids = append(c.ids, string(e.ID))
	c.mu.Unlock()
	e.Done(nil)
}

func (c *collector) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
func (c *collector) Ready() error  { return nil }
func (c *collector) Stream() bool  { return true }
func (c *collector) InFlight() int { return 1 }

func (c *collector) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ids)
}

// The server leaves out exactly the records that the relay would pass over.
func TestRelayFilteredByTheServerRelaysTheSame(t *testing.T) {
	t.Parallel()
	url, js := filterBus(t)
	patterns := [][]string{nil, {"pods"}, {"deployments.apps", "pods"}, {"*.apps"}, {"*.serving.knative.dev"}, {
		"services",
	}, {"widgets.v1.demo.example.com"}, {"*"}}
	namespaces := []config.Namespaces{nil, {"shop"}, {"shop", "other"}, {"team-*"}, {"!shop"}, {"*"}}
	some := []config.Operation{config.OperationOf(object.Created), config.OperationOf(object.Deleted)}
	operations := [][]config.Operation{nil, nil, some}
	for i := range drawings(t) {
		rng := rand.New(rand.NewPCG(uint64(i), 2))
		known, written := drawnTemplates(rng)
		r := &config.Relay{
			Name: fmt.Sprint("r", i), Start: config.RelayBeginning, Refused: config.RelayStop,
			Namespaces: namespaces[rng.IntN(len(namespaces))], Operations: operations[rng.IntN(len(operations))],
		}
		for _, text := range patterns[rng.IntN(len(patterns))] {
			var p config.ResourcePattern
			if err := p.UnmarshalText([]byte(text)); err != nil {
				t.Fatal(err)
			}
			r.Resources = append(r.Resources, p)
		}
		name := fmt.Sprint("R", i)
		all := drawnStream(t, js, rng, name, 60, written...)
		cfg := config.Default()
		cfg.Bus = config.Bus{"nats": &natsbus.Config{URL: url, Subject: known, Stream: natsconfig.Stream{Name: name}}}
		sub, err := agent.NewRelaySubscription(cfg, r, "c", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		match := agent.MatchRelay(r, "c")
		want := wanted(t, all, func(e *consume.Event) bool { return match(e) && e.DeadLetterReason == "" })
		to := &collector{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- relay.New(relay.Options{Name: r.Name, Subscription: sub, Target: to, Match: match},
				slog.New(slog.DiscardHandler), nil).Run(ctx)
		}()
		waitUntil(t, func() bool { return len(to.all()) >= len(want) })
		cancel()
		if err := errors.Join(<-done, js.DeleteStream(t.Context(), name)); err != nil {
			t.Fatal(err)
		}
		got := to.all()
		slices.Sort(got)
		slices.Sort(want)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%+v, template %s, subjects of %q: -want +got\n%s", r, known, written, diff)
		}
	}
}

// From a stream with many records of other objects, the server sends only the records that match.
// RECORDS is their number.
func TestTailReadsNoMoreThanItShows(t *testing.T) {
	records, err := strconv.Atoi(cmp.Or(os.Getenv("RECORDS"), "2000"))
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, t.TempDir(), -1)
	js := connect(t, s.ClientURL())
	defer js.Conn().Close()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	const objects = 1000
	padding := strings.Repeat("x", 8000)
	for n := range records {
		name := fmt.Sprintf("web-%06d", n%objects)
		body := fmt.Sprintf(
			`{"specversion":"1.0","id":"pods/u/%d","source":"/kubernetes/c","type":"dev.kubecdc.object.updated","time":"2026-11-20T15:00:00Z","cluster":"c.d",`+
				`"apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":%q,"uid":"u","op":"u","data":{"op":"u","resourceVersion":"%d","before":{"x":0},"after":{"x":%q}}}`,
			n, name, n, padding)
		if _, err := js.PublishAsync("kubecdc.c.object.core.pods.shop."+name, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(2 * time.Minute):
		t.Fatal("the records are not stored")
	}
	tail := func(args ...string) (lines int, bytes int64, took time.Duration) {
		out := newTerminal()
		before, began := sent(t, s), time.Now()
		if code := run(t.Context(), append([]string{"tail", "--bus", s.ClientURL(), "--no-follow"}, args...), out,
			io.Discard); code != exitOK {
			t.Fatalf("tail %q: exit code %d", args, code)
		}
		return strings.Count(out.String(), "shop/web"), sent(t, s) - before, time.Since(began)
	}
	allLines, all, allTook := tail("pods")
	lines, some, took := tail("pods", "web-000001")
	t.Logf("of %d records: tail pods prints %d lines of %.1f MB in %s, tail pods web-000001 %d lines of %.3f MB in %s",
		records, allLines, float64(all)/1e6, allTook.Round(time.Millisecond), lines, float64(some)/1e6,
		took.Round(time.Millisecond))
	if want := records / objects; allLines != records || lines != want {
		t.Errorf("%d and %d lines, want %d and %d", allLines, lines, records, want)
	}
	// Two records more are read to see what subjects the stream has.
	if limit := int64(lines+2)*10_000 + 50_000; some > limit {
		t.Errorf("%d bytes were sent for %d lines, want %d at most", some, lines, limit)
	}
}

// sent is how many bytes the server has sent to its clients.
func sent(t *testing.T, s *server.Server) int64 {
	t.Helper()
	v, err := s.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return v.OutBytes
}
