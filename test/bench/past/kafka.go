package past

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

const (
	// batchSpan is the longest span of a batch. Batches of an agent are shorter: it has a progress
	// a minute in each partition.
	batchSpan = 5 * time.Minute
	// batchBytes is the size at which a batch is sent. Brokers accept 1 MiB.
	batchBytes = 512 << 10
)

// topic writes events to the partitions of a topic.
type topic struct {
	name       string
	client     *kafkago.Client
	codec      kafkago.Compression
	partitions []*partition
}

// partition collects a batch, and hands it to the goroutine that sends it.
type partition struct {
	records []kafkago.Record
	began   time.Time
	size    int
	batches chan []kafkago.Record // holds one; closed by topic.close
}

// newTopic gives a topic its partitions, and starts a goroutine for each, which ends with ctx or
// close.
func newTopic(ctx context.Context, g *errgroup.Group, t *topic, partitions int) *topic {
	for i := range partitions {
		p := &partition{batches: make(chan []kafkago.Record, 1)}
		t.partitions = append(t.partitions, p)
		g.Go(func() error { return t.send(ctx, i, p) })
	}
	return t
}

func (t *topic) send(ctx context.Context, i int, p *partition) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case batch, ok := <-p.batches:
			if !ok {
				return nil
			}
			if err := t.produce(ctx, i, batch); err != nil {
				return fmt.Errorf("produce to %s/%d: %w", t.name, i, err)
			}
		}
	}
}

// produce sends a batch until the broker has it. On a busy machine, a broker may lose its lead for
// a moment.
func (t *topic) produce(ctx context.Context, i int, batch []kafkago.Record) error {
	const (
		pause = time.Second
		tries = 60
	)
	for try := 1; ; try++ {
		answer, err := t.client.Produce(ctx, &kafkago.ProduceRequest{
			Topic:        t.name,
			Partition:    i,
			RequiredAcks: kafkago.RequireAll,
			Compression:  t.codec,
			Records:      kafkago.NewRecordReader(batch...),
		})
		if err == nil {
			err = answer.Error
		}
		if !errors.Is(err, kafkago.NotLeaderForPartition) || try == tries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// put writes an event as the agent does: those of an object to the partition of its key, and others
// to each. It returns these partitions.
func (t *topic) put(ctx context.Context, e Event) ([]int, error) {
	isOfObject := e.Delta.Stream == nil && e.Delta.Report == nil
	if isOfObject {
		i := balance(e.PartitionKey, len(t.partitions))
		return []int{i}, t.putTo(ctx, i, e, e.PartitionKey)
	}
	var all []int
	for i := range t.partitions {
		if err := t.putTo(ctx, i, e, fmt.Appendf(nil, "%s/%d", e.PartitionKey, i)); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

func (t *topic) putTo(ctx context.Context, i int, e Event, key []byte) error {
	p := t.partitions[i]
	if len(p.records) > 0 && (e.Time.Sub(p.began) > batchSpan || p.size > batchBytes) {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	if len(p.records) == 0 {
		p.began = e.Time
	}
	p.size += len(key) + len(e.Body)
	p.records = append(p.records, kafkago.Record{
		Time:    e.Time,
		Key:     kafkago.NewBytes(key),
		Value:   kafkago.NewBytes(e.Body),
		Headers: []kafkago.Header{{Key: "content-type", Value: []byte(contentType)}},
	})
	return nil
}

func (p *partition) flush(ctx context.Context) error {
	if len(p.records) == 0 {
		return nil
	}
	select {
	case p.batches <- p.records:
		p.records, p.size = nil, 0
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close sends what is left.
func (t *topic) close(ctx context.Context) error {
	var errs []error
	for _, p := range t.partitions {
		errs = append(errs, p.flush(ctx))
		close(p.batches)
	}
	return errors.Join(errs...)
}

// A Kafka says where to write a record.
type Kafka struct {
	Brokers []string
	// Whole and Short are topics that exist; "": this length is not written.
	Whole, Short string
	Partitions   int
	Plain        bool // without compression
	// OnPut is called with each event of the whole record and its partitions, unless it is nil. Its
	// memory is valid during the call.
	OnPut func(e Event, partitions []int)
}

// Fill writes a record to the topics.
func (k *Kafka) Fill(ctx context.Context, o Options, say Say) (*Contents, error) {
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(k.Brokers...), Transport: transport, Timeout: time.Minute}
	codec := kafkago.Zstd
	if k.Plain {
		codec = 0
	}
	g, ctx := errgroup.WithContext(ctx)
	var whole, short *topic
	if k.Whole != "" {
		whole = newTopic(ctx, g, &topic{name: k.Whole, client: client, codec: codec}, k.Partitions)
	}
	if k.Short != "" {
		short = newTopic(ctx, g, &topic{name: k.Short, client: client, codec: codec}, k.Partitions)
	}
	var contents *Contents
	g.Go(func() (err error) {
		contents, err = fill(ctx, o, say, func(e Event) error {
			if whole != nil {
				to, err := whole.put(ctx, e)
				if err != nil {
					return err
				}
				if k.OnPut != nil {
					k.OnPut(e, to)
				}
			}
			if short == nil || e.Time.Before(o.Short) {
				return nil
			}
			_, err := short.put(ctx, e)
			return err
		})
		for _, t := range []*topic{whole, short} {
			if t != nil {
				err = errors.Join(err, t.close(ctx))
			}
		}
		return err
	})
	return contents, g.Wait()
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
