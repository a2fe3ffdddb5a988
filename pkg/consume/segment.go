package consume

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// To find a few records, the server compares the subjects of most records of the stream, with one thread for each consumer. A reader of few
// records that ends with the stream therefore divides the rest of the stream into segments of equal length, and creates a consumer for each. The
// server reads the segments at the same time. The reader takes their records one segment after the other, so their order does not change.
//
//	segment 1      segment 2      segment 3      segment 4
//	next ········· until ········ until ········ until ········ end
//
// A consumer continues into the next segment. Its first record from there proves that its own segment is complete. Segments only save time: after
// an interruption, or if a count of records was wrong, the reader subscribes again at its position.

const (
	segments = 4 // at a time
	// segmentRecords is the largest number of wanted records in a segment. It is less than prefetchMessages, so that the server reaches the end
	// of the segment while the reader is in an earlier one.
	segmentRecords = 500
	// The shortest segment, and the fewest records of the stream for each wanted one: otherwise a single consumer is as fast.
	segmentLength = 5_000
	segmentRatio  = 50
)

// segment is the part of the stream that a subscription reads. The zero value is the rest of the stream.
type segment struct {
	until   uint64 // sequence of the first record of the next segment
	records int    // number of records to request; 0: no limit
}

// divide starts subscriptions for segments, or a single one if the query wants many records or does not end. first is the consumer of r.next,
// and c its configuration.
func (r *jetStreamReader) divide(ctx context.Context, stream jetstream.Stream, first jetstream.Consumer, c jetstream.ConsumerConfig) error {
	pending := first.CachedInfo().NumPending
	length := r.segmentLength(pending)
	consumers := []jetstream.Consumer{first}
	var starts []uint64
	for at := r.next + length; length > 0 && at <= r.end && len(consumers) <= segments; at += length {
		c.Name, c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = "kubecdc-"+nuid.Next(), jetstream.DeliverByStartSequencePolicy, at, nil
		next, err := stream.CreateConsumer(ctx, c)
		if err != nil {
			break // The server may limit consumers. The last one reads the rest.
		}
		consumers, starts = append(consumers, next), append(starts, at)
	}
	for i, consumer := range consumers {
		if i == segments {
			r.passed = append(r.passed, consumer.CachedInfo().Name) // it only counts the records of the last segment
			break
		}
		var of segment
		if i < len(starts) {
			after := consumers[i+1].CachedInfo().NumPending
			of = segment{until: starts[i], records: int(max(pending, after)-after) + 1}
			pending = after
		}
		sub, err := newSubscription(consumer, r.link.conn, of)
		if err != nil {
			r.drop()
			return err
		}
		if r.sub == nil {
			r.sub = sub
		} else {
			r.ahead = append(r.ahead, sub)
		}
	}
	return nil
}

// segmentLength returns the length of a segment, 0 for a single consumer.
func (r *jetStreamReader) segmentLength(pending uint64) uint64 {
	if !r.q.StopAtEnd || len(r.subjects) == 0 || r.next > r.end || r.lastOfEach() {
		return 0
	}
	rest := r.end + 1 - r.next
	number := max(segments, (pending+segmentRecords-1)/segmentRecords)
	length := (rest + number - 1) / number
	if length < segmentLength || rest/max(pending, 1) < segmentRatio {
		return 0
	}
	return length
}

// nextSegment continues with the subscription of the next segment. If there is none, Next creates it.
func (r *jetStreamReader) nextSegment() {
	r.next, r.read = r.sub.segment.until, true
	r.passed = append(r.passed, r.sub.consumer.CachedInfo().Name)
	r.sub.stop()
	r.sub = nil
	if len(r.ahead) > 0 {
		r.sub, r.ahead = r.ahead[0], r.ahead[1:]
	}
}

// exhausted reports whether all requested records have arrived, but not the end of the segment.
func (s *subscription) exhausted() bool {
	return s.segment.records > 0 && s.delivered == uint64(s.segment.records)
}
