package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/producer"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	maxBatchRecords = 10_000 // records of Kafka

	// maxCuts is the number of consecutive cuts of a batch's connection until the batch is halved,
	// or its only event handed back to be sent alone. After the first cut, each is on a new
	// connection on which the broker has answered. A batch that is given up may be stored, so one
	// or two cuts, which any network has, must not be enough.
	maxCuts = 4
)

func produceBackoff() publish.Backoff {
	return publish.Backoff{First: 20 * time.Millisecond, Limit: 2 * time.Second}
}

var (
	// errTopicGone means that a topic no longer exists.
	errTopicGone = errors.New("the topic was deleted")
	// errCutOff means that the connection of a batch was cut too often.
	errCutOff = errors.New("the connection was cut each time the batch was sent")
)

type record struct {
	producer.Record
	event     *publish.Event // nil: it belongs to a broadcast
	broadcast *broadcast
	alone     bool // it has its own batch and connection
	optional  bool // it is dropped if the topic is gone
}

func (r *record) shortens() bool { return len(r.Event.Body) > encode.MaxShort }

// partition is one partition of a topic: its queue, and its one batch in flight.
type partition struct {
	bus      *Bus
	topic    *topic
	index    int32
	about    string                 // topic/index, the key of its trouble
	inbox    *publish.Inbox[record] // of Publish and broadcasts
	tail     *publish.Tail          // end of the log
	producer *producer.Producer
	batch    []*producer.Record // of the producer

	pending, spare []record // from the inbox, in order of arrival; the callers of Publish bound them
}

func newPartition(b *Bus, t *topic, i int) *partition {
	return &partition{
		bus:      b,
		topic:    t,
		index:    int32(i),
		about:    fmt.Sprintf("%s/%d", t.name, i),
		inbox:    publish.NewInbox[record](),
		tail:     b.tailOf(t.name, i),
		producer: producer.New(t.name, int32(i), b.codec),
	}
}

// run delivers the queue, one batch at a time, until ctx ends. Then it ends the remaining records.
func (p *partition) run(ctx context.Context) error {
	var taken []record
	for {
		var ok bool
		taken, ok = p.take(ctx, taken)
		if !ok {
			break
		}
		p.deliver(ctx, taken)
		clear(taken)
	}
	p.finish(append(p.pending, p.inbox.Close()...), publish.ErrClosed)
	return nil
}

// take waits for records and moves those that fit into one batch to taken: at least one. It reports
// false when ctx has ended.
func (p *partition) take(ctx context.Context, taken []record) ([]record, bool) {
	for ctx.Err() == nil {
		p.collect()
		n := p.countFitting()
		taken = append(taken[:0], p.pending[:n]...)
		p.pending = slices.Delete(p.pending, 0, n)
		if n > 0 {
			return taken, true
		}
		select {
		case <-p.inbox.Ready:
		case <-ctx.Done():
		}
	}
	return nil, false
}

// collect adds the records of the inbox to the pending ones.
func (p *partition) collect() {
	p.spare = p.inbox.Take(p.spare)
	p.pending = append(p.pending, p.spare...)
	clear(p.spare)
}

// countFitting returns the number of pending records for the next batch.
func (p *partition) countFitting() (n int) {
	limit := p.topic.maxBatch.Load()
	size := int64(producer.Head)
	count := 0
	for i := range p.pending {
		r := &p.pending[i]
		size += int64(r.Size())
		count += r.Count()
		if n > 0 && (size > limit || count > maxBatchRecords || r.alone || p.pending[0].alone) {
			break
		}
		n++
	}
	return n
}

// finish ends records. It must be called without locks.
func (p *partition) finish(records []record, err error) {
	for i := range records {
		r := records[i]
		err := err
		if errors.Is(err, publish.ErrRefused) {
			err = fmt.Errorf("publish %s to topic %s, partition %d: %w", r.Event.ID, p.topic.name, p.index, err)
		}
		if r.event == nil {
			p.bus.noteOutcome(r.broadcast, p, err)
			continue
		}
		if err == nil && p.bus.topicNames.Varies() && p.topic.name != p.bus.deadTopic {
			p.topic.ledger.noteEvent(r.event.Event)
		}
		p.bus.release(p.topic)
		r.event.Done(err)
	}
}

