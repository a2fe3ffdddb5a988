package fromkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// reads reports whether a topic is to be read.
func (k *Kafka) reads(topic string, internal bool) bool {
	return slices.Contains(k.Topics, topic) || k.Match != nil && !internal && k.Match(topic)
}

// identities returns the Log.ID of topics, "" if it is not known.
func (r *kafkaReader) identities(ctx context.Context, topics []string) (map[string]string, error) {
	ids, err := kafkaid.Lookup(ctx, r.client, kafka.TCP(r.s.Brokers...), topics)
	switch {
	case errors.Is(err, kafkaid.ErrUnsupported):
		return nil, nil // a topic that is created again is detected if it ends earlier
	case err != nil:
		return nil, fmt.Errorf("at %s: %w", r.brokers(), err)
	}
	for topic, id := range ids.Topics {
		ids.Topics[topic] = ids.Cluster + "/" + id
	}
	return ids.Topics, nil
}

// logs returns the partitions of the topics to read, with their identities.
func (r *kafkaReader) logs(ctx context.Context, topics map[string]int) ([]consume.Log, error) {
	names := make([]string, 0, len(topics))
	for topic := range topics {
		names = append(names, topic)
	}
	ids, err := r.identities(ctx, names)
	if err != nil {
		return nil, err
	}
	var out []consume.Log
	for topic, n := range topics {
		chosen := r.s.chosen(&r.q, n)
		for p := range n {
			if chosen == nil || slices.Contains(chosen, p) {
				out = append(out, consume.Log{Name: topic, Partition: p, ID: ids[topic]})
			}
		}
	}
	return out, nil
}

// chooseCopies returns one log of each topic, always the same. From the beginning on, it is the one
// with the oldest record: retention may have removed more from the others.
func (r *kafkaReader) chooseCopies(ctx context.Context, logs []consume.Log) ([]consume.Log, error) {
	byTopic := map[string][]consume.Log{}
	for _, l := range logs {
		byTopic[l.Name] = append(byTopic[l.Name], l)
	}
	for topic, all := range byTopic {
		if _, known := r.copies[topic]; known {
			continue
		}
		one := all[0]
		if len(all) > 1 && r.q.Start.Kind() == consume.StartBeginning {
			var err error
			one, err = r.oldest(ctx, all)
			if err != nil {
				return nil, err
			}
		}
		r.copies[topic] = one.Partition
	}
	return slices.DeleteFunc(logs, func(l consume.Log) bool { return r.copies[l.Name] != l.Partition }), nil
}

// oldest returns the log with the oldest record, by its timestamp. A first offset of 0 does not
// show it: a partition that was added to the topic has that too.
func (r *kafkaReader) oldest(ctx context.Context, logs []consume.Log) (consume.Log, error) {
	ends, err := r.offsets(ctx, logs)
	if err != nil {
		return consume.Log{}, err
	}
	var oldest time.Time
	out := logs[0]
	for _, l := range logs {
		o := ends[idOf(l)]
		if o.first == o.last {
			continue
		}
		at, err := r.timeAt(ctx, l, o.first)
		if err != nil {
			return consume.Log{}, err
		}
		if !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest, out = at, l
		}
	}
	return out, nil
}

// leaderWait is how long the first record of a partition may have no leader before a read fails.
const leaderWait = 30 * time.Second

// timeAt returns the timestamp of the first record at an offset or after it. It is zero if there is
// none: retention has removed it meanwhile, or the batch has only control records. It waits for a
// partition without a leader.
func (r *kafkaReader) timeAt(ctx context.Context, l consume.Log, offset int64) (time.Time, error) {
	for began := time.Now(); ; {
		at, err := r.timeAtOnce(ctx, l, offset)
		if err == nil || !isTemporary(err) || time.Since(began) > leaderWait || pause.For(ctx, retryFirst) != nil {
			return at, err
		}
	}
}

// isTemporary reports whether a request may succeed later: a broker refuses it, or there is no
// leader.
func isTemporary(err error) bool {
	if errors.Is(err, protocol.ErrNoLeader) {
		return true
	}
	e := kafka.Error(0)
	return errors.As(err, &e) && e.Temporary()
}

func (r *kafkaReader) timeAtOnce(ctx context.Context, l consume.Log, offset int64) (time.Time, error) {
	res, err := r.client.Fetch(ctx, &kafka.FetchRequest{
		Topic:     l.Name,
		Partition: l.Partition,
		Offset:    offset,
		MinBytes:  1,
		MaxBytes:  leastFetch,
		MaxWait:   fetchWait,
	})
	if err == nil {
		err = res.Error
	}
	if errors.Is(err, kafka.OffsetOutOfRange) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{},
			fmt.Errorf("read the first record of topic %s, partition %d at %s: %w", l.Name, l.Partition, r.brokers(),
				kafkaid.Cause(err))
	}
	first, err := res.Records.ReadRecord()
	if errors.Is(err, io.EOF) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{},
			fmt.Errorf("read the first record of topic %s, partition %d at %s: %w", l.Name, l.Partition, r.brokers(),
				err)
	}
	return first.Time, nil
}

// chosen returns the partitions, of n, that have the records of a query's objects; nil: all.
func (k *Kafka) chosen(q *consume.Query, n int) []int {
	cluster := cmp.Or(q.Cluster, k.Cluster)
	if cluster == "" || k.Group != "" {
		return nil
	}
	partitions := make([]int, n)
	for i := range partitions {
		partitions[i] = i
	}
	var out []int
	for i := range q.Objects {
		key, ok := keyOf(cluster, &q.Objects[i])
		if !ok {
			return nil
		}
		out = append(out, kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: key}, partitions...))
	}
	return out
}

// keyOf returns the key of an object's records: "prod-eu-1/apps/deployments/shop/web". Longer names
// than Kubernetes allows for most objects are shortened in keys.
func keyOf(cluster string, o *consume.Objects) ([]byte, bool) {
	const longest = 253
	if len(o.Groups) != 1 || o.Resource == "" || o.Namespace == "" || o.Name == "" || len(o.Name) > longest {
		return nil, false
	}
	group := o.Groups[0]
	if group == "" {
		group = "core"
	}
	return []byte(strings.Join([]string{cluster, group, o.Resource, o.Namespace, o.Name}, "/")), true
}
