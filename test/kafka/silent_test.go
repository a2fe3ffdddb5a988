package kafka_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
	"github.com/kubecdc/kubecdc/test/kafka"
)

// resumeWithin is the time after the death of a path, or its return, within which delivery and
// reading resume.
const resumeWithin = 20 * time.Second

// awaitRecord waits for a record. The records of the test are no events.
func awaitRecord(ctx context.Context, r consume.Reader) error {
	_, err := r.Next(ctx)
	if unreadable := new(consume.RecordError); errors.As(err, &unreadable) {
		return nil
	}
	return err
}

// The path to a broker dies without a word: first that of the connections that exist, then every
// path for half a minute. The publisher, a reader, and a member of a group resume.
func TestPathThatDiesSilently(t *testing.T) {
	t.Parallel()
	needsBroker(t)
	var path *bustest.Proxy
	c := kafka.Start(t, kafka.Options{Advertise: func(_ int, l kafka.Listener, addr string) (string, error) {
		if l != kafka.Plain {
			return "", nil
		}
		path = bustest.StartProxy(t, addr)
		return path.Addr(), nil
	}})
	a := startPublisher(t, kafkabus.Config{
		Brokers: c.Brokers(), Topic: "written",
		Create: &kafkaconfig.Topic{
			Partitions: 3, ReplicationFactor: 1, Config: map[string]string{"retention.ms": "-1"},
		},
	})
	if err := a.await(t.Context(), version("k", 1)); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(t.Context(), "read", 3, nil); err != nil {
		t.Fatal(err)
	}
	transport := new(kafkago.Transport)
	defer transport.CloseIdleConnections()
	behind := &kafkago.Writer{
		Addr:         kafkago.TCP(c.Inside()...),
		Topic:        "read",
		BatchTimeout: time.Millisecond,
		Transport:    transport,
	}
	defer behind.Close()
	write := func() {
		t.Helper()
		if err := behind.WriteMessages(t.Context(), kafkago.Message{Value: []byte("no JSON")}); err != nil {
			t.Fatal(err)
		}
	}
	write()
	readers := map[string]consume.Reader{}
	for what, source := range map[string]*fromkafka.Kafka{
		"the reader": {Brokers: c.Brokers(), Topics: []string{"read"}},
		"the group":  {Brokers: c.Brokers(), Topics: []string{"read"}, Group: "g"},
	} {
		r, err := source.Read(t.Context(), consume.Query{Start: consume.Beginning()})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := awaitRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		readers[what] = r
	}
	for n, dead := range []time.Duration{0, 30 * time.Second} {
		path.Swallow(dead > 0)
		from := time.Now().Add(dead)
		heal := time.AfterFunc(dead, func() { path.Swallow(false) })
		ctx, cancel := context.WithDeadline(t.Context(), from.Add(2*resumeWithin))
		resumed := func(what string, err error) {
			took := time.Since(from).Round(100 * time.Millisecond)
			t.Logf("dead for %s: %s resumed after %s", dead, what, took)
			if err != nil || took < 0 || took > resumeWithin { // below 0: the path was not dead
				t.Errorf("dead for %s: %s resumed after %s: %v", dead, what, took, err)
			}
		}
		write()
		var waits sync.WaitGroup
		waits.Go(func() { resumed("the publisher", a.await(ctx, version("k", n+2))) })
		for what, r := range readers {
			waits.Go(func() { resumed(what, awaitRecord(ctx, r)) })
		}
		waits.Wait()
		cancel()
		heal.Stop()
	}
}
