package fromnats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

func open(tb testing.TB, s fromnats.JetStream, q consume.Query) consume.Reader {
	tb.Helper()
	r, err := s.Read(tb.Context(), q)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { r.Close() })
	return r
}

// read returns the numbers of the next n events, or of all up to io.EOF where n is -1.
func read(tb testing.TB, r consume.Reader, n int) []int {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	var got []int
	for len(got) != n {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) && n < 0 {
			return got
		}
		if err != nil {
			tb.Fatalf("after %d: %v", got, err)
		}
		got = append(got, int(number(e.Sequence)))
	}
	return got
}

// after returns a start after record n of the stream KUBECDC.
func after(n uint64) consume.Start {
	return consume.After(consume.Position{Log: consume.Log{Name: "KUBECDC"}, Next: n + 1})
}

func numbers(from, to int) []int {
	var out []int
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}

func TestJetStreamStart(t *testing.T) {
	b := startBus(t)
	nc, js := b.client()
	stream := b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 10)
	msg, err := stream.GetMsg(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		s    fromnats.JetStream
		q    consume.Query
		want []int
	}{
		"beginning":     {fromnats.JetStream{}, consume.Query{Start: consume.Beginning()}, numbers(1, 10)},
		"after":         {fromnats.JetStream{}, consume.Query{Start: after(6)}, numbers(7, 10)},
		"after nothing": {fromnats.JetStream{}, consume.Query{Start: after(0)}, numbers(1, 10)},
		"after the end": {fromnats.JetStream{}, consume.Query{Start: after(10)}, nil},
		"since":         {fromnats.JetStream{}, consume.Query{Start: consume.Since(msg.Time)}, numbers(8, 10)},
		"since now": {fromnats.JetStream{}, consume.Query{
			Start: consume.Since(time.Now().Add(time.Minute)),
		}, nil},
		"live": {fromnats.JetStream{}, consume.Query{}, nil},
		"a subject": {fromnats.JetStream{Subjects: []string{"kubecdc.*.object.*.*.*.web-1"}}, consume.Query{
			Start: consume.Beginning(),
		}, []int{1, 4, 7, 10}},
		"two subjects": {fromnats.JetStream{Subjects: []string{
			"*.*.*.*.*.*.web-2", "*.*.*.*.*.*.web-0",
		}}, consume.Query{Start: after(3)}, []int{5, 6, 8, 9}},
		"no such subject": {fromnats.JetStream{Subjects: []string{"kubecdc.x.stream.>"}}, consume.Query{
			Start: consume.Beginning(),
		}, nil},
		"last of each": {fromnats.JetStream{Subjects: []string{"kubecdc.>"}}, consume.Query{
			Start:      consume.Beginning(),
			LastOfEach: true,
		}, numbers(8, 10)},
		"last, no subject": {fromnats.JetStream{}, consume.Query{
			Start:      consume.Beginning(),
			LastOfEach: true,
		}, numbers(1, 10)},
		"own connection": {fromnats.JetStream{Conn: nc}, consume.Query{Start: consume.Beginning()}, numbers(1, 10)},
		"name of a stream": {fromnats.JetStream{Stream: "KUBECDC"}, consume.Query{
			Start: consume.Beginning(),
		}, numbers(1, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			tc.q.StopAtEnd = true
			if tc.s.Conn == nil {
				tc.s.URL = b.ClientURL()
			}
			r := open(t, tc.s, tc.q)
			if diff := cmp.Diff(tc.want, read(t, r, -1)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("behind the end: %v", err)
			}
		})
	}
	if !nc.IsConnected() {
		t.Error("the connection that was given has been closed")
	}
	until(t, "no consumers are left", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Consumers == 0
	})
}

func TestJetStreamEmpty(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{StopAtEnd: true, Start: consume.Beginning()})
	if got := read(t, r, -1); got != nil {
		t.Errorf("read %v", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("had enough"))
	live := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{})
	if _, err := live.Next(ctx); err == nil || err.Error() != "had enough" {
		t.Errorf("error %v, want the context's cause", err)
	}
	put(t, js, 1, 1)
	if diff := cmp.Diff([]int{1}, read(t, live, 1)); diff != "" || live.Positions()[0].Next != 2 {
		t.Errorf("at %d, -want +got\n%s", live.Positions()[0].Next, diff)
	}
}

