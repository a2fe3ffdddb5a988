package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
)

// offsets are those of one partition.
type offsets struct {
	committed   int64 // the next to be delivered; -1: none
	first, last int64 // the oldest that there is, and the one that will be next
}

// behind is how many records there are beyond what is committed.
func (o offsets) behind() uint64 {
	if o.committed > o.last { // of another topic
		return uint64(o.last - o.first)
	}
	return uint64(o.last - max(o.committed, o.first))
}

// look asks for the group's offsets, and those that there are.
func (s *Kafka) look(ctx context.Context, partitions map[string]int) (map[logID]offsets, error) {
	fetch := &kafka.OffsetFetchRequest{GroupID: s.bus.Group, Topics: map[string][]int{}}
	list := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{}}
	for topic, n := range partitions {
		for p := range n {
			fetch.Topics[topic] = append(fetch.Topics[topic], p)
			list.Topics[topic] = append(list.Topics[topic], kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
		}
	}
	// The group's first: the other way round, what is delivered in between would look like an offset beyond the end.
	held, err := s.client.OffsetFetch(ctx, fetch)
	if err == nil {
		err = held.Error
	}
	if err != nil {
		return nil, fmt.Errorf("look up the offsets of group %s (may this user read it?): %w", s.bus.Group, err)
	}
	there, err := s.client.ListOffsets(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("look up offsets: %w", err)
	}
	out := map[logID]offsets{}
	for topic, ps := range there.Topics {
		for _, p := range ps {
			if p.Error != nil {
				return nil, fmt.Errorf("look up offsets of topic %s, partition %d: %w", topic, p.Partition, p.Error)
			}
			out[logID{topic, p.Partition}] = offsets{committed: -1, first: p.FirstOffset, last: p.LastOffset}
		}
	}
	for topic, ps := range held.Topics {
		for _, p := range ps {
			if p.Error != nil {
				return nil, fmt.Errorf("look up the offset of group %s in topic %s, partition %d: %w", s.bus.Group, topic, p.Partition, p.Error)
			}
			o := out[logID{topic, p.Partition}]
			o.committed = p.CommittedOffset
			out[logID{topic, p.Partition}] = o
		}
	}
	return out, nil
}

// Behind implements Source. The group has the marks, but for those of the last second.
func (s *Kafka) Behind(ctx context.Context, _ []Mark) (uint64, error) {
	partitions, err := s.find(ctx)
	if err != nil {
		return 0, err
	}
	found, err := s.look(ctx, partitions)
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for _, o := range found {
		n += o.behind()
	}
	return n, nil
}

// Status says where the cursor stands, in each partition.
func (s *Kafka) Status(ctx context.Context) ([]Position, error) {
	partitions, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.look(ctx, partitions)
	if err != nil {
		return nil, err
	}
	out := make([]Position, 0, len(found))
	for topic, n := range partitions {
		for i := range n {
			o, ok := found[logID{topic, i}]
			if !ok {
				continue
			}
			p := Position{Place: fmt.Sprintf("%s/%d", topic, i)}
			switch {
			case o.committed < 0:
				p.Problem = "nothing has been delivered from it yet"
			case o.committed > o.last:
				p.Problem = "the partition ends before it, its topic has been created anew: it begins at its beginning"
			case o.committed < o.first:
				p.Problem = fmt.Sprintf("%d records are gone that it has not delivered", o.first-o.committed)
			}
			p.At, p.Behind = uint64(max(o.committed, 0)), o.behind()
			out = append(out, p)
		}
	}
	sortPositions(out)
	return out, nil
}

// sortPositions sorts by topic, and partitions by number.
func sortPositions(ps []Position) {
	split := func(place string) (string, int) {
		i := strings.LastIndexByte(place, '/')
		n, err := strconv.Atoi(place[i+1:])
		if i < 0 || err != nil {
			return place, 0
		}
		return place[:i], n
	}
	slices.SortFunc(ps, func(a, b Position) int {
		at, an := split(a.Place)
		bt, bn := split(b.Place)
		return cmp.Or(strings.Compare(at, bt), cmp.Compare(an, bn))
	})
}
