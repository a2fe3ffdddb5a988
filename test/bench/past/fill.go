package past

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	kafkago "github.com/segmentio/kafka-go"
)

const contentType = "application/cloudevents+json"

// inFlight is how many messages may wait for an answer of the server.
const inFlight = 4000

// FillJetStream creates the stream KUBECDC, as the agent does, and writes a record to it.
func FillJetStream(ctx context.Context, url string, r *Record) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	var failed atomic.Pointer[error]
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { failed.Store(&err) }))
	if err != nil {
		return err
	}
	if _, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc." + Cluster + ".>"}, Discard: jetstream.DiscardNew, AllowDirect: true, Duplicates: 2 * time.Minute,
	}); err != nil {
		return err
	}
	err = r.Write(func(e Event) error {
		m := nats.NewMsg(e.Subject)
		m.Header.Set("content-type", contentType)
		m.Data = e.Body
		if _, err := js.PublishMsgAsync(m, jetstream.WithMsgID(string(e.ID)), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// FillKafka writes a record to a topic that exists, stream events and progress to each partition. It returns the bytes of the keys and values in each
// partition from a time on.
func FillKafka(ctx context.Context, brokers []string, topic string, partitions int, since time.Time, r *Record) ([]int64, error) {
	var failed atomic.Pointer[error]
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	var to int // the partition of the next message
	writer := &kafkago.Writer{
		Addr: kafkago.TCP(brokers...), Topic: topic, Transport: transport, RequiredAcks: kafkago.RequireAll, BatchTimeout: 5 * time.Millisecond, Async: true,
		Balancer: kafkago.BalancerFunc(func(kafkago.Message, ...int) int { return to }),
		Completion: func(_ []kafkago.Message, err error) {
			if err != nil {
				failed.Store(&err)
			}
		},
	}
	sizes := make([]int64, partitions)
	err := r.Write(func(e Event) error {
		m := kafkago.Message{
			Key: append([]byte{}, e.PartitionKey...), Value: e.Body, Time: e.Time,
			Headers: []kafkago.Header{{Key: "content-type", Value: []byte(contentType)}},
		}
		targets := all
		if e.Delta.Stream == nil && e.Delta.Report == nil {
			targets = []int{balance(m.Key, partitions)}
		}
		for _, to = range targets {
			if !e.Time.Before(since) {
				sizes[to] += int64(len(m.Key) + len(m.Value))
			}
			if err := writer.WriteMessages(ctx, m); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, writer.Close()); err != nil { // Close waits for all acknowledgements
		return nil, err
	}
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return sizes, nil
}

// Partition returns the partition, of n, that has the events of an object.
func Partition(of Of, n int) int {
	resource, group, _ := strings.Cut(of.Resource, ".")
	if group == "" {
		group = "core"
	}
	key := strings.Join([]string{Cluster, group, resource, of.Namespace, of.Name}, "/")
	return balance([]byte(key), n)
}

func balance(key []byte, n int) int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return kafkago.Murmur2Balancer{}.Balance(kafkago.Message{Key: key}, all...)
}