// deliver sends records in order, and ends each. A batch that is refused, or repeatedly cut, is
// halved until the event at fault is alone.
func (p *partition) deliver(ctx context.Context, records []record) {
	n := len(records) // size of the next batch
	for len(records) > 0 {
		n = min(n, len(records))
		err := p.send(ctx, records[:n])
		switch {
		case err == nil:
			p.finish(records[:n], nil)
			records = records[n:]
		case errors.Is(err, publish.ErrClosed), errors.Is(err, publish.ErrFenced):
			p.finish(records, err)
			return
		case errors.Is(err, errTopicGone):
			records = p.giveUpOptional(records)
			n = len(records)
		case n > 1:
			if errors.Is(err, publish.ErrTooLarge) { // the assumed bound of the topic is wrong
				p.topic.shrink(sizeOf(records[:n]))
			}
			p.bus.metrics.Retries.WithLabelValues(publish.ReasonSplit).Inc()
			retried(records[:n], publish.ReasonSplit)
			n /= 2
		default:
			if errors.Is(err, errCutOff) {
				err = p.isolate(&records[0], err)
			}
			if bc := records[0].broadcast; bc != nil && bc.report != nil && errors.Is(err, publish.ErrTooLarge) {
				p.topic.shrink(sizeOf(records[:1])) // later ones are split, see MaxEventBytes
			}
			p.finish(records[:1], err)
			records = records[1:]
			n = len(records)
		}
	}
}

// giveUpOptional ends the optional records of a gone topic, pending ones included, and returns the
// others of records.
func (p *partition) giveUpOptional(records []record) []record {
	p.collect()
	var ended []record
	keep := func(all []record) []record {
		kept := make([]record, 0, len(all))
		for _, r := range all {
			if r.optional {
				ended = append(ended, r)
			} else {
				kept = append(kept, r)
			}
		}
		return kept
	}
	records, p.pending = keep(records), keep(p.pending)
	p.finish(ended, errTopicGone)
	return records
}

// isolate returns the error for the only event of a batch whose connection was cut too often. The
// event may be the cause.
func (p *partition) isolate(r *record, err error) error {
	if r.alone && r.shortens() {
		// probably above socket.request.max.bytes: brokers then cut the connection
		return fmt.Errorf("%w: %w", publish.ErrTooLarge, err)
	}
	if suppressed, ok := p.bus.window.First("alone"); ok {
		p.bus.log.Error("connections break when an event is sent: it is sent alone from now on, with pauses",
			"event_id", string(r.Event.ID),
			"topic", p.topic.name, "partition", p.index, "advice",
			"check the broker's log and the network to it; 'kubecdc dead-letter EVENT-ID' gives the event up",
			"err", err, "suppressed", suppressed)
	}
	return &publish.RetryError{Reason: publish.ReasonConnection, Alone: true, Err: err}
}

func retried(records []record, reason string) {
	for i := range records {
		if e := records[i].event; e != nil {
			e.Retried(reason)
		}
	}
}

func sizeOf(records []record) int64 {
	size := int64(producer.Head)
	for i := range records {
		size += int64(records[i].Size())
	}
	return size
}

// send makes one batch of records and repeats it until it is stored, refused or given up, or ctx
// ends.
func (p *partition) send(ctx context.Context, records []record) error {
	p.batch = p.batch[:0]
	for i := range records {
		p.batch = append(p.batch, &records[i].Record)
	}
	if err := p.producer.Load(p.batch); err != nil {
		return fmt.Errorf("%w: %w", publish.ErrRefused, err)
	}
	cuts, most := 0, maxCuts
	if r := &records[0]; r.alone && !r.shortens() {
		most = 1 // it is retried soon, and others wait for it meanwhile
	}
	mark := p.tail.Mark()
	for failures := 0; ; {
		seen := p.bus.view()
		count := p.producer.Count()
		res := p.attempt(ctx, seen, records[0].alone)
		switch {
		case res.Verdict == producer.Stored:
			p.noteStored(mark, res, count, len(records))
			return nil
		case ctx.Err() != nil:
			return publish.ErrClosed
		case errors.Is(res.Err, publish.ErrFenced):
			return res.Err
		case errors.Is(res.Err, publish.ErrShut):
			continue // a broker ignores a partial request
		case res.Verdict == producer.TooLarge:
			p.bus.clearTrouble(p.about)
			return fmt.Errorf("%w: %w", publish.ErrTooLarge, res.Err)
		case res.Verdict == producer.Refused:
			p.bus.clearTrouble(p.about)
			return fmt.Errorf("%w: %w", publish.ErrRefused, res.Err)
		}
		failures++
		p.noteFailure(res, records, failures)
		cuts++
		if !errors.Is(res.Err, kafkanet.ErrCut) {
			cuts = 0
		}
		if err := p.giveUpBatch(cuts, most, records, res.Err); err != nil {
			p.bus.clearTrouble(p.about)
			p.producer.Drop()
			return err
		}
		if res.Verdict == producer.Restamp {
			continue // no need to wait
		}
		if p.bus.pause(ctx, seen, produceBackoff().Delay(failures)) != nil {
			return publish.ErrClosed
		}
	}
}

