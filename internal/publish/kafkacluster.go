package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	metadataAge = time.Minute // after which it is looked at again, whatever happens
	// absentToBeGone is how often in a row a topic that was there must not be there to be gone, at topicPause: a broker
	// that has just started, or just heard of it, may not know it yet.
	absentToBeGone = 50
	missedAge      = 30 * time.Second       // after which nobody asks for a topic that is gone; partitions do every few seconds
	metadataPause  = 20 * time.Millisecond  // between two looks, whoever asks
	listAge        = 30 * time.Second       // after which topics are listed again before a stream event
	topicPause     = 200 * time.Millisecond // between looks for a topic that is not there yet
)

func clusterBackoff() Backoff { return Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second} }

// view is what is known of the cluster: brokers, and who leads the partitions of our topics. Never changed.
type view struct {
	brokers map[int32]net.Addr
	leaders map[string][]int32 // by topic and partition; -1: none
	old     chan struct{}      // closed when there is a newer one
}

// leader is where a partition is written.
func (v *view) leader(topic string, partition int32) (net.Addr, error) {
	leaders, ok := v.leaders[topic]
	if !ok || int(partition) >= len(leaders) {
		return nil, brokerError(int16(kafka.UnknownTopicOrPartition), "")
	}
	addr, ok := v.brokers[leaders[partition]]
	if !ok {
		return nil, brokerError(int16(kafka.LeaderNotAvailable), "")
	}
	return addr, nil
}

// topic is one that we write to. It is forgotten when it has not been used for long, see evict.
type topic struct {
	name       string
	ready      chan struct{} // closed when partitions is set
	maxBatch   atomic.Int64  // bytes that a batch may have; less than ceiling after the broker has refused one
	ceiling    atomic.Int64  // bytes
	partitions atomic.Pointer[[]*partition]
	running    context.Context    //nolint:containedctx // its partitions run until it ends
	end        context.CancelFunc // ends running; nil: it has not begun

	// users are calls that hold it. Kafka.mu is held when it is raised, so with that and no users nobody holds it.
	users   atomic.Int32
	used    atomic.Int64 // when a call let go of it last, in nanoseconds since 1970
	written atomic.Int64 // when a call had an event of an object for it last, the same; 0: never
	ledger  progressLedger
	scopes  map[string]int // of what calls that wait for ready publish, with how many there are. Kafka.mu is held.

	gone   atomic.Bool  // it is not there, and not just for a moment
	missed atomic.Bool  // a partition has looked for it in vain
	absent atomic.Int32 // how often in a row it was not there

	missedAt  time.Time // when missed was last seen set; of manage's goroutine, as is
	unchecked int       // how often its configuration could not be had
}

// errTopicGone says that a topic is not there any more.
var errTopicGone = errors.New("the topic is gone")

func (k *Kafka) view() *view { return k.current.Load() }

// refresh asks for a look at the cluster. It does not wait.
func (k *Kafka) refresh() {
	select {
	case k.look <- struct{}{}:
	default:
	}
}

