package kafka_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// listen serves a model of one broker on a socket. cut decides which requests to produce end the
// connection. cuts is how many requests to produce each connection had that was ended so.
func listen(t *testing.T, m *model, cut func(value string) bool) (cuts func() []int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addrs = []string{l.Addr().String()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	var ended []int
	serve := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for produced := 0; ; {
			version, id, _, req, err := protocol.ReadRequest(in)
			if err != nil {
				return
			}
			m.mu.Lock()
			if p, ok := req.(*produce.Request); ok && cut != nil {
				produced++
				if b, err := readBatch(&p.Topics[0].Partitions[0].RecordSet); err != nil ||
					len(b.records) > 0 && anyOf(b, cut) {
					ended = append(ended, produced)
					m.mu.Unlock()
					return
				} else if err := rewind(p, b); err != nil {
					m.mu.Unlock()
					return
				}
			}
			res, err := m.serve(0, req)
			m.mu.Unlock()
			if err != nil || protocol.WriteResponse(c, version, id, res) != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = true
			mu.Unlock()
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return func() []int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Clone(ended)
	}
}

func anyOf(b modelBatch, cut func(string) bool) bool {
	for i := range b.records {
		if cut(b.records[i].value) {
			return true
		}
	}
	return false
}

// rewind makes the records of p, which have been read, readable once more.
func rewind(p *produce.Request, b modelBatch) error {
	rs := make([]protocol.Record, len(b.records))
	for i, r := range b.records {
		rs[i] = protocol.Record{
			Offset:  int64(i),
			Key:     protocol.NewBytes([]byte(r.key)),
			Value:   protocol.NewBytes([]byte(r.value)),
			Headers: r.headers,
		}
	}
	p.Topics[0].Partitions[0].RecordSet.Records = &protocol.RecordStream{Records: []protocol.RecordReader{
		&protocol.RecordBatch{
			ProducerID:    b.id,
			ProducerEpoch: b.epoch,
			BaseSequence:  b.sequence,
			Records:       protocol.NewRecordReader(rs...),
		},
	}}
	return nil
}

// An event for which the broker ends the connection, again and again, is handed back to be sent
// alone, and sent on a connection of its own then. The other events of its batch are stored.
func TestEventWhoseConnectionIsCut(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	var cut atomic.Bool
	cut.Store(true)
	cuts := listen(t, m, func(value string) bool { return value == "cut" && cut.Load() })
	k := runKafka(t, kafkaConfig(m.addrs...), nil)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			ev := keyed(fmt.Sprint("k", i), 1)
			if i == 3 {
				ev.Body = []byte("cut")
			}
			errs[i] = k.once(ev)
		})
	}
	wg.Wait()
	handedBack := func(err error) bool {
		again := new(publish.RetryError)
		return errors.As(err, &again) && again.Alone && again.Reason == publish.ReasonConnection &&
			!errors.Is(err, publish.ErrRefused)
	}
	for i, err := range errs {
		if i == 3 && !handedBack(err) || i != 3 && err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
	if got := len(m.logOf("kubecdc.prod-eu-1", 0)); got != 7 {
		t.Errorf("%d records, want 7", got)
	}
	if log := k.log.String(); strings.Count(log, "it is sent alone") != 1 ||
		!strings.Contains(log, "event_id=pods/uid-k3/1") {
		t.Errorf("the event is not named:\n%s", log)
	}
	alone := func(e *publish.Event) { e.Alone = true }
	ev := keyed("k3", 1)
	ev.Body = []byte("cut")
	before := len(cuts())
	for range 3 {
		if err := k.once(ev, alone); !handedBack(err) {
			t.Errorf("alone: %v", err)
		}
		if err := k.once(keyed("k3-neighbour", 1)); err != nil {
			t.Error(err)
		}
	}
	if got := cuts()[before:]; !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("requests on the connections that were cut: %v, want one on each", got)
	}
	cut.Store(false)
	if err := k.once(ev, alone); err != nil {
		t.Error(err)
	}
	if err := k.stop(); err != nil {
		t.Error(err)
	}
}

