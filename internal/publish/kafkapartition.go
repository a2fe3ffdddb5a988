package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kubecdc/kubecdc/internal/encode"
)

const (
	maxBatchRecords = 10_000    // of Kafka
	minBatch        = 16 << 10  // bytes
	largestBatch    = 4 << 20   // bytes, whatever the topic takes, unless one event is larger: brokers bound requests too (socket.request.max.bytes)
	defaultMaxBatch = 1_000_000 // bytes, where the topic's bound may not be asked for; Kafka's default is 1,048,588

	produceWait    = 10 * time.Second // that the leader waits for its replicas
	produceTimeout = 15 * time.Second // of a request

	// cutsToRefuse is how often in a row a connection must be cut right after the same batch, while the broker answers on
	// another one, until the batch counts as refused: then it is halved, until the event is alone. More than twice: a way to
	// the broker that loses one answer in ten would refuse one event in a hundred otherwise, and a batch that is given up
	// while it is in doubt may be there already. All but the first time the connection is a new one.
	cutsToRefuse = 4
	// epochsToGiveUp is how many epochs are tried for one batch until another producer id is: copies of old epochs are shut
	// out by the first append of a new one, copies under an old id are not.
	epochsToGiveUp = 5
)

func produceBackoff() Backoff { return Backoff{First: 20 * time.Millisecond, Limit: 2 * time.Second} }

// producer is who writes to one partition, and how far it has come. (id, epoch, sequence) names the records of one batch
// for ever, whatever their timestamps are: what makes another batch of them begins another epoch.
type producer struct {
	id       int64 // negative: none yet
	epoch    int16
	sequence int32 // of the next record; after 2^31-1 comes 0
}

// advance is what a stored batch of that many records does.
func (p *producer) advance(records int) {
	p.sequence = int32((int64(p.sequence) + int64(records)) & math.MaxInt32)
}

// partition is one partition of a topic: what waits for it, and the one batch of it that is on its way.
type partition struct {
	k     *Kafka
	topic *topic
	index int32
	about string        // topic/index, for what troubles it
	wake  chan struct{} // room for one: something waits. Never closed.

	mu      sync.Mutex
	pending []*record // in the order of their calls; bounded by the callers of Publish, who wait
	closed  bool

	tail *Tail // where the log ends

	producer producer // of run's goroutine, as is stored
	stored   int64    // the offset of the batch that was acknowledged last, negative: not told
}

// publish hands r to the partition and waits for what becomes of it.
func (p *partition) publish(ctx context.Context, r *record) error {
	if err := p.enqueue(r); err != nil {
		return err
	}
	return p.await(ctx, r, false)
}

func (p *partition) enqueue(r *record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.pending = append(p.pending, r)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// await lets go of r, whatever happens: of what is on its way when ctx ends, the copy lives until its next attempt has failed.
// Where mayGo is set, so does the end of the topic: errTopicGone.
func (p *partition) await(ctx context.Context, r *record, mayGo bool) error {
	look, stop := lookNowAndThen(mayGo)
	defer stop()
	for {
		select {
		case err := <-r.done:
			NoteFailures(ctx, r.failed, r.failures)
			p.k.releaseRecord(r)
			return err
		case <-ctx.Done():
			p.abandon(r)
			return context.Cause(ctx)
		case <-look:
			if p.topic.gone.Load() {
				p.abandon(r)
				return errTopicGone
			}
		}
	}
}

func (p *partition) abandon(r *record) {
	r.abandoned.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.pending, r); i >= 0 {
		p.pending = slices.Delete(p.pending, i, i+1)
	}
}

func abandoned(records []*record) bool {
	return !slices.ContainsFunc(records, func(r *record) bool { return !r.abandoned.Load() })
}

// errAbandoned says that nobody waits for any event of a batch any more.
var errAbandoned = errors.New("nobody waits for it")

