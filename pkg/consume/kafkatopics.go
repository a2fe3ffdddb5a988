package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/kafkaid"
)

// reads reports whether a topic is to be read.
func (s *Kafka) reads(topic string, internal bool) bool {
	return slices.Contains(s.Topics, topic) || s.Match != nil && !internal && s.Match(topic)
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
func (r *kafkaReader) logs(ctx context.Context, topics map[string]int) ([]Log, error) {
	names := make([]string, 0, len(topics))
	for topic := range topics {
		names = append(names, topic)
	}
	ids, err := r.identities(ctx, names)
	if err != nil {
		return nil, err
	}
	var out []Log
	for topic, n := range topics {
		chosen := r.s.chosen(&r.q, n)
		for p := range n {
			if chosen != nil && !slices.Contains(chosen, p) {
				continue
			}
			out = append(out, Log{Name: topic, Partition: p, ID: ids[topic]})
			if r.q.OneCopy {
				break
			}
		}
	}
	return out, nil
}

// chosen returns the partitions, of n, that have the records of a query's objects; nil: all.
func (s *Kafka) chosen(q *Query, n int) []int {
	if s.Cluster == "" || s.Group != "" {
		return nil
	}
	partitions := make([]int, n)
	for i := range partitions {
		partitions[i] = i
	}
	var out []int
	for i := range q.Objects {
		key, ok := keyOf(s.Cluster, &q.Objects[i])
		if !ok {
			return nil
		}
		out = append(out, kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: key}, partitions...))
	}
	return out
}

// keyOf returns the key of an object's records: "prod-eu-1/apps/deployments/shop/web". Longer names than Kubernetes allows for most objects are
// shortened in keys.
func keyOf(cluster string, o *Objects) ([]byte, bool) {
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
