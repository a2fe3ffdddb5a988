package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/relay"
)

func TestCursorGoesOnWhereItEnded(t *testing.T) {
	b, to := newBus(t), newTarget()
	b.send(event("shop", "a", 1))
	first := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	to.wait(t, 1)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	b.send(event("shop", "a", 2))
	var log logBuffer
	sub := b.subscriptionOf(&driver.Relaying{Name: "r", Start: driver.Beginning, Log: log.logger()})
	second := start(t, relay.Options{Name: "r", Subscription: sub, Target: to})
	to.wait(t, 2)
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if log.String() != "" {
		t.Errorf("a start after an end in order has nothing to say, got:\n%s", &log)
	}
	if diff := cmp.Diff([]string{"configmaps/uid-shop-a/1", "configmaps/uid-shop-a/2"}, to.ids()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	at, err := b.subscription("r", driver.Live).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at[0].At != 2 || at[0].Behind != 0 || at[0].Holder == "" {
		t.Errorf("status: %+v", at)
	}
}

// A crash between the delivery and the saving of the cursor.
func TestCrashBeforeTheCursorIsSavedLosesNothing(t *testing.T) {
	b, to := newBus(t), newTarget()
	for v := range 100 {
		b.send(event("shop", fmt.Sprintf("web-%d", v%7), v+1))
	}
	unsaving := unsaved{b.subscription("r", driver.Beginning)}
	crashed := start(t, relay.Options{Name: "r", Subscription: unsaving, Target: to})
	to.wait(t, 60)
	if err := crashed.stop(); err != nil {
		t.Fatal(err)
	}
	delivered := len(to.ids())
	again := newTarget()
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: again})
	again.wait(t, 100)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	again.checkOrder(t)
	ids := again.ids()
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 100 {
		t.Errorf("delivered after the crash: %d different events (and %d before it), want 100", n, delivered)
	}
}

func TestLiveStartIsKeptThoughNothingWasDelivered(t *testing.T) {
	b, to := newBus(t), newTarget()
	b.send(event("shop", "old", 1))
	first := relay.New(relay.Options{Name: "r", Subscription: b.subscription("r", driver.Live), Target: to},
		slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- first.Run(ctx) }()
	waitFor(t, func() bool { return first.Ready() == nil })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.send(event("shop", "new", 2)) // while it is away
	second := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Live), Target: to})
	to.wait(t, 1)
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"configmaps/uid-shop-new/2"}, to.ids()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

func TestLiveStartBeforeTheStreamIsMadeLeavesNothingOut(t *testing.T) {
	b, to := newBus(t), newTarget()
	if err := b.js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	var log logBuffer
	sub := b.subscriptionOf(&driver.Relaying{Name: "r", Start: driver.Live, Log: log.logger()})
	r := startLogging(t, relay.Options{Name: "r", Subscription: sub, Target: to}, log.logger())
	waitFor(t, func() bool { return strings.Contains(log.String(), "does not exist yet") })
	b.create()
	b.send(event("shop", "a", 1), event("shop", "b", 2)) // before the relay looks again
	to.wait(t, 2)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

func TestStreamMadeAnewIsReadFromItsBeginning(t *testing.T) {
	b, to := newBus(t), newTarget()
	b.send(event("shop", "a", 1), event("shop", "a", 2), event("shop", "a", 3))
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	to.wait(t, 3)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	b.create()
	b.send(event("shop", "b", 11), event("shop", "b", 12), event("shop", "b", 13), event("shop", "b", 14))
	var log logBuffer
	again := newTarget()
	sub := b.subscriptionOf(&driver.Relaying{Name: "r", Log: log.logger()})
	r = startLogging(t, relay.Options{Name: "r", Subscription: sub, Target: again}, log.logger())
	again.wait(t, 4)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Count(log.String(), "log was recreated or restored") != 1 {
		t.Errorf("log:\n%s", &log)
	}
	at, err := b.subscription("r", driver.Live).Status(t.Context())
	if err != nil || at[0].At != 4 || at[0].Problem != "" {
		t.Errorf("cursor: %+v, %v", at, err)
	}
}

func TestRecordsThatAreGoneAreSaid(t *testing.T) {
	b, to := newBus(t), newTarget()
	b.send(event("shop", "a", 1))
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	to.wait(t, 1)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b.send(event("shop", "a", 2), event("shop", "a", 3), event("shop", "a", 4))
	s, err := b.js.Stream(t.Context(), "KUBECDC")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(4)); err != nil {
		t.Fatal(err)
	}
	var log logBuffer
	sub := b.subscription("r", driver.Beginning)
	r = startLogging(t, relay.Options{Name: "r", Subscription: sub, Target: to}, log.logger())
	to.wait(t, 2)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "from=2 to=3") {
		t.Errorf("log does not say what is missing:\n%s", &log)
	}
}

// The cursor moves with what the server leaves out: a restart does not take it for records that are
// gone, nor for some that are left to do.
func TestCursorPassesWhatTheServerLeavesOut(t *testing.T) {
	t.Parallel()
	const shop, other = "kubecdc.prod.object.core.configmaps.shop.a", "kubecdc.prod.object.core.configmaps.other.b"
	b, to := newBus(t), newTarget()
	var log logBuffer
	registry := prometheus.NewRegistry()
	metrics := relay.NewMetrics(registry)
	run := func() *running {
		s := b.subscriptionOf(&driver.Relaying{
			Name:    "r",
			Start:   driver.Beginning,
			Objects: inNamespace("shop"),
			Log:     log.logger(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		r := &running{cancel, make(chan error, 1)}
		go func() {
			r.done <- relay.New(relay.Options{Name: "r", Subscription: s, Target: to}, log.logger(), metrics).Run(ctx)
		}()
		return r
	}
	b.sendTo(shop, event("shop", "a", 1))
	r := run()
	to.wait(t, 1)
	for rv := range 20 {
		b.sendTo(other, event("other", "b", rv+1))
	}
	tick, deadline := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for passed := false; !passed; {
		at, err := b.subscription("r", driver.Live).Status(t.Context())
		passed = err == nil && at[0].At == 21 && at[0].Behind == 0
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("cursor: %+v, %v", at, err)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	s, err := b.js.Stream(t.Context(), "KUBECDC")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(22)); err != nil {
		t.Fatal(err)
	}
	b.sendTo(shop, event("shop", "a", 2))
	r = run()
	to.wait(t, 2)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got := to.ids(); len(got) != 2 {
		t.Errorf("delivered %v, want both of the namespace", got)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	passed := 0.0
	for _, f := range families {
		if f.GetName() == "kubecdc_relay_passed_over_total" {
			passed += f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if passed != 20 {
		t.Errorf("%v records are counted as passed over, want those of the other namespace", passed)
	}
	if strings.Contains(log.String(), "records were removed") || strings.Contains(log.String(), "cannot filter") {
		t.Errorf("log:\n%s", &log)
	}
}

func TestCursorInAnotherStreamIsAnError(t *testing.T) {
	b, to := newBus(t), newTarget()
	b.send(event("shop", "a", 1))
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	to.wait(t, 1)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{
		"other.>",
	}}); err != nil {
		t.Fatal(err)
	}
	sub := b.subscriptionOf(&driver.Relaying{Name: "r", Log: slog.New(slog.DiscardHandler)}, func(c *natsbus.Config) {
		c.Stream.Name = "OTHER"
	})
	err := start(t, relay.Options{Name: "r", Subscription: sub, Target: to}).wait(t)
	if err == nil || !strings.Contains(err.Error(), "belongs to stream KUBECDC") {
		t.Errorf("error: %v", err)
	}
}