// A reader must not wait for records that existed when it was opened but were removed before it
// read them.
func TestJetStreamEndRemoved(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	put(t, js, 1, 3000)
	r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{StopAtEnd: true, Start: consume.Beginning()})
	fromnats.BeatEvery(r, 300*time.Millisecond)
	read(t, r, 1)
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for n := 2; ; n++ {
		e, err := r.Next(ctx)
		missed := new(consume.MissedError)
		if errors.As(err, &missed) {
			if missed.From != uint64(n) || missed.To != 3000 || missed.Recreated {
				t.Errorf("%v, want from %d", err, n)
			}
			break
		}
		if err != nil || number(e.Sequence) != uint64(n) {
			t.Fatalf("%v %v, want record %d", e, err, n)
		}
	}
	if _, err := r.Next(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want the end", err)
	}
}

// The server restarts while records are read, while none is, and before a live reader has received
// any.
func TestJetStreamRestarts(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	url := b.ClientURL() // the same after a restart; b itself is being restarted while readers read
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 5)

	retries, resumed := 0, 0
	live := open(t, fromnats.JetStream{URL: url}, consume.Query{OnRetry: func(err error) {
		retries++
		if !strings.Contains(err.Error(), url) {
			t.Errorf("%v: does not say where", err)
		}
	}, OnResume: func() { resumed++ }})
	all := open(t, fromnats.JetStream{URL: url}, consume.Query{Start: consume.Beginning()})
	if diff := cmp.Diff(numbers(1, 3), read(t, all, 3)); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
	b.stop()
	b.start()
	put(t, js, 6, 400)
	if diff := cmp.Diff(numbers(4, 300), read(t, all, 297)); diff != "" {
		t.Errorf("all: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(numbers(6, 350), read(t, live, 345)); diff != "" {
		t.Errorf("live: -want +got\n%s", diff)
	}
	if retries == 0 || resumed != 1 {
		t.Errorf("OnRetry was told %d times, OnResume %d times", retries, resumed)
	}
	b.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.start()
		put(t, js, 401, 410)
	}()
	if diff := cmp.Diff(numbers(351, 410), read(t, live, 60)); diff != "" {
		t.Errorf("live: -want +got\n%s", diff)
	}
	<-done
	if diff := cmp.Diff(numbers(301, 410), read(t, all, 110)); diff != "" {
		t.Errorf("all: -want +got\n%s", diff)
	}
}

