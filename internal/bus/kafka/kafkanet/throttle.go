package kafkanet

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kubecdc/kubecdc/internal/pause"
)

// calm is the time after the last pause until a broker gets several requests to produce at once
// again. It is above the time over which a broker measures by default, 11 s (quota.window.num,
// quota.window.size.seconds).
const calm = 30 * time.Second

// Throttled is an answer that is not one of kafka-go's, and that has a throttle time.
type Throttled interface {
	protocol.Message
	ThrottleTime() time.Duration
}

// pauseOf returns the pause that an answer names. All of Kafka's answers have the field, except
// those of authentication.
func pauseOf(res protocol.Message) time.Duration {
	if t, ok := res.(Throttled); ok {
		return t.ThrottleTime()
	}
	v := reflect.Indirect(reflect.ValueOf(res))
	if v.Kind() != reflect.Struct {
		return 0
	}
	f := v.FieldByName("ThrottleTimeMs")
	if !f.IsValid() {
		return 0
	}
	return time.Duration(f.Int()) * time.Millisecond
}

// isWithheld reports whether a broker has answered a fetch without its records because of a quota.
func isWithheld(res protocol.Message) bool {
	r, ok := res.(*fetch.Response)
	return ok && r.ThrottleTimeMs > 0 && r.ErrorCode == 0 && len(r.Topics) == 0
}

func produces(req protocol.Message) bool {
	_, ok := req.(*rawproduce.Request)
	return ok
}

// takesTurns reports whether a broker with a quota gets such requests one at a time.
func takesTurns(req protocol.Message) bool {
	_, fetches := req.(*fetch.Request)
	return fetches || produces(req)
}

const (
	// limitedWait is the maximum time for which a broker with a quota waits for records: other
	// fetches wait for their turn.
	limitedWait = 50 // milliseconds
	// limitedBytes is the maximum size of a fetch from such a broker. The broker withholds a fetch
	// that does not fit into the rest of its quota, so that large ones leave much of it unused.
	limitedBytes = 64 << 10
	// oneBatch is the size of a fetch that returns exactly one batch of records, however large that
	// is (KIP-74).
	oneBatch = 1
	// fewBatches limits the waste: if fewer batches than that fill limitedBytes, they are fetched
	// one at a time. The one that is cut would be a large part of the answer.
	fewBatches = 8
)

// nextFetch returns the size of the next fetch from a broker with a quota, after an answer of a
// number of bytes. A broker cuts an answer off within a batch. The cut batch counts against the
// quota, and the client discards it. So few large batches are fetched one at a time.
func nextFetch(res *fetch.Response, received int) (size int32, known bool) {
	batches := 0
	for i := range res.Topics {
		for _, p := range res.Topics[i].Partitions {
			if s, ok := p.RecordSet.Records.(*protocol.RecordStream); ok {
				batches += len(s.Records)
			}
		}
	}
	switch {
	case batches == 0:
		return 0, false
	case received/batches*fewBatches > limitedBytes:
		return oneBatch, true
	}
	return limitedBytes, true
}

// withLimits returns a fetch from b within its limits, and other requests as they are.
func (n *Network) withLimits(b *broker, req protocol.Message) protocol.Message {
	r, ok := req.(*fetch.Request)
	if !ok {
		return req
	}
	n.mu.Lock()
	size := max(b.pace.size, oneBatch)
	n.mu.Unlock()
	short := *r
	short.MaxWaitTime = min(r.MaxWaitTime, limitedWait)
	short.MaxBytes = min(r.MaxBytes, size)
	short.Topics = slices.Clone(r.Topics)
	for i := range short.Topics {
		t := &short.Topics[i]
		t.Partitions = slices.Clone(t.Partitions)
		for j := range t.Partitions {
			t.Partitions[j].PartitionMaxBytes = min(t.Partitions[j].PartitionMaxBytes, size)
		}
	}
	return &short
}

// noteThrottle stores the pause that an answer of b names.
func (n *Network) noteThrottle(b *broker, res protocol.Message) {
	pause := pauseOf(res)
	if pause <= 0 {
		return
	}
	until := time.Now().Add(pause)
	n.mu.Lock()
	before := b.until
	if until.After(before) {
		b.until = until
	}
	n.mu.Unlock()
	if n.o.OnThrottle == nil || !until.After(before) {
		return
	}
	if longer := until.Sub(before); longer < pause {
		pause = longer // the pauses overlap
	}
	n.o.OnThrottle(b.addr, until, pause)
}

// pauseLeft returns the rest of the broker's pause.
func (n *Network) pauseLeft(b *broker) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Until(b.until)
}

// paceLeft returns the time until the next fetch from a broker with a quota.
func (n *Network) paceLeft(b *broker) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Until(b.pace.after)
}

// isLimited reports whether the broker has named a pause recently.
func (n *Network) isLimited(b *broker) bool { return n.pauseLeft(b) > -calm }

// IsThrottled reports whether requests to a broker wait for the end of a pause.
func (n *Network) IsThrottled(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.brokers[addr]
	return b != nil && time.Now().Before(b.until)
}

// Pauses returns the brokers whose pause has not ended, with its end.
func (n *Network) Pauses() map[string]time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]time.Time{}
	for addr, b := range n.brokers {
		if time.Now().Before(b.until) {
			all[addr] = b.until
		}
	}
	return all
}

// awaitPause waits until the broker's pause has ended. A request to produce or fetch waits for its
// turn too, if the broker has named a pause recently; release must be called at its end.
func (n *Network) awaitPause(ctx context.Context, b *broker, req protocol.Message) (release func(), err error) {
	release = func() {}
	left := n.pauseLeft(b)
	if takesTurns(req) && n.isLimited(b) {
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		release = func() { <-b.turn }
		left = n.pauseLeft(b)
		if !produces(req) {
			left = max(left, n.paceLeft(b))
		}
	}
	for ; left > 0; left = n.pauseLeft(b) {
		if err := pause.For(ctx, left); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}
