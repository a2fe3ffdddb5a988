package publish

import (
	"maps"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// ErrCut is errCut.
var ErrCut = errCut

// SetRoundTripper puts another way to brokers in.
func (k *Kafka) SetRoundTripper(rt kafka.RoundTripper) { k.net = rt }

// SetAbsentToBeGone sets how often a topic must not be there to be gone. Before Run.
func (k *Kafka) SetAbsentToBeGone(n int32) { k.absentToBeGone = n }

// MaxBatch is how many bytes a batch of a topic may have now.
func (k *Kafka) MaxBatch(topic string) int64 { return k.known(topic).maxBatch.Load() }

// Grow is what happens each minute to what MaxBatch returns.
func (k *Kafka) Grow(topic string) { k.known(topic).grow() }

// Topics are the names of the topics that are in memory.
func (k *Kafka) Topics() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.topics))
}

func (k *Kafka) known(topic string) *topic {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.topics[topic]
}

// PartitionOf is the partition of a key.
func PartitionOf(key []byte, partitions int) int { return partitionOf(key, partitions) }

// KafkaMechanism is kafka-go's view of s.
func KafkaMechanism(s *SASL) (sasl.Mechanism, error) { return s.mechanism() }

// BuildBatch makes the record set of a request.
func BuildBatch(compression string, tombstones bool, id int64, epoch int16, sequence int32, events ...*encode.Event) ([]byte, error) {
	c, err := newCodec(compression, 1)
	if err != nil {
		return nil, err
	}
	records := make([]*record, len(events))
	for i, ev := range events {
		records[i] = new(record)
		records[i].load(ev, ev.PartitionKey, tombstones)
	}
	var b batch
	for range 2 { // its buffers are used again
		if err := b.build(records, c); err != nil {
			return nil, err
		}
		b.stamp(producer{id: id, epoch: epoch, sequence: sequence})
	}
	return b.set, nil
}

// Advance is the sequence behind a batch of that many records.
func Advance(sequence int32, records int) int32 {
	p := producer{sequence: sequence}
	p.advance(records)
	return p.sequence
}
