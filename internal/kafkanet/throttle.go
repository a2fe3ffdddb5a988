package kafkanet

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
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
	// limitedBytes is the size of a fetch from such a broker. The broker withholds a fetch that
	// does not fit into the rest of its quota, so that large ones leave much of it unused.
	limitedBytes = 64 << 10
)

// withLimits returns a fetch within limitedWait and limitedBytes, and other requests as they are.
func withLimits(req protocol.Message) protocol.Message {
	r, ok := req.(*fetch.Request)
	if !ok {
		return req
	}
	short := *r
	short.MaxWaitTime = min(r.MaxWaitTime, limitedWait)
	short.MaxBytes = min(r.MaxBytes, limitedBytes)
	short.Topics = slices.Clone(r.Topics)
	for i := range short.Topics {
		t := &short.Topics[i]
		t.Partitions = slices.Clone(t.Partitions)
		for j := range t.Partitions {
			t.Partitions[j].PartitionMaxBytes = min(t.Partitions[j].PartitionMaxBytes, limitedBytes)
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
func (n *Network) awaitPause(ctx context.Context, b *broker, turns bool) (release func(), err error) {
	release = func() {}
	for {
		if turns && n.isLimited(b) {
			select {
			case b.turn <- struct{}{}:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			turns = false
			release = func() { <-b.turn }
		}
		left := n.pauseLeft(b)
		if left <= 0 {
			return release, nil
		}
		if err := sleep(ctx, left); err != nil {
			release()
			return nil, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
