package fromkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// kafkaFetcher fetches the records of one partition, in a goroutine of its own, to which its fields
// belong.
type kafkaFetcher struct {
	r         *kafkaReader
	partition *kafkaPartition      // Next's
	log       consume.Log          // whose records are fetched
	offset    int64                // to be fetched next
	stopAt    int64                // -1: it does not stop
	odd       int                  // looks in a row at which the log ended before offset
	missed    *consume.MissedError // to be sent before the next records
	looked    time.Time            // time of the last look at its identity
	waited    bool                 // for records, since then

	// turn has an element if the next batch may be handed over, with Query.ByTime; otherwise nil.
	// So a fetcher has at most one batch beside the one in hand. Never closed.
	turn chan struct{}
	due  atomic.Bool        // a look is
	stop context.CancelFunc // ends run soon; nil in a group
}

// run fetches until ctx ends or the requested end is reached.
func (f *kafkaFetcher) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		if f.missed != nil {
			if !f.send(ctx, &kafkaBatch{missed: f.missed, end: f.offset}) {
				return
			}
			f.missed = nil
		}
		if f.odd == 0 && f.stopAt >= 0 && f.offset >= f.stopAt {
			f.send(ctx, &kafkaBatch{end: f.offset, last: true})
			return
		}
		var b *kafkaBatch
		var err error
		began := time.Now()
		if f.odd > 0 || f.due.Swap(false) {
			err = f.lookUp(ctx)
		} else {
			b, err = f.fetch(ctx)
			f.waited = f.waited || b == nil || len(b.records) == 0 || time.Since(began) > fetchWait/10
		}
		switch {
		case err != nil:
			failures++
			f.due.Store(true)
			if !errors.Is(err, kafka.OffsetOutOfRange) &&
				!f.send(ctx,
					&kafkaBatch{
						err: fmt.Errorf("read topic %s, partition %d at %s: %w", f.log.Name, f.log.Partition,
							f.r.brokers(), err),
					}) {
				return
			}
		case b != nil && len(b.records) > 0 && !f.isSameLog(ctx):
			f.due.Store(true) // the records may be of another log
		case b != nil && (len(b.records) > 0 || b.next > f.offset || failures > 0):
			failures = 0
			f.offset = b.next
			if !f.send(ctx, b) {
				return
			}
		}
		if f.odd > 0 || failures > 0 {
			_ = pause.For(ctx, min(retryFirst<<min(max(failures, 3), 10), retryMax)) // what ends it ends run
		}
	}
}

