package kafkanet

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// layoutAge is the maximum age of the layout that requests are routed by. After an error it is read
// again at once.
const layoutAge = 10 * time.Second

// Cluster sends each request to the broker that serves it: a fetch and a look-up of offsets to the
// leaders, a group's to its coordinator, others to any broker. It ignores the address that it is
// given.
type Cluster struct {
	net       *Network
	bootstrap []string

	looking chan struct{} // one element while the layout is read. Never closed.

	mu     sync.Mutex
	layout *protocol.Cluster // never changed; nil: read it before the next use
	read   time.Time
	last   string // the broker that answered last
}

// NewCluster returns a Cluster that begins with the addresses of some brokers. Close of the network
// ends it.
func NewCluster(n *Network, bootstrap []string) *Cluster {
	return &Cluster{net: n, bootstrap: slices.Clone(bootstrap), looking: make(chan struct{}, 1)}
}

// RoundTrip implements kafka.RoundTripper.
func (c *Cluster) RoundTrip(ctx context.Context, _ net.Addr, req protocol.Message) (protocol.Message, error) {
	switch r := req.(type) {
	case *metadata.Request:
		return c.lookUp(ctx, r)
	case *listoffsets.Request:
		return c.listOffsets(ctx, r)
	case protocol.BrokerMessage:
		layout, err := c.current(ctx)
		if err != nil {
			return nil, err
		}
		to, err := r.Broker(*layout)
		if err != nil {
			c.forget(layout)
			return nil, err
		}
		return c.send(ctx, layout, to, req)
	case protocol.GroupMessage:
		return c.coordinate(ctx, r, req)
	}
	return c.askAny(ctx, req)
}

// lookUp requests metadata, and stores that of all topics.
func (c *Cluster) lookUp(ctx context.Context, req *metadata.Request) (protocol.Message, error) {
	m, err := c.askAny(ctx, req)
	if res, ok := m.(*metadata.Response); ok && req.TopicNames == nil {
		c.mu.Lock()
		c.layout, c.read = layoutOf(res), time.Now()
		c.mu.Unlock()
	}
	return m, err
}

// current returns the layout, and reads it first if it is old.
func (c *Cluster) current(ctx context.Context) (*protocol.Cluster, error) {
	select {
	case c.looking <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-c.looking }()
	for {
		c.mu.Lock()
		layout, read := c.layout, c.read
		c.mu.Unlock()
		if layout != nil && time.Since(read) < layoutAge {
			return layout, nil
		}
		if _, err := c.lookUp(ctx, new(metadata.Request)); err != nil {
			return nil, err
		}
	}
}

// forget makes the next request read the layout, unless a newer one is there.
func (c *Cluster) forget(layout *protocol.Cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.layout == layout {
		c.read = time.Time{}
	}
}

// send sends a request to a broker of a layout. If the layout lacks it, it asks any broker.
func (c *Cluster) send(
	ctx context.Context, layout *protocol.Cluster, to protocol.Broker, req protocol.Message,
) (protocol.Message, error) {
	if to.Host == "" {
		c.forget(layout)
		return c.askAny(ctx, req)
	}
	res, err := c.net.RoundTrip(ctx, kafka.TCP(addressOf(to.Host, to.Port)), req)
	if err != nil || hasError(res) {
		c.forget(layout)
	}
	return res, err
}

// hasError reports whether a broker refuses a request of readers for a partition, for example
// because it is no longer the leader.
func hasError(m protocol.Message) bool {
	switch res := m.(type) {
	case *fetch.Response:
		return slices.ContainsFunc(res.Topics, func(t fetch.ResponseTopic) bool {
			return slices.ContainsFunc(t.Partitions, func(p fetch.ResponsePartition) bool { return p.ErrorCode != 0 })
		})
	case *listoffsets.Response:
		return slices.ContainsFunc(res.Topics, func(t listoffsets.ResponseTopic) bool {
			return slices.ContainsFunc(t.Partitions, func(p listoffsets.ResponsePartition) bool {
				return p.ErrorCode != 0
			})
		})
	}
	return false
}

// coordinate sends a request to the coordinator of its group.
func (c *Cluster) coordinate(
	ctx context.Context, g protocol.GroupMessage, req protocol.Message,
) (protocol.Message, error) {
	m, err := c.askAny(ctx, &findcoordinator.Request{Key: g.Group()})
	if err != nil {
		return nil, err
	}
	found := m.(*findcoordinator.Response)
	if found.ErrorCode != 0 {
		return nil, kafka.Error(found.ErrorCode)
	}
	return c.net.RoundTrip(ctx, kafka.TCP(addressOf(found.Host, found.Port)), req)
}

