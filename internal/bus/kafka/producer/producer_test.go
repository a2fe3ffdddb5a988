package producer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/producer"
)

var leader = kafka.TCP("127.0.0.1:9092")

var errLost = errors.New("the answer is lost")

// broker answers each attempt with the next error of its script; nil: it acknowledges.
type broker struct {
	script []error
	ids    int64
	sent   [][]byte
}

func (b *broker) RoundTrip(_ context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	if r, ok := req.(*initproducerid.Request); ok {
		if r.ProducerID != -1 || r.ProducerEpoch != -1 {
			return nil, errors.New("it wants to continue")
		}
		b.ids++
		return &initproducerid.Response{ProducerID: b.ids}, nil
	}
	p := req.(*rawproduce.Request).Topics[0].Partitions[0]
	raw, err := io.ReadAll(p.RecordSet.Reader)
	if err != nil {
		return nil, err
	}
	b.sent = append(b.sent, raw)
	answer := produce.ResponsePartition{Partition: p.Partition, BaseOffset: int64(10 * len(b.sent))}
	err, b.script = b.script[0], b.script[1:]
	if err != nil {
		code := kafka.Error(0)
		if !errors.As(err, &code) {
			return nil, err
		}
		answer.ErrorCode = int16(code)
	}
	return &produce.Response{Topics: []produce.ResponseTopic{{Topic: "t", Partitions: []produce.ResponsePartition{
		answer,
	}}}}, nil
}

func newProducer(t *testing.T) *producer.Producer {
	t.Helper()
	c, err := producer.NewCodec("none", 1)
	if err != nil {
		t.Fatal(err)
	}
	return producer.New("t", 3, c)
}

// send sends one batch until it is not to be sent again.
func send(t *testing.T, p *producer.Producer, b *broker, records ...*producer.Record) producer.Result {
	t.Helper()
	if err := p.Load(records); err != nil {
		t.Fatal(err)
	}
	for {
		if err := p.Identify(t.Context(), b, leader); err != nil {
			t.Fatal(err)
		}
		if r := p.Send(t.Context(), b, leader); r.Verdict != producer.Again && r.Verdict != producer.Restamp {
			return r
		}
	}
}

func TestSend(t *testing.T) {
	for name, c := range map[string]struct {
		script   []error
		verdict  producer.Verdict
		id       int64
		epoch    int16
		sequence int32
		same     bool // all attempts had the same bytes
		err      bool
	}{
		"acknowledged": {script: []error{nil}, verdict: producer.Stored, id: 1, sequence: 2, same: true},
		"answers are lost": {script: []error{
			errLost, errLost, nil,
		}, verdict: producer.Stored, id: 1, sequence: 2, same: true},
		"not the leader": {script: []error{
			kafka.NotLeaderForPartition, nil,
		}, verdict: producer.Stored, id: 1, sequence: 2, same: true},
		"an earlier one is kept": {script: []error{
			errLost, kafka.DuplicateSequenceNumber,
		}, verdict: producer.Stored, id: 1, sequence: 2, same: true, err: true},
		"out of order": {script: []error{
			kafka.OutOfOrderSequenceNumber, nil,
		}, verdict: producer.Stored, id: 1, epoch: 1, sequence: 2},
		"unknown producer": {script: []error{
			kafka.UnknownProducerId, nil,
		}, verdict: producer.Stored, id: 1, epoch: 1, sequence: 2},
		"out of order, always": {
			script:   append(slices.Repeat([]error{kafka.OutOfOrderSequenceNumber}, 5), nil),
			verdict:  producer.Stored,
			id:       2,
			sequence: 2,
		},
		"another epoch": {script: []error{
			kafka.InvalidProducerEpoch, nil,
		}, verdict: producer.Stored, id: 2, sequence: 2},
		"too large": {script: []error{
			kafka.MessageSizeTooLarge,
		}, verdict: producer.TooLarge, id: 1, epoch: 1, same: true, err: true},
		"refused": {script: []error{
			kafka.InvalidRecord,
		}, verdict: producer.Refused, id: 1, epoch: 1, same: true, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, b := newProducer(t), &broker{script: c.script}
			r := send(t, p, b, record("a", "1"), record("b", "2"))
			id, epoch, sequence := p.Session()
			if r.Verdict != c.verdict || (r.Err != nil) != c.err || id != c.id || epoch != c.epoch ||
				sequence != c.sequence || len(b.script) > 0 {
				t.Errorf("%+v; id %d, epoch %d, sequence %d; %d of the script left", r, id, epoch, sequence,
					len(b.script))
			}
			if r.Verdict == producer.Stored && !c.err && r.Offset != int64(10*len(b.sent)) {
				t.Errorf("offset %d", r.Offset)
			}
			if c.same && slices.ContainsFunc(b.sent, func(raw []byte) bool { return !bytes.Equal(raw, b.sent[0]) }) {
				t.Error("attempts differ")
			}
			for _, raw := range b.sent {
				if got := decode(t, raw); len(got.records) != 2 || got.records[1].value != "2" {
					t.Errorf("sent: %+v", got.records)
				}
			}
		})
	}
}