// send hands a batch to Next. It reports false if ctx has ended.
func (f *kafkaFetcher) send(ctx context.Context, b *kafkaBatch) bool {
	b.of = f.partition
	b.log = f.log
	b.next = f.offset
	if f.turn != nil && b.err == nil {
		select {
		case <-f.turn:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case f.r.batches <- b:
		return true
	case <-ctx.Done():
		return false
	}
}

// fetch requests records, and waits for a short time if there are none.
func (f *kafkaFetcher) fetch(ctx context.Context) (*kafkaBatch, error) {
	res, err := f.r.client.Fetch(ctx, &kafka.FetchRequest{
		Topic:     f.log.Name,
		Partition: f.log.Partition,
		Offset:    f.offset,
		MinBytes:  1,
		MaxBytes:  f.r.fetchSize(),
		MaxWait:   fetchWait,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return nil, kafkaid.Cause(err)
	}
	b := &kafkaBatch{next: f.offset, end: res.HighWatermark}
	for {
		m, err := f.copyRecord(res.Records)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if m.Offset >= b.next && (f.stopAt < 0 || m.Offset < f.stopAt) {
			b.records, b.next = append(b.records, m), m.Offset+1
		}
	}
	// A broker returns the batch that has the offset. If none of its records is at the offset or
	// after it, compaction has removed them, or they are marks of transactions.
	if s, ok := res.Records.(*protocol.RecordStream); ok && len(s.Records) > 0 && len(b.records) == 0 {
		b.next++
	}
	return b, nil
}

// copyRecord copies the next record.
func (f *kafkaFetcher) copyRecord(from kafka.RecordReader) (kafka.Message, error) {
	rec, err := from.ReadRecord()
	if err != nil {
		return kafka.Message{}, err
	}
	m := kafka.Message{
		Topic:     f.log.Name,
		Partition: f.log.Partition,
		Offset:    rec.Offset,
		Time:      rec.Time,
		Headers:   rec.Headers,
	}
	if rec.Key != nil {
		m.Key, err = kafka.ReadAll(rec.Key)
		_ = rec.Key.Close() // it has been copied
		if err != nil {
			return m, err
		}
	}
	if rec.Value != nil {
		m.Value, err = kafka.ReadAll(rec.Value)
		_ = rec.Value.Close() // it has been copied
	}
	return m, err
}

// isSameLog reports whether the log is still the same. During a pause a topic may be deleted and
// created again, and the next records may be from the middle of the new one.
func (f *kafkaFetcher) isSameLog(ctx context.Context) bool {
	if !f.waited && time.Since(f.looked) < identityPause {
		return true
	}
	f.waited, f.looked = false, time.Now()
	id, err := f.identity(ctx)
	return err == nil && id == f.log.ID
}

// identity returns the identity of the present log.
func (f *kafkaFetcher) identity(ctx context.Context) (string, error) {
	ids, err := f.r.identities(ctx, []string{f.log.Name})
	return ids[f.log.Name], err
}

// lookUp looks up the identity of the log, its beginning and its end.
func (f *kafkaFetcher) lookUp(ctx context.Context) error {
	f.looked = time.Now()
	id, err := f.identity(ctx)
	if err != nil {
		return err
	}
	ends, err := f.r.offsets(ctx, []consume.Log{f.log})
	if err != nil {
		return err
	}
	o, known := ends[idOf(f.log)]
	if !known {
		return kafka.UnknownTopicOrPartition
	}
	f.check(id, o)
	return nil
}

// check compares the log with the fetcher's state. If it is another log, reading continues at its
// beginning; if records were removed, after them.
func (f *kafkaFetcher) check(id string, o kafkaOffsets) {
	missed := &consume.MissedError{
		Log:  f.log,
		From: uint64(f.offset),
		What: fmt.Sprintf("topic %s, partition %d", f.log.Name, f.log.Partition),
	}
	switch another := id != "" && f.log.ID != "" && id != f.log.ID; {
	case another || f.offset > o.last:
		f.odd++
		if !another && f.odd < oddLooks {
			return
		}
		missed.To, missed.Recreated = uint64(max(o.last-1, 0)), true
		if f.offset > 0 {
			f.missed = missed
		}
		f.offset = o.first
		if f.stopAt >= 0 {
			f.stopAt = o.last
		}
	case f.offset < o.first:
		missed.To = uint64(o.first - 1)
		f.missed, f.offset = missed, o.first
	}
	f.odd = 0
	f.log.ID = cmp.Or(id, f.log.ID)
}

// kafkaOffsets are the oldest record of a partition, and the next one.
type kafkaOffsets struct{ first, last int64 }

// find looks up the topics to read, with their partitions. A read to the end must not leave out a
// topic that has an error at present.
func (r *kafkaReader) find(ctx context.Context) (map[string]int, error) {
	for {
		found, failing, err := r.findOnce(ctx)
		if err != nil || failing == nil || !r.q.StopAtEnd {
			return found, err
		}
		if e := kafka.Error(0); !errors.As(failing, &e) || !e.Temporary() || pause.For(ctx, retryFirst) != nil {
			return nil, failing
		}
	}
}

// findOnce returns the topics without an error, and the error of one that has one.
func (r *kafkaReader) findOnce(ctx context.Context) (found map[string]int, failing, err error) {
	meta, err := r.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("look up topics at %s: %w", r.brokers(), kafkaid.Cause(err))
	}
	found = map[string]int{}
	for i := range meta.Topics {
		t := &meta.Topics[i]
		switch {
		case !r.s.reads(t.Name, t.Internal), errors.Is(t.Error, kafka.UnknownTopicOrPartition):
		case t.Error != nil:
			failing = fmt.Errorf("look up topic %s at %s: %w", t.Name, r.brokers(), t.Error)
		case len(t.Partitions) > 0:
			found[t.Name] = len(t.Partitions)
		}
	}
	return found, failing, nil
}

// offsets requests the beginnings and ends of logs. It omits partitions of deleted topics.
func (r *kafkaReader) offsets(ctx context.Context, logs []consume.Log) (map[partitionID]kafkaOffsets, error) {
	out := map[partitionID]kafkaOffsets{}
	all, err := r.list(ctx, logs, kafka.FirstOffset, kafka.LastOffset)
	for id, at := range all {
		out[id] = kafkaOffsets{at[kafka.FirstOffset], at[kafka.LastOffset]}
	}
	return out, err
}

// offsetsAt requests the offsets of the first records stored at a time or later. -1: there is none.
func (r *kafkaReader) offsetsAt(ctx context.Context, logs []consume.Log, at time.Time) (map[partitionID]int64, error) {
	out := map[partitionID]int64{}
	all, err := r.list(ctx, logs, at.UnixMilli())
	for id, offsets := range all {
		out[id] = offsets[at.UnixMilli()]
	}
	return out, err
}

// listed are offsets of partitions, by the timestamp that was asked for.
type listed map[partitionID]map[int64]int64

func (r *kafkaReader) list(ctx context.Context, logs []consume.Log, timestamps ...int64) (listed, error) {
	if len(logs) == 0 {
		return nil, nil
	}
	topics := map[string][]listoffsets.RequestPartition{}
	for _, l := range logs {
		for _, t := range timestamps {
			topics[l.Name] = append(topics[l.Name], listoffsets.RequestPartition{
				Partition:          int32(l.Partition),
				CurrentLeaderEpoch: -1,
				Timestamp:          t,
			})
		}
	}
	req := &listoffsets.Request{ReplicaID: -1}
	for topic, partitions := range topics {
		req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: topic, Partitions: partitions})
	}
	for began := time.Now(); ; {
		all, unknown, err := r.listOnce(ctx, req)
		if err == nil && len(unknown) > 0 && time.Since(began) > absentFor {
			var topics map[string]int
			topics, err = r.find(ctx)
			unknown = slices.DeleteFunc(unknown, func(id partitionID) bool { return id.index >= topics[id.topic] })
		}
		if err == nil && len(unknown) > 0 { // a leader that has just started answers so
			err = r.offsetError(unknown[0], kafka.UnknownTopicOrPartition)
		}
		if e := kafka.Error(0); !errors.As(err, &e) || !e.Temporary() || pause.For(ctx, retryFirst) != nil {
			return all, err
		}
	}
}

