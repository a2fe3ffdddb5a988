package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	// absentToBeGone is the number of consecutive looks, at topicPause, without a known topic until
	// it counts as gone: a broker that just started may not have its metadata yet.
	absentToBeGone = 50
	// partitions that need a gone topic ask every few seconds; after this age none does
	notFoundAge = 30 * time.Second
	topicPause  = 200 * time.Millisecond // between looks for a topic that does not exist yet
)

// arrange compares topics with the cluster's metadata. It reports whether one is still missing. An
// error is final.
func (b *Bus) arrange(
	ctx context.Context, g *errgroup.Group, topics []*topic, res *kafka.MetadataResponse,
) (missing bool, err error) {
	found := make(map[string]*kafka.Topic, len(res.Topics))
	for i := range res.Topics {
		found[res.Topics[i].Name] = &res.Topics[i]
	}
	unready, accepted := false, b.accepted
	for _, t := range topics {
		f := found[t.name]
		var again bool
		if f == nil || f.Error != nil && !errors.Is(f.Error, kafka.LeaderNotAvailable) || len(f.Partitions) == 0 {
			again, err = b.arrangeAbsent(ctx, t, f)
		} else {
			again, err = b.arrangePresent(ctx, g, t, f)
		}
		if ctx.Err() != nil || err != nil {
			return false, err
		}
		missing = missing || again
		unready = unready || t.partitions.Load() == nil
		accepted = accepted || t.partitions.Load() != nil && t.name != b.deadTopic
	}
	b.accepted = accepted // after all topics of the start
	if !unready && len(b.troubles()) == 0 {
		b.metrics.Connected.Set(1)
	} else {
		b.metrics.Connected.Set(0)
	}
	return missing, nil
}

// arrangeAbsent handles a topic that does not exist, or is not visible. It reports whether to look
// again soon.
func (b *Bus) arrangeAbsent(ctx context.Context, t *topic, f *kafka.Topic) (again bool, err error) {
	absent := t.absent.Add(1)
	// A topic that is invisible now, or has no leader, exists.
	t.gone.Store(absent >= b.absentToBeGone && f != nil && errors.Is(f.Error, kafka.UnknownTopicOrPartition))
	switch {
	case t.partitions.Load() == nil:
		again = true
	case !t.notFound.Swap(false):
		if time.Since(t.notFoundAt) > notFoundAge { // deleted, perhaps with its namespace, and nothing waits for it
			b.clearTrouble(t.name)
			return false, nil
		}
		return !t.gone.Load(), nil
	default:
		t.notFoundAt = time.Now()
		again = !t.gone.Load() // look again after topicPause
	}
	return again, b.createAbsent(ctx, t, f)
}

func (b *Bus) arrangePresent(ctx context.Context, g *errgroup.Group, t *topic, f *kafka.Topic) (again bool, err error) {
	if t.absent.Swap(0) > 0 {
		b.logsDue.Raise()
	}
	t.gone.Store(false)
	known := t.partitions.Load()
	if known == nil {
		if ok, err := b.check(ctx, t, f); err != nil || !ok {
			return true, err
		}
		b.clearTrouble(t.name)
		b.open(ctx, g, t, len(f.Partitions))
		level := slog.LevelInfo
		if b.topicNames.Varies() && t.written.Load() == 0 && t.name != b.deadTopic {
			level = slog.LevelDebug // progress repeatedly brings an evicted topic back
		}
		b.log.Log(ctx, level, "topic found", "topic", t.name, "partitions", len(f.Partitions))
		return false, nil
	}
	b.clearTrouble(t.name)
	if len(f.Partitions) >= len(*known) {
		b.clearTrouble(aboutShrunk(t))
	}
	switch {
	case len(f.Partitions) > len(*known):
		b.open(ctx, g, t, len(f.Partitions))
		b.log.Warn(
			"topic has more partitions than before: objects move to other partitions, and readers may see records of an object out of order",
			"topic", t.name, "partitions", len(f.Partitions), "before", len(*known))
	case len(f.Partitions) < len(*known):
		b.setTrouble(aboutShrunk(t),
			fmt.Errorf("topic %s has %d partitions instead of %d: events for the missing ones wait: restart the agent",
				t.name, len(f.Partitions), len(*known)))
		if suppressed, ok := b.window.First("shrunk " + t.name); ok {
			b.log.Error(
				"topic has fewer partitions than before: it was deleted and created again, and its records are gone",
				"topic", t.name, "partitions", len(f.Partitions), "before", len(*known), "advice", "restart the agent",
				"suppressed", suppressed)
		}
	}
	return false, nil
}

func aboutShrunk(t *topic) string { return t.name + " shrunk" }

// open starts the new partitions of t, and gives the waiting events to the partitions.
func (b *Bus) open(ctx context.Context, g *errgroup.Group, t *topic, n int) {
	var all []*partition
	known := t.partitions.Load()
	if known != nil {
		all = slices.Clone(*known)
	} else {
		t.running, t.end = context.WithCancel(ctx)
	}
	running := t.running
	for i := len(all); i < n; i++ {
		p := newPartition(b, t, i)
		all = append(all, p)
		g.Go(func() error { return p.run(running) })
	}
	b.mu.Lock()
	for len(t.numbers) < n {
		t.numbers = append(t.numbers, len(t.numbers))
	}
	if known == nil {
		b.putOpenings(t, all)
	}
	var closed []*publish.Event
	for _, e := range t.waiting { // before any later one
		if !all[partitionOf(e.PartitionKey, t.numbers)].inbox.Put(b.record(t, e)) {
			closed = append(closed, e)
		}
	}
	t.waiting = nil
	t.partitions.Store(&all)
	b.mu.Unlock()
	for _, e := range closed {
		b.release(t)
		e.Done(publish.ErrClosed)
	}
	b.broadcastsDue.Raise()
	b.logsDue.Raise()
}
