package fromkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// kafkaGroup is a kafkaReader whose partitions a consumer group assigns.
type kafkaGroup struct {
	*kafkaReader
	members sync.WaitGroup // the goroutine of member
	member  *kafka.ConsumerGroup
	end     context.CancelFunc // of members

	mu         sync.Mutex
	generation *kafka.Generation // nil: it has not joined yet
}

const (
	// sessionTimeout is the time after which the group reassigns the partitions of a dead member.
	sessionTimeout = 10 * time.Second
	// logMetadata begins the metadata of the group's offsets, in front of the identity of the log.
	logMetadata = "log="
)

// join makes the reader a member of its group.
func (r *kafkaReader) join(ctx context.Context) error {
	r.group = &kafkaGroup{kafkaReader: r}
	return r.rejoin(ctx)
}

// rejoin joins the group again, for the present topics.
func (r *kafkaReader) rejoin(ctx context.Context) error {
	g := r.group
	if err := g.leave(); err != nil && ctx.Err() == nil {
		r.noteInterruption(err)
	}
	topics := make([]string, 0, len(r.topics))
	for topic := range r.topics {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	member, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                    r.s.Group,
		Brokers:               r.s.Brokers,
		Dialer:                r.s.dialer(),
		Topics:                topics,
		WatchPartitionChanges: true,
		SessionTimeout:        sessionTimeout,
		JoinGroupBackoff:      time.Second,
	})
	if err != nil {
		return fmt.Errorf("join group %s: %w", r.s.Group, err)
	}
	ctx, g.end = context.WithCancel(r.ctx)
	g.member = member
	g.members.Go(func() { g.generations(ctx, member) })
	return nil
}

// leave ends the membership, and waits until its fetchers have ended.
func (g *kafkaGroup) leave() error {
	if g.member == nil {
		return nil
	}
	g.end()
	err := g.member.Close()
	g.members.Wait()
	g.member = nil
	return err
}

func (g *kafkaGroup) hasJoined() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.generation != nil
}

// generations starts to read the assigned partitions, after each assignment.
func (g *kafkaGroup) generations(ctx context.Context, member *kafka.ConsumerGroup) {
	for {
		gen, err := member.Next(ctx)
		var partitions map[partitionID]*kafkaPartition
		if err == nil {
			partitions, err = g.assignedPartitions(ctx, gen)
			if err != nil {
				// when it returns, the generation ends and the next one starts
				gen.Start(func(ctx context.Context) { _ = pause.For(ctx, retryMax) })
			}
		}
		b := &kafkaBatch{begin: partitions}
		switch {
		case ctx.Err() != nil || errors.Is(err, kafka.ErrGroupClosed):
			return
		case errors.Is(err, kafka.RebalanceInProgress):
			continue
		case err != nil:
			b.err = fmt.Errorf("read with group %s at %s: %w", g.s.Group, g.brokers(), err)
		default:
			g.mu.Lock()
			g.generation = gen
			g.mu.Unlock()
		}
		select {
		case g.batches <- b:
		case <-ctx.Done():
			return
		}
		for _, p := range partitions {
			gen.Start(func(ended context.Context) {
				fetching, cancel := context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(ended, cancel)()
				p.fetcher.run(fetching)
				<-fetching.Done() // the generation ends with the first function that returns
			})
		}
	}
}

