package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
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
	fetch := &kafka.OffsetFetchRequest{GroupID: s.group, Topics: map[string][]int{}}
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
		return nil, fmt.Errorf("look up the offsets of group %s (may this user read it?): %w", s.group, err)
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
				return nil, fmt.Errorf("look up the offset of group %s in topic %s, partition %d: %w", s.group, topic, p.Partition, p.Error)
			}
			o := out[logID{topic, p.Partition}]
			o.committed = p.CommittedOffset
			out[logID{topic, p.Partition}] = o
		}
	}
	return out, nil
}

// settle sets the group's offsets where it has none at all and is to begin with what comes; where it has some, a partition
// without one is new and is read from its beginning. What the group has not read and is gone is missed. began is where reading
// begins.
func (s *Kafka) settle(ctx context.Context, partitions map[string]int) (began map[logID]int64, err error) {
	found, err := s.look(ctx, partitions)
	if err != nil {
		return nil, err
	}
	if err := s.comeBack(ctx, found); err != nil {
		return nil, err
	}
	began = map[logID]int64{}
	known := false
	ends := map[string][]kafka.OffsetCommit{}
	s.missed = nil
	for id, o := range found {
		known = known || o.committed >= 0
		began[id] = max(o.committed, o.first)
		ends[id.name] = append(ends[id.name], kafka.OffsetCommit{Partition: id.partition, Offset: o.last})
		if o.committed >= 0 && o.committed < o.first {
			s.missed = append(s.missed, missedOffsets(id, uint64(o.committed), uint64(o.first)))
			delete(s.next, id) // else Next would miss them once more
		}
	}
	if known || s.cfg.Start != Live {
		return began, nil
	}
	if err := s.setOffsets(ctx, ends); err != nil {
		return nil, err
	}
	s.log.Info("relay begins", "group", s.group, "start", string(s.cfg.Start))
	return began, nil
}

// beyondEnough is how often in a row an offset has to be beyond the end: a new leader may not know the end yet.
const beyondEnough = 3

// comeBack sets offsets that are beyond the end of their partition to its beginning. The topic has been made anew, or has
// lost records; reading would wait in silence until there are as many again, and pass over them. The group's offset goes with a
// topic that is deleted: then it is what has been read that tells.
func (s *Kafka) comeBack(ctx context.Context, found map[logID]offsets) error {
	begins := map[string][]kafka.OffsetCommit{}
	came := func(id logID) int64 {
		if at := found[id].committed; at >= 0 {
			return at
		}
		return int64(s.next[id])
	}
	for id, o := range found {
		if came(id) > o.last {
			begins[id.name] = append(begins[id.name], kafka.OffsetCommit{Partition: id.partition, Offset: o.first})
		}
	}
	if len(begins) == 0 {
		s.beyond = 0
		return nil
	}
	if s.beyond++; s.beyond < beyondEnough {
		return fmt.Errorf("offsets of group %s are beyond the end of their partitions: looking again", s.group)
	}
	s.beyond = 0
	if err := s.setOffsets(ctx, begins); err != nil {
		return err
	}
	for topic, ps := range begins {
		for _, p := range ps {
			id := logID{topic, p.Partition}
			s.log.Error("partition ends before the cursor: the topic has been created anew, or has lost records; the relay begins at the partition's beginning, and what the former one still held does not reach the target",
				"topic", topic, "partition", p.Partition, "cursor", came(id), "end", found[id].last, "position", p.Offset)
			o := found[id]
			o.committed = o.first
			found[id] = o
			delete(s.next, id)
		}
	}
	return nil
}

// setOffsets sets offsets of the group, of which nobody may be a member.
func (s *Kafka) setOffsets(ctx context.Context, to map[string][]kafka.OffsetCommit) error {
	done, err := s.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: s.group, GenerationID: -1, Topics: to})
	if err != nil {
		return fmt.Errorf("set the offsets of group %s: %w", s.group, err)
	}
	for topic, ps := range done.Topics {
		for _, p := range ps {
			if p.Error != nil {
				return fmt.Errorf("set the offset of group %s in topic %s, partition %d: %w", s.group, topic, p.Partition, p.Error)
			}
		}
	}
	return nil
}

func missedOffsets(id logID, from, first uint64) error {
	return &consume.MissedError{Log: consume.Log{Name: id.name, Partition: id.partition}, From: from, To: first - 1}
}

// Behind implements Source.
func (s *Kafka) Behind(ctx context.Context, marks []Mark) (uint64, error) {
	r := s.reading.Load()
	partitions, err := s.find(ctx)
	if err != nil {
		return 0, err
	}
	found, err := s.look(ctx, partitions)
	if err != nil {
		return 0, err
	}
	// The group's offset goes with a topic that is deleted; where reading has come to tells that it is another one.
	n := uint64(0)
	for id, o := range found {
		n += o.behind()
		if max(o.committed, r.began[id]) > o.last {
			r.over.Store(true) // Next sees to it
		}
	}
	for _, m := range r.own(marks) {
		if o, ok := found[logID{m.Name, m.Partition}]; ok && m.Position >= uint64(o.last) {
			r.over.Store(true)
		}
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