// askAny asks brokers until one answers: first the one that answered last, and last those whose
// quota is exceeded.
func (c *Cluster) askAny(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	var errs []error
	for _, addr := range c.brokers() {
		res, err := c.net.RoundTrip(ctx, kafka.TCP(addr), req)
		if err == nil {
			c.mu.Lock()
			c.last = addr
			c.mu.Unlock()
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// brokers returns the addresses of all known brokers, in the order in which they are asked.
func (c *Cluster) brokers() []string {
	c.mu.Lock()
	all, last := slices.Clone(c.bootstrap), c.last
	if c.layout != nil {
		for _, b := range c.layout.Brokers {
			all = append(all, addressOf(b.Host, b.Port))
		}
	}
	c.mu.Unlock()
	slices.Sort(all)
	all = slices.Compact(all)
	rank := func(addr string) int {
		switch {
		case c.net.IsThrottled(addr):
			return 2
		case addr == last:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

func addressOf(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func layoutOf(res *metadata.Response) *protocol.Cluster {
	layout := &protocol.Cluster{
		ClusterID:  res.ClusterID,
		Controller: res.ControllerID,
		Brokers:    map[int32]protocol.Broker{},
		Topics:     map[string]protocol.Topic{},
	}
	for _, b := range res.Brokers {
		layout.Brokers[b.NodeID] = protocol.Broker{
			ID:   b.NodeID,
			Host: b.Host,
			Port: b.Port,
			Rack: b.Rack,
		}
	}
	for i := range res.Topics {
		t := &res.Topics[i]
		partitions := map[int32]protocol.Partition{}
		for _, p := range t.Partitions {
			partitions[p.PartitionIndex] = protocol.Partition{
				ID:     p.PartitionIndex,
				Error:  p.ErrorCode,
				Leader: p.LeaderID,
			}
		}
		layout.Topics[t.Name] = protocol.Topic{Name: t.Name, Error: t.ErrorCode, Partitions: partitions}
	}
	return layout
}

// listOffsets asks the leaders of all partitions. kafka-go sends a request for each offset. Brokers
// refuse a request that has a partition twice, so each gets as many requests as there are offsets
// of one partition.
func (c *Cluster) listOffsets(ctx context.Context, req *listoffsets.Request) (protocol.Message, error) {
	layout, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	parts := splitOffsets(layout, req)
	answers := make([]*listoffsets.Response, len(parts))
	errs := make([]error, len(parts))
	var asking sync.WaitGroup
	for i, p := range parts {
		asking.Go(func() {
			m, err := c.send(ctx, layout, p.to, p.req)
			if err != nil {
				errs[i] = err
				return
			}
			answers[i] = m.(*listoffsets.Response)
		})
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := new(listoffsets.Response)
	for i, p := range parts {
		all.Topics = append(all.Topics, p.answered(answers[i])...)
	}
	slices.SortStableFunc(all.Topics, func(a, b listoffsets.ResponseTopic) int {
		return strings.Compare(a.Topic, b.Topic)
	})
	return all, nil
}

// offsetsPart is a request for offsets to one broker.
type offsetsPart struct {
	to  protocol.Broker
	req *listoffsets.Request
}

func splitOffsets(layout *protocol.Cluster, req *listoffsets.Request) []*offsetsPart {
	type place struct {
		leader int32
		round  int // of the offsets of one partition
	}
	type partition struct {
		topic string
		index int32
	}
	parts := map[place]*offsetsPart{}
	rounds := map[partition]int{}
	var all []*offsetsPart
	for i := range req.Topics {
		t := &req.Topics[i]
		for _, p := range t.Partitions {
			id := partition{t.Topic, p.Partition}
			known, ok := layout.Topics[t.Topic].Partitions[p.Partition]
			at := place{leader: -1, round: rounds[id]}
			if ok {
				at.leader = known.Leader
			}
			rounds[id]++
			part := parts[at]
			if part == nil {
				part = &offsetsPart{
					to:  layout.Brokers[at.leader],
					req: &listoffsets.Request{ReplicaID: req.ReplicaID, IsolationLevel: req.IsolationLevel},
				}
				parts[at] = part
				all = append(all, part)
			}
			part.add(t.Topic, p)
		}
	}
	return all
}

func (o *offsetsPart) add(topic string, p listoffsets.RequestPartition) {
	last := len(o.req.Topics) - 1
	if last < 0 || o.req.Topics[last].Topic != topic {
		o.req.Topics = append(o.req.Topics, listoffsets.RequestTopic{Topic: topic})
		last++
	}
	o.req.Topics[last].Partitions = append(o.req.Topics[last].Partitions, p)
}

// answered returns the answers with the requested timestamps: brokers answer -1 for those of the
// first and the next record.
func (o *offsetsPart) answered(res *listoffsets.Response) []listoffsets.ResponseTopic {
	for i := range res.Topics {
		for j := range res.Topics[i].Partitions {
			p := &res.Topics[i].Partitions[j]
			for _, t := range o.req.Topics {
				if t.Topic != res.Topics[i].Topic {
					continue
				}
				for _, asked := range t.Partitions {
					if asked.Partition == p.Partition {
						p.Timestamp = asked.Timestamp
					}
				}
			}
		}
	}
	return res.Topics
}
