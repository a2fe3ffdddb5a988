package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

const (
	replicaWait = 10 * time.Second // of the leader, for its replicas
	// for one batch, until the producer gets another id: a broker that still cannot continue is not
	// Apache Kafka
	maxNewEpochs = 5
)

// Verdict is the result of an attempt for the batch.
type Verdict byte

// An attempt ends with one of these.
const (
	Again    Verdict = iota // not known to be stored: send it again
	Restamp                 // the broker refuses its timestamps: send it again at once, with new ones
	Stored                  // acknowledged
	TooLarge                // refused; the broker may accept a smaller batch
	Refused                 // refused; the broker rejects something in the batch
)

// Result is the outcome of an attempt.
type Result struct {
	Verdict Verdict
	Err     error // why the batch is not stored. With Stored: an earlier attempt had stored it
	Offset  int64 // with Stored: of the first record; negative: unknown
}

// Producer writes to one partition. See the package's documentation.
type Producer struct {
	topic     string
	partition int32
	codec     *Codec

	id       int64 // negative: none yet
	epoch    int16
	sequence int32 // of the next record; after 2^31-1 comes 0

	batch     batch
	records   []*Record // of the batch
	outdated  bool      // the broker has refused its timestamps
	stamped   bool      // its timestamps are from the last attempt
	newEpochs int       // of the batch
}

// New returns a producer for one partition of a topic.
func New(topic string, partition int32, c *Codec) *Producer {
	return &Producer{
		topic:     topic,
		partition: partition,
		codec:     c,
		id:        -1,
	}
}

// Load makes the next batch, of at least one record. The slice and the records must not change
// until the batch is stored, refused or dropped.
func (p *Producer) Load(records []*Record) error {
	p.records = records
	p.outdated = false
	p.stamped = false
	p.newEpochs = 0
	return p.build()
}

func (p *Producer) build() error {
	err := p.batch.build(p.records, p.codec)
	if err != nil {
		p.Drop()
	}
	return err
}

// Count returns the number of Kafka records in the batch.
func (p *Producer) Count() int { return p.batch.count }

// Drop gives up the batch. Late copies may still arrive; see the package's documentation.
func (p *Producer) Drop() {
	p.release()
	p.nextEpoch()
}

func (p *Producer) release() {
	p.codec.put(&p.batch.set, &p.codec.sets)
	clear(p.records)
	p.records = nil
}

// nextEpoch begins a new epoch: after its first stored batch, the broker refuses all earlier ones.
func (p *Producer) nextEpoch() {
	if p.epoch == math.MaxInt16 {
		p.id = -1
		return
	}
	p.epoch++
	p.sequence = 0
}

// Identify requests a producer id from a broker, any broker, unless the producer has one.
func (p *Producer) Identify(ctx context.Context, via kafka.RoundTripper, broker net.Addr) error {
	if p.id >= 0 {
		return nil
	}
	c := kafka.Client{Addr: broker, Transport: via}
	// -1, -1: do not continue with an earlier id.
	res, err := c.InitProducerID(ctx, &kafka.InitProducerIDRequest{
		TransactionTimeoutMs: math.MaxInt32,
		ProducerID:           -1,
		ProducerEpoch:        -1,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return fmt.Errorf("get a producer id: %w", err)
	}
	p.id = int64(res.Producer.ProducerID)
	p.epoch = int16(res.Producer.ProducerEpoch)
	p.sequence = 0
	return nil
}

// Send sends the batch to the partition's leader, once; via limits the time. The producer must have
// an id. Stored, TooLarge and Refused end the batch.
func (p *Producer) Send(ctx context.Context, via kafka.RoundTripper, leader net.Addr) Result {
	p.stamped = p.outdated
	if p.outdated {
		now := time.Now().UnixMilli()
		for _, r := range p.records {
			r.Time = now
		}
		p.outdated = false
		if err := p.build(); err != nil {
			return Result{Verdict: Refused, Err: err}
		}
	}
	p.batch.stamp(p.id, p.epoch, p.sequence)
	offset, err := p.produce(ctx, via, leader)
	r := Result{Verdict: Stored, Err: err, Offset: offset}
	if err != nil {
		r.Verdict, r.Offset = p.judge(err), -1
	}
	switch r.Verdict {
	case Stored:
		p.sequence = after(p.sequence, p.batch.count)
		p.release()
	case TooLarge, Refused:
		p.Drop()
	case Again, Restamp:
	}
	return r
}

// after returns the sequence that follows so many records (DefaultRecordBatch.incrementSequence).
func after(sequence int32, records int) int32 {
	return int32((int64(sequence) + int64(records)) & math.MaxInt32)
}

func (p *Producer) produce(ctx context.Context, via kafka.RoundTripper, leader net.Addr) (offset int64, err error) {
	r, err := via.RoundTrip(ctx, leader, &rawproduce.Request{
		Acks:    int16(kafka.RequireAll),
		Timeout: int32(replicaWait.Milliseconds()),
		Topics: []rawproduce.RequestTopic{{
			Topic: p.topic,
			Partitions: []rawproduce.RequestPartition{{
				Partition: p.partition, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(p.batch.set)},
			}},
		}},
	})
	if err != nil {
		return 0, err
	}
	res, ok := r.(*produce.Response)
	if !ok || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 || res.Topics[0].Topic != p.topic ||
		res.Topics[0].Partitions[0].Partition != p.partition {
		return 0, errors.New("the broker's response is about another partition")
	}
	answer := &res.Topics[0].Partitions[0]
	if answer.ErrorCode == 0 {
		return answer.BaseOffset, nil
	}
	message := answer.ErrorMessage
	if len(answer.RecordErrors) > 0 && answer.RecordErrors[0].BatchIndexErrorMessage != "" {
		message = answer.RecordErrors[0].BatchIndexErrorMessage
	}
	if code := kafka.Error(answer.ErrorCode); message != "" {
		return 0, fmt.Errorf("%w: %s", code, message)
	}
	return 0, kafka.Error(answer.ErrorCode)
}

// judge returns the verdict for an error of the broker or the connection.
func (p *Producer) judge(err error) Verdict {
	code := kafka.Error(0)
	if !errors.As(err, &code) {
		return Again
	}
	switch code {
	case kafka.DuplicateSequenceNumber:
		return Stored
	case kafka.OutOfOrderSequenceNumber, kafka.UnknownProducerId:
		// With one batch in flight, a gap means that the broker has lost acknowledged records, or
		// the state of the producer.
		p.newEpochs++
		if p.newEpochs < maxNewEpochs {
			p.nextEpoch()
		} else {
			p.id, p.newEpochs = -1, 0
		}
	case kafka.InvalidProducerEpoch, kafka.ProducerFenced, kafka.InvalidProducerIDMapping,
		kafka.InvalidTransactionState:
		p.id = -1
	case kafka.InvalidTimestamp:
		p.outdated = true
		if !p.stamped {
			return Restamp
		}
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge:
		return TooLarge
	case kafka.InvalidRecord, kafka.InvalidTopic, kafka.UnsupportedForMessageFormat, kafka.PolicyViolation:
		return Refused
	}
	return Again
}
