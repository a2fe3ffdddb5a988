package publish_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestRecord(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	role := &object.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Name: "clusterroles", Kind: "ClusterRole"}
	long := strings.Repeat("system:aggregate/ü.", 200)
	structured := event("web-1", 7, `{"specversion":"1.0"}`)
	binary := &encode.Event{
		Delta:       &object.Delta{Ref: object.NewRef(role, "", long, "")},
		ID:          []byte("clusterroles.rbac.authorization.k8s.io/u/9"),
		Source:      []byte("/kubernetes/prod-eu-1"),
		ContentType: "application/json",
		Attributes: []encode.Attribute{
			{Name: "specversion", Value: []byte("1.0")},
			{Name: "name", Value: []byte(`Euro € 😀 "100%"`)},
			{Name: "datacontenttype", Value: []byte("application/json")},
		},
		Body: []byte(`{"op":"u"}`),
	}
	gap := &encode.Event{
		Delta:       &object.Delta{Stream: &object.StreamEvent{Kind: object.Gap, Resource: role}},
		ID:          []byte("scope/gap/1-2"),
		Source:      []byte("/kubernetes/prod-eu-1"),
		ContentType: "application/cloudevents+json",
		Body:        []byte(`{}`),
	}
	for _, ev := range []*encode.Event{structured, binary, gap} {
		if err := r.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}

	msgID := func(ev *encode.Event) string {
		sum := sha256.Sum256([]byte(string(ev.Source) + "\n" + string(ev.ID)))
		return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
	}
	type record struct {
		Subject string
		Header  nats.Header
		Body    string
	}
	escaped := strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(long, "/", "%2F"), "ü", "%C3%BC"), ".", "%2E")
	want := []record{{
		Subject: "kubecdc.prod-eu-1.object.core.pods.shop.web-1",
		Header: nats.Header{
			"Nats-Msg-Id":  {msgID(structured)},
			"content-type": {"application/cloudevents+json"},
		},
		Body: string(structured.Body),
	}, {
		Subject: "kubecdc.prod-eu-1.object.rbac_authorization_k8s_io.clusterroles._." +
			escaped[:128] + fmt.Sprintf("~%x", sha256.Sum256([]byte(long))),
		Header: nats.Header{
			"Nats-Msg-Id":        {msgID(binary)},
			"content-type":       {"application/json"},
			"ce-specversion":     {"1.0"},
			"ce-name":            {"Euro%20%E2%82%AC%20%F0%9F%98%80%20%22100%25%22"},
			"ce-datacontenttype": {"application/json"},
		},
		Body: string(binary.Body),
	}, {
		Subject: "kubecdc.prod-eu-1.stream.rbac_authorization_k8s_io.clusterroles",
		Header:  nats.Header{"Nats-Msg-Id": {msgID(gap)}, "content-type": {"application/cloudevents+json"}},
		Body:    string(gap.Body),
	}}
	var got []record
	for _, m := range records(t, admin(t, s.ClientURL()), "KUBECDC") {
		got = append(got, record{m.Subject, m.Header, string(m.Data)})
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSecondCopyIsADuplicate(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	for range 2 {
		if err := r.Publish(t.Context(), event("web-1", 7, `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(records(t, admin(t, s.ClientURL()), "KUBECDC")); got != 1 {
		t.Errorf("got %d records, want 1", got)
	}
	if got := r.metric(t, "kubecdc_publish_duplicates_total", ""); got != 1 {
		t.Errorf("got %v duplicates counted, want 1", got)
	}
}

// All that can go wrong with a connection or a server does, while keys publish one version after the other. Each version
// must be there once, and each key's in order.
func TestOrderPerKeySurvivesFaults(t *testing.T) {
	const keys, versions = 24, 400
	dir := t.TempDir()
	s := startServer(t, dir, -1)
	port := portOf(s)
	p := startProxy(t, fmt.Sprintf("127.0.0.1:%d", port))
	cfg := testConfig(p.URL())
	cfg.AckTimeout = 300 * time.Millisecond
	r := run(t, cfg)

	var published atomic.Int64
	reach := func(n int64) {
		wait(t, fmt.Sprintf("%d events published", n), func() bool { return published.Load() >= n })
	}
	retried := func(reason string) func() bool {
		before := r.metric(t, "kubecdc_publish_retries_total", reason)
		return func() bool { return r.metric(t, "kubecdc_publish_retries_total", reason) > before }
	}
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			for v := range versions {
				if err := r.Publish(t.Context(), event(fmt.Sprintf("web-%d", k), v+1, strings.Repeat("x", 500))); err != nil {
					t.Errorf("key %d version %d: %v", k, v+1, err)
					return
				}
				published.Add(1)
			}
		})
	}
	const step = keys * versions / 8
	// cut waits for the next connection: a fault in the midst of its handshake would be another test.
	cut := func(faults ...direction) {
		t.Helper()
		connects := func() int { return lines(r.log.String(), "connected to bus") }
		before := connects()
		p.Cut()
		for _, d := range faults {
			p.Hold(d, false)
		}
		wait(t, "a new connection", func() bool { return connects() > before })
	}
	reach(1 * step)
	cut()
	reach(2 * step) // acknowledgements come late: the same is published again, the late ones count or are ignored
	again := retried("timeout")
	p.Hold(toClient, true)
	wait(t, "a retry after a timeout", again)
	p.Hold(toClient, false)
	reach(3 * step) // acknowledgements are swallowed: the server has the events, we do not know
	again = retried("timeout")
	p.Hold(toClient, true)
	wait(t, "a retry after a timeout", again)
	cut(toClient)
	reach(4 * step) // the messages are swallowed
	again = retried("timeout")
	p.Hold(toServer, true)
	wait(t, "a retry after a timeout", again)
	cut(toServer)
	reach(5 * step)
	stop(s)
	wait(t, "the connection to be noticed as lost", func() bool { return r.Ready() != nil })
	startServer(t, dir, port)
	reach(6 * step)
	for i := range int64(5) {
		p.Cut()
		reach(6*step + i*step/5)
	}
	wg.Wait()

	next := map[string]int{}
	for _, m := range records(t, admin(t, p.URL()), "KUBECDC") {
		next[m.Subject]++
		name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		want := publishedID(event(name, next[m.Subject], ""))
		if got := m.Header.Get("Nats-Msg-Id"); got != want {
			t.Fatalf("%s: record %d has another id than version %d", m.Subject, m.Sequence, next[m.Subject])
		}
	}
	if len(next) != keys {
		t.Errorf("got %d keys, want %d", len(next), keys)
	}
	for subject, n := range next {
		if n != versions {
			t.Errorf("%s: got %d versions, want %d", subject, n, versions)
		}
	}
}

func publishedID(ev *encode.Event) string {
	sum := sha256.Sum256([]byte(string(ev.Source) + "\n" + string(ev.ID)))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

func TestLostConnectionIsLoggedOnceEachWay(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	r := run(t, testConfig(p.URL()))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var published atomic.Int64
	for k := range 32 {
		wg.Go(func() {
			for v := 1; r.Publish(ctx, event(fmt.Sprintf("web-%d", k), v, `{}`)) == nil; v++ {
				published.Add(1)
			}
		})
	}
	wait(t, "publishing", func() bool { return published.Load() > 100 })
	p.Cut()
	wait(t, "loss to be noticed", func() bool { return lines(r.log.String(), "connection to bus lost") == 1 })
	n := published.Load()
	wait(t, "publishing again", func() bool { return published.Load() > n+100 })
	cancel()
	wg.Wait()
	if got := lines(r.log.String(), "connected to bus"); got != 2 {
		t.Errorf("got %d lines about connecting, want 2", got)
	}
	if got := lines(r.log.String(), "level=WARN"); got != 1 {
		t.Errorf("got %d warnings, want 1", got)
	}
}

func TestTheEndIsNoLostConnection(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	for range 100 { // a callback may see the end early or late
		r := run(t, testConfig(s.ClientURL()))
		wait(t, "connection", func() bool { return r.Ready() == nil })
		r.stop()
		<-r.done
		if log := r.log.String(); r.err != nil || strings.Contains(log, "level=WARN") {
			t.Fatalf("ended with %v, and the log says:\n%s", r.err, log)
		}
	}
}

func TestFullStreamHoldsEventsBack(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	cfg := testConfig(s.ClientURL())
	cfg.Stream.MaxBytes = 64 << 10
	r := run(t, cfg)
	js := admin(t, s.ClientURL())

	const total = 40
	done := make(chan error, 1)
	var published atomic.Int64
	go func() {
		for v := range total {
			if err := r.Publish(t.Context(), event("web-1", v+1, strings.Repeat("x", 4<<10))); err != nil {
				done <- err
				return
			}
			published.Add(1)
		}
		done <- nil
	}()
	wait(t, "stream to be full", func() bool { return r.metric(t, "kubecdc_publish_retries_total", "stream_full") >= 2 })
	full := published.Load()
	if full >= total || full == 0 {
		t.Fatalf("%d events published into the full stream", full)
	}
	if got := lines(r.log.String(), "the stream is full"); got != 1 {
		t.Errorf("got %d lines about the full stream, want 1", got)
	}
	var read int
	for read < total {
		got := records(t, js, "KUBECDC")
		for _, m := range got {
			read++
			if want := publishedID(event("web-1", read, "")); m.Header.Get("Nats-Msg-Id") != want {
				t.Fatalf("record %d is not version %d", m.Sequence, read)
			}
			stream, err := js.Stream(t.Context(), "KUBECDC")
			if err == nil {
				err = stream.DeleteMsg(t.Context(), m.Sequence)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServerThatComesLater(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, -1)
	port := portOf(s)
	stop(s)
	r := run(t, testConfig(fmt.Sprintf("nats://127.0.0.1:%d", port)))
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), event("web-1", 1, `{}`)) }()
	wait(t, "the log to say so", func() bool { return lines(r.log.String(), "bus cannot be reached") > 0 })
	if r.Ready() == nil {
		t.Error("ready without a bus")
	}
	startServer(t, dir, port)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
	if got := r.metric(t, "kubecdc_publish_connected", ""); got != 1 {
		t.Errorf("connected is %v, want 1", got)
	}
}

func TestStreamThatIsDeletedIsCreatedAgain(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	js := admin(t, s.ClientURL())
	if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), event("web-1", 2, `{}`)); err != nil {
		t.Fatal(err)
	}
	if got := len(records(t, js, "KUBECDC")); got != 1 {
		t.Errorf("got %d records, want 1", got)
	}
}

func TestAnotherStreamsAcknowledgementDoesNotCount(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	cfg := testConfig(s.ClientURL())
	r := run(t, cfg)
	if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	js := admin(t, s.ClientURL())
	// With its last stream the server removes the account's directory, and may do so while another stream is created.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEEP", Subjects: []string{"keep"}}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"kubecdc.>"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Publish(ctx, event("web-1", 2, `{}`)) }()
	wait(t, "retries", func() bool { return r.metric(t, "kubecdc_publish_retries_total", "other_stream") >= 2 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context canceled", err)
	}
}

func TestEventLargerThanThePayloadLimitIsRefused(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	err := r.Publish(t.Context(), event("web-1", 1, strings.Repeat("x", 1<<20+1)))
	if !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if err := r.Publish(t.Context(), event("web-1", 2, `{}`)); err != nil {
		t.Errorf("the next event: %v", err)
	}
}

func TestEventLargerThanTheStreamTakesIsRefused(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	js := admin(t, s.ClientURL())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, MaxMsgSize: 20 << 10, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(s.ClientURL())
	cfg.MaxEventBytes = 4 << 10
	r := run(t, cfg)
	err = r.Publish(t.Context(), event("web-1", 1, strings.Repeat("x", 21<<10)))
	if !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

// The server does not read: one call stands in the socket, under the connection's lock, the others wait for that lock.
func TestBlockedSocketDoesNotOutliveTheContext(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	r := run(t, testConfig(p.URL()))
	if err := r.Publish(t.Context(), event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	p.Hold(toServer, true)
	ctx, cancel := context.WithCancel(t.Context())
	body := strings.Repeat("x", 900<<10)
	var wg sync.WaitGroup
	for k := range 64 { // 56 MB: more than socket buffers hold
		wg.Go(func() {
			if err := r.Publish(ctx, event(fmt.Sprintf("web-%d", k), 2, body)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context canceled", err)
			}
		})
	}
	wait(t, "the socket to fill", func() bool { return r.Sending() > 32 })
	cancel()
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second): // a blocked write alone takes 10 s to fail
		t.Error("calls have not returned 5 s after their context ended")
	}
	p.Hold(toServer, false)
	if err := r.Publish(t.Context(), event("web-1", 3, `{}`)); err != nil {
		t.Errorf("after the blockade: %v", err)
	}
}

func TestRunEndsWhileTheServerDoesNotRead(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	r := run(t, testConfig(p.URL()))
	if err := r.Publish(t.Context(), event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	p.Hold(toServer, true)
	done := make(chan error, 64)
	for k := range 64 {
		go func() {
			done <- r.Publish(context.Background(), event(fmt.Sprintf("web-%d", k), 2, strings.Repeat("x", 900<<10)))
		}()
	}
	wait(t, "the socket to fill", func() bool { return r.Sending() > 32 })
	ended := make(chan struct{})
	go func() { r.stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Fatal("Run has not returned 5 s after its context ended")
	}
	for range 64 {
		if err := <-done; !errors.Is(err, publish.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
}

func TestPasswordIsReadAgainAndNeverLogged(t *testing.T) {
	const password = "correct-horse"
	s := startServer(t, t.TempDir(), -1, func(o *server.Options) { o.Username, o.Password = "agent", password })
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("battery-staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig("nats://" + s.Addr().String())
	cfg.Auth = publish.NATSAuth{User: "agent", PasswordFile: file}
	r := run(t, cfg)
	wait(t, "the refusal", func() bool { return lines(r.log.String(), "cannot be reached") > 0 })
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}

	for _, url := range []string{"nats://agent:" + password + "@" + s.Addr().String(), "nats://" + password + "@127.0.0.1:1"} {
		r := run(t, testConfig(url))
		wait(t, "a line in the log", func() bool { return r.log.String() != "" })
		r.stop()
		if strings.Contains(r.log.String(), password) {
			t.Errorf("the log holds the password:\n%s", r.log)
		}
	}
	for _, url := range []string{"nats://agent:" + password + "@host:port", "nats://agent:" + password + "/x@host:4222", "nats://agent:%zz" + password + "@host:4222"} {
		_, err := publish.NewNATS(testConfig(url), discard, nil)
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("got error %v, want one without the password", err)
		}
	}
}
