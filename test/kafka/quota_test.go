package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
	"github.com/kubecdc/kubecdc/test/kafka"
)

const quota = 50_000 // bytes a second

// limit sets a quota of the agent's client id.
func limit(t *testing.T, c *kafka.Cluster, key string) {
	t.Helper()
	client := &kafkago.Client{
		Addr:      kafkago.TCP(c.Inside()...),
		Timeout:   10 * time.Second,
		Transport: new(kafkago.Transport),
	}
	defer client.Transport.(*kafkago.Transport).CloseIdleConnections()
	res, err := client.AlterClientQuotas(t.Context(), &kafkago.AlterClientQuotasRequest{
		Entries: []kafkago.AlterClientQuotaEntry{{
			Entities: []kafkago.AlterClientQuotaEntity{{EntityType: "client-id", EntityName: "kubecdc"}},
			Ops:      []kafkago.AlterClientQuotaOps{{Key: key, Value: quota}},
		}},
	})
	if err == nil && len(res.Entries) == 1 {
		err = res.Entries[0].Error
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bulky returns event n of an object, with 10 KB that cannot be compressed.
func bulky(key string, n int) *encode.Event {
	ev := version(key, 1)
	ev.ID = fmt.Appendf(nil, "pods/%s/%d", key, n)
	var b strings.Builder
	for b.Len() < 10_000 {
		b.WriteString(strconv.FormatUint(rand.Uint64(), 36))
	}
	ev.Body = []byte(b.String())
	return ev
}

// sockets returns the number of this machine's client sockets to an address, those included that
// the kernel has not given up yet.
func sockets(t *testing.T, addr string) (n int) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const timeWait = "06" // ended in order, and without data
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", number)) && fields[3] != timeWait {
			n++
		}
	}
	return n
}

// pace counts bytes, and sockets to the broker.
type pace struct {
	bytes   atomic.Int64
	sockets int
}

// measure waits for a span, or until ctx ends, and returns the rate. The broker permits a burst of
// 11 s at its beginning.
func (p *pace) measure(ctx context.Context, t *testing.T, addr string, span time.Duration) float64 {
	t.Helper()
	began := time.Now()
	rate := func() float64 { return float64(p.bytes.Load()) / time.Since(began).Seconds() }
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(began) < span {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return rate()
		}
		p.sockets = max(p.sockets, sockets(t, addr))
	}
	return rate()
}

// check judges the rate of a span. Within a short one, the burst at the beginning and the pauses of
// the broker, which may last for seconds, weigh more than 20 %.
func (p *pace) check(t *testing.T, what string, rate float64, span time.Duration) {
	t.Helper()
	t.Logf("%s: %.0f bytes/s with a quota of %d, at most %d sockets", what, rate, quota, p.sockets)
	low, high := 0.8*quota, 1.2*quota
	if span < 5*time.Minute {
		low, high = 0.7*quota, 1.2*quota+11*quota/span.Seconds()
	}
	if rate < low || rate > high {
		t.Errorf("%s: %.0f bytes/s, want %.0f to %.0f", what, rate, low, high)
	}
	if p.sockets > 32 {
		t.Errorf("%s: %d sockets to the broker, want at most 32", what, p.sockets)
	}
}

// The agent and a reader keep to a quota of 50 KB/s: no request times out, and no socket is
// replaced. QUOTA=600 takes ten minutes for each, and wants the rate within 20 %.
func TestQuota(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("counts sockets in /proc/net/tcp")
	}
	needsBroker(t)
	span := time.Duration(sizes(t, "QUOTA", 60)[0]) * time.Second
	c := kafka.Start(t, kafka.Options{})
	addr := c.Brokers()[0]
	limit(t, c, "producer_byte_rate")
	a := startPublisher(t, kafkabus.Config{
		Brokers: c.Brokers(), Topic: "quota", Compression: "none",
		Create: &kafkaconfig.Topic{
			Partitions: 12, ReplicationFactor: 1, Config: map[string]string{"retention.ms": "-1"},
		},
	})
	written := publishUnderQuota(t, a, addr, span)
	log := a.log.String()
	if !strings.Contains(log, "a broker limits the agent by a quota") {
		t.Error("the log does not say that the agent is throttled")
	}
	if strings.Contains(log, "reason=timeout") || strings.Contains(log, "reason=connection") {
		t.Error("an attempt failed")
	}
	limit(t, c, "consumer_byte_rate")
	readUnderQuota(t, c, addr, span, written)
}

// publishUnderQuota publishes more than the quota permits, and returns the number of acknowledged
// events.
func publishUnderQuota(t *testing.T, a *agent, addr string, span time.Duration) (written int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var p pace
	var events atomic.Int64
	var publishing sync.WaitGroup
	var ending atomic.Bool
	for k := range 64 {
		publishing.Go(func() {
			for n := 1; !ending.Load(); n++ {
				ev := bulky("k"+strconv.Itoa(k), n)
				if err := a.await(ctx, ev); err != nil {
					t.Error(err)
					return
				}
				p.bytes.Add(int64(len(ev.Body)))
				events.Add(1)
			}
		})
	}
	rate := p.measure(ctx, t, addr, span)
	ending.Store(true)
	publishing.Wait()
	p.check(t, "publisher", rate, span)
	return events.Load()
}

// readUnderQuota reads the topic to its end.
func readUnderQuota(t *testing.T, c *kafka.Cluster, addr string, span time.Duration, written int64) {
	t.Helper()
	source := &fromkafka.Kafka{
		Brokers: c.Brokers(), Topics: []string{"quota"}, Dialer: &kafkago.Dialer{
			ClientID: "kubecdc",
			Timeout:  10 * time.Second,
		},
	}
	r, err := source.Read(t.Context(), consume.Query{
		Start: consume.Beginning(), StopAtEnd: true, OnRetry: func(err error) {
			t.Errorf("the reader was interrupted: %v", err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, ended := context.WithCancel(t.Context())
	defer ended()
	var p pace
	var read int64
	var reading sync.WaitGroup
	reading.Go(func() {
		defer ended()
		for {
			_, err := r.Next(t.Context())
			unreadable := new(consume.RecordError) // the body is no JSON
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil && !errors.As(err, &unreadable):
				t.Error(err)
				return
			}
			read++
			p.bytes.Add(10_000)
		}
	})
	rate := p.measure(ctx, t, addr, span)
	reading.Wait()
	if read != written {
		t.Errorf("%d records were read, %d were written", read, written)
	}
	p.check(t, "reader", rate, span)
}
