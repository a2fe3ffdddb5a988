package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
)

// model is a Kafka cluster as an idempotent producer observes it. It has leaders, and producers'
// epochs and sequences with the last five batches of each, like ProducerAppendInfo and
// ProducerStateManager of Kafka 4.
type model struct {
	mu     sync.Mutex
	addrs  []string // of the brokers 0, 1, …
	topics map[string]*modelTopic
	ids    int64

	// fault decides the fate of a produce request; nil: no fault.
	fault func(p *modelPartition) fault
	// late are copies of requests whose connection was lost before the broker read them.
	late []lateCopy
	// config is the configuration in descriptions of topics.
	config map[string]string
	// denied is the answer to requests for a producer id.
	denied kafkago.Error
	// login answers authentication requests; nil: authentication is not required.
	login func(initial string) kafkago.Error
	// undescribed is the answer to requests for a topic's configuration.
	undescribed kafkago.Error

	// unreadable is the answer to requests to read.
	unreadable kafkago.Error
	// page is the number of records in an answer to a request to read; 0: all.
	page int

	// metadataVersion is the newest version of requests for metadata; 0: that of a broker before
	// 2.8.
	metadataVersion int16

	// throttle is the pause, in milliseconds, in answers to requests to produce.
	throttle int32

	sends   int // produce requests
	reads   int // fetch requests
	lateHit int // late copies that were appended
}

type fault struct {
	lostBefore bool          // the request is lost; a copy of it may arrive later
	lostAfter  bool          // the answer is lost
	code       kafkago.Error // instead of appending
	after      kafkago.Error // instead of success, after appending
	deliver    bool          // a late copy arrives before
	move       bool          // the leader moves before
}

type lateCopy struct {
	broker    int
	topic     string
	partition int
	batch     modelBatch
}

type modelTopic struct{ partitions []*modelPartition }

type modelPartition struct {
	leader    int
	log       []modelRecord
	removed   int // records at the beginning that retention has removed
	producers map[int64]*modelProducer
}

type modelProducer struct {
	epoch  int16
	last   int32
	recent [][2]int32 // first and last sequence of the last five batches
}

type modelRecord struct {
	key, value string
	null       bool // the value
	headers    []protocol.Header
	id         int64
	epoch      int16
	time       int64
}

type modelBatch struct {
	id       int64
	epoch    int16
	sequence int32
	records  []modelRecord
	size     int
}

func newModel(brokers int) *model {
	m := &model{topics: map[string]*modelTopic{}, ids: 1000, config: map[string]string{
		"max.message.bytes": "1048588", "cleanup.policy": "delete", "min.insync.replicas": "2",
	}}
	for i := range brokers {
		m.addrs = append(m.addrs, fmt.Sprintf("127.0.0.1:%d", 10000+i))
	}
	return m
}

// topic creates a topic.
func (m *model) topic(name string, partitions int) *modelTopic {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.create(name, partitions)
}

func (m *model) create(name string, partitions int) *modelTopic {
	t := new(modelTopic)
	for i := range partitions {
		t.partitions = append(t.partitions, &modelPartition{
			leader:    i % len(m.addrs),
			producers: map[int64]*modelProducer{},
		})
	}
	m.topics[name] = t
	return t
}

// logOf returns a copy of a partition's records.
func (m *model) logOf(topic string, partition int) []modelRecord {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.topics[topic]
	if t == nil {
		return nil
	}
	return slices.Clone(t.partitions[partition].log)
}

// RoundTrip implements kafkago.RoundTripper.
func (m *model) RoundTrip(ctx context.Context, addr net.Addr, req kafkago.Request) (kafkago.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	broker := slices.Index(m.addrs, addr.String())
	if broker < 0 {
		return nil, fmt.Errorf("connect to %s: refused", addr)
	}
	return m.serve(broker, req)
}

