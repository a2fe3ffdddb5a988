package fromnats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// far makes one server of a cluster slow to reach for the others: each byte arrives later. It must
// be called before the servers are started.
func (c *cluster) far(which int, delay time.Duration) {
	c.tb.Helper()
	var near, delayed []*url.URL
	for _, o := range c.options {
		direct := fmt.Sprint("127.0.0.1:", o.Cluster.Port)
		near = append(near, &url.URL{Scheme: "nats", Host: direct})
		delayed = append(delayed, &url.URL{Scheme: "nats", Host: delayTo(c.tb, direct, delay)})
	}
	for i, o := range c.options {
		o.Cluster.Advertise = delayed[i].Host // for the other servers
		for k := range c.options {
			switch {
			case k == i:
			case k == which || i == which:
				o.Routes = append(o.Routes, delayed[k])
			default:
				o.Routes = append(o.Routes, near[k])
			}
		}
	}
}

// delayTo returns the address of a proxy.
func delayTo(tb testing.TB, target string, delay time.Duration) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				_ = from.Close()
				continue
			}
			forwarding.Go(func() { forwardLate(to, from, delay) })
			forwarding.Go(func() { forwardLate(from, to, delay) })
		}
	})
	tb.Cleanup(func() { // after the servers were stopped
		_ = l.Close()
		forwarding.Wait()
	})
	return l.Addr().String()
}

