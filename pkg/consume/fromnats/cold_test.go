package fromnats_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// slowPath is a path to a server on which messages to some subjects arrive late, as if the server
// read its disk before it answers. All others pass.
type slowPath struct {
	listener net.Listener
	server   string
	subject  string // a part of it
	delay    time.Duration
	running  sync.WaitGroup
	stop     context.CancelFunc
}

func startSlowPath(t *testing.T, b *bus, subject string, delay time.Duration) *slowPath {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &slowPath{listener: l, server: b.Addr().String(), subject: subject, delay: delay, stop: stop}
	p.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		p.running.Wait()
	})
	return p
}

func (p *slowPath) url() string { return "nats://" + p.listener.Addr().String() }

func (p *slowPath) serve(ctx context.Context, client net.Conn) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	closed := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer closed()
	p.running.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	defer func() { _ = server.Close() }()
	var mu sync.Mutex
	send := func(message []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = server.Write(message)
	}
	from := bufio.NewReader(client)
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.Fields(line)
		message := []byte(line)
		if len(fields) > 2 && (fields[0] == "PUB" || fields[0] == "HPUB") {
			size, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return
			}
			body := make([]byte, size+2)
			if _, err := io.ReadFull(from, body); err != nil {
				return
			}
			message = append(message, body...)
			if strings.Contains(fields[1], p.subject) {
				p.running.Go(func() {
					select {
					case <-time.After(p.delay):
						send(message)
					case <-ctx.Done():
					}
				})
				continue
			}
		}
		send(message)
	}
}

// largeStream is a stream with two wanted records at its begin, and so many others that servers may
// search it for some seconds longer than usual.
func largeStream(t *testing.T, others int) *bus {
	t.Helper()
	b := startBus(t)
	_, js := b.client()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: fromnats.DefaultStream, Subjects: []string{"kubecdc.>"}, Storage: jetstream.MemoryStorage,
	}); err != nil {
		t.Fatal(err)
	}
	put(t, js, 1, 2)
	for n := range others {
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: "kubecdc.x.other", Data: []byte(strconv.Itoa(n))},
			jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	return b
}

// A server that has just started creates a consumer, or sends its first message, after it has read
// the stream. A question waits for that the longer, the larger the stream is. For a small stream,
// the error says what the server has not done.
func TestQuestionWaitsForAColdServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 13 s")
	}
	t.Parallel()
	const late = 12 * time.Second // later than the limits of an empty stream
	small, large := largeStream(t, 0), largeStream(t, 90_000)
	for _, c := range []struct {
		subject string
		b       *bus
		fails   string
		retries bool
	}{
		{"CONSUMER.CREATE", large, "", false},
		{"CONSUMER.CREATE", small, "did not create the consumers within 10s, for 2 records", false},
		{"CONSUMER.MSG.NEXT", large, "", false},
		{"CONSUMER.MSG.NEXT", small, "", true}, // by another consumer
	} {
		t.Run(fmt.Sprintf("%s, large=%t", c.subject, c.b == large), func(t *testing.T) {
			t.Parallel()
			path := startSlowPath(t, c.b, c.subject, late)
			retried := false
			q := consume.Query{Start: consume.Beginning(), StopAtEnd: true, OnRetry: func(error) { retried = true }}
			source := &fromnats.JetStream{URL: path.url(), Subjects: []string{"kubecdc.x.object.core.pods.shop.*"}}
			began := time.Now()
			r, err := source.Read(t.Context(), q)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				if took := time.Since(began); took > late {
					t.Errorf("the error came after %s", took)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithTimeout(t.Context(), late+5*time.Second)
			defer cancel()
			for n := range 2 {
				e, err := r.Next(ctx)
				if c.retries && retried {
					return
				}
				if err != nil || e.ID != fmt.Sprint("pods/1/", n+1) {
					t.Fatalf("after %s: %v, %v", time.Since(began), e, err)
				}
			}
			if _, err := r.Next(ctx); !errors.Is(err, io.EOF) {
				t.Errorf("the end: %v", err)
			}
			if retried != c.retries || time.Since(began) < late {
				t.Errorf("interrupted %t, after %s", retried, time.Since(began))
			}
		})
	}
}