// The consumer on the server disappears while the reader uses it.
func TestJetStreamConsumerDeleted(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{})
	put(t, js, 1, 2)
	read(t, r, 1)
	for name := range stream.ConsumerNames(t.Context()).Name() {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	put(t, js, 3, 4)
	if diff := cmp.Diff(numbers(2, 4), read(t, r, 3)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestJetStreamMissed(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	put(t, js, 1, 10)
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(6)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		start consume.Start
		want  string
		rest  []int
	}{
		{after(5), "", numbers(6, 10)},
		{
			after(2), "stream KUBECDC no longer has records 3 to 5, which were not read: they expired or were removed",
			numbers(6, 10),
		},
		{
			after(40),
			"stream KUBECDC was recreated or restored: it was read up to record 40 and now ends at record 10; reading continues from its beginning",
			numbers(6, 10),
		},
	} {
		r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{Start: tc.start, StopAtEnd: true})
		if tc.want != "" {
			_, err := r.Next(t.Context())
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v\nwant  %s", err, tc.want)
			}
		}
		if diff := cmp.Diff(tc.rest, read(t, r, -1)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

// The stream is deleted and recreated with as many records.
func TestJetStreamRecreated(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 3)
	r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{Start: consume.Beginning()})
	read(t, r, 3)
	if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	b.stream(js, "KUBECDC")
	put(t, js, 11, 20)
	missed := new(consume.MissedError)
	if e, err := r.Next(t.Context()); !errors.As(err, &missed) || !missed.Recreated || missed.From != 4 ||
		missed.To != 10 {
		t.Fatalf("%v, %v", e, err)
	}
	if got := r.Positions()[0].Next; got != 1 {
		t.Errorf("nothing of the new stream was read, and the position is %d", got)
	}
	if diff := cmp.Diff(numbers(11, 20), read(t, r, 10)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A record that is not an event causes an error that names it; the next call continues with the
// next record.
func TestJetStreamInvalidRecord(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 1)
	if _, err := js.Publish(t.Context(), "kubecdc.x.object.y", []byte("{")); err != nil {
		t.Fatal(err)
	}
	put(t, js, 2, 2)
	r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	read(t, r, 1)
	_, err := r.Next(t.Context())
	var record *consume.RecordError
	if want := "stream KUBECDC, record 2 (kubecdc.x.object.y): JSON ends before the value does"; !errors.As(err,
		&record) || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
	if diff := cmp.Diff([]int{2}, read(t, r, -1)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Records larger than one request asks for, and more of them than fit into one.
func TestJetStreamLargeRecords(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	filler := strings.Repeat("x", 1000<<10)
	for n := 1; n <= 20; n++ {
		record := strings.Replace(string(pod(n)), `"after":{}`, `"after":{"x":"`+filler+`"}`, 1)
		if _, err := js.Publish(t.Context(), "kubecdc.x.object.core.pods.shop.web", []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if diff := cmp.Diff(numbers(1, 20), read(t, r, -1)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestOpenJetStreamErrors(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	for _, name := range []string{"ORDERS", "AUDIT"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{
			name,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	plain, err := server.NewServer(&server.Options{
		Host:     "127.0.0.1",
		Port:     server.RANDOM_PORT,
		NoSigs:   true,
		NoLog:    true,
		Username: "u",
		Password: "p",
	})
	if err != nil {
		t.Fatal(err)
	}
	plain.Start()
	if !plain.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not come up")
	}
	defer func() {
		plain.Shutdown()
		plain.WaitForShutdown()
	}()
	address := strings.TrimPrefix(plain.ClientURL(), "nats://")
	nobody := fmt.Sprintf("127.0.0.1:%d", unusedPort(t))
	for _, tc := range []struct {
		name string
		s    fromnats.JetStream
		q    consume.Query
		want string
	}{
		{"no URL", fromnats.JetStream{}, consume.Query{}, "connect to NATS: neither a URL nor a connection is given"},
		{"no host", fromnats.JetStream{
			URL: "nats://",
		}, consume.Query{}, "connect to NATS: url: no host in it, want nats://host:port"},
		{"not a URL", fromnats.JetStream{
			URL: "nats://u:secret@h:x",
		}, consume.Query{}, `connect to NATS: url: want nats://host:port`},
		{"a password with a slash", fromnats.JetStream{
			URL: "nats://u:secret/x@h:4222",
		}, consume.Query{}, `connect to NATS: url: want nats://host:port`},
		{
			"nobody there",
			fromnats.JetStream{URL: "nats://u:secret@" + nobody},
			consume.Query{},
			"connect to nats://" + nobody + ": dial tcp " + nobody +
				": connect: connection refused: check that a NATS server listens there",
		},
		{
			"password",
			fromnats.JetStream{URL: "nats://u:secret@" + address},
			consume.Query{},
			"connect to nats://" + address + ": nats: Authorization Violation: the server rejects the credentials",
		},
		{
			"no JetStream",
			fromnats.JetStream{URL: "nats://" + address, Options: []nats.Option{nats.UserInfo("u", "p")}},
			consume.Query{},
			"has no JetStream: start it with JetStream enabled (nats-server -js)",
		},
		{
			"no such stream",
			fromnats.JetStream{URL: b.ClientURL()},
			consume.Query{},
			"no stream KUBECDC at " + b.ClientURL() + ": there are AUDIT, ORDERS",
		},
		{
			"subject",
			fromnats.JetStream{URL: b.ClientURL(), Stream: "AUDIT", Subjects: []string{"a", "a..b"}},
			consume.Query{},
			`read stream AUDIT: subject "a..b": want tokens separated by dots, with * for one of them, or > at the end`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := tc.s.Read(t.Context(), tc.q)
			if err == nil {
				r.Close()
			}
			if errors.Is(err, consume.ErrNoStream) != (tc.name == "no such stream") {
				t.Errorf("%v is ErrNoStream or not, want the other", err)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v\nwant  %s", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the password shows: %v", err)
			}
		})
	}
}

// A server that accepts connections but sends nothing must not block a caller whose context has
// ended.
func TestOpenJetStreamEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	var dialed net.Conn
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		dialed, _ = l.Accept()
		cancel(errStop)
	}()
	if _, err := (&fromnats.JetStream{URL: "nats://" + l.Addr().String()}).Read(ctx, consume.Query{}); !errors.Is(err,
		errStop) {
		t.Errorf("error %v, want the context's cause", err)
	}
	<-accepted
	dialed.Close()
}

// The position passes records that do not match Subjects. If the stream removes them later, they do
// not count as missed.
func TestJetStreamPassesWhatIsNotAskedFor(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	put(t, js, 1, 3)
	r := open(t, fromnats.JetStream{URL: b.ClientURL(), Subjects: []string{
		"*.*.*.*.*.*.web-1", "*.*.*.*.*.*.web-7",
	}}, consume.Query{Start: consume.Beginning()})
	fromnats.BeatEvery(r, 50*time.Millisecond)
	if diff := cmp.Diff([]int{1}, read(t, r, 1)); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
	for n := range 10 { // web-2 and web-0
		put(t, js, 3*n+2, 3*n+3)
	}
	until(t, "the position passes them", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if e, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", e, err)
		}
		return r.Positions()[0].Next > 20
	})
	at := r.Positions()[0].Next
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(at)); err != nil {
		t.Fatal(err)
	}
	b.stop() // It resumes from its position.
	b.start()
	put(t, js, 40, 40)
	if diff := cmp.Diff([]int{40}, read(t, r, 1)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Records that the stream removes before a reader reaches them are missed, with Subjects and
// without, however fast the reader is. If as many other records arrive meanwhile, the number of
// remaining records does not show it, but the reader has waited.
func TestJetStreamRemovedBeforeTheReader(t *testing.T) {
	t.Parallel()
	const records, kept, others, atATime = 900, 10, 300, 512
	for _, tc := range []struct {
		name     string
		subjects []string
		others   bool
	}{
		{"all", nil, false},
		{"two subjects", []string{"*.*.*.*.*.*.web-1", "*.*.*.*.*.*.web-2"}, false},
		{"two subjects, and others arrive", []string{"*.*.*.*.*.*.web-1", "*.*.*.*.*.*.web-2"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := startBus(t)
			_, js := b.client()
			stream := b.stream(js, "KUBECDC")
			put(t, js, 1, records)
			r := open(t, fromnats.JetStream{URL: b.ClientURL(), Subjects: tc.subjects}, consume.Query{
				Start: consume.Beginning(),
			})
			fromnats.BeatEvery(r, 300*time.Millisecond)
			read(t, r, 1)
			until(t, "the server has sent what was asked for", func() bool {
				sent := uint64(0)
				for info := range stream.ListConsumers(t.Context()).Info() {
					sent += info.Delivered.Consumer
				}
				return sent >= atATime
			})
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(records-kept+1)); err != nil {
				t.Fatal(err)
			}
			if tc.others {
				put(t, js, records+1, records+others)
			}
			last, covered := uint64(0), false
			for !covered {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				e, err := r.Next(ctx)
				cancel()
				missed := new(consume.MissedError)
				switch {
				case errors.As(err, &missed):
					covered = missed.From <= last+1 && missed.To == records-kept && !missed.Recreated
					if !covered && tc.subjects == nil || missed.To > records-kept {
						t.Fatalf("%v, want records %d to %d", err, last+1, records-kept)
					}
				case err != nil:
					t.Fatalf("after record %d: %v", last, err)
				case number(e.Sequence) <= records-kept:
					last = number(e.Sequence)
				}
			}
		})
	}
}

// number returns the number that a sequence of an event has.
func number(s string) uint64 {
	var n uint64
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
		panic(err)
	}
	return n
}