// forwardLate forwards until one of the connections ends, and then ends both.
func forwardLate(to, from net.Conn, delay time.Duration) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1024) // closed by the reader
	var writing sync.WaitGroup
	writing.Go(func() {
		for p := range pieces {
			<-time.After(time.Until(p.at))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close()
			}
		}
		_ = to.Close()
	})
	for {
		buffer := make([]byte, 64<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			pieces <- piece{time.Now().Add(delay), buffer[:n]}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	writing.Wait()
	_ = from.Close()
}

var namesServer = regexp.MustCompile(
	`server n[0-2] has looked up to record \d+ of \d+, and goes no further|does not respond|at nats://\S+: the server did not create the consumers`)

const replicaSubject = "kubecdc.x.object.core.pods.shop.web-1"

// replicaRead is what one read returned.
type replicaRead struct {
	sequences []uint64
	from      uint64 // the first sequence that was asked for
	leaderEnd uint64 // of the stream before the read, as its leader said
	end       uint64 // up to which the reader reads
	server    string // of the first consumer
	pending   uint64 // records, as that server knew when the consumer was created
}

// Three servers have a stream of three replicas. One of them lags for the whole test: it was away,
// and is far from the others. Readers are connected to it alone. A writer continues. Each read has
// all records up to the end that the stream's leader gave, or returns an error that names a server.
func TestReadsOfALaggingReplica(t *testing.T) {
	text := os.Getenv("LAG_READS")
	if text == "" {
		t.Skip("three servers and 150,000 records: part of make test-lag")
	}
	t.Parallel()
	reads, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	const (
		readers = 40
		missed  = 150_000               // records, while the server is away
		back    = 3_000                 // records before the end that a read begins with
		delay   = 25 * time.Millisecond // to and from the server, each
		away    = 2
	)
	c := startCluster(t, func(c *cluster) { c.far(away, delay) })
	nc, js := c.connectTo(0, 1)
	c.fill(js, away, missed)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var background sync.WaitGroup
	background.Go(func() {
		for n := missed + 1; ctx.Err() == nil; n++ {
			// An error, or a missing answer, only means that the stream may lack the record.
			_, _ = js.PublishMsgAsync(&nats.Msg{
				Subject: fmt.Sprintf("kubecdc.x.object.core.pods.shop.web-%d", n%3), Data: pod(n),
				Header: nats.Header{"content-type": {"application/cloudevents+json"}},
			}, jetstream.WithStallWait(time.Minute))
			wait(ctx, time.Millisecond)
		}
	})
	c.start(away)
	ofAway, _ := c.connectTo(away)
	until(t, "the server that was away answers", func() bool {
		_, err := ofAway.Request("$JS.API.STREAM.INFO."+fromnats.DefaultStream, nil, time.Second)
		return err == nil
	})
	var begun, failed, lagging atomic.Int64
	var complete struct {
		sync.Mutex
		reads []replicaRead
	}
	var working sync.WaitGroup
	for range readers {
		own, _ := c.connectTo(away)
		working.Go(func() {
			for begun.Add(1) <= int64(reads) {
				end := lastOf(ctx, nc)
				got, err := readFrom(ctx, own, end-back)
				got.leaderEnd = end
				if got.server == c.options[away].ServerName && got.pending == 0 {
					lagging.Add(1)
				}
				if err != nil {
					if !namesServer.MatchString(err.Error()) {
						t.Error(err)
					}
					failed.Add(1)
					continue
				}
				complete.Lock()
				complete.reads = append(complete.reads, got)
				complete.Unlock()
			}
		})
	}
	working.Wait()
	cancel()
	background.Wait()
	<-js.PublishAsyncComplete()
	t.Logf("%d reads, %d with a consumer on the server that lagged; %d returned an error",
		reads, lagging.Load(), failed.Load())

	stored := c.storedIn(js, away)
	for _, got := range complete.reads {
		if got.end < got.leaderEnd {
			t.Errorf("a read ends at record %d, and the leader had %d before", got.end, got.leaderEnd)
		}
		first, _ := slices.BinarySearch(stored, got.from)
		after, _ := slices.BinarySearch(stored, got.end+1)
		want := stored[first:after]
		if !slices.Equal(got.sequences, want) {
			t.Errorf("a read from %d to %d returned %d records, want %d", got.from, got.end, len(got.sequences),
				len(want))
		}
	}
	if lagging.Load() < int64(reads/5) {
		t.Error("few consumers lagged")
	}
	if failed.Load() > int64(reads/2) {
		t.Error("many reads were not complete")
	}
}

// lastOf returns the last sequence of the stream, as its leader has it.
func lastOf(ctx context.Context, nc *nats.Conn) uint64 {
	for ctx.Err() == nil {
		info := struct {
			Cluster struct{ Leader string }
			State   struct {
				Last uint64 `json:"last_seq"`
			}
		}{}
		answer, err := nc.Request("$JS.API.STREAM.INFO."+fromnats.DefaultStream, nil, time.Second)
		if err == nil && json.Unmarshal(answer.Data, &info) == nil && info.Cluster.Leader != "" {
			return info.State.Last
		}
	}
	return 0
}

// readFrom reads the records of a subject, from a sequence to the end.
func readFrom(ctx context.Context, nc *nats.Conn, from uint64) (replicaRead, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	got := replicaRead{from: from}
	s := fromnats.JetStream{Conn: nc, Subjects: []string{replicaSubject}}
	r, err := s.Read(ctx, consume.Query{Start: after(from - 1), StopAtEnd: true})
	if err != nil {
		return got, err
	}
	defer r.Close()
	fromnats.LagAfter(r, 500*time.Millisecond)
	for _, c := range fromnats.Consumers(r) {
		got.server, got.pending = c.Server, c.Pending
	}
	got.end = fromnats.End(r)
	for {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got.sequences = append(got.sequences, e.Position.Next-1)
	}
}

// storedIn returns the sequences of the records of the subject, from a consumer on a server that is
// not away.
func (c *cluster) storedIn(js jetstream.JetStream, away int) []uint64 {
	c.tb.Helper()
	stream, err := js.Stream(c.tb.Context(), fromnats.DefaultStream)
	if err != nil {
		c.tb.Fatal(err)
	}
	isFar := func(name string) bool { return name == c.options[away].ServerName }
	until(c.tb, "the other servers are current", func() bool {
		info, err := stream.Info(c.tb.Context())
		return err == nil && info.Cluster.Leader != "" &&
			!slices.ContainsFunc(info.Cluster.Replicas, func(r *jetstream.PeerInfo) bool {
				return !isFar(r.Name) && (!r.Current || r.Lag > 0)
			})
	})
	var consumer jetstream.Consumer
	until(c.tb, "a consumer", func() bool {
		consumer, err = stream.CreateConsumer(c.tb.Context(), jetstream.ConsumerConfig{
			FilterSubject: replicaSubject, HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
		})
		return err == nil && !isFar(consumer.CachedInfo().Cluster.Leader)
	})
	messages, err := consumer.Messages()
	if err != nil {
		c.tb.Fatal(err)
	}
	defer messages.Stop()
	var out []uint64
	for {
		m, err := messages.Next()
		if err != nil {
			c.tb.Fatal(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			c.tb.Fatal(err)
		}
		if n := uint64(len(out)) + 1; meta.Sequence.Consumer != n {
			c.tb.Fatalf("record %d of the consumer comes after %d others", meta.Sequence.Consumer, n-1)
		}
		out = append(out, meta.Sequence.Stream)
		if meta.NumPending == 0 {
			return out
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// connectTo connects to these servers alone, and again whenever they are back.
func (c *cluster) connectTo(all ...int) (*nats.Conn, jetstream.JetStream) {
	c.tb.Helper()
	var urls []string
	for _, i := range all {
		urls = append(urls, fmt.Sprint("nats://127.0.0.1:", c.options[i].Port))
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		c.tb.Fatal(err)
	}
	return nc, js
}