// A batch whose timestamps are refused has others, under the same sequence; and if those are
// refused too, that is no reason to hurry.
func TestTimestamps(t *testing.T) {
	p := newProducer(t)
	b := &broker{script: []error{errLost, kafka.InvalidTimestamp, kafka.InvalidTimestamp, errLost, nil}}
	began := time.Now().UnixMilli()
	if err := p.Load([]*producer.Record{record("a", "1"), record("b", "2")}); err != nil {
		t.Fatal(err)
	}
	var got []producer.Verdict
	for range b.script {
		if err := p.Identify(t.Context(), b, leader); err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Send(t.Context(), b, leader).Verdict)
	}
	if want := []producer.Verdict{
		producer.Again, producer.Restamp, producer.Again, producer.Again, producer.Stored,
	}; !slices.Equal(got, want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
	for i, raw := range b.sent {
		d := decode(t, raw)
		if fresh := d.records[0].time >= began && d.records[1].time >= began; fresh != (i >= 2) ||
			d.BaseSequence != 0 || d.ProducerEpoch != 0 {
			t.Errorf("attempt %d: %+v", i, d)
		}
	}
}

// A batch that is given up leaves its sequences to nobody; after the last epoch comes another id.
func TestDrop(t *testing.T) {
	p, b := newProducer(t), &broker{script: []error{nil, errLost, nil, errLost, nil}}
	drop := func() {
		if err := p.Load([]*producer.Record{record("a", "1")}); err != nil {
			t.Fatal(err)
		}
		p.Send(t.Context(), b, leader)
		p.Drop()
	}
	send(t, p, b, record("a", "0"))
	drop()
	send(t, p, b, record("a", "2"))
	p.EndEpochs()
	drop()
	send(t, p, b, record("a", "3"))
	type session struct {
		id       int64
		epoch    int16
		sequence int32
	}
	var got []session
	for _, raw := range b.sent {
		d := decode(t, raw)
		got = append(got, session{d.ProducerID, d.ProducerEpoch, d.BaseSequence})
	}
	if want := []session{{1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1<<15 - 1, 1}, {2, 0, 0}}; !slices.Equal(got, want) {
		t.Errorf("sent under %v, want %v", got, want)
	}
}

// An answer about another partition is none.
func TestAnswerAboutSomethingElse(t *testing.T) {
	p := newProducer(t)
	if err := p.Load([]*producer.Record{record("a", "1")}); err != nil {
		t.Fatal(err)
	}
	via := roundTrip(func(kafka.Request) (kafka.Response, error) { return &produce.Response{}, nil })
	if r := p.Send(t.Context(), via, leader); r.Verdict != producer.Again || r.Err == nil {
		t.Errorf("%+v", r)
	}
}

type roundTrip func(kafka.Request) (kafka.Response, error)

func (r roundTrip) RoundTrip(_ context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	return r(req)
}
