package fromnats_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// A live record is returned soon although the consumers of other filters stay silent.
func TestMergeIsLiveBesideSilentConsumers(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 3)
	r := open(t, fromnats.JetStream{URL: b.ClientURL(), Subjects: []string{
		"kubecdc.x.object.core.pods.shop.web-0", "kubecdc.y.>", "kubecdc.*.stream.>",
		"kubecdc.x.object.core.pods.shop.other",
	}}, consume.Query{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	if e, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, %v", e, err)
	}
	cancel()
	var delays []time.Duration
	for n := 6; n < 60; n += 3 {
		began := time.Now()
		go put(t, js, n, n)
		if diff := cmp.Diff([]int{n}, read(t, r, 1)); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
		delays = append(delays, time.Since(began))
	}
	slices.Sort(delays)
	if median := delays[len(delays)/2]; median > 200*time.Millisecond {
		t.Errorf("half of the records came after more than %s", median)
	}
}

// Records of several filters come in the order of the stream, each once, also if the filters
// overlap, and if they are more than a reader has consumers for.
func TestMergeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 900)
	many := []string{"kubecdc.x.object.core.pods.shop.web-1", "kubecdc.x.object.core.pods.shop.web-2"}
	for n := range 100 {
		many = append(many, fmt.Sprint("kubecdc.x.object.core.pods.shop.other-", n))
	}
	for name, c := range map[string]struct {
		subjects []string
		without  int // records whose number has this remainder
	}{
		"two":           {[]string{"*.*.*.*.*.*.web-2", "*.*.*.*.*.*.web-1"}, 0},
		"three":         {[]string{"*.*.*.*.*.*.web-2", "*.*.*.*.*.*.web-1", "*.*.*.*.*.*.web-0"}, -1},
		"overlapping":   {[]string{"*.*.*.*.*.*.web-2", "kubecdc.>", "*.*.*.*.*.*.web-2"}, -1},
		"many":          {many, 0},
		"none matching": {[]string{"*.*.*.*.*.*.web-2", "*.*.*.*.*.*.web-0", "a.b", "c.>"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var want []int
			for n := 101; n <= 900; n++ {
				if n%3 != c.without {
					want = append(want, n)
				}
			}
			for _, start := range []bool{true, false} {
				r := open(t, fromnats.JetStream{URL: b.ClientURL(), Subjects: c.subjects}, consume.Query{
					Start:     after(100),
					StopAtEnd: start,
				})
				if diff := cmp.Diff(want, read(t, r, len(want))); diff != "" {
					t.Errorf("to the end: %t, -want +got\n%s", start, diff)
				}
				if start {
					if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) || r.Positions()[0].Next != 901 {
						t.Errorf("%v at %d, want the end at 901", err, r.Positions()[0].Next)
					}
				}
			}
		})
	}
}

// frames is a connection on which a test replaces messages of the server.
type frames struct {
	net.Conn
	replace func(subject, sid string, body []byte) (frame string, isReplaced bool)
	in      *bufio.Reader
	rest    bytes.Buffer
}

func (f *frames) Read(p []byte) (int, error) {
	for f.rest.Len() == 0 {
		line, err := f.in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "HMSG" && fields[0] != "MSG" {
			f.rest.WriteString(line)
			break
		}
		size, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			return 0, err
		}
		body := make([]byte, size+2)
		if _, err := io.ReadFull(f.in, body); err != nil {
			return 0, err
		}
		if frame, isReplaced := f.replace(fields[1], fields[2], body); isReplaced {
			f.rest.WriteString(frame)
			continue
		}
		f.rest.WriteString(line)
		f.rest.Write(body)
	}
	return f.rest.Read(p)
}

