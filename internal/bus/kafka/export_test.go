package kafka

import (
	"context"
	"maps"
	"net"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
)

// SetRoundTripper puts another way to brokers in, with the time limits of the network.
func (b *Bus) SetRoundTripper(rt kafka.RoundTripper) { b.net, b.apart = limited{rt}, limited{rt} }

type limited struct{ kafka.RoundTripper }

func (l limited) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, kafkanet.TimeLimit(req))
	defer cancel()
	return l.RoundTripper.RoundTrip(ctx, addr, req)
}

// SetAbsentToBeGone sets how often a topic must not be there to be gone. Before Run.
func (b *Bus) SetAbsentToBeGone(n int32) { b.absentToBeGone = n }

// MaxBatch is how many bytes a batch of a topic may have now.
func (b *Bus) MaxBatch(topic string) int64 { return b.known(topic).maxBatch.Load() }

// Grow is what happens each minute to what MaxBatch returns.
func (b *Bus) Grow(topic string) { b.known(topic).grow() }

// Topics are the names of the topics that are in memory.
func (b *Bus) Topics() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.topics))
}

func (b *Bus) known(topic string) *topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics[topic]
}

// PartitionOf is the partition of a key.
func PartitionOf(key []byte, partitions int) int {
	numbers := make([]int, partitions)
	for i := range numbers {
		numbers[i] = i
	}
	return partitionOf(key, numbers)
}

// MechanismOf is kafka-go's view of s.
func MechanismOf(s *kafkaconfig.SASL) sasl.Mechanism { return mechanismOf(s) }
