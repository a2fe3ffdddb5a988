package nats_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// podEvent returns an event as the agent encodes it.
func podEvent(t *testing.T, name string, rv int, mode encode.Mode) *encode.Event {
	t.Helper()
	ref := object.NewRef(bustest.Pods, "shop", name, "uid-"+name)
	raw := fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":%q,"namespace":"shop","resourceVersion":"%d","uid":%q}}`,
		name, rv, ref.UID)
	d := &object.Delta{
		Op:              object.Created,
		Ref:             ref,
		After:           object.New(ref, uint64(rv), 0, nil, raw),
		ResourceVersion: uint64(rv),
		Observed:        time.Now().UnixNano(),
	}
	ev := new(encode.Event)
	if err := encode.New(encode.Options{Cluster: "prod-eu-1", ClusterUID: "11e0", Mode: mode}).
		Encode(ev, d); err != nil {
		t.Fatal(err)
	}
	return ev
}

// send sends a record as another client of the stream.
func send(t *testing.T, js jetstream.JetStream, subject, id string, body []byte) {
	t.Helper()
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{"Nats-Msg-Id": {id}, "content-type": {
		"application/cloudevents+json",
	}}}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// bodies returns the bodies of the records of a subject.
func bodies(t *testing.T, js jetstream.JetStream, subject string) (all []string) {
	t.Helper()
	for _, m := range bustest.Records(t, js, "KUBECDC") {
		if m.Subject == subject {
			all = append(all, string(m.Data))
		}
	}
	return all
}

const falseDuplicate = "false_duplicate"

// A client may send records to one subject of the stream. It sends one with the id of a change
// that is still to come.
func TestRecordWithTheIDOfTheNextChangeDoesNotReplaceIt(t *testing.T) {
	const subject = "kubecdc.prod-eu-1.object.core.pods.shop."
	for name, forge := range map[string]func(js jetstream.JetStream, ev *encode.Event){
		"on another subject": func(js jetstream.JetStream, ev *encode.Event) {
			send(t, js, subject+"mine", publishedID(ev), ev.Body)
		},
		"without an event": func(js jetstream.JetStream, ev *encode.Event) {
			send(t, js, subject+"web-1", publishedID(ev), []byte(`{}`))
		},
		"with another event": func(js jetstream.JetStream, ev *encode.Event) {
			send(t, js, subject+"web-1", publishedID(ev), podEvent(t, "web-1", 6, encode.Structured).Body)
		},
		"with an event of another": func(js jetstream.JetStream, ev *encode.Event) {
			send(t, js, subject+"web-1", publishedID(ev),
				[]byte(strings.Replace(string(ev.Body), "/kubernetes/prod-eu-1", "/kubernetes/prod-eu-2", 1)))
		},
		"with an event of another cluster of this name": func(js jetstream.JetStream, ev *encode.Event) {
			send(t, js, subject+"web-1", publishedID(ev),
				[]byte(strings.Replace(string(ev.Body), `"clusteruid":"11e0"`, `"clusteruid":"22f1"`, 1)))
		},
		"with another type": func(js jetstream.JetStream, ev *encode.Event) {
			send(t, js, subject+"web-1", publishedID(ev),
				[]byte(strings.Replace(string(ev.Body), ".created", ".read", 1)))
		},
	} {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(fmt.Sprint(name, " ", mode), func(t *testing.T) {
				s := bustest.StartAnyServer(t, t.TempDir(), -1)
				r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
				bustest.Wait(t, "the stream", func() bool { return r.Ready() == nil })
				js := bustest.Admin(t, s.ClientURL())
				ev := podEvent(t, "web-1", 7, mode)
				forge(js, podEvent(t, "web-1", 7, encode.Structured))
				if err := r.Publish(t.Context(), ev); err != nil {
					t.Fatal(err)
				}
				if got := bodies(t, js, subject+"web-1"); !slices.Contains(got, string(ev.Body)) {
					t.Errorf("the change is not in the stream: %q", got)
				}
				if got := r.Metric(t, "kubecdc_publish_retries_total", falseDuplicate); got != 1 {
					t.Errorf("%v false duplicates are counted, want 1", got)
				}
				if got := r.Metric(t, "kubecdc_publish_duplicates_total", ""); got != 0 {
					t.Errorf("%v duplicates are counted, want none", got)
				}
				if log := r.Log.String(); !strings.Contains(log,
					"duplicate of a record that is not there, or is another one") ||
					!strings.Contains(log, string(ev.ID)) {
					t.Errorf("the log does not say so:\n%s", log)
				}
			})
		}
	}
}