// listOnce returns the partitions that their leaders do not know apart. A partition without an
// answer is an error: it does not end at 0.
func (r *kafkaReader) listOnce(
	ctx context.Context, req *listoffsets.Request,
) (all listed, unknown []partitionID, err error) {
	m, err := r.client.Transport.RoundTrip(ctx, r.client.Addr, req)
	if err != nil {
		return nil, nil, fmt.Errorf("look up offsets at %s: %w", r.brokers(), err)
	}
	res, ok := m.(*listoffsets.Response)
	if !ok {
		return nil, nil, fmt.Errorf("look up offsets at %s: the answer is about something else", r.brokers())
	}
	all = listed{}
	failed := map[partitionID]bool{}
	for i := range res.Topics {
		for _, p := range res.Topics[i].Partitions {
			id := partitionID{res.Topics[i].Topic, int(p.Partition)}
			switch code := kafka.Error(p.ErrorCode); {
			case code == kafka.UnknownTopicOrPartition:
				failed[id] = true
			case code != 0:
				return nil, nil, r.offsetError(id, code)
			default:
				if all[id] == nil {
					all[id] = map[int64]int64{}
				}
				all[id][p.Timestamp] = p.Offset
			}
		}
	}
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			id := partitionID{req.Topics[i].Topic, int(p.Partition)}
			if _, answered := all[id][p.Timestamp]; !answered && !failed[id] {
				return nil, nil, r.offsetError(id, errors.New("the broker's answer lacks it"))
			}
		}
	}
	for id := range failed {
		delete(all, id)
		unknown = append(unknown, id)
	}
	return all, unknown, nil
}

func (r *kafkaReader) offsetError(id partitionID, err error) error {
	return fmt.Errorf("look up the offsets of topic %s, partition %d at %s: %w", id.topic, id.index, r.brokers(), err)
}