// take waits for records and moves what fits into one batch to taken: at least one. It reports false when ctx has ended.
func (p *partition) take(ctx context.Context, taken []*record) ([]*record, bool) {
	for {
		p.mu.Lock()
		limit, size, count, n := p.topic.maxBatch.Load(), int64(batchHead), 0, 0
		for _, r := range p.pending {
			size += int64(r.size())
			count += r.count()
			if n > 0 && (size > limit || count > maxBatchRecords) {
				break
			}
			n++
		}
		taken = append(taken[:0], p.pending[:n]...)
		p.pending = slices.Delete(p.pending, 0, n)
		p.mu.Unlock()
		if n > 0 {
			return taken, true
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// run delivers what waits, one batch at a time, until ctx ends.
func (p *partition) run(ctx context.Context) error {
	var taken []*record
	defer p.close()
	for {
		var ok bool
		if taken, ok = p.take(ctx, taken); !ok {
			return nil
		}
		rest := p.deliver(ctx, taken)
		finish(rest, ErrClosed) // none unless ctx has ended
		clear(taken)
	}
}

func (p *partition) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	finish(p.pending, ErrClosed)
	p.pending = nil
}

func finish(records []*record, err error) {
	for _, r := range records {
		r.done <- err // there is room for one
	}
}

// deliver sends records, in their order, and tells each what has become of it. A batch that is refused is halved, until
// what the broker does not take is alone. It returns those that are left when ctx ends.
func (p *partition) deliver(ctx context.Context, records []*record) (rest []*record) {
	n := len(records) // how many make the next batch
	for len(records) > 0 {
		n = min(n, len(records))
		err := p.send(ctx, records[:n])
		switch {
		case err == nil:
			finish(records[:n], nil)
			records = records[n:]
			continue
		case ctx.Err() != nil:
			return records
		case errors.Is(err, ErrFenced):
			finish(records, err)
			return nil
		case errors.Is(err, errAbandoned):
			finish(records[:n], err)
			records = records[n:]
			n = len(records)
		case n > 1:
			if errors.Is(err, ErrTooLarge) { // the topic's bound is not what we think
				p.topic.shrink(sizeOf(records[:n]))
			}
			p.k.metrics.Retries.WithLabelValues(ReasonSplit).Inc()
			noteFailureOf(records[:n], ReasonSplit)
			n /= 2
		default:
			finish(records[:1], err)
			records = records[1:]
			n = len(records)
		}
		// Earlier copies of what was refused may still be on their way, and be taken after all: the size allowed may have
		// been raised. In a new epoch no other batch can be mistaken for one of them; see the package's documentation.
		p.nextEpoch()
	}
	return nil
}

func noteFailureOf(records []*record, reason string) {
	for _, r := range records {
		r.noteFailure(reason)
	}
}

func sizeOf(records []*record) int64 {
	size := int64(batchHead)
	for _, r := range records {
		size += int64(r.size())
	}
	return size
}

// nextEpoch makes the broker refuse all that was sent before, from the first batch on that it stores of the new epoch. An
// idempotent producer raises its epoch by itself (KIP-360).
func (p *partition) nextEpoch() {
	if p.producer.epoch == math.MaxInt16 {
		p.producer.id = -1
		return
	}
	p.producer.epoch++
	p.producer.sequence = 0
}

// send makes one batch of records and sends it until it is stored or refused, or ctx ends.
func (p *partition) send(ctx context.Context, records []*record) error {
	b := p.k.batch()
	defer p.k.releaseBatch(b)
	if err := b.build(records, p.k.codec); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	cuts, lost := 0, 0
	outdated, stamped := false, false // the broker has refused the timestamps; they are of this attempt
	mark := p.tail.Mark()
	for failures := 0; ; {
		if err := p.identify(ctx, records); err != nil {
			return err
		}
		if stamped = outdated; outdated {
			// The broker looks at timestamps before it looks for copies, so an earlier attempt may be stored although this one was
			// refused. Under the same sequence the broker takes the new batch for a copy of that one, in whatever order they arrive.
			restamp(records)
			if err := b.build(records, p.k.codec); err != nil {
				return fmt.Errorf("%w: %w", ErrRefused, err)
			}
			outdated = false
		}
		b.stamp(p.producer)
		seen := p.k.view()
		alive, err := p.attempt(ctx, seen, b.set, cuts > 0)
		switch {
		case ctx.Err() != nil && err != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrFenced):
			return err
		case errors.Is(err, ErrShut):
			if abandoned(records) {
				return errAbandoned
			}
			continue // half of it may be there, which is nothing
		}
		v, reason, advice := verdictStored, "", ""
		if err != nil {
			v, reason, advice = judgeKafka(err)
		}
		switch {
		case err != nil && errors.Is(err, errCut) && (cuts == 0 || alive):
			cuts++
			if cuts >= cutsToRefuse {
				p.k.clearTrouble(p.about)
				kind := ErrRefused
				if len(records) == 1 && records[0].size() > encode.MaxShort {
					kind = ErrTooLarge // socket.request.max.bytes, most probably: that is how brokers say so
				}
				return fmt.Errorf("%w: the broker ended the connection %d times in a row when it was sent, and answered on another one", kind, cuts)
			}
		default:
			cuts = 0
		}
		switch v {
		case verdictStored:
			if err != nil {
				p.k.metrics.Duplicates.Add(float64(len(records)))
			} else {
				p.noteStored(mark, p.stored, b.count)
			}
			p.producer.advance(b.count)
			p.k.clearTrouble(p.about)
			return nil
		case verdictTooLarge:
			p.k.clearTrouble(p.about)
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		case verdictRefused:
			p.k.clearTrouble(p.about)
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case verdictTimestamp:
			if outdated = true; stamped {
				advice = adviceOnClocks
			}
		case verdictEpoch:
			// With one batch on its way, a hole means that the broker has lost records which it had acknowledged, or all
			// that it knew of the producer.
			if lost++; lost < epochsToGiveUp {
				p.nextEpoch()
			} else { // it does not help: a broker of another make
				p.producer.id, lost = -1, 0
			}
		case verdictProducer:
			p.producer.id = -1
		case verdictRetry:
		}
		if abandoned(records) { // it is in doubt now, and given up like one that is refused
			p.k.clearTrouble(p.about)
			return errAbandoned
		}
		failures++
		p.note(err, reason, advice, failures)
		noteFailureOf(records, reason)
		if outdated && !stamped {
			continue // nothing else is wrong
		}
		if err := p.k.pause(ctx, seen, produceBackoff().Delay(failures)); err != nil {
			return err
		}
	}
}

// attempt sends a batch to the partition's leader, once. alive is as in RoundTripWitnessed.
func (p *partition) attempt(ctx context.Context, seen *view, set []byte, witnessed bool) (alive bool, err error) {
	leader, err := seen.leader(p.topic.name, p.index)
	if err != nil {
		return false, err
	}
	if err := p.k.fence.Pass(ctx); err != nil {
		return false, err
	}
	req := &rawproduce.Request{
		Acks:    int16(kafka.RequireAll),
		Timeout: int32(produceWait.Milliseconds()),
		Topics: []rawproduce.RequestTopic{{
			Topic: p.topic.name,
			Partitions: []rawproduce.RequestPartition{{
				Partition: p.index, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(set)},
			}},
		}},
	}
	ctx, cancel := context.WithTimeout(ctx, produceTimeout)
	defer cancel()
	var r kafka.Response
	if w, ok := p.k.net.(witnessing); ok && witnessed {
		r, alive, err = w.RoundTripWitnessed(ctx, leader, req)
	} else {
		r, err = p.k.net.RoundTrip(ctx, leader, req)
	}
	if err != nil {
		return alive, err
	}
	res, ok := r.(*produce.Response)
	if !ok || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 || res.Topics[0].Topic != p.topic.name ||
		res.Topics[0].Partitions[0].Partition != p.index {
		return alive, errors.New("the broker's answer is about something else")
	}
	answer := &res.Topics[0].Partitions[0]
	p.stored = answer.BaseOffset
	message := answer.ErrorMessage
	if len(answer.RecordErrors) > 0 && answer.RecordErrors[0].BatchIndexErrorMessage != "" {
		message = answer.RecordErrors[0].BatchIndexErrorMessage
	}
	return alive, brokerError(answer.ErrorCode, message)
}

