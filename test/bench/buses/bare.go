package buses

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	structured = "application/cloudevents+json"
	batched    = "application/cloudevents-batch+json"

	partitions  = 3    // of a topic
	asyncFlight = 4000 // messages that nats.go has in flight at once, its default
)

// Bare sends the workload's events with the client alone and returns how long that took, from the
// first event until the last one was acknowledged.
func Bare(ctx context.Context, s *Server, w *Workload) (time.Duration, error) {
	switch {
	case s.NATS != "":
		return bareNATS(ctx, s, w)
	case len(s.Kafka) > 0:
		return bareKafka(ctx, s, w)
	default:
		return bareHTTP(ctx, s, w)
	}
}

func bareNATS(ctx context.Context, s *Server, w *Workload) (time.Duration, error) {
	nc, err := nats.Connect(s.NATS)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	var failed atomic.Pointer[error]
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(asyncFlight),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			failed.Store(&err)
		}))
	if err != nil {
		return 0, err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name:        s.Name,
		Subjects:    []string{"kubecdc." + cluster + ".>"},
		Discard:     jetstream.DiscardNew,
		AllowDirect: true,
		Duplicates:  2 * time.Minute,
	})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for i := range w.events {
		e := &w.events[i]
		m := nats.NewMsg("kubecdc." + cluster + ".object.apps.deployments." + e.Namespace + "." + e.Name)
		m.Header.Set("content-type", structured)
		m.Data = e.Body
		if _, err := js.PublishMsgAsync(m, jetstream.WithMsgID(e.ID),
			jetstream.WithStallWait(time.Minute)); err != nil {
			return 0, err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	took := time.Since(begin)
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return took, nil
}

func bareKafka(ctx context.Context, s *Server, w *Workload) (time.Duration, error) {
	if err := createTopic(ctx, s); err != nil {
		return 0, err
	}
	var failed atomic.Pointer[error]
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafkago.Writer{
		Addr:  kafkago.TCP(s.Kafka...),
		Topic: s.Name,
		Balancer: kafkago.Murmur2Balancer{
			Consistent: true,
		},
		Transport:    transport,
		RequiredAcks: kafkago.RequireAll,
		Compression:  kafkago.Zstd,
		BatchTimeout: 5 * time.Millisecond,
		Async:        true,
		Completion: func(_ []kafkago.Message, err error) {
			if err != nil {
				failed.Store(&err)
			}
		},
	}
	begin := time.Now()
	for i := range w.events {
		e := &w.events[i]
		m := kafkago.Message{Key: []byte(e.Key), Value: e.Body, Headers: []kafkago.Header{{
			Key:   "content-type",
			Value: []byte(structured),
		}}}
		if err := writer.WriteMessages(ctx, m); err != nil {
			return 0, errors.Join(err, writer.Close())
		}
	}
	if err := writer.Close(); err != nil { // Waits for all acknowledgements.
		return 0, err
	}
	took := time.Since(begin)
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return took, nil
}

// createTopic returns when all partitions have a leader.
func createTopic(ctx context.Context, s *Server) error {
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(s.Kafka...), Transport: transport, Timeout: 10 * time.Second}
	r, err := client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{
		Topics: []kafkago.TopicConfig{{Topic: s.Name, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	if err != nil {
		return err
	}
	if err := r.Errors[s.Name]; err != nil {
		return err
	}
	for {
		n, err := countKafka(ctx, s)
		if err == nil && n == 0 {
			return nil
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func bareHTTP(ctx context.Context, s *Server, w *Workload) (time.Duration, error) {
	transport := &http.Transport{MaxIdleConns: publish.InFlight, MaxIdleConnsPerHost: publish.InFlight}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	batch := max(1, s.Batch)
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range s.inFlight() {
		g.Go(func() error {
			for {
				i := int(next.Add(int64(batch))) - batch
				if i >= len(w.events) {
					return nil
				}
				if err := post(gctx, client, s, w.events[i:min(i+batch, len(w.events))]); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

func post(ctx context.Context, client *http.Client, s *Server, events []Event) error {
	body, contentType := events[0].Body, structured
	if s.Batch > 1 {
		contentType = batched
		body = []byte{'['}
		for i := range events {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, events[i].Body...)
		}
		body = append(body, ']')
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.HTTP, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", s.HTTP, resp.Status)
	}
	return nil
}

// Count returns the number of records on the bus. For an HTTP receiver, it is the number since the
// last call.
func Count(ctx context.Context, s *Server) (int, error) {
	switch {
	case s.NATS != "":
		return countNATS(ctx, s)
	case len(s.Kafka) > 0:
		return countKafka(ctx, s)
	default:
		return countHTTP(ctx, s)
	}
}

// countNATS removes the stream afterwards: the next one has the same subjects.
func countNATS(ctx context.Context, s *Server) (int, error) {
	nc, err := nats.Connect(s.NATS)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	stream, err := js.Stream(ctx, s.Name)
	if err != nil {
		return 0, err
	}
	n := int(stream.CachedInfo().State.Msgs)
	return n, js.DeleteStream(ctx, s.Name)
}

func countKafka(ctx context.Context, s *Server) (int, error) {
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(s.Kafka...), Transport: transport, Timeout: 10 * time.Second}
	var asked []kafkago.OffsetRequest
	for p := range partitions {
		asked = append(asked, kafkago.LastOffsetOf(p))
	}
	r, err := client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{
		s.Name: asked,
	}})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range r.Topics[s.Name] {
		if p.Error != nil {
			return 0, p.Error
		}
		n += int(p.LastOffset)
	}
	return n, nil
}