// assignedPartitions returns the partitions of a generation.
func (g *kafkaGroup) assignedPartitions(
	ctx context.Context, gen *kafka.Generation,
) (map[partitionID]*kafkaPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	topics := map[string]int{}
	for topic, assigned := range gen.Assignments {
		for _, a := range assigned {
			topics[topic] = max(topics[topic], a.ID+1)
		}
	}
	logs, err := g.logs(ctx, topics)
	if err != nil {
		return nil, err
	}
	logs = slices.DeleteFunc(logs, func(l consume.Log) bool {
		return !slices.ContainsFunc(gen.Assignments[l.Name], func(a kafka.PartitionAssignment) bool {
			return a.ID == l.Partition
		})
	})
	at, err := g.savedPositions(ctx)
	if err != nil {
		return nil, err
	}
	start := g.q.Start
	if len(at) > 0 {
		start = consume.Beginning() // partitions that were added
	}
	g.state.Lock()
	for id, p := range g.at { // the group drops the offsets of a deleted topic
		if _, ok := at[id]; !ok {
			at[id] = p
		}
	}
	g.state.Unlock()
	partitions, err := g.locate(ctx, logs, at, start)
	if err != nil || start.Kind() != consume.StartLive && start.Kind() != consume.StartSince {
		return partitions, err
	}
	// otherwise a restart before the first commit would begin later
	begun := make([]consume.Position, 0, len(partitions))
	for _, p := range partitions {
		begun = append(begun, consume.Position{Log: p.log, Next: uint64(p.next)})
	}
	return partitions, g.commit(ctx, gen, begun)
}

// savedPositions returns the positions of the group, in all topics.
func (g *kafkaGroup) savedPositions(ctx context.Context) (map[partitionID]consume.Position, error) {
	res, err := g.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: g.s.Group})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return nil,
			fmt.Errorf("look up the offsets of group %s (check that the user may read it): %w", g.s.Group,
				kafkaid.Cause(err))
	}
	out := map[partitionID]consume.Position{}
	for topic, partitions := range res.Topics {
		for _, p := range partitions {
			switch {
			case p.Error != nil:
				return nil,
					fmt.Errorf("look up the offset of group %s in topic %s, partition %d: %w", g.s.Group, topic,
						p.Partition, p.Error)
			case p.CommittedOffset >= 0:
				id, _ := strings.CutPrefix(p.Metadata, logMetadata)
				if id == p.Metadata {
					id = "" // of another program
				}
				out[partitionID{topic, p.Partition}] = consume.Position{
					Log: consume.Log{Name: topic, Partition: p.Partition, ID: id}, Next: uint64(p.CommittedOffset),
				}
			}
		}
	}
	return out, nil
}

// Commit implements Committer.
func (g *kafkaGroup) Commit(ctx context.Context, positions ...consume.Position) error {
	g.mu.Lock()
	gen := g.generation
	g.mu.Unlock()
	g.state.Lock()
	positions = slices.DeleteFunc(slices.Clone(positions), func(at consume.Position) bool {
		p := g.partitions[idOf(at.Log)]
		return p == nil || p.log != at.Log || at.Next > uint64(p.next)
	})
	g.state.Unlock()
	if gen == nil || len(positions) == 0 {
		return nil
	}
	return g.commit(ctx, gen, positions)
}

func (g *kafkaGroup) commit(ctx context.Context, gen *kafka.Generation, positions []consume.Position) error {
	req := &kafka.OffsetCommitRequest{
		GroupID:      g.s.Group,
		GenerationID: int(gen.ID),
		MemberID:     gen.MemberID,
		Topics:       map[string][]kafka.OffsetCommit{},
	}
	for _, p := range positions {
		c := kafka.OffsetCommit{Partition: p.Partition, Offset: int64(p.Next)}
		if p.ID != "" {
			c.Metadata = logMetadata + p.ID
		}
		req.Topics[p.Name] = append(req.Topics[p.Name], c)
	}
	res, err := g.client.OffsetCommit(ctx, req)
	if err != nil {
		return fmt.Errorf("set the offsets of group %s: %w", g.s.Group, kafkaid.Cause(err))
	}
	for topic, partitions := range res.Topics {
		for _, p := range partitions {
			err = cmp.Or(err, p.Error)
			if err != nil {
				return fmt.Errorf("set the offset of group %s in topic %s, partition %d: %w", g.s.Group, topic,
					p.Partition, err)
			}
		}
	}
	return nil
}

// forget replaces the group's offset in a log that was created again. Otherwise a restart would
// report the new log once more.
func (g *kafkaGroup) forget(at consume.Position) {
	ctx, cancel := context.WithTimeout(g.ctx, apiTimeout)
	defer cancel()
	if err := g.Commit(ctx, at); err != nil && ctx.Err() == nil {
		g.noteInterruption(err)
	}
}
