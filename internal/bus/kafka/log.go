package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// takes reports whether events of objects of a resource in a namespace ("": any) may go to a topic.
func (b *Bus) takes(topic string, r *object.Resource, namespace string) bool {
	if namespace != "" && b.topicNames.Varies() {
		return topic == string(b.topicNames.AppendOf(nil, r, namespace))
	}
	return b.topicNames.Match(topic, r)
}

// watchLogs reads the identity of topics on request, and every minute, until ctx ends.
func (b *Bus) watchLogs(ctx context.Context) error {
	wait, logged := publish.LogAge, false // logged: the reason why the identity cannot be read
	for {
		select {
		case <-b.logsDue:
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		wait = publish.LogAge
		again, err := b.lookAtLogs(ctx)
		if ctx.Err() != nil {
			return nil
		}
		b.logs.SetTrouble(err)
		if err != nil && !logged {
			b.log.Warn("cannot read the ids of topics: a topic that is deleted and created again may go unnoticed",
				"err", err)
		}
		logged = err != nil
		if again {
			b.metadataDue.Raise() // read the leaders too: if they have changed, another broker must confirm the look
			wait = publish.LogPause
		}
		if pause.For(ctx, publish.LogPause) != nil {
			return nil
		}
	}
}

// lookAtLogs reads the identity and the ends of all topics that have stored events. It reports
// whether another look is needed soon. Its error names what could not be read, from which it
// concludes nothing.
func (b *Bus) lookAtLogs(ctx context.Context) (again bool, err error) {
	v := b.view()
	var looks []publish.Look
	for _, name := range b.logs.Names() {
		looks = append(looks, b.logs.Look(name))
	}
	if len(looks) == 0 || len(v.brokers) == 0 {
		return false, nil
	}
	res, err := b.topicIDs(ctx, v, looks)
	if res == nil {
		return false, err
	}
	ends, errs := b.topicEnds(ctx, v, looks)
	for _, l := range looks {
		id, ok := res.Topics[l.Name]
		if !ok {
			continue // it does not exist, or may not be described
		}
		again = b.logs.NoteFound(l, res.Cluster, id, ends[l.Name]) || again
	}
	return again, errors.Join(append(errs, err)...)
}

// topicIDs asks brokers until one answers. If it supports no topic ids, the error wraps
// kafkaid.ErrUnsupported, and the ids of existing topics are empty.
func (b *Bus) topicIDs(ctx context.Context, v *view, looks []publish.Look) (*kafkaid.IDs, error) {
	names := make([]string, len(looks))
	for i, l := range looks {
		names[i] = l.Name
	}
	var errs []error
	for _, addr := range b.throttledLast(v.brokers) {
		ids, err := kafkaid.Lookup(ctx, &kafka.Client{Transport: b.net}, addr, names)
		switch {
		case err == nil:
			return ids, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, kafkaid.ErrUnsupported):
			errs = append(errs, err)
			continue
		}
		res, metaErr := b.metadata(ctx, names)
		if metaErr != nil {
			return nil, fmt.Errorf("get the cluster's id: %w", metaErr)
		}
		ids = &kafkaid.IDs{Cluster: res.ClusterID, Topics: map[string]string{}}
		for i := range res.Topics {
			if res.Topics[i].Error == nil {
				ids.Topics[res.Topics[i].Name] = ""
			}
		}
		return ids, err
	}
	return nil, errors.Join(errs...)
}

// topicEnds reads the ends of partitions from their leaders. The end of a partition that could not
// be read is UnknownEnd.
func (b *Bus) topicEnds(ctx context.Context, v *view, looks []publish.Look) (ends map[string][]uint64, errs []error) {
	ends = map[string][]uint64{}
	requests := map[net.Addr]map[string][]listoffsets.RequestPartition{} // by leader and topic
	for _, l := range looks {
		leaders, ok := v.leaders[l.Name]
		if !ok {
			continue // not looked up yet
		}
		all := make([]uint64, len(leaders)) // a partition beyond them has lost all of its records
		for i, leader := range leaders {
			all[i] = publish.UnknownEnd
			if i >= len(l.Acked) || l.Acked[i] == 0 || leader == nil {
				continue
			}
			if requests[leader] == nil {
				requests[leader] = map[string][]listoffsets.RequestPartition{}
			}
			requests[leader][l.Name] = append(requests[leader][l.Name],
				listoffsets.RequestPartition{Partition: int32(i), CurrentLeaderEpoch: -1, Timestamp: kafka.LastOffset})
		}
		ends[l.Name] = all
	}
	for leader, topics := range requests {
		if err := b.askEnds(ctx, leader, topics, ends); err != nil {
			errs = append(errs, fmt.Errorf("get the end offsets of partitions: %w", err))
		}
	}
	return ends, errs
}

// askEnds reads ends of partitions from one leader. kafka-go's Client.ListOffsets is no option: it
// returns 0 for unanswered partitions.
func (b *Bus) askEnds(
	ctx context.Context, leader net.Addr, topics map[string][]listoffsets.RequestPartition, ends map[string][]uint64,
) error {
	req := &listoffsets.Request{ReplicaID: -1}
	for topic, partitions := range topics {
		req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: topic, Partitions: partitions})
	}
	r, err := b.net.RoundTrip(ctx, leader, req)
	if err != nil {
		return err
	}
	res, ok := r.(*listoffsets.Response)
	if !ok {
		return nil
	}
	for i := range res.Topics {
		all := ends[res.Topics[i].Topic]
		for _, p := range res.Topics[i].Partitions {
			// A new leader returns an error until it knows its end (KIP-207).
			if p.ErrorCode == 0 && p.Offset >= 0 && int(p.Partition) < len(all) {
				all[p.Partition] = uint64(p.Offset)
			}
		}
	}
	return nil
}

// tailOf returns the tail of a partition. The topic of dead letters is not tracked, because they
// belong to no scope.
func (b *Bus) tailOf(topic string, partition int) *publish.Tail {
	if topic == b.deadTopic {
		return &publish.Tail{}
	}
	return b.logs.Tail(topic, partition)
}
