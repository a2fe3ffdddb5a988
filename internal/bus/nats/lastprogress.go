package nats

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// LastProgress implements driver.LastProgresser. It asks the stream's leader, and needs the
// permission of LastStreamEvent.
func (b *Bus) LastProgress(ctx context.Context, writer string) (publish.ProgressEvent, bool, error) {
	subject := string(b.subjects.AppendProgress(nil, writer))
	records, err := askStream(ctx, b, subject, func(ctx context.Context) ([]*nats.RawStreamMsg, error) {
		return b.recentRecords(ctx, subject, driver.ProgressSpan)
	})
	if err != nil {
		return publish.ProgressEvent{}, false, err
	}
	var events []*consume.Event
	for _, r := range records {
		e, err := consume.FromMessage(r.Header, r.Data)
		if err != nil {
			b.log.Debug("a record among the progress of the writer cannot be used", "subject", subject, "sequence",
				r.Sequence, "err", err)
			continue
		}
		events = append(events, e)
	}
	p, ok := driver.LastProgress(writer, events)
	return p, ok, nil
}

var errRemoved = errors.New("records of the stream were removed while they were read")

// recentRecords returns the last record on a subject, and those that the stream has stored within
// span before it, in order. It returns none without a record or a stream.
func (b *Bus) recentRecords(
	ctx context.Context, subject string, span time.Duration,
) (records []*nats.RawStreamMsg, err error) {
	last, err := b.lastRecord(ctx, subject)
	if last == nil || err != nil {
		return nil, err
	}
	err = b.eachBetween(ctx, subject, last.Time.Add(-span), last, func(r *nats.RawStreamMsg) {
		records = append(records, r)
	})
	return records, err
}

// eachSince calls do with each record on a subject that the stream has stored at a time or later,
// in order.
func (b *Bus) eachSince(ctx context.Context, subject string, from time.Time, do func(*nats.RawStreamMsg)) error {
	last, err := b.lastRecord(ctx, subject)
	if last == nil || err != nil || last.Time.Before(from) {
		return err
	}
	return b.eachBetween(ctx, subject, from, last, do)
}

// eachBetween calls do with each record on a subject from a time to the last one, in order.
func (b *Bus) eachBetween(
	ctx context.Context, subject string, from time.Time, last *nats.RawStreamMsg, do func(*nats.RawStreamMsg),
) error {
	next := func(from uint64) (*nats.RawStreamMsg, error) { return b.firstFrom(ctx, subject, from) }
	record, err := firstSince(last, from, next)
	if err != nil {
		return err
	}
	for do(record); record.Sequence < last.Sequence; do(record) {
		record, err = next(record.Sequence + 1)
		if err != nil {
			return err
		}
	}
	return nil
}

// firstStep is how many records before the last one firstSince looks first.
const firstStep = 1024

// firstSince returns the first record of a subject at or after a time, which is not after the last
// one. next returns the first record of the subject from a sequence on. The stream has no index of
// times that its leader can be asked for in all supported versions, so the sequences are searched.
func firstSince(
	last *nats.RawStreamMsg, from time.Time, next func(sequence uint64) (*nats.RawStreamMsg, error),
) (*nats.RawStreamMsg, error) {
	first := last                         // found so far
	low, high := uint64(0), last.Sequence // records up to low are older, and none is between high and first
	for step := uint64(firstStep); low+1 < high; {
		at := low + (high-low)/2
		if low == 0 && step < high-1 { // the record is near the last one
			at = high - step
			step *= 8
		}
		r, err := next(at)
		switch {
		case err != nil:
			return nil, err
		case r.Time.Before(from) && r.Sequence < high:
			low = r.Sequence
		default:
			high = at
			if r.Sequence < first.Sequence {
				first = r
			}
		}
	}
	return first, nil
}

// firstFrom returns the first record on a subject from a sequence on.
func (b *Bus) firstFrom(ctx context.Context, subject string, from uint64) (*nats.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": subject})
	if err != nil {
		return nil, err
	}
	answer, err := b.conn.Load().RequestWithContext(ctx, b.apiSubject("STREAM.MSG.GET."), request)
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   json.RawMessage
		Message *struct {
			Seq        uint64
			Time       time.Time
			Hdrs, Data []byte
		}
	}
	switch err = json.Unmarshal(answer.Data, &got); {
	case err != nil:
		return nil, err
	case got.Error != nil:
		if err = readRefusal(got.Error); errors.Is(err, errNoRecord) {
			err = errRemoved
		}
		return nil, err
	case got.Message == nil:
		return nil, errors.New("an answer without a record")
	}
	header, _ := nats.DecodeHeadersMsg(got.Message.Hdrs) // one that cannot be read is not the agent's
	return &nats.RawStreamMsg{
		Subject:  subject,
		Sequence: got.Message.Seq,
		Header:   header,
		Data:     got.Message.Data,
		Time:     got.Message.Time,
	}, nil
}