// A broker that does not answer at all does not hold a call whose ctx ends, nor the end of Run.
func TestSilentBrokerHoldsNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := runKafka(t, kafkaConfig(l.Addr().String()), nil)
	c, err := l.Accept() // it waits for an answer now
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Publish(ctx, keyed("a", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("want the cause, got %v", err)
	}
	if err := k.Ready(); err == nil {
		t.Error("ready")
	}
	if err := k.stop(); err != nil {
		t.Error(err)
	}
}

// A pause that a broker requires because of a quota is in the log, the metric and the status. The
// bus stays ready.
func TestPauseOfAQuotaIsShown(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	m.throttle = 60_000
	listen(t, m, nil)
	k := runKafka(t, kafkaConfig(m.addrs...), nil)
	wait(t, "both topics", func() bool { return k.Ready() == nil })
	if err := k.Publish(t.Context(), keyed("a", 1)); err != nil {
		t.Fatal(err)
	}
	by, until := k.Throttled()
	if by != "a quota of broker "+m.addrs[0] || time.Until(until) < 50*time.Second {
		t.Errorf("throttled by %q until %s", by, until)
	}
	if got := bustest.Metric(t, k.reg, "kubecdc_publish_throttled_seconds_total", ""); got != 60 {
		t.Errorf("%v s are counted, want 60", got)
	}
	if log := k.log.String(); strings.Count(log, "a broker limits the agent by a quota") != 1 ||
		!strings.Contains(log, "client_id=kubecdc") {
		t.Errorf("the log does not say it:\n%s", log)
	}
	if err := k.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestTokens(t *testing.T) {
	const secret = "s3cret"
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		if _, password, _ := r.BasicAuth(); password != secret {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]string{
				"error":             "invalid_client",
				"error_description": "not " + password,
			})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": fmt.Sprint("token", asked),
			"token_type":   "Bearer",
			"expires_in":   3600,
		})
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "secret")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wr0ng\n")
	m := kafka.MechanismOf(&kafkaconfig.SASL{Mechanism: "OAUTHBEARER", OAuth: &kafkaconfig.OAuth{
		TokenURL:         server.URL,
		ClientID:         "agent",
		ClientSecretFile: file,
	}})
	if _, _, err := m.Start(t.Context()); err == nil || strings.Contains(err.Error(), "wr0ng") ||
		!strings.Contains(err.Error(), "invalid_client") {
		t.Errorf("a wrong secret: %v", err)
	}
	write(secret + "\n")
	asked = 0
	var last []byte
	for range 3 {
		session, first, err := m.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(first), "n,,\x01auth=Bearer token1\x01\x01"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if done, _, err := session.Next(t.Context(), nil); !done || err != nil {
			t.Errorf("accepted: %v, %v", done, err)
		}
		last = first
	}
	if asked != 1 {
		t.Errorf("asked %d times for a token that holds an hour", asked)
	}
	session, _, err := m.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = session.Next(t.Context(), []byte(`{"status":"invalid_token","scope":"write"}`))
	if err == nil || !strings.Contains(err.Error(), "invalid_token, scope write") ||
		strings.Contains(err.Error(), "token1") {
		t.Errorf("a refused token: %v", err)
	}
	if _, again, err := m.Start(t.Context()); err != nil || string(again) == string(last) {
		t.Errorf("the refused token is used again: %q, %v", again, err)
	}
	write("a b")
	m = kafka.MechanismOf(&kafkaconfig.SASL{Mechanism: "OAUTHBEARER", TokenFile: file})
	if _, _, err := m.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "at byte 1") {
		t.Errorf("a token with a space: %v", err)
	}
	if _, err := kafka.NewDialer(&kafka.Config{TLS: &publish.TLS{CAFile: "/nowhere"}}); err == nil {
		t.Error("a dialler without its CA")
	}
}

// A listener that speaks something else is an error that says so, and no array of as many elements
// as its text would be.
func TestListenerOfAnotherKind(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer l.Close()
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	k := runKafka(t, kafkaConfig(l.Addr().String()), nil)
	wait(t, "advice", func() bool { return strings.Contains(k.log.String(), "check that it is a Kafka listener") })
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("%d MB were allocated", got>>20)
	}
	if err := k.stop(); err != nil {
		t.Error(err)
	}
}
