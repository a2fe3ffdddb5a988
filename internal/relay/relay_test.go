package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// A relay writes lines in order, and no stream events to Slack.
var _, _ relay.Limited = (*stdout.Bus)(nil), (*relay.Slack)(nil)

func TestOrderPerObjectSurvivesATargetThatFails(t *testing.T) {
	b, to := newBus(t), newTarget()
	to.before = func(ctx context.Context, _ *driver.Record) error {
		for rand.IntN(3) == 0 { // a failed attempt
			runtime.Gosched()
		}
		return ctx.Err()
	}
	const objects, versions = 20, 50
	for v := range versions {
		for o := range objects {
			b.send(event("shop", fmt.Sprintf("web-%d", o), v+1))
		}
	}
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	to.wait(t, objects*versions)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	to.checkOrder(t)
	if n := len(to.ids()); n != objects*versions {
		t.Errorf("delivered: %d, want %d", n, objects*versions)
	}
}

func TestSlowTargetHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	slow := newTarget()
	quick := newTarget()
	release := make(chan struct{})
	slow.before = func(ctx context.Context, _ *driver.Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	rs := start(t, relay.Options{Name: "slow", Subscription: b.subscription("slow", driver.Beginning), Target: slow})
	rq := start(t, relay.Options{Name: "quick", Subscription: b.subscription("quick", driver.Beginning), Target: quick})
	const n = 5000
	for v := range n { // the bus accepts more than the slow relay can deliver
		b.send(event("shop", fmt.Sprintf("web-%d", v%100), v+1))
	}
	quick.wait(t, n)
	if got := len(slow.ids()); got != 0 {
		t.Errorf("slow target has %d", got)
	}
	close(release)
	slow.wait(t, n)
	slow.checkOrder(t)
	for _, r := range []*running{rs, rq} {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestMatchDecidesWhatIsRelayed(t *testing.T) {
	b, to := newBus(t), newTarget()
	b.send(event("shop", "a", 1), event("kitchen", "a", 2), "no JSON", `{"specversion":"1.0"}`,
		strings.Replace(event("shop", "dead", 3), `"cluster"`, `"deadletterreason":"too large","cluster"`, 1),
		event("shop", "b", 4))
	var log logBuffer
	r := startLogging(t, relay.Options{
		Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to,
		Match: func(e *consume.Event) bool { return e.Namespace == "shop" },
	}, log.logger())
	to.wait(t, 2)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	ids := to.ids()
	slices.Sort(ids)
	if diff := cmp.Diff([]string{"configmaps/uid-shop-a/1", "configmaps/uid-shop-b/4"}, ids); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	if !strings.Contains(log.String(), "stream KUBECDC, record 3") {
		t.Errorf("log does not say which record cannot be read:\n%s", &log)
	}
	at, err := b.subscription("r", driver.Live).Status(t.Context())
	if err != nil || at[0].At != 6 {
		t.Errorf("cursor is not behind what was filtered: %+v, %v", at, err)
	}
}

func TestRefusedRecordStopsOrIsSkipped(t *testing.T) {
	b := newBus(t)
	b.send(event("shop", "a", 1), event("shop", "poisoned", 2), event("shop", "c", 3))
	refuse := func(_ context.Context, r *driver.Record) error {
		if r.Event.Name == "poisoned" {
			return fmt.Errorf("%w: it is poisoned", publish.ErrRefused)
		}
		return nil
	}
	for _, refused := range []relay.Refused{relay.Stop, relay.Skip} {
		t.Run(string(refused), func(t *testing.T) {
			to := newTarget()
			to.before = refuse
			var log logBuffer
			name := string(refused)
			sub := b.subscription(name, driver.Beginning)
			o := relay.Options{Name: name, Subscription: sub, Target: to, Refused: refused}
			r := startLogging(t, o, log.logger())
			if refused == relay.Stop {
				err := r.wait(t)
				if !errors.Is(err, publish.ErrRefused) ||
					!strings.Contains(err.Error(), "relay stop: stream KUBECDC, record 2") {
					t.Errorf("error: %v", err)
				}
				at, err := b.subscription(name, driver.Live).Status(t.Context())
				if err != nil || at[0].At > 1 { // 0 if the first record was still in flight
					t.Errorf("cursor: %+v, %v, want it before the record that was refused", at, err)
				}
				return
			}
			to.wait(t, 2)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), "skipped") || !strings.Contains(log.String(), "record 2") {
				t.Errorf("log:\n%s", &log)
			}
		})
	}
}