// giveUpBatch returns the error of a batch if it is given up, although it was neither stored nor
// refused; nil: continue.
func (p *partition) giveUpBatch(cuts, most int, records []record, err error) error {
	switch {
	case cuts >= most:
		return fmt.Errorf("%w, %d times in a row: %w", errCutOff, cuts, err)
	case p.topic.gone.Load():
		p.giveUpOptional(nil) // pending ones
		if slices.ContainsFunc(records, func(r record) bool { return r.optional }) {
			return errTopicGone
		}
	}
	return nil
}

func (p *partition) attempt(ctx context.Context, seen *view, alone bool) producer.Result {
	via := p.bus.net
	if alone {
		via = p.bus.apart
	}
	leader, err := seen.leader(p.topic.name, p.index)
	if err == nil {
		err = p.producer.Identify(ctx, via, leader)
	}
	if err == nil {
		err = p.bus.fence.Pass(ctx)
	}
	if err != nil {
		return producer.Result{Err: err}
	}
	return p.producer.Send(ctx, via, leader)
}

// noteStored notes the offset of a batch that was first sent at m. The offsets of a partition
// increase: one below an acknowledged offset means that the topic was replaced, or has lost
// records.
func (p *partition) noteStored(m publish.Mark, res producer.Result, count, events int) {
	p.bus.clearTrouble(p.about)
	if res.Err != nil {
		p.bus.metrics.Duplicates.Add(float64(events))
		return
	}
	if res.Offset < 0 || p.topic.name == p.bus.deadTopic { // unknown offset, or dead letters, which have no scope
		return
	}
	end := uint64(res.Offset) + uint64(count)
	if res.Offset == 0 { // services without offsets always return 0: do not store it
		end = 0
	}
	if !p.tail.NoteAcked(m, uint64(res.Offset), end) {
		p.bus.logs.NoteRepeatedPosition(p.topic.name, int(p.index), m)
		p.bus.logsDue.Raise()
	}
}

// noteFailure counts a failed attempt, and logs the first of its kind in each window.
func (p *partition) noteFailure(res producer.Result, records []record, attempt int) {
	b := p.bus
	reason, advice := diagnose(res)
	b.metrics.Retries.WithLabelValues(reason).Inc()
	retried(records, reason)
	if reason == publish.ReasonLeader {
		p.topic.notFound.Store(true)
		b.logsDue.Raise()
	}
	kind := "produce " + reason
	if advice != "" {
		kind += " with advice" // a line without advice does not suppress one with it
		b.setTrouble(p.about, fmt.Errorf("topic %s, partition %d: %w", p.topic.name, p.index, res.Err))
	}
	if suppressed, ok := b.window.First(kind); ok {
		if reason == publish.ReasonSequence {
			advice = "none, but check the cluster: it may have lost acknowledged records, for example by an unclean leader election"
		}
		b.log.Log(context.Background(), levelOf(advice), "sending a batch failed, retrying", "reason", reason, "advice",
			advice,
			"topic", p.topic.name, "partition", p.index, "attempt", attempt, "err", res.Err, "suppressed", suppressed)
	}
}

// partitionOf returns the partition for a key, among numbers. Java's default partitioner chooses
// the same one.
func partitionOf(key []byte, numbers []int) int {
	return kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: key}, numbers...)
}
