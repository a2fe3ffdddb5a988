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

	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	metadataAge   = time.Minute           // after which it is looked at again, whatever happens
	metadataPause = 20 * time.Millisecond // between two looks, whoever asks
	listAge       = 30 * time.Second      // after which topics are listed again before a stream event
)

func clusterBackoff() publish.Backoff {
	return publish.Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second}
}

// view is what is known of the cluster: brokers, and who leads the partitions of our topics. Never changed.
type view struct {
	brokers    []net.Addr
	controller net.Addr              // nil: not known
	leaders    map[string][]net.Addr // by topic and partition; nil: none
	old        chan struct{}         // closed when there is a newer one
}

// leader is where a partition is written.
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

// any is the controller if it is known, else any broker.
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

// client asks one broker for what changes nothing, or may be asked again.
func (b *Bus) client(broker net.Addr) *kafka.Client {
	return &kafka.Client{Addr: broker, Timeout: publish.RequestTimeout, Transport: b.net}
}

// refresh asks for a look at the cluster. It does not wait.
func (b *Bus) refresh() {
	select {
	case b.look <- struct{}{}:
	default:
	}
}

// pause waits before the next attempt: for d, and for a view of the cluster that is newer than seen, but not for long.
func (b *Bus) pause(ctx context.Context, seen *view, d time.Duration) error {
	b.refresh()
	if err := publish.Sleep(ctx, d); err != nil {
		return err
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-seen.old:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// manage looks at the cluster whenever asked to, and every minute. It makes topics ready and starts their partitions in g.
// An error is final.
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
		if publish.Sleep(ctx, delay) != nil {
			return nil
		}
		select {
		case <-b.look:
		case <-tick.C:
			b.conns.sweep()
			for _, t := range b.wanted() {
				t.grow()
			}
			b.evict(time.Now())
		case <-ctx.Done():
			return nil
		}
	}
}

// lookAtCluster asks for the metadata of all topics that are wanted, and returns how long to wait at least until the next look.
func (b *Bus) lookAtCluster(ctx context.Context, g *errgroup.Group, failures *int) (delay time.Duration, err error) {
	topics := b.wanted()
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
		b.refresh()
		b.setTrouble("", err)
		b.metrics.Connected.Set(0)
		advice := adviceOnConnection(err)
		if suppressed, ok := b.window.First("metadata"); ok {
			b.log.Log(ctx, levelOf(advice), "bus cannot be reached, trying on", "brokers", b.cfg.Brokers, "advice", advice, "err", err, "suppressed", suppressed)
		}
		return clusterBackoff().Delay(*failures), nil
	}
	if *failures > 0 {
		b.lookAtLogsSoon()
	}
	*failures = 0
	b.see(res)
	b.clearTrouble("")
	b.list(ctx)
	missing, err := b.arrange(ctx, g, topics, res)
	if missing {
		b.refresh()
		return topicPause, err
	}
	return metadataPause, err
}

// metadata asks brokers until one answers: those that the cluster was last seen to have, then the configured ones. Without topics it
// is about all.
func (b *Bus) metadata(ctx context.Context, topics []string) (*kafka.MetadataResponse, error) {
	addrs := slices.Clone(b.view().brokers)
	for _, broker := range b.cfg.Brokers {
		if a := kafka.TCP(broker); !slices.ContainsFunc(addrs, func(o net.Addr) bool { return o.String() == a.String() }) {
			addrs = append(addrs, a)
		}
	}
	var errs []error
	for _, a := range addrs {
		res, err := b.client(a).Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// see makes an answer the current view.
func (b *Bus) see(res *kafka.MetadataResponse) {
	v := &view{leaders: map[string][]net.Addr{}, old: make(chan struct{})}
	byID := map[int]net.Addr{}
	for _, broker := range res.Brokers {
		a := kafka.TCP(net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port)))
		v.brokers = append(v.brokers, a)
		byID[broker.ID] = a
	}
	rand.Shuffle(len(v.brokers), func(i, j int) { v.brokers[i], v.brokers[j] = v.brokers[j], v.brokers[i] }) // one that hangs is not always asked first
	if res.Controller.Host != "" {                                                                           // else it is none of the brokers
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

// list lists the topics of the cluster if a stream event waits for that.
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
			b.log.Warn("topics cannot be listed, trying on", "err", err, "suppressed", suppressed)
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
	b.listed, b.listedAt, b.listWanted = names, started, false
	b.mu.Unlock()
	b.wakeSpread()
}

// topicList is all topics of the cluster, as of at most listAge ago. It reports false if they have to be listed first; spread is woken then.
func (b *Bus) topicList() ([]string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed != nil && time.Since(b.listedAt) < listAge {
		return b.listed, true
	}
	b.listWanted = true
	b.refresh()
	return nil, false
}
