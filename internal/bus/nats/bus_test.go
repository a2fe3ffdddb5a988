package nats_test

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

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestRecord(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	role := &object.Resource{
		Group:   "rbac.authorization.k8s.io",
		Version: "v1",
		Name:    "clusterroles",
		Kind:    "ClusterRole",
	}
	long := strings.Repeat("system:aggregate/ü.", 200)
	structured := bustest.Event("web-1", 7, `{"specversion":"1.0"}`)
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
		Delta:       &object.Delta{Stream: &object.StreamEvent{Kind: object.Gap, Resource: role, Scope: role.String()}},
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
		Subject: "kubecdc.prod-eu-1.scope.rbac_authorization_k8s_io.clusterroles.clusterroles%2Erbac%2Eauthorization%2Ek8s%2Eio",
		Header:  nats.Header{"Nats-Msg-Id": {msgID(gap)}, "content-type": {"application/cloudevents+json"}},
		Body:    string(gap.Body),
	}}
	var got []record
	for _, m := range bustest.Records(t, bustest.Admin(t, s.ClientURL()), "KUBECDC") {
		got = append(got, record{m.Subject, m.Header, string(m.Data)})
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSecondCopyIsADuplicate(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	for range 2 {
		if err := r.Publish(t.Context(), bustest.Event("web-1", 7, `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(bustest.Records(t, bustest.Admin(t, s.ClientURL()), "KUBECDC")); got != 1 {
		t.Errorf("got %d records, want 1", got)
	}
	if got := r.Metric(t, "kubecdc_publish_duplicates_total", ""); got != 1 {
		t.Errorf("got %v duplicates counted, want 1", got)
	}
}

// All that can go wrong with a connection or a server does, while keys publish one version after
// the other. Each version must be there once, and each key's in order.
func TestOrderPerKeySurvivesFaults(t *testing.T) {
	const keys, versions = 24, 400
	dir := t.TempDir()
	s := bustest.StartAnyServer(t, dir, -1)
	port := bustest.PortOf(s)
	p := bustest.StartProxy(t, fmt.Sprintf("127.0.0.1:%d", port))
	cfg := bustest.NATSConfig(p.URL())
	cfg.AckTimeout = 300 * time.Millisecond
	r := bustest.RunNATS(t, cfg)

	var published atomic.Int64
	reach := func(n int64) {
		bustest.Wait(t, fmt.Sprintf("%d events published", n), func() bool { return published.Load() >= n })
	}
	retried := func(reason string) func() bool {
		before := r.Metric(t, "kubecdc_publish_retries_total", reason)
		return func() bool { return r.Metric(t, "kubecdc_publish_retries_total", reason) > before }
	}
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			for v := range versions {
				if err := r.Publish(t.Context(),
					bustest.Event(fmt.Sprintf("web-%d", k), v+1, strings.Repeat("x", 500))); err != nil {
					t.Errorf("key %d version %d: %v", k, v+1, err)
					return
				}
				published.Add(1)
			}
		})
	}
	const step = keys * versions / 8
	// cut waits for the next connection: a fault in the midst of its handshake would be another
	// test.
	cut := func(faults ...bustest.Direction) {
		t.Helper()
		connects := func() int { return bustest.Lines(r.Log.String(), "connected to bus") }
		before := connects()
		p.Cut()
		for _, d := range faults {
			p.Hold(d, false)
		}
		bustest.Wait(t, "a new connection", func() bool { return connects() > before })
	}
	reach(1 * step)
	cut()
	reach(2 * step) // acknowledgements come late: the same is published again, the late ones count or are ignored
	again := retried("timeout")
	p.Hold(bustest.ToClient, true)
	bustest.Wait(t, "a retry after a timeout", again)
	p.Hold(bustest.ToClient, false)
	reach(3 * step) // acknowledgements are swallowed: the server has the events, we do not know
	again = retried("timeout")
	p.Hold(bustest.ToClient, true)
	bustest.Wait(t, "a retry after a timeout", again)
	cut(bustest.ToClient)
	reach(4 * step) // the messages are swallowed
	again = retried("timeout")
	p.Hold(bustest.ToServer, true)
	bustest.Wait(t, "a retry after a timeout", again)
	cut(bustest.ToServer)
	reach(5 * step)
	bustest.StopServer(s)
	bustest.Wait(t, "the connection to be noticed as lost", func() bool { return r.Ready() != nil })
	bustest.StartAnyServer(t, dir, port)
	reach(6 * step)
	for i := range int64(5) {
		p.Cut()
		reach(6*step + i*step/5)
	}
	wg.Wait()

	next := map[string]int{}
	for _, m := range bustest.Records(t, bustest.Admin(t, p.URL()), "KUBECDC") {
		next[m.Subject]++
		name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		want := publishedID(bustest.Event(name, next[m.Subject], ""))
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
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var published atomic.Int64
	for k := range 32 {
		wg.Go(func() {
			for v := 1; r.Publish(ctx, bustest.Event(fmt.Sprintf("web-%d", k), v, `{}`)) == nil; v++ {
				published.Add(1)
			}
		})
	}
	bustest.Wait(t, "publishing", func() bool { return published.Load() > 100 })
	p.Cut()
	bustest.Wait(t, "loss to be noticed", func() bool {
		return bustest.Lines(r.Log.String(), "connection to bus lost") == 1
	})
	n := published.Load()
	bustest.Wait(t, "publishing again", func() bool { return published.Load() > n+100 })
	cancel()
	wg.Wait()
	if got := bustest.Lines(r.Log.String(), "connected to bus"); got != 2 {
		t.Errorf("got %d lines about connecting, want 2", got)
	}
	if got := bustest.Lines(r.Log.String(), "level=WARN"); got != 1 {
		t.Errorf("got %d warnings, want 1", got)
	}
}

func TestTheEndIsNoLostConnection(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	for range 100 { // a callback may see the end early or late
		r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
		bustest.Wait(t, "connection", func() bool { return r.Ready() == nil })
		r.Stop()
		<-r.Ended
		if log := r.Log.String(); r.Err != nil || strings.Contains(log, "level=WARN") {
			t.Fatalf("ended with %v, and the log says:\n%s", r.Err, log)
		}
	}
}

func TestFullStreamHoldsEventsBack(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.Stream.MaxBytes = 64 << 10
	r := bustest.RunNATS(t, cfg)
	js := bustest.Admin(t, s.ClientURL())

	const total = 40
	done := make(chan error, 1)
	var published atomic.Int64
	go func() {
		for v := range total {
			if err := r.Publish(t.Context(), bustest.Event("web-1", v+1, strings.Repeat("x", 4<<10))); err != nil {
				done <- err
				return
			}
			published.Add(1)
		}
		done <- nil
	}()
	bustest.Wait(t, "stream to be full", func() bool {
		return r.Metric(t, "kubecdc_publish_retries_total", "stream_full") >= 2
	})
	full := published.Load()
	if full >= total || full == 0 {
		t.Fatalf("%d events published into the full stream", full)
	}
	if got := bustest.Lines(r.Log.String(), "the stream is full"); got != 1 {
		t.Errorf("got %d lines about the full stream, want 1", got)
	}
	if log := r.Log.String(); !strings.Contains(log, "--max-age=") || strings.Contains(log, "--max-bytes=") {
		t.Errorf("the advice is not to shorten max_age:\n%s", log)
	}
	var read int
	for read < total {
		got := bustest.Records(t, js, "KUBECDC")
		for _, m := range got {
			read++
			if want := publishedID(bustest.Event("web-1", read, "")); m.Header.Get("Nats-Msg-Id") != want {
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
	s := bustest.StartAnyServer(t, dir, -1)
	port := bustest.PortOf(s)
	bustest.StopServer(s)
	r := bustest.RunNATS(t, bustest.NATSConfig(fmt.Sprintf("nats://127.0.0.1:%d", port)))
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)) }()
	bustest.Wait(t, "the log to say so", func() bool {
		return bustest.Lines(r.Log.String(), "cannot reach the bus") > 0
	})
	if r.Ready() == nil {
		t.Error("ready without a bus")
	}
	bustest.StartAnyServer(t, dir, port)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// A server that starts may cut its first connection.
	bustest.Wait(t, "the bus to be ready and connected", func() bool {
		return r.Ready() == nil && r.Metric(t, "kubecdc_publish_connected", "") == 1
	})
}

func TestStreamThatIsDeletedIsCreatedAgain(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	js := bustest.Admin(t, s.ClientURL())
	if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), bustest.Event("web-1", 2, `{}`)); err != nil {
		t.Fatal(err)
	}
	if got := len(bustest.Records(t, js, "KUBECDC")); got != 1 {
		t.Errorf("got %d records, want 1", got)
	}
}

func TestAnotherStreamsAcknowledgementDoesNotCount(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	cfg := bustest.NATSConfig(s.ClientURL())
	r := bustest.RunNATS(t, cfg)
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	js := bustest.Admin(t, s.ClientURL())
	// With its last stream the server removes the account's directory, and may do so while another
	// stream is created.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEEP", Subjects: []string{
		"keep",
	}}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Publish(ctx, bustest.Event("web-1", 2, `{}`)) }()
	bustest.Wait(t, "retries", func() bool {
		return r.Metric(t, "kubecdc_publish_retries_total", "other_stream") >= 2
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context canceled", err)
	}
}

func TestEventLargerThanThePayloadLimitIsRefused(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	err := r.Publish(t.Context(), bustest.Event("web-1", 1, strings.Repeat("x", 1<<20+1)))
	if !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if err := r.Publish(t.Context(), bustest.Event("web-1", 2, `{}`)); err != nil {
		t.Errorf("the next event: %v", err)
	}
}

func TestEventLargerThanTheStreamTakesIsRefused(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	js := bustest.Admin(t, s.ClientURL())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, MaxMsgSize: 20 << 10, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.MaxEventBytes = 4 << 10
	r := bustest.RunNATS(t, cfg)
	err = r.Publish(t.Context(), bustest.Event("web-1", 1, strings.Repeat("x", 21<<10)))
	if !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

// The server does not read, so the sender stands in the socket. Publish returns all the same.
func TestBlockedSocketDoesNotBlockPublish(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	if err := r.Publish(t.Context(), bustest.Event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	p.Hold(bustest.ToServer, true)
	const n = 64 // 56 MB: more than socket buffers hold
	body := strings.Repeat("x", 900<<10)
	done := make(chan error, n)
	hand := func(k int) {
		r.Bus.Publish(
			publish.NewEvent(bustest.Event(fmt.Sprintf("web-%d", k), 2, body), func(err error) { done <- err },
				nil))
	}
	for k := range n - 1 {
		hand(k)
	}
	waitForFullSocket(t, r)
	hand(n - 1)
	p.Hold(bustest.ToServer, false)
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// waitForFullSocket waits until the sender stands in the socket.
func waitForFullSocket(t *testing.T, r *bustest.NATS) {
	t.Helper()
	queued, since := 0, time.Now()
	bustest.Wait(t, "the socket to fill", func() bool {
		if now := r.Queued(); now != queued {
			queued, since = now, time.Now()
		}
		return queued > 0 && time.Since(since) > 300*time.Millisecond
	})
}

func TestRunEndsWhileTheServerDoesNotRead(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	if err := r.Publish(t.Context(), bustest.Event("web-0", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	p.Hold(bustest.ToServer, true)
	done := make(chan error, 64)
	for k := range 64 {
		go func() {
			done <- r.Publish(context.Background(),
				bustest.Event(fmt.Sprintf("web-%d", k), 2, strings.Repeat("x", 900<<10)))
		}()
	}
	waitForFullSocket(t, r)
	ended := make(chan struct{})
	go func() { r.Stop(); close(ended) }()
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
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) {
		o.Username = "agent"
		o.Password = password
	})
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("battery-staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := bustest.NATSConfig("nats://" + s.Addr().String())
	cfg.Auth = natsconfig.Auth{User: "agent", PasswordFile: file}
	r := bustest.RunNATS(t, cfg)
	bustest.Wait(t, "the refusal", func() bool {
		return bustest.Lines(r.Log.String(), "cannot reach the bus") > 0
	})
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}

	for _, url := range []string{
		"nats://agent:" + password + "@" + s.Addr().String(), "nats://" + password + "@127.0.0.1:1",
	} {
		r := bustest.RunNATS(t, bustest.NATSConfig(url))
		bustest.Wait(t, "a line in the log", func() bool { return r.Log.String() != "" })
		r.Stop()
		if strings.Contains(r.Log.String(), password) {
			t.Errorf("the log holds the password:\n%s", r.Log)
		}
	}
	for _, url := range []string{
		"nats://agent:" + password + "@host:port", "nats://agent:" + password + "/x@host:4222",
		"nats://agent:%zz" + password + "@host:4222",
	} {
		_, err := natsbus.New(bustest.NATSConfig(url), bustest.Discard, nil)
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("got error %v, want one without the password", err)
		}
	}
}