func (m *model) serve(broker int, req kafkago.Request) (kafkago.Response, error) {
	switch req := req.(type) {
	case *apiversions.Request:
		res := new(apiversions.Response)
		for key, v := range map[protocol.ApiKey]int16{
			protocol.Produce:          8,
			protocol.Metadata:         8,
			protocol.ApiVersions:      2,
			protocol.CreateTopics:     4,
			protocol.InitProducerId:   4,
			protocol.DescribeConfigs:  3,
			protocol.SaslHandshake:    1,
			protocol.SaslAuthenticate: 1,
		} {
			if key == protocol.Metadata {
				v = max(v, m.metadataVersion)
			}
			res.ApiKeys = append(res.ApiKeys, apiversions.ApiKeyResponse{ApiKey: int16(key), MaxVersion: v})
		}
		return res, nil
	case *saslhandshake.Request:
		return new(saslhandshake.Response), nil
	case *saslauthenticate.Request:
		return &saslauthenticate.Response{ErrorCode: int16(m.login(string(req.AuthBytes)))}, nil
	case *metadata.Request:
		return m.metadata(req), nil
	case *createtopics.Request:
		t := req.Topics[0]
		res := &createtopics.Response{Topics: []createtopics.ResponseTopic{{Name: t.Name}}}
		if m.topics[t.Name] != nil {
			res.Topics[0].ErrorCode = int16(kafkago.TopicAlreadyExists)
		} else {
			m.create(t.Name, int(t.NumPartitions))
		}
		return res, nil
	case *describeconfigs.Request:
		res := &describeconfigs.Response{Resources: []describeconfigs.ResponseResource{{
			ResourceName: req.Resources[0].ResourceName,
		}}}
		res.Resources[0].ErrorCode = int16(m.undescribed)
		for name, value := range m.config {
			res.Resources[0].ConfigEntries = append(res.Resources[0].ConfigEntries,
				describeconfigs.ResponseConfigEntry{ConfigName: name, ConfigValue: value})
		}
		return res, nil
	case *initproducerid.Request:
		if m.denied != 0 {
			return &initproducerid.Response{ErrorCode: int16(m.denied)}, nil
		}
		m.ids++
		return &initproducerid.Response{ProducerID: m.ids}, nil
	case *rawproduce.Request:
		raw, err := io.ReadAll(req.Topics[0].Partitions[0].RecordSet.Reader)
		if err != nil {
			return nil, err
		}
		var set protocol.RecordSet
		if _, err := set.ReadFrom(bytes.NewReader(raw)); err != nil {
			return nil, fmt.Errorf("the broker cannot read the batch: %w", err)
		}
		return m.produce(broker, req.Acks, req.Topics[0].Topic, int(req.Topics[0].Partitions[0].Partition), &set,
			len(raw)-4)
	case *listoffsets.Request:
		t := req.Topics[0]
		return m.offsets(broker, t.Topic, &t.Partitions[0]), nil
	case *fetch.Request:
		t := req.Topics[0]
		return m.fetch(broker, t.Topic, &t.Partitions[0]), nil
	case *produce.Request:
		p := &req.Topics[0].Partitions[0]
		return m.produce(broker, req.Acks, req.Topics[0].Topic, int(p.Partition), &p.RecordSet, 0)
	}
	return nil, fmt.Errorf("the model does not know %T", req)
}

func (m *model) metadata(req *metadata.Request) *metadata.Response {
	res := new(metadata.Response)
	for i, a := range m.addrs {
		host, port, _ := net.SplitHostPort(a)
		n, _ := strconv.Atoi(port)
		res.Brokers = append(res.Brokers, metadata.ResponseBroker{NodeID: int32(i), Host: host, Port: int32(n)})
	}
	names := req.TopicNames
	if names == nil {
		for name := range m.topics {
			names = append(names, name)
		}
	}
	for _, name := range names {
		t := m.topics[name]
		if t == nil {
			res.Topics = append(res.Topics, metadata.ResponseTopic{
				Name:      name,
				ErrorCode: int16(kafkago.UnknownTopicOrPartition),
			})
			continue
		}
		rt := metadata.ResponseTopic{Name: name}
		for i, p := range t.partitions {
			rt.Partitions = append(rt.Partitions, metadata.ResponsePartition{
				PartitionIndex: int32(i),
				LeaderID:       int32(p.leader),
				ReplicaNodes:   []int32{0, 1, 2},
			})
		}
		res.Topics = append(res.Topics, rt)
	}
	return res
}

