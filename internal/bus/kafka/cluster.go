package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	metadataAge   = time.Minute           // maximum time between two reads
	metadataPause = 20 * time.Millisecond // minimum time between two reads
	listAge       = 30 * time.Second      // topics are listed again before a stream event if the list is older
)

// view is the known state of the cluster: brokers, and the leaders of our topics' partitions. It is
// never changed.
type view struct {
	brokers    []net.Addr
	controller net.Addr              // nil: unknown
	leaders    map[string][]net.Addr // by topic and partition; nil: none
	old        chan struct{}         // closed when there is a newer one
}

func (v *view) leader(topic string, partition int32) (net.Addr, error) {
	leaders, ok := v.leaders[topic]
	if !ok || int(partition) >= len(leaders) {
		return nil, kafka.UnknownTopicOrPartition
	}
	if leaders[partition] == nil {
		return nil, kafka.LeaderNotAvailable
	}
	return leaders[partition], nil
}

// any returns the controller if it is known, otherwise any broker.
func (v *view) any() (net.Addr, error) {
	switch {
	case v.controller != nil:
		return v.controller, nil
	case len(v.brokers) > 0:
		return v.brokers[0], nil
	}
	return nil, kafka.BrokerNotAvailable
}

func (b *Bus) view() *view { return b.current.Load() }

// client returns a client of one broker, for requests that are safe to repeat. The network limits
// their time.
func (b *Bus) client(broker net.Addr) *kafka.Client {
	return &kafka.Client{Addr: broker, Transport: b.net}
}

// pause waits before the next attempt: for d, then at most a second for a view newer than seen.
func (b *Bus) pause(ctx context.Context, seen *view, d time.Duration) error {
	b.metadataDue.Raise()
	if err := pause.For(ctx, d); err != nil {
		return err
	}
	ending, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-seen.old:
	case <-ending.Done():
	}
	return context.Cause(ctx)
}

// manage reads the cluster's metadata on request, and every minute. It prepares topics and starts
// their partitions in g. An error is final.
func (b *Bus) manage(ctx context.Context, g *errgroup.Group) error {
	tick := time.NewTicker(metadataAge)
	defer tick.Stop()
	for failures := 0; ; {
		delay, err := b.lookAtCluster(ctx, g, &failures)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if pause.For(ctx, delay) != nil {
			return nil
		}
		select {
		case <-b.metadataDue:
		case <-tick.C:
			b.conns.Sweep()
			for _, t := range b.wantedTopics() {
				t.grow()
			}
			b.evict(time.Now())
		case <-ctx.Done():
			return nil
		}
	}
}

// lookAtCluster reads the metadata of all wanted topics, and returns the minimum wait until the
// next look.
func (b *Bus) lookAtCluster(ctx context.Context, g *errgroup.Group, failures *int) (delay time.Duration, err error) {
	topics := b.wantedTopics()
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.name
	}
	res, err := b.metadata(ctx, names)
	if ctx.Err() != nil {
		return 0, nil
	}
	if err != nil {
		*failures++
		b.metadataDue.Raise()
		b.setTrouble("", err)
		b.metrics.Connected.Set(0)
		advice := adviceOnConnection(err)
		if suppressed, ok := b.window.First("metadata"); ok {
			b.log.Log(ctx, levelOf(advice), "cannot reach the bus, retrying", "brokers", b.cfg.Brokers, "advice",
				advice, "err", err, "suppressed", suppressed)
		}
		return publish.BusyBackoff().Delay(*failures), nil
	}
	if *failures > 0 {
		b.logsDue.Raise()
	}
	*failures = 0
	b.noteMetadata(res)
	b.clearTrouble("")
	b.list(ctx)
	missing, err := b.arrange(ctx, g, topics, res)
	if missing {
		b.metadataDue.Raise()
		return topicPause, err
	}
	return metadataPause, err
}

// metadata asks brokers until one answers: the last known ones, then the configured ones, and those
// whose quota is exceeded last. Without topics it requests all topics.
func (b *Bus) metadata(ctx context.Context, topics []string) (*kafka.MetadataResponse, error) {
	addrs := slices.Clone(b.view().brokers)
	for _, broker := range b.cfg.Brokers {
		if a := kafka.TCP(broker); !slices.ContainsFunc(addrs,
			func(o net.Addr) bool { return o.String() == a.String() }) {
			addrs = append(addrs, a)
		}
	}
	var errs []error
	for _, a := range b.throttledLast(addrs) {
		res, err := b.client(a).Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		errs = append(errs, kafkaid.Cause(err))
	}
	return nil, errors.Join(errs...)
}

func (b *Bus) throttledLast(brokers []net.Addr) []net.Addr {
	ready := make([]net.Addr, 0, len(brokers))
	var waiting []net.Addr
	for _, a := range brokers {
		if b.conns.IsThrottled(a.String()) {
			waiting = append(waiting, a)
		} else {
			ready = append(ready, a)
		}
	}
	return append(ready, waiting...)
}

// noteMetadata replaces the view by what an answer says, and ends the waits for it.
func (b *Bus) noteMetadata(res *kafka.MetadataResponse) {
	v := &view{leaders: map[string][]net.Addr{}, old: make(chan struct{})}
	byID := map[int]net.Addr{}
	for _, broker := range res.Brokers {
		a := kafka.TCP(net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port)))
		v.brokers = append(v.brokers, a)
		byID[broker.ID] = a
	}
	// a broker that hangs must not always be the first
	rand.Shuffle(len(v.brokers), func(i, j int) { v.brokers[i], v.brokers[j] = v.brokers[j], v.brokers[i] })
	if res.Controller.Host != "" {
		// without a host, the controller is not known
		v.controller = byID[res.Controller.ID]
	}
	for i := range res.Topics {
		t := &res.Topics[i]
		if t.Error != nil && !errors.Is(t.Error, kafka.LeaderNotAvailable) {
			continue
		}
		leaders := make([]net.Addr, len(t.Partitions))
		for _, p := range t.Partitions {
			if p.ID < len(leaders) && p.Leader.Host != "" {
				leaders[p.ID] = byID[p.Leader.ID]
			}
		}
		v.leaders[t.Name] = leaders
	}
	close(b.current.Swap(v).old)
}

func (b *Bus) list(ctx context.Context) {
	b.mu.Lock()
	wanted := b.listWanted
	b.mu.Unlock()
	if !wanted {
		return
	}
	started := time.Now()
	res, err := b.metadata(ctx, nil)
	if err != nil {
		if suppressed, ok := b.window.First("list"); ok && ctx.Err() == nil {
			b.log.Warn("cannot list topics, retrying", "err", err, "suppressed", suppressed)
		}
		return
	}
	names := make([]string, 0, len(res.Topics))
	for i := range res.Topics {
		if !res.Topics[i].Internal {
			names = append(names, res.Topics[i].Name)
		}
	}
	b.mu.Lock()
	b.listed = names
	b.listedAt = started
	b.listWanted = false
	b.mu.Unlock()
	b.broadcastsDue.Raise()
}

// topicList returns all topics of the cluster, at most listAge old. It reports false if they must
// be listed first; list then wakes runBroadcasts.
func (b *Bus) topicList() ([]string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed != nil && time.Since(b.listedAt) < listAge {
		return b.listed, true
	}
	b.listWanted = true
	b.metadataDue.Raise()
	return nil, false
}
