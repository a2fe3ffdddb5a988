package subjectfilter

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// counter counts the records of a stream by their subjects. One consumer makes all its counts, so
// they come from one server, which may lag behind the stream's leader.
type counter struct {
	stream jetstream.Stream
	name   string // of the consumer
	after  uint64 // the records up to this sequence are not counted; 0: all are
	all    uint64 // records at the last count at rest
	end    uint64 // the last sequence of the stream then
}

// newCounter creates the consumer, which counts the records after a sequence. remove deletes it.
func newCounter(ctx context.Context, stream jetstream.Stream, after uint64) (*counter, error) {
	c := &counter{stream: stream, name: "kubecdc-" + nuid.Next(), after: after}
	if _, err := stream.CreateConsumer(ctx, c.config(nil)); err != nil {
		return nil, fmt.Errorf("count records: %w", err)
	}
	return c, nil
}

func (c *counter) config(wildcards [][]string) jetstream.ConsumerConfig {
	config := filterConfig(c.name, jetstream.DeliverAllPolicy, wildcards)
	if c.after > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, c.after+1
	}
	return config
}

// remove deletes the consumer. On an error, the server removes it after the idle time.
func (c *counter) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	_ = c.stream.DeleteConsumer(ctx, c.name)
}

// count returns the number of records whose subjects match a wildcard; without wildcards, of all.
func (c *counter) count(ctx context.Context, wildcards ...[]string) (uint64, error) {
	updated, err := c.stream.UpdateConsumer(ctx, c.config(wildcards))
	if err != nil {
		return 0, fmt.Errorf("count records: %w", err)
	}
	return updated.CachedInfo().NumPending, nil
}

// countAtRest counts for several lists of wildcards. Its counts are comparable: no record has
// arrived in between, and the server has as many records as the stream's leader. It returns
// errUnsettled if that cannot be had.
func (c *counter) countAtRest(ctx context.Context, lists ...[][]string) ([]uint64, error) {
	before, err := c.count(ctx)
	if err != nil {
		return nil, err
	}
	for range mostCounts {
		counts := make([]uint64, len(lists))
		for k, wildcards := range lists {
			counts[k], err = c.count(ctx, wildcards...)
			if err != nil {
				return nil, err
			}
		}
		info, err := c.stream.Info(ctx)
		if err != nil {
			return nil, fmt.Errorf("count records: %w", err)
		}
		after, err := c.count(ctx)
		if err != nil {
			return nil, err
		}
		all := info.State.Msgs
		if c.after > 0 { // if none was removed
			all = info.State.LastSeq - c.after
		}
		if before == after && all == after && isLed(info) {
			c.all, c.end = after, info.State.LastSeq
			return counts, nil
		}
		before = after
	}
	return nil, errUnsettled
}

// isLed reports whether a stream has a leader, which describes it.
func isLed(info *jetstream.StreamInfo) bool { return info.Cluster == nil || info.Cluster.Leader != "" }

// filterConfig is the configuration of a consumer that delivers the records under some wildcards;
// none: all.
func filterConfig(name string, policy jetstream.DeliverPolicy, wildcards [][]string) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Name:              name,
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     policy,
		InactiveThreshold: forgotten,
		MemoryStorage:     true,
		Replicas:          1,
	}
	for _, w := range disjoint(wildcards) {
		c.FilterSubjects = append(c.FilterSubjects, strings.Join(w, "."))
	}
	if len(c.FilterSubjects) == 1 {
		c.FilterSubject, c.FilterSubjects = c.FilterSubjects[0], nil
	}
	return c
}