// pause waits before the next attempt: for d, and for a view of the cluster that is newer than seen, but not for long.
func (k *Kafka) pause(ctx context.Context, seen *view, d time.Duration) error {
	k.refresh()
	if err := Sleep(ctx, d); err != nil {
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

// bound says how many bytes a batch of t may have.
func (t *topic) bound(n int64) {
	n = min(n, largestBatch)
	t.ceiling.Store(n)
	t.maxBatch.Store(n)
}

// shrink follows a batch of so many bytes that was too large.
func (t *topic) shrink(size int64) {
	for {
		was := t.maxBatch.Load()
		if now := max(size/2, minBatch); now >= was || t.maxBatch.CompareAndSwap(was, now) {
			return
		}
	}
}

// grow lets batches be larger again: the bound may have been raised, or one event alone was too large.
func (t *topic) grow() {
	if was, limit := t.maxBatch.Load(), t.ceiling.Load(); was < limit {
		t.maxBatch.CompareAndSwap(was, min(2*was, limit))
	}
}

// wait waits until t, which the caller has acquired for an event of scope, can be written to; where mayGo is set, or until it is
// known not to be there: errTopicGone.
func (k *Kafka) wait(ctx context.Context, t *topic, scope string, mayGo bool) ([]*partition, error) {
	if mayGo { // it was there when topics were listed, whatever was seen before that
		t.absent.Store(0)
		t.gone.Store(false)
	}
	select {
	case <-t.ready:
		return *t.partitions.Load(), nil
	default:
	}
	k.waitsFor(t, scope, 1)
	defer k.waitsFor(t, scope, -1)
	k.refresh()
	look, stop := lookNowAndThen(mayGo)
	defer stop()
	for {
		select {
		case <-t.ready:
			return *t.partitions.Load(), nil
		case <-k.ended:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-look:
			if t.gone.Load() {
				return nil, errTopicGone
			}
		}
	}
}

// waitsFor counts the calls that wait for t, by scope.
func (k *Kafka) waitsFor(t *topic, scope string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.scopes == nil {
		t.scopes = map[string]int{}
	}
	if t.scopes[scope] += n; t.scopes[scope] == 0 {
		delete(t.scopes, scope)
	}
}

// scopeOf is the scope of a delta, of a stream event too.
func scopeOf(d *object.Delta) string {
	if d.Stream != nil {
		return d.Stream.Scope
	}
	return d.Scope
}

// lookNowAndThen ticks where wanted.
func lookNowAndThen(wanted bool) (<-chan time.Time, func()) {
	if !wanted {
		return nil, func() {}
	}
	t := time.NewTicker(topicPause)
	return t.C, t.Stop
}

// manage looks at the cluster whenever asked to, and every minute. It makes topics ready and starts their partitions in g.
// An error is final.
func (k *Kafka) manage(ctx context.Context, g *errgroup.Group) error {
	tick := time.NewTicker(metadataAge)
	defer tick.Stop()
	for failures := 0; ; {
		topics := k.wanted()
		names := make([]string, len(topics))
		for i, t := range topics {
			names[i] = t.name
		}
		res, err := k.metadata(ctx, names)
		if ctx.Err() != nil {
			return nil
		}
		delay := metadataPause
		if err != nil {
			failures++
			delay = clusterBackoff().Delay(failures)
			k.refresh()
			k.setTrouble("", err)
			k.metrics.Connected.Set(0)
			advice := adviceOnConnection(err)
			if suppressed, ok := k.window.First("metadata"); ok {
				k.log.Log(ctx, levelOf(advice), "bus cannot be reached, trying on", "brokers", k.cfg.Brokers, "advice", advice, "err", err, "suppressed", suppressed)
			}
		} else {
			if failures > 0 {
				k.lookAtLogsSoon()
			}
			failures = 0
			k.see(res)
			k.clearTrouble("")
			missing, err := k.arrange(ctx, g, topics, res)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				return err
			case missing:
				k.refresh()
				delay = topicPause
			}
		}
		if Sleep(ctx, delay) != nil {
			return nil
		}
		select {
		case <-k.look:
		case <-tick.C:
			k.sweep()
			for _, t := range topics {
				t.grow()
			}
			k.evict(time.Now())
		case <-ctx.Done():
			return nil
		}
	}
}

// metadata asks brokers until one answers: those that the cluster was last seen to have, then the configured ones.
func (k *Kafka) metadata(ctx context.Context, topics []string) (*metadata.Response, error) {
	var addrs []net.Addr
	for _, a := range k.view().brokers {
		addrs = append(addrs, a)
	}
	for _, b := range k.cfg.Brokers {
		if a := kafka.TCP(b); !slices.ContainsFunc(addrs, func(o net.Addr) bool { return o.String() == a.String() }) {
			addrs = append(addrs, a)
		}
	}
	var errs []error
	for _, a := range addrs {
		r, err := k.ask(ctx, a, &metadata.Request{TopicNames: topics})
		if err == nil {
			if res, ok := r.(*metadata.Response); ok {
				return res, nil
			}
			err = fmt.Errorf("%s: the broker's answer is about something else", a)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// ask is one request that changes nothing, or that may be made again.
func (k *Kafka) ask(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return k.net.RoundTrip(ctx, addr, req)
}

// see makes an answer the current view.
func (k *Kafka) see(res *metadata.Response) {
	v := &view{brokers: map[int32]net.Addr{}, leaders: map[string][]int32{}, old: make(chan struct{})}
	for _, b := range res.Brokers {
		v.brokers[b.NodeID] = kafka.TCP(net.JoinHostPort(b.Host, fmt.Sprint(b.Port)))
	}
	for i := range res.Topics {
		t := &res.Topics[i]
		if t.ErrorCode != 0 && t.ErrorCode != int16(kafka.LeaderNotAvailable) {
			continue
		}
		leaders := make([]int32, len(t.Partitions))
		for j := range leaders {
			leaders[j] = -1
		}
		for _, p := range t.Partitions {
			if int(p.PartitionIndex) < len(leaders) {
				leaders[p.PartitionIndex] = p.LeaderID
			}
		}
		v.leaders[t.Name] = leaders
	}
	close(k.current.Swap(v).old)
	k.controller.Store(res.ControllerID)
}

// arrange compares topics with what there is. It reports whether one is missing still.
func (k *Kafka) arrange(ctx context.Context, g *errgroup.Group, topics []*topic, res *metadata.Response) (missing bool, err error) {
	found := make(map[string]*metadata.ResponseTopic, len(res.Topics))
	for i := range res.Topics {
		found[res.Topics[i].Name] = &res.Topics[i]
	}
	unready := 0
	for _, t := range topics {
		f := found[t.name]
		if f == nil || f.ErrorCode != 0 && f.ErrorCode != int16(kafka.LeaderNotAvailable) || len(f.Partitions) == 0 {
			// One that we may not see now, or that has no leader, is there.
			absent := t.absent.Add(1)
			t.gone.Store(absent >= k.absentToBeGone && f != nil && f.ErrorCode == int16(kafka.UnknownTopicOrPartition))
			if t.gone.Load() && k.cfg.Create == nil {
				t.ledger.forsake()
			}
			if t.partitions.Load() == nil {
				missing = true
				unready++
			} else if !t.missed.Swap(false) {
				if time.Since(t.missedAt) > missedAge { // deleted, with its namespace perhaps, and nobody asks for it
					k.clearTrouble(t.name)
				} else if !t.gone.Load() {
					missing = true
				}
				continue
			} else {
				t.missedAt = time.Now()
				missing = missing || !t.gone.Load() // look again soon, and not too soon
			}
			if err := k.absent(ctx, t, f); err != nil {
				return true, err
			}
			continue
		}
		if t.absent.Swap(0) > 0 {
			k.lookAtLogsSoon()
		}
		t.gone.Store(false)
		known := t.partitions.Load()
		if known != nil {
			k.clearTrouble(t.name)
			if len(f.Partitions) >= len(*known) {
				k.clearTrouble(aboutShrunk(t))
			}
		}
		switch {
		case known == nil:
			ok, err := k.check(ctx, t, f)
			if err != nil {
				return true, err
			}
			if !ok {
				missing = true
				unready++
				continue
			}
			k.clearTrouble(t.name)
			k.open(ctx, g, t, len(f.Partitions))
			close(t.ready)
			level := slog.LevelInfo
			if k.topicNames.Varies() && t.written.Load() == 0 && t.name != k.deadTopic {
				level = slog.LevelDebug // a topic that is evicted comes back for progress again and again
			}
			k.log.Log(ctx, level, "topic found", "topic", t.name, "partitions", len(f.Partitions))
		case len(f.Partitions) > len(*known):
			k.open(ctx, g, t, len(f.Partitions))
			k.log.Warn("topic has grown: objects move to other partitions, and a reader may see an object's later records before its earlier ones",
				"topic", t.name, "partitions", len(f.Partitions), "before", len(*known))
		case len(f.Partitions) < len(*known):
			k.setTrouble(aboutShrunk(t), fmt.Errorf("topic %s has %d partitions, and had %d: events for the others wait: restart the agent", t.name, len(f.Partitions), len(*known)))
			if suppressed, ok := k.window.First("shrunk " + t.name); ok {
				k.log.Error("topic has fewer partitions than before: it was deleted and created again, and its records are gone",
					"topic", t.name, "partitions", len(f.Partitions), "before", len(*known), "advice", "restart the agent", "suppressed", suppressed)
			}
		}
	}
	if unready == 0 && len(k.troubles()) == 0 {
		k.metrics.Connected.Set(1)
	} else {
		k.metrics.Connected.Set(0)
	}
	return missing, nil
}

func aboutShrunk(t *topic) string { return t.name + " shrunk" }

// open starts the partitions of t that have not been.
func (k *Kafka) open(ctx context.Context, g *errgroup.Group, t *topic, n int) {
	var all []*partition
	if known := t.partitions.Load(); known != nil {
		all = slices.Clone(*known)
	} else {
		t.running, t.end = context.WithCancel(ctx)
	}
	running := t.running
	for i := len(all); i < n; i++ {
		p := &partition{k: k, topic: t, index: int32(i), tail: k.tailOf(t.name, i), about: fmt.Sprintf("%s/%d", t.name, i), wake: make(chan struct{}, 1), producer: producer{id: -1}}
		all = append(all, p)
		g.Go(func() error { return p.run(running) })
	}
	t.partitions.Store(&all)
	k.lookAtLogsSoon()
}

// streamTopics are those that a stream event goes to: all that objects of its resource go to. That of cluster-scoped
// objects is one of them only where it exists, or where none does: some topic must take it. mayGo reports that a topic which
// is deleted before it has the event need not have it.
func (k *Kafka) streamTopics(ctx context.Context, d *object.Delta) (names []string, mayGo bool, err error) {
	own := k.topicNames.Append(nil, d)
	if len(own) > maxTopic {
		return nil, false, fmt.Errorf("%w: its topic would have %d bytes, Kafka allows %d: shorten bus.kafka.topic", ErrRefused, len(own), maxTopic)
	}
	if !k.topicNames.Varies() {
		return []string{string(own)}, false, nil
	}
	all, err := k.list(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, name := range all {
		if k.topicNames.Match(name, d.Stream.Resource) {
			names = append(names, name)
		}
	}
	for _, t := range k.wanted() { // those that were created since, and not those that were deleted
		if !slices.Contains(names, t.name) && t.partitions.Load() != nil && !t.gone.Load() && k.topicNames.Match(t.name, d.Stream.Resource) {
			names = append(names, t.name)
		}
	}
	if len(names) == 0 {
		return []string{string(own)}, false, nil
	}
	return names, k.cfg.Create == nil, nil // one that is missed is created again otherwise
}

// list is all topics of the cluster, as of at most listAge ago.
func (k *Kafka) list(ctx context.Context) ([]string, error) {
	select {
	case k.listing <- struct{}{}: // one at a time: the others wait for its answer
		defer func() { <-k.listing }()
	case <-k.ended:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if k.listed != nil && time.Since(k.listedAt) < listAge {
		return k.listed, nil
	}
	for failures := 1; ; failures++ {
		seen := k.view()
		started := time.Now()
		res, err := k.metadata(ctx, nil)
		if err == nil {
			names := make([]string, 0, len(res.Topics))
			for i := range res.Topics {
				if !res.Topics[i].IsInternal {
					names = append(names, res.Topics[i].Name)
				}
			}
			k.listed, k.listedAt = names, started
			return names, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if suppressed, ok := k.window.First("list"); ok {
			k.log.Warn("topics cannot be listed, trying on", "err", err, "suppressed", suppressed)
		}
		select {
		case <-k.ended:
			return nil, ErrClosed
		default:
		}
		if err := k.pause(ctx, seen, clusterBackoff().Delay(failures)); err != nil {
			return nil, err
		}
	}
}