// connectThrough connects, and lets replace change what the server sends.
func connectThrough(
	t *testing.T, url string, replace func(subject, sid string, body []byte) (string, bool),
) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, nats.SetCustomDialer(dialerFunc(func(network, address string) (net.Conn, error) {
		conn, err := net.Dial(network, address)
		if err != nil {
			return nil, err
		}
		return &frames{Conn: conn, replace: replace, in: bufio.NewReader(conn)}, nil
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

type dialerFunc func(network, address string) (net.Conn, error)

func (f dialerFunc) Dial(network, address string) (net.Conn, error) { return f(network, address) }

// The position of a reader does not pass a record that its client has lost, and that the server
// counts as delivered.
func TestPositionStaysBeforeALostRecord(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 3)
	var lose atomic.Bool
	conn := connectThrough(t, b.ClientURL(), func(subject, _ string, _ []byte) (string, bool) {
		return "", strings.HasPrefix(subject, "kubecdc.") && lose.CompareAndSwap(true, false)
	})
	lost := 0
	r := open(t, fromnats.JetStream{Conn: conn, Subjects: []string{
		"kubecdc.x.object.core.pods.shop.*", "kubecdc.x.stream.>",
	}}, consume.Query{
		Start: consume.Beginning(), OnRetry: func(error) { lost++ },
	})
	fromnats.BeatEvery(r, 100*time.Millisecond)
	read(t, r, 3)
	for n := 4; n < 10; n++ {
		lose.Store(true)
		put(t, js, n, n)
		until(t, "the record comes", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			e, err := r.Next(ctx)
			if at := int(r.Positions()[0].Next); err != nil && at > n {
				t.Fatalf("%v, and the position is %d", err, at)
			}
			if e != nil && int(number(e.Sequence)) != n {
				t.Fatalf("record %d, want %d", number(e.Sequence), n)
			}
			return e != nil
		})
	}
	if lost != 6 {
		t.Errorf("%d interruptions, want one for each lost record", lost)
	}
}

// A replica that lags says that it has no such object. The whole event is read all the same.
func TestLaggingReplicaHidesNoLargeEvent(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	var lags atomic.Int64 // answers of a replica that lags
	conn := connectThrough(t, b.ClientURL(), func(subject, sid string, body []byte) (string, bool) {
		if !bytes.Contains(body, []byte("Nats-Subject: $O.LARGE.M.")) || lags.Add(-1) < 0 {
			return "", false
		}
		const missing = "NATS/1.0 404 Message Not Found\r\n\r\n"
		return fmt.Sprintf("HMSG %s %s %d %d\r\n%s\r\n", subject, sid, len(missing), len(missing), missing), true
	})
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	store, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "LARGE"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"whole", "deleted"} {
		if _, err := store.PutBytes(t.Context(), name, pod(7)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	e, err := consume.Parse(pod(7))
	if err != nil {
		t.Fatal(err)
	}
	for name, exists := range map[string]bool{"whole": true, "deleted": false, "none": false} {
		lags.Store(2)
		e.DataRef = "nats-obj://LARGE/" + name
		whole, err := fromnats.Whole(t.Context(), js, e)
		if exists && (err != nil || whole.DataRef != "") || !exists && !errors.Is(err, jetstream.ErrObjectNotFound) {
			t.Errorf("%s: %v, %v", name, whole, err)
		}
	}
}

// A reader whose caller gives it little time in each call resumes after an outage.
func TestNextWithShortDeadlinesResumes(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	url := b.ClientURL()
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	put(t, js, 1, 3)
	retries := 0
	r := open(t, fromnats.JetStream{URL: url}, consume.Query{Start: consume.Beginning(), OnRetry: func(error) {
		retries++
	}})
	read(t, r, 3)
	next := func(d time.Duration) *consume.Event {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		e, err := r.Next(ctx)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return e
	}
	config := stream.CachedInfo().Config
	if err := js.DeleteStream(t.Context(), config.Name); err != nil { // no attempt to continue succeeds
		t.Fatal(err)
	}
	until(t, "some failures", func() bool { next(20 * time.Millisecond); return retries > 5 })
	b.stream(js, config.Name)
	put(t, js, 1, 5)
	until(t, "it resumes", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := r.Next(ctx)
		missed := new(consume.MissedError)
		return errors.As(err, &missed)
	})
	for n := 1; n <= 5; n++ {
		until(t, "the next record", func() bool {
			e := next(100 * time.Millisecond)
			if e != nil && int(number(e.Sequence)) != n {
				t.Fatalf("record %d, want %d", number(e.Sequence), n)
			}
			return e != nil
		})
	}
}

func TestWidestFilter(t *testing.T) {
	for _, c := range []struct{ filters, want string }{
		{"a.b a.c", "a.*"},
		{"a.b a.b.c", "a.>"},
		{"a b", "*"},
		{"a a.b", ">"},
		{"a.b.c a.*.c", "a.*.c"},
		{"a.b.c a.>", "a.>"},
		{"a.> a.b.c", "a.>"},
		{"a.b.> a.c.d.>", "a.*.>"},
		{"a.b.c.d x.b.c.d a.b.y.d", "*.b.*.d"},
	} {
		filters := strings.Fields(c.filters)
		if got := fromnats.WidestFilter(filters); got != c.want {
			t.Errorf("%s: got %s, want %s", c.filters, got, c.want)
		}
		for _, f := range filters {
			subject := strings.NewReplacer("*", "x", ">", "y.z").Replace(f)
			if !fromnats.MatchesFilter(subject, f) || !fromnats.MatchesFilter(subject, c.want) {
				t.Errorf("%s matches neither %s nor %s", subject, f, c.want)
			}
		}
	}
	for _, c := range []struct{ subject, filter string }{{"a", "a.>"}, {"a.b", "a"}, {"a.b", "a.c"}, {"a", "a.*"}, {
		"a.b.c", "a.*",
	}} {
		if fromnats.MatchesFilter(c.subject, c.filter) {
			t.Errorf("%s matches %s", c.subject, c.filter)
		}
	}
}

// A server says that nothing is pending, but not that it has looked up to the end: it lags. That is
// not the end of the stream.
func TestNothingPendingIsNotTheEnd(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 9)
	var lags atomic.Bool
	lags.Store(true)
	conn := connectThrough(t, b.ClientURL(), func(subject, sid string, body []byte) (string, bool) {
		if i := bytes.Index(body, []byte("Nats-Last-Stream: 9")); i >= 0 && lags.Load() {
			body[i+len("Nats-Last-Stream: ")] = '8'
		}
		return "", false
	})
	r := open(t, fromnats.JetStream{Conn: conn, Subjects: []string{"kubecdc.y.>"}}, consume.Query{
		Start:     consume.Beginning(),
		StopAtEnd: true,
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if e, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v: want no answer before the server has looked at all records", e, err)
	}
	other := open(t, fromnats.JetStream{Conn: conn, Subjects: []string{"kubecdc.y.>"}}, consume.Query{
		Start:     consume.Beginning(),
		StopAtEnd: true,
	})
	fromnats.LagAfter(other, 100*time.Millisecond)
	want := "server " + b.Name() +
		" has looked up to record 8 of 9, and goes no further: it lags behind the stream's leader"
	if e, err := other.Next(t.Context()); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, %v\nwant %s", e, err, want)
	}
	lags.Store(false)
	if e, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("%v, %v: want the end", e, err)
	}
}