// readable returns the partition for a request to read, or the error of the answer.
func (m *model) readable(broker int, topic string, partition int32) (*modelPartition, int16) {
	t := m.topics[topic]
	switch {
	case m.unreadable != 0:
		return nil, int16(m.unreadable)
	case t == nil || int(partition) >= len(t.partitions):
		return nil, int16(kafkago.UnknownTopicOrPartition)
	case t.partitions[partition].leader != broker:
		return nil, int16(kafkago.NotLeaderForPartition)
	}
	return t.partitions[partition], 0
}

func (m *model) offsets(broker int, topic string, req *listoffsets.RequestPartition) *listoffsets.Response {
	p, code := m.readable(broker, topic, req.Partition)
	answer := listoffsets.ResponsePartition{Partition: req.Partition, ErrorCode: code, Timestamp: -1}
	if p != nil {
		answer.Offset = int64(p.removed)
		if req.Timestamp == kafkago.LastOffset {
			answer.Offset = int64(len(p.log))
		}
	}
	return &listoffsets.Response{Topics: []listoffsets.ResponseTopic{{
		Topic:      topic,
		Partitions: []listoffsets.ResponsePartition{answer},
	}}}
}

func (m *model) fetch(broker int, topic string, req *fetch.RequestPartition) *fetch.Response {
	m.reads++
	p, code := m.readable(broker, topic, req.Partition)
	answer := fetch.ResponsePartition{Partition: req.Partition, ErrorCode: code}
	if p != nil {
		answer.HighWatermark = int64(len(p.log))
		from := int(req.FetchOffset)
		if from < p.removed || from > len(p.log) {
			answer.ErrorCode = int16(kafkago.OffsetOutOfRange)
		}
		if m.page > 0 {
			from -= from % m.page // a batch begins before the offset
		}
		var records []kafkago.Record
		for i := max(from, p.removed); i < len(p.log) && (m.page == 0 || len(records) < m.page); i++ {
			r := &p.log[i]
			records = append(records, kafkago.Record{
				Offset:  int64(i),
				Time:    time.UnixMilli(r.time),
				Key:     kafkago.NewBytes([]byte(r.key)),
				Value:   kafkago.NewBytes([]byte(r.value)),
				Headers: r.headers,
			})
		}
		answer.RecordSet = protocol.RecordSet{Version: 2, Records: kafkago.NewRecordReader(records...)}
	}
	return &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: topic, Partitions: []fetch.ResponsePartition{answer}}}}
}

var errLost = errors.New("connection lost")

func (m *model) produce(
	broker int, acks int16, topic string, partition int, set *protocol.RecordSet, size int,
) (kafkago.Response, error) {
	m.sends++
	b, err := readBatch(set)
	if err != nil {
		return nil, err
	}
	b.size = size
	if acks != -1 {
		return nil, fmt.Errorf("acks is %d", acks)
	}
	answer := func(code kafkago.Error) (kafkago.Response, error) {
		return &produce.Response{ThrottleTimeMs: m.throttle, Topics: []produce.ResponseTopic{{
			Topic: topic,
			Partitions: []produce.ResponsePartition{
				{Partition: int32(partition), ErrorCode: int16(code)},
			},
		}}}, nil
	}
	t := m.topics[topic]
	if t == nil || partition >= len(t.partitions) {
		return answer(kafkago.UnknownTopicOrPartition)
	}
	p := t.partitions[partition]
	var f fault
	if m.fault != nil {
		f = m.fault(p)
	}
	if f.move {
		p.leader = (p.leader + 1) % len(m.addrs)
	}
	if f.deliver && len(m.late) > 0 {
		i := rand.IntN(len(m.late))
		c := m.late[i]
		m.late = slices.Delete(m.late, i, i+1)
		if to := m.topics[c.topic].partitions[c.partition]; to.leader == c.broker &&
			to.append(c.batch, m.bounds()) == 0 {
			m.lateHit++
		}
	}
	if f.lostBefore {
		m.late = append(m.late, lateCopy{broker, topic, partition, b})
		return nil, errLost
	}
	if p.leader != broker {
		return answer(kafkago.NotLeaderForPartition)
	}
	if f.code != 0 {
		return answer(f.code)
	}
	code := p.append(b, m.bounds())
	switch {
	case f.lostAfter:
		if rand.IntN(2) == 0 { // and the network may have duplicated the request
			m.late = append(m.late, lateCopy{broker, topic, partition, b})
		}
		return nil, errLost
	case f.after != 0 && code == 0:
		return answer(f.after)
	}
	return answer(code)
}