// A restarted agent sends an event again. Its time and its mode may differ.
func TestDuplicateAfterARestartIsOneRecord(t *testing.T) {
	for _, modes := range [][2]encode.Mode{{encode.Structured, encode.Structured}, {encode.Binary, encode.Binary}, {
		encode.Structured, encode.Binary,
	}} {
		s := bustest.StartAnyServer(t, t.TempDir(), -1)
		for i, mode := range modes {
			r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
			if err := r.Publish(t.Context(), podEvent(t, "web-1", 7, mode)); err != nil {
				t.Fatal(err)
			}
			if got := r.Metric(t, "kubecdc_publish_duplicates_total", ""); got != float64(i) {
				t.Errorf("%v: %v duplicates are counted, want %d", modes, got, i)
			}
			r.Stop()
		}
		if got := bustest.Records(t, bustest.Admin(t, s.ClientURL()), "KUBECDC"); len(got) != 1 {
			t.Errorf("%v: %d records, want 1", modes, len(got))
		}
	}
}

// An agent that was killed finds a version by comparison that it sent as another operation before.
func TestDuplicateOfAnotherOperationIsOneRecord(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	for _, op := range []string{"updated", "created", "entered"} {
		ev := podEvent(t, "web-1", 7, encode.Structured)
		ev.Type = []byte("dev.kubecdc.object." + op)
		ev.Body = []byte(strings.Replace(string(ev.Body), "object.created", "object."+op, 1))
		if err := r.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Metric(t, "kubecdc_publish_duplicates_total", ""); got != 2 {
		t.Errorf("%v duplicates are counted, want 2", got)
	}
}

// A server that has lost a record, or whose stream was purged, says "duplicate" all the same.
func TestDuplicateOfARecordThatIsGoneIsSentAgain(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	js := bustest.Admin(t, s.ClientURL())
	ev := podEvent(t, "web-1", 7, encode.Structured)
	for i := range 3 { // the third finds the message id of the second taken, too
		if err := r.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		if got := len(bustest.Records(t, js, "KUBECDC")); got != 1 {
			t.Fatalf("%d records after publishing %d times, want 1", got, i+1)
		}
		stream, err := js.Stream(t.Context(), "KUBECDC")
		if err == nil {
			err = stream.Purge(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Metric(t, "kubecdc_publish_retries_total", falseDuplicate); got != 3 {
		t.Errorf("%v false duplicates are counted, want 3", got)
	}
}

// The message id that replaces a taken one is kept for retries, and another process has another.
func TestMessageIDThatReplacesATakenOne(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	first := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	bustest.Wait(t, "the stream", func() bool { return first.Ready() == nil })
	js := bustest.Admin(t, s.ClientURL())
	ev := podEvent(t, "web-1", 7, encode.Structured)
	send(t, js, "kubecdc.prod-eu-1.object.core.pods.shop.mine", publishedID(ev), nil)
	second := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	for _, r := range []*bustest.NATS{first, first, second} {
		if err := r.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, m := range bustest.Records(t, js, "KUBECDC") {
		ids = append(ids, m.Header.Get("Nats-Msg-Id"))
	}
	if len(ids) != 3 || ids[0] != publishedID(ev) || ids[1] == ids[0] || ids[2] == ids[1] ||
		len(ids[1]) != len(ids[0]) {
		t.Errorf("ids of the forged record and of two copies: %q", ids)
	}
}

// An isolated event is checked like the others.
func TestIsolatedEventIsChecked(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	p.Poison("hemlock")
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	bustest.Wait(t, "the stream", func() bool { return r.Ready() == nil })
	js := bustest.Admin(t, s.ClientURL())
	ev := bustest.Event("web-1", 1, `{"drink":"hemlock"}`)
	send(t, js, "kubecdc.prod-eu-1.object.core.pods.shop.mine", publishedID(ev), nil)
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), ev) }()
	bustest.Wait(t, "it is sent alone", func() bool { return p.Poisonings() >= 3 })
	p.Poison("")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{string(ev.Body)},
		bodies(t, js, "kubecdc.prod-eu-1.object.core.pods.shop.web-1")); diff != "" {
		t.Error(diff)
	}
}

// A stream that stores records under other subjects has this event, although under another one.
func TestDuplicateInAStreamWithASubjectTransform(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	js := bustest.Admin(t, s.ClientURL())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, Discard: jetstream.DiscardNew,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "kubecdc.>", Destination: "other.>"},
	}); err != nil {
		t.Fatal(err)
	}
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	for range 2 {
		if err := r.Publish(t.Context(), podEvent(t, "web-1", 7, encode.Structured)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Metric(t, "kubecdc_publish_duplicates_total", ""); got != 1 {
		t.Errorf("%v duplicates are counted, want 1", got)
	}
}

// A user that may not read by sequence cannot check, so its events wait. The log names the right.
func TestDuplicateThatCannotBeCheckedWaits(t *testing.T) {
	const missing = "$JS.API.STREAM.MSG.GET.KUBECDC"
	permissions := leastPermissions(t)
	permissions.Publish.Allow = slices.DeleteFunc(permissions.Publish.Allow, func(p string) bool {
		return p == missing
	})
	s := bustest.StartServer(t, t.TempDir(), -1, restricted(permissions))
	cfg := bustest.NATSConfig("nats://agent:secret@" + s.Addr().String())
	cfg.AckTimeout = 50 * time.Millisecond
	r := bustest.RunNATS(t, cfg)
	ev := podEvent(t, "web-1", 7, encode.Structured)
	if err := r.Publish(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Publish(ctx, ev) }()
	bustest.Wait(t, "a line that names the permission, and a retry", func() bool {
		return strings.Contains(r.Log.String(), missing) && r.Metric(t, "kubecdc_publish_retries_total", "timeout") > 0
	})
	select {
	case err := <-done:
		t.Errorf("ended without a check: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// A restarted agent sends thousands of events that the stream has. Up to 32 are read back at a
// time, of large ones fewer, and none ends before its record was read.
func TestDuplicatesAreCheckedInAPipeline(t *testing.T) {
	t.Run("small", func(t *testing.T) { checkPipeline(t, 200, 2, 32) })
	t.Run("large", func(t *testing.T) { checkPipeline(t, 10, 900<<10, 4) })
}

func checkPipeline(t *testing.T, events, size, limit int) {
	t.Helper()
	s := startFakeServer(t, 1)
	s.behave()
	first := bustest.RunNATS(t, bustest.NATSConfig("nats://"+s.l.Addr().String()))
	body := strings.Repeat(" ", size-2) + "{}"
	publish := func(r *bustest.NATS) *sync.WaitGroup {
		var wg sync.WaitGroup
		for k := range events {
			wg.Go(func() {
				if err := r.Publish(t.Context(), bustest.Event(fmt.Sprint("web-", k), 1, body)); err != nil {
					t.Error(err)
				}
			})
		}
		return &wg
	}
	publish(first).Wait()

	var held []func() // with the server's mutex held
	reads, most := 0, 0
	s.mu.Lock()
	s.onRead = func(answer func()) {
		held = append(held, answer)
		most = max(most, len(held))
	}
	s.mu.Unlock()
	second := bustest.RunNATS(t, bustest.NATSConfig("nats://"+s.l.Addr().String()))
	wg := publish(second)
	release := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, answer := range held {
			answer()
		}
		reads += len(held)
		held = nil
	}
	for reads < events {
		bustest.Wait(t, "all checks that may be under way", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(held) >= min(limit, events-reads)
		})
		if got := second.Metric(t, "kubecdc_publish_duplicates_total", ""); got > float64(reads) {
			t.Fatalf("%v duplicates have ended after %d records were read", got, reads)
		}
		release()
	}
	wg.Wait()
	if most != limit {
		t.Errorf("%d records were read at a time, want %d", most, limit)
	}
	if got := second.Metric(t, "kubecdc_publish_duplicates_total", ""); got != float64(events) {
		t.Errorf("%v duplicates are counted, want %d", got, events)
	}
}

// The server says "duplicate", and has nothing or something else: nats-server 2.11.8 does that.
func TestServerThatHasLostItsRecords(t *testing.T) {
	const events = 100
	s := startFakeServer(t, 1)
	s.behave()
	s.mu.Lock()
	for k := range events {
		id := publishedID(bustest.Event(fmt.Sprint("web-", k), 1, ""))
		if k%2 == 0 {
			s.records = append(s.records, nil)
		} else {
			s.records = append(s.records, &fakeRecord{
				"kubecdc.prod-eu-1.object.core.pods.shop.other", "NATS/1.0\r\n\r\n", "{}",
			})
		}
		s.stored[id] = uint64(len(s.records))
	}
	s.mu.Unlock()
	r := bustest.RunNATS(t, bustest.NATSConfig("nats://"+s.l.Addr().String()))
	var wg sync.WaitGroup
	for k := range events {
		wg.Go(func() {
			if err := r.Publish(t.Context(), bustest.Event(fmt.Sprint("web-", k), 1, `{}`)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range events {
		if got := len(s.log[fmt.Sprint("kubecdc.prod-eu-1.object.core.pods.shop.web-", k)]); got != 1 {
			t.Errorf("object %d has %d records, want 1", k, got)
		}
	}
	if got := r.Metric(t, "kubecdc_publish_retries_total", falseDuplicate); got != events {
		t.Errorf("%v false duplicates are counted, want %d", got, events)
	}
}