func TestSecondRelayOfANameTakesOver(t *testing.T) {
	t.Parallel()
	b, to := newBus(t), newTarget()
	b.send(event("shop", "a", 1))
	first := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	to.wait(t, 1)
	to2 := newTarget()
	second := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to2})
	waitFor(t, func() bool { // only a record makes the first look at once
		b.send(event("shop", "b", 2))
		return len(to2.ids()) > 0
	})
	err := first.wait(t)
	if !errors.Is(err, subscription.ErrElsewhere) || !strings.Contains(err.Error(), "taken over on") {
		t.Errorf("error of the first: %v", err)
	}
	if err := second.stop(); err != nil {
		t.Errorf("error of the second: %v", err)
	}
}

func TestStreamEventsKeepTheirPlace(t *testing.T) {
	b, to := newBus(t), newTarget()
	to.before = func(context.Context, *driver.Record) error {
		for range rand.IntN(50) {
			runtime.Gosched()
		}
		return nil
	}
	b.send(streamEvent("snapshot.started", 1))
	for o := range 200 {
		b.send(eventOf("read", "shop", fmt.Sprintf("web-%d", o), o+1))
	}
	b.send(streamEvent("snapshot.completed", 1))
	for o := range 200 {
		b.send(event("shop", fmt.Sprintf("web-%d", o), o+300))
	}
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	to.wait(t, 402)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	ids := to.ids()
	if ids[0] != "configmaps/snapshot.started/1" || ids[201] != "configmaps/snapshot.completed/1" {
		t.Errorf("started is number %d, completed %d", slices.Index(ids, "configmaps/snapshot.started/1"),
			slices.Index(ids, "configmaps/snapshot.completed/1"))
	}
}