// bounds are the limits in a topic's configuration.
type bounds struct{ size, before, after int }

func (m *model) bounds() bounds {
	get := func(key string) int {
		if n, err := strconv.Atoi(m.config[key]); err == nil {
			return n
		}
		return math.MaxInt
	}
	return bounds{
		get("max.message.bytes"), get("message.timestamp.before.max.ms"), get("message.timestamp.after.max.ms"),
	}
}

// append handles a batch like the leader. Kafka detects a duplicate of one of the last five batches
// by its sequences alone. A batch is validated before that, with all of its records (LogValidator).
func (p *modelPartition) append(b modelBatch, limits bounds) kafkago.Error {
	if b.size > limits.size {
		return kafkago.MessageSizeTooLarge
	}
	for i := range b.records {
		if age := int(time.Now().UnixMilli() - b.records[i].time); age > limits.before || -age > limits.after {
			return kafkago.InvalidTimestamp
		}
	}
	for i := range b.records {
		if b.records[i].value == "poison" {
			return kafkago.InvalidRecord
		}
	}
	last := int32((int64(b.sequence) + int64(len(b.records)) - 1) & math.MaxInt32)
	s := p.producers[b.id]
	if s != nil && s.epoch == b.epoch && slices.Contains(s.recent, [2]int32{b.sequence, last}) {
		return 0 // a duplicate: acknowledged, not appended
	}
	switch {
	case s == nil:
		s = &modelProducer{epoch: b.epoch}
		p.producers[b.id] = s
	case b.epoch < s.epoch:
		return kafkago.InvalidProducerEpoch
	case b.epoch > s.epoch:
		if b.sequence != 0 {
			return kafkago.OutOfOrderSequenceNumber
		}
		*s = modelProducer{epoch: b.epoch}
	case b.sequence != int32((int64(s.last)+1)&math.MaxInt32):
		if b.sequence < s.last {
			return kafkago.DuplicateSequenceNumber // older than the kept batches of the producer
		}
		return kafkago.OutOfOrderSequenceNumber
	}
	s.last = last
	s.recent = append(s.recent, [2]int32{b.sequence, last})
	if len(s.recent) > 5 {
		s.recent = s.recent[1:]
	}
	p.log = append(p.log, b.records...)
	return 0
}

// readBatch reads a record set with kafka-go's decoder, which checks its sum.
func readBatch(set *protocol.RecordSet) (modelBatch, error) {
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) != 1 {
		return modelBatch{}, fmt.Errorf("not one batch: %T", set.Records)
	}
	rb, ok := stream.Records[0].(*protocol.RecordBatch)
	if !ok {
		return modelBatch{}, fmt.Errorf("no batch: %T", stream.Records[0])
	}
	b := modelBatch{id: rb.ProducerID, epoch: rb.ProducerEpoch, sequence: rb.BaseSequence}
	for {
		r, err := rb.ReadRecord()
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		if r.Offset != int64(len(b.records)) {
			return b, fmt.Errorf("record %d has offset %d", len(b.records), r.Offset)
		}
		rec := modelRecord{id: b.id, epoch: b.epoch, headers: r.Headers, null: r.Value == nil, time: r.Time.UnixMilli()}
		for dst, src := range map[*string]protocol.Bytes{&rec.key: r.Key, &rec.value: r.Value} {
			if src != nil {
				all, err := protocol.ReadAll(src)
				if err != nil {
					return b, err
				}
				*dst = string(all)
			}
		}
		b.records = append(b.records, rec)
	}
}