// witnessing is a way to brokers that can tell who cut a connection.
type witnessing interface {
	RoundTripWitnessed(ctx context.Context, addr net.Addr, req kafka.Request) (res kafka.Response, alive bool, err error)
}

// identify makes sure that the partition has a producer id, to send records.
func (p *partition) identify(ctx context.Context, records []*record) error {
	for failures := 1; p.producer.id < 0; failures++ {
		seen := p.k.view()
		leader, err := seen.leader(p.topic.name, p.index)
		if err == nil {
			if err = p.newProducer(ctx, leader); err == nil {
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if abandoned(records) {
			p.k.clearTrouble(p.about)
			return errAbandoned
		}
		_, reason, advice := judgeKafka(err)
		p.note(fmt.Errorf("get a producer id: %w", err), reason, advice, failures)
		noteFailureOf(records, reason)
		if err := p.k.pause(ctx, seen, produceBackoff().Delay(failures)); err != nil {
			return err
		}
	}
	return nil
}

func (p *partition) newProducer(ctx context.Context, broker net.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	// Any broker hands them out. -1, -1: not to go on with one that we have.
	r, err := p.k.net.RoundTrip(ctx, broker, &initproducerid.Request{TransactionTimeoutMs: math.MaxInt32, ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return err
	}
	res, ok := r.(*initproducerid.Response)
	if !ok {
		return errors.New("the broker's answer is about something else")
	}
	if err := brokerError(res.ErrorCode, ""); err != nil {
		return err
	}
	p.producer = producer{id: res.ProducerID, epoch: res.ProducerEpoch}
	return nil
}

// note counts a failed attempt, and logs the first of its kind in each window.
func (p *partition) note(err error, reason, advice string, attempt int) {
	k := p.k
	k.metrics.Retries.WithLabelValues(reason).Inc()
	if reason == ReasonLeader {
		p.topic.missed.Store(true)
		k.lookAtLogsSoon()
	}
	kind := "produce " + reason
	if advice != "" {
		kind += " with advice" // a line without advice does not suppress one with it
		k.setTrouble(p.about, fmt.Errorf("topic %s, partition %d: %w", p.topic.name, p.index, err))
	}
	if suppressed, ok := k.window.First(kind); ok {
		if reason == ReasonSequence {
			advice = "none, but look: the cluster may have lost records that it had acknowledged, by an unclean election of a leader for instance"
		}
		k.log.Log(context.Background(), levelOf(advice), "batch is sent again", "reason", reason, "advice", advice,
			"topic", p.topic.name, "partition", p.index, "attempt", attempt, "err", err, "suppressed", suppressed)
	}
}