// A Kafka topic has a copy of each stream event in each partition.
func TestCompletedWaitsForTheLastPartition(t *testing.T) {
	to := newTarget()
	m := &memory{records: []*driver.Record{
		copyOf(t, 0, 2, 0, progressEvent(5)), // its copy in partition 1 came before the start
		copyOf(t, 0, 2, 1, streamEvent("snapshot.started", 10)),
		copyOf(t, 1, 2, 0, streamEvent("snapshot.started", 10)),
		copyOf(t, 0, 2, 2, streamEvent("snapshot.completed", 11)),
		copyOf(t, 0, 2, 3, progressEvent(12)),
		copyOf(t, 0, 2, 4, progressEvent(13)),
		copyOf(t, 1, 2, 1, eventOf("read", "shop", "a", 9)),
		copyOf(t, 1, 2, 2, streamEvent("snapshot.completed", 11)),
		copyOf(t, 1, 2, 3, progressEvent(12)),
		copyOf(t, 1, 2, 4, progressEvent(13)),
	}}
	r := start(t, relay.Options{Name: "r", Subscription: m, Target: to})
	to.wait(t, 6)
	m.wait(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"configmaps/snapshot.started/10", "configmaps/snapshot.started/10", "configmaps/uid-shop-a/9",
		"configmaps/snapshot.completed/11", "progress/w/0-1/12", "progress/w/0-1/13",
	}
	if diff := cmp.Diff(want, to.ids()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	if got := m.saved[consume.Log{Name: "t", Partition: 0}]; got != 4 {
		t.Errorf("mark of partition 0: %d, want 4: what was never completed holds it", got)
	}
}

// If namespaces have topics of their own, progress is forwarded once all topics have it. One that
// only some topics have does not hold the cursor.
func TestProgressOfSomeTopicsHoldsNothing(t *testing.T) {
	in := func(topic string, r *driver.Record) *driver.Record {
		r.Name, r.Sparse = topic, r.Event.Progress != nil
		return r
	}
	to := newTarget()
	m := &memory{records: []*driver.Record{
		in("a", copyOf(t, 0, 2, 0, progressEvent(5))),
		in("b", copyOf(t, 0, 2, 0, progressEvent(5))),
		in("a", copyOf(t, 0, 2, 1, progressEvent(6))),
		in("a", copyOf(t, 0, 2, 2, progressEvent(7))),
		in("b", copyOf(t, 0, 2, 1, eventOf("read", "shop", "b", 8))),
		in("a", copyOf(t, 0, 2, 3, progressEvent(9))),
		in("b", copyOf(t, 0, 2, 2, progressEvent(9))),
		in("a", copyOf(t, 0, 2, 4, progressEvent(10))),
	}}
	r := start(t, relay.Options{Name: "r", Subscription: m, Target: to})
	to.wait(t, 3)
	m.wait(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{"progress/w/0-1/5", "configmaps/uid-shop-b/8", "progress/w/0-1/9"}
	if diff := cmp.Diff(want, to.ids()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	if got := m.saved[consume.Log{Name: "a"}]; got != 4 {
		t.Errorf("mark of topic a: %d, want 4", got)
	}
}

// A topic that is created later begins with copies of what the others had before. The relay has
// forwarded these long ago, and the cursor does not wait for copies in the other topics.
func TestOpeningsHoldNothing(t *testing.T) {
	in := func(topic string, isOpening bool, r *driver.Record) *driver.Record {
		r.Name, r.Sparse = topic, isOpening
		return r
	}
	to := newTarget()
	m := &memory{records: []*driver.Record{
		in("a", false, copyOf(t, 0, 1, 0, streamEvent("snapshot.completed", 11))),
		in("b", true, copyOf(t, 0, 2, 0, streamEvent("snapshot.completed", 11))),
		in("b", false, copyOf(t, 0, 2, 1, eventOf("read", "shop", "b", 12))),
	}}
	r := start(t, relay.Options{Name: "r", Subscription: m, Target: to})
	to.wait(t, 2)
	m.wait(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{"configmaps/snapshot.completed/11", "configmaps/uid-shop-b/12"}
	if diff := cmp.Diff(want, to.ids()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	if got := m.saved[consume.Log{Name: "b"}]; got != 1 {
		t.Errorf("mark of topic b: %d, want 1", got)
	}
}

func TestCompletedWaitsForAllTopicsOfItsResource(t *testing.T) {
	in := func(topic string, r *driver.Record) *driver.Record {
		r.Name = topic
		return r
	}
	to := newTarget()
	m := &memory{records: []*driver.Record{
		in("a", copyOf(t, 0, 4, 0, streamEvent("snapshot.completed", 11))),
		in("a", copyOf(t, 1, 4, 0, streamEvent("snapshot.completed", 11))),
		in("b", copyOf(t, 0, 4, 0, eventOf("read", "shop", "b", 9))),
		in("b", copyOf(t, 0, 4, 1, streamEvent("snapshot.completed", 11))),
		in("b", copyOf(t, 1, 4, 0, eventOf("read", "shop", "c", 10))),
		in("b", copyOf(t, 1, 4, 1, streamEvent("snapshot.completed", 11))),
	}}
	r := start(t, relay.Options{Name: "r", Subscription: m, Target: to})
	to.wait(t, 3)
	m.wait(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got := to.ids(); len(got) != 3 || got[2] != "configmaps/snapshot.completed/11" {
		t.Errorf("delivered %v, want two objects and then completed, once", got)
	}
	for place, want := range map[consume.Log]uint64{{Name: "a"}: 0, {Name: "a", Partition: 1}: 0, {Name: "b"}: 1, {
		Name:      "b",
		Partition: 1,
	}: 1} {
		if got, ok := m.saved[place]; !ok || got != want {
			t.Errorf("mark of %s/%d: %d, %t, want %d", place.Name, place.Partition, got, ok, want)
		}
	}
}

func TestBinaryRecordIsWrittenAsAStructuredLine(t *testing.T) {
	const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" // readers attach spans to it
	b := newBus(t)
	e, err := consume.Parse([]byte(event("shop", "a", 7)))
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg("kubecdc.test")
	m.Header["content-type"] = []string{"application/json"}
	for name, value := range map[string]string{
		"specversion":     "1.0",
		"id":              e.ID,
		"source":          e.Source,
		"type":            string(e.Type),
		"cluster":         e.Cluster,
		"apiversion":      e.APIVersion,
		"kind":            e.Kind,
		"resource":        e.Resource,
		"namespace":       e.Namespace,
		"name":            e.Name,
		"uid":             e.UID,
		"op":              "u",
		"resourceversion": "7",
		"traceparent":     traceParent,
		"epoch":           "3",
	} {
		m.Header["ce-"+name] = []string{value}
	}
	m.Data = []byte(`{"op":"u","resourceVersion":"7","before":{"a":1},"after":{"a":2}}`)
	if _, err := b.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	pr, pw := io.Pipe()
	defer pr.Close()
	sub := b.subscription("r", driver.Beginning)
	r := start(t, relay.Options{Name: "r", Subscription: sub, Target: stdout.New(pw, nil)})
	got, err := fromfile.NewLines("", pr, consume.Query{}).Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got.ID != e.ID || !bytes.Equal(got.Data.After, []byte(`{"a":2}`)) || got.TraceParent != traceParent ||
		got.Epoch != "3" {
		t.Errorf("line: %+v", got)
	}
}

func TestRelayToAnotherJetStream(t *testing.T) {
	b, other := newBus(t), newBus(t)
	if err := other.js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	raw := []string{
		streamEvent("snapshot.started", 1), event("shop", "a", 1), event("shop", "a", 2),
		streamEvent("snapshot.completed", 1),
	}
	b.send(raw...)
	to, err := natsbus.New(natsbus.Config{URL: other.url, Env: driver.Env{Cluster: "prod"}, Stream: natsconfig.Stream{
		Create: true,
	}}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to})
	waitFor(t, func() bool {
		s, err := other.js.Stream(t.Context(), "KUBECDC")
		return err == nil && s.CachedInfo().State.Msgs == uint64(len(raw))
	})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	s, err := other.js.Stream(t.Context(), "KUBECDC")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"kubecdc.prod.stream.core.configmaps", "kubecdc.prod.object.core.configmaps.shop.a",
		"kubecdc.prod.object.core.configmaps.shop.a",
		"kubecdc.prod.stream.core.configmaps",
	} {
		m, err := s.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != want || string(m.Data) != raw[i] {
			t.Errorf("record %d: subject %s, want %s; body is what was read: %t", i+1, m.Subject, want,
				string(m.Data) == raw[i])
		}
	}
}

func TestTargetThatFailsForGoodEndsTheRelayWithItsError(t *testing.T) {
	b, other := newBus(t), newBus(t)
	if _, err := other.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "QUEUE", Subjects: []string{
		"q.>",
	}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	b.send(event("shop", "a", 1))
	to, err := natsbus.New(natsbus.Config{URL: other.url, Env: driver.Env{
		Cluster: "prod",
	}, Subject: "q.{namespace}", Stream: natsconfig.Stream{Name: "QUEUE"}}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = start(t, relay.Options{Name: "r", Subscription: b.subscription("r", driver.Beginning), Target: to}).wait(t)
	if !errors.Is(err, publish.ErrStream) {
		t.Errorf("error: %v", err)
	}
}

func waitFor(tb testing.TB, done func() bool) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatal("waited for too long")
		}
	}
}

// For a target that takes records and never acknowledges, the bytes in flight are bounded, whatever
// part of the events is large.
func TestBytesInFlightAreBounded(t *testing.T) {
	const records, bound, large = 60, 16 << 20, 1 << 20
	for _, part := range []string{"before", "after", "patch"} {
		synctest.Test(t, func(t *testing.T) {
			m := new(memory)
			for i := range records {
				raw := event("shop", fmt.Sprint("web-", i), 1)
				value := `"` + strings.Repeat("x", large) + `"`
				if part == "patch" {
					raw = strings.Replace(raw, `"before":`, `"patch":[`+value+`],"before":`, 1)
				} else {
					raw = strings.Replace(raw, `"`+part+`":{`, `"`+part+`":{"large":`+value+`,`, 1)
				}
				m.records = append(m.records, copyOf(t, 0, 1, uint64(i+1), raw))
			}
			to := new(holder)
			r := start(t, relay.Options{Name: "r", Subscription: m, Target: to})
			synctest.Wait()
			to.mu.Lock()
			n := len(to.events)
			to.mu.Unlock()
			if n < 4 || n*large > bound {
				t.Errorf("%s: %d records of %d bytes are in flight, want at most %d bytes", part, n, large, bound)
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// holder is a target that acknowledges nothing until it ends.
type holder struct {
	mu     sync.Mutex
	events []*publish.Event
}

func (h *holder) Publish(e *publish.Event) {
	h.mu.Lock()
	h.events = append(h.events, e)
	h.mu.Unlock()
}

func (h *holder) Run(ctx context.Context) error {
	<-ctx.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		e.Done(publish.ErrClosed)
	}
	return nil
}

func (*holder) Ready() error { return nil }
