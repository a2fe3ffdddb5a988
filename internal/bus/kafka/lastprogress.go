package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A topic has no index of keys: the last progress of a writer is found by reading back from the
// ends of partitions, in windows that grow. It is near the end, unless others have written much
// since the writer ended.
const (
	firstWindow   = 256              // records
	windowGrowth  = 4                // of each window to the one before
	mostRecords   = 1 << 17          // of a partition that are read
	mostBytes     = 64 << 20         // of a partition that are read, by the size of those read before
	mostTopics    = 100              // that are read
	readAtOnce    = 4                // partitions
	readBackTime  = 30 * time.Second // for all
	readBackFetch = 4 << 20          // bytes of a request
	missingLooks  = 5                // for a topic that a broker does not know: it may have just started
)

// LastProgress implements driver.LastProgresser. It reads all partitions of the only topic. With
// several topics it reads one partition of each. With {namespace} in the template these are the
// topics of cluster-scoped objects, because they have all scopes, or all topics if there are none.
//
// The user must be allowed to read the topics. Otherwise it reports false, and logs it.
func (b *Bus) LastProgress(ctx context.Context, writer string) (publish.ProgressEvent, bool, error) {
	for failures := 1; ; failures++ {
		events, err := b.progressOf(ctx, writer)
		b.mu.Lock()
		closed := b.closed
		b.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return publish.ProgressEvent{}, false, context.Cause(ctx)
		case closed:
			return publish.ProgressEvent{}, false, publish.ErrClosed
		case err == nil:
			p, ok := driver.LastProgress(writer, events)
			return p, ok, nil
		case isDenied(err):
			b.log.Warn(
				"the last progress of the agent cannot be read: a restored etcd, or a lost checkpoint, may go unnoticed",
				"err", err, "advice", "grant the user Read and Describe on the topics")
			return publish.ProgressEvent{}, false, nil
		}
		if suppressed, ok := b.window.First("last progress"); ok {
			b.log.Warn("cannot read the last progress of the agent, retrying", "err", err, "suppressed", suppressed)
		}
		if err := pause.For(ctx, publish.BusyBackoff().Delay(failures)); err != nil {
			return publish.ProgressEvent{}, false, err
		}
	}
}

func isDenied(err error) bool {
	return errors.Is(err, kafka.TopicAuthorizationFailed) || errors.Is(err, kafka.ClusterAuthorizationFailed)
}

// progressOf reads the last progress events of a writer, and the others in the time before them.
// Its error means that no partition could be read.
func (b *Bus) progressOf(ctx context.Context, writer string) ([]*consume.Event, error) {
	topics, err := b.progressLogs(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readBackTime)
	defer cancel()
	var (
		mu     sync.Mutex
		events []*consume.Event
		errs   []error
		g      errgroup.Group
	)
	g.SetLimit(readAtOnce)
	for _, partitions := range topics {
		g.Go(func() error {
			found, err := readBack(ctx, writer, partitions)
			mu.Lock()
			defer mu.Unlock()
			events = append(events, found...)
			if err != nil {
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return no error
	answered := slices.ContainsFunc(topics, func(t []*backReader) bool {
		return slices.ContainsFunc(t, func(r *backReader) bool { return r.opened })
	})
	switch {
	case len(errs) < len(topics), len(topics) == 0:
	case answered && ctx.Err() != nil: // a later attempt takes as long
		b.log.Warn("the last progress of the agent was not found in time, and is not used", "err", errors.Join(errs...))
	default:
		return nil, errors.Join(errs...)
	}
	return events, nil
}

// progressLogs returns the partitions to be read, by topic.
func (b *Bus) progressLogs(ctx context.Context) (topics [][]*backReader, err error) {
	fixed, isFixed := b.topicNames.Fixed()
	var names []string // nil: all topics
	if isFixed {
		names = []string{fixed}
	}
	for attempt := 1; ; attempt++ {
		res, err := b.metadata(ctx, names)
		if err != nil {
			return nil, err
		}
		if isFixed && attempt < missingLooks &&
			(len(res.Topics) == 0 || errors.Is(res.Topics[0].Error, kafka.UnknownTopicOrPartition)) {
			if err := pause.For(ctx, topicPause); err != nil {
				return nil, err
			}
			continue
		}
		return b.readersOf(res, isFixed)
	}
}

// readersOf returns a reader of each partition of the only topic, or of one partition of each of
// several. Its error is that of the only topic.
func (b *Bus) readersOf(res *kafka.MetadataResponse, isFixed bool) (topics [][]*backReader, err error) {
	found := slices.DeleteFunc(slices.Clone(res.Topics), func(t kafka.Topic) bool {
		return t.Internal || t.Name == b.deadTopic || errors.Is(t.Error, kafka.UnknownTopicOrPartition) ||
			!b.topicNames.Match(t.Name, nil)
	})
	ofClusterScoped := strings.ReplaceAll(b.topicNames.Pattern(), "{namespace}", "_")
	homes := slices.DeleteFunc(slices.Clone(found), func(t kafka.Topic) bool {
		return !kafkaconfig.TopicsMeet(ofClusterScoped, t.Name)
	})
	if len(homes) > 0 {
		found = homes
	}
	slices.SortFunc(found, func(a, b kafka.Topic) int { return strings.Compare(a.Name, b.Name) })
	for i := range found[:min(len(found), mostTopics)] {
		t := &found[i]
		var readers []*backReader
		for _, p := range t.Partitions {
			if p.Leader.Host != "" && (isFixed || len(readers) == 0) {
				leader := kafka.TCP(net.JoinHostPort(p.Leader.Host, fmt.Sprint(p.Leader.Port)))
				readers = append(readers, &backReader{
					bus:       b,
					topic:     t.Name,
					partition: p.ID,
					leader:    leader,
					window:    firstWindow,
				})
			}
		}
		switch {
		case len(readers) > 0:
			topics = append(topics, readers)
		case isFixed && t.Error != nil:
			return nil, fmt.Errorf("look up topic %s: %w", t.Name, t.Error)
		case isFixed:
			return nil, fmt.Errorf("topic %s has no partition with a leader", t.Name)
		}
	}
	return topics, nil
}

// readBack reads partitions of a topic from their ends until one has progress of the writer, and
// that one to the beginning of driver.ProgressSpan. All of them have the same progress, except
// those that were late. Its error means that none could be read.
func readBack(ctx context.Context, writer string, partitions []*backReader) (events []*consume.Event, err error) {
	var errs []error
	active := slices.Clone(partitions)
	var last *backReader
	for len(active) > 0 && last == nil {
		found := make([][]*consume.Event, len(active))
		failed := make([]error, len(active))
		var g errgroup.Group
		g.SetLimit(readAtOnce)
		for i, r := range active {
			g.Go(func() error {
				found[i], failed[i] = r.readWindow(ctx, writer)
				return nil
			})
		}
		_ = g.Wait() // its functions return no error
		at := time.Time{}
		for i, r := range active {
			events = append(events, found[i]...)
			for _, e := range found[i] {
				if e.Time.After(at) {
					at, last = e.Time, r
				}
			}
			if failed[i] != nil {
				errs = append(errs, fmt.Errorf("read topic %s, partition %d: %w", r.topic, r.partition, failed[i]))
				r.ended = true
			}
		}
		if last == nil {
			active = slices.DeleteFunc(active, func(r *backReader) bool { return r.ended })
			continue
		}
		for from := at.Add(-driver.ProgressSpan); !last.ended && last.oldest.After(from); {
			more, err := last.readWindow(ctx, writer)
			if err != nil {
				break // the newest ones are there
			}
			events = append(events, more...)
		}
	}
	if len(events) == 0 && len(errs) == len(partitions) {
		return nil, errors.Join(errs...)
	}
	return events, nil
}

// backReader reads a partition from its end backward.
type backReader struct {
	bus       *Bus
	topic     string
	partition int
	leader    net.Addr

	opened        bool
	first         int64 // offset of the first record
	from          int64 // all records from here on were read
	window        int64 // of the next read, in records
	records, size int64 // that were read
	oldest        time.Time
	ended         bool // nothing is left to read, or enough was read
}

// readWindow reads the window before the records that were read, and returns the progress of the
// writer in it.
func (r *backReader) readWindow(ctx context.Context, writer string) (found []*consume.Event, err error) {
	if !r.opened {
		r.from, err = r.offset(ctx, kafka.LastOffset)
		if err != nil {
			return nil, err
		}
		r.first, err = r.offset(ctx, kafka.FirstOffset)
		if err != nil {
			return nil, err
		}
		r.opened = true
	}
	from := max(r.first, r.from-r.window)
	for next := from; next < r.from; {
		var events []*consume.Event
		events, next, err = r.fetch(ctx, writer, next)
		if err != nil {
			return nil, err
		}
		found = append(found, events...)
	}
	r.records += r.from - from
	r.from = from
	r.window = min(r.window*windowGrowth, mostRecords-r.records, (mostBytes-r.size)*r.records/max(r.size, 1))
	r.ended = r.from <= r.first || r.window <= 0
	return found, nil
}

// offset returns the first or the next offset of the partition.
func (r *backReader) offset(ctx context.Context, which int64) (int64, error) {
	m, err := r.bus.net.RoundTrip(ctx, r.leader, &listoffsets.Request{
		ReplicaID: -1,
		Topics: []listoffsets.RequestTopic{{
			Topic: r.topic,
			Partitions: []listoffsets.RequestPartition{{
				Partition:          int32(r.partition),
				CurrentLeaderEpoch: -1,
				Timestamp:          which,
			}},
		}},
	})
	if err != nil {
		return 0, kafkaid.Cause(err)
	}
	res, ok := m.(*listoffsets.Response)
	if !ok || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return 0, errors.New("the broker's response is about another partition")
	}
	p := res.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return 0, kafka.Error(p.ErrorCode)
	}
	return p.Offset, nil
}

// fetch reads records from an offset on, up to those that were read before. next is the offset
// after them.
func (r *backReader) fetch(
	ctx context.Context, writer string, offset int64,
) (found []*consume.Event, next int64, err error) {
	res, err := r.bus.client(r.leader).Fetch(ctx, &kafka.FetchRequest{
		Topic:     r.topic,
		Partition: r.partition,
		Offset:    offset,
		MinBytes:  1,
		MaxBytes:  readBackFetch,
		MaxWait:   time.Second,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return nil, 0, kafkaid.Cause(err)
	}
	key := []byte(fmt.Sprintf("/progress/%s/%d", writer, r.partition))
	next = offset
	for {
		rec, err := res.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		if rec.Offset >= r.from {
			return found, r.from, nil
		}
		m, err := r.read(rec, key)
		if err != nil {
			return nil, 0, err
		}
		if rec.Offset < offset {
			continue
		}
		next = rec.Offset + 1
		if r.oldest.IsZero() || rec.Time.Before(r.oldest) {
			r.oldest = rec.Time
		}
		if m != nil {
			found = append(found, m)
		}
	}
	if next == offset { // compaction has removed the records, or they are marks of transactions
		next++
	}
	return found, next, nil
}

// read consumes a record. It returns the event if the record's key ends in key; nil: it is not
// progress of the writer, or cannot be read.
func (r *backReader) read(rec *protocol.Record, key []byte) (*consume.Event, error) {
	own, err := protocol.ReadAll(rec.Key)
	if err != nil {
		return nil, err
	}
	if rec.Value != nil {
		r.size += int64(rec.Value.Len())
		defer func() { _ = rec.Value.Close() }() // it has been copied
	}
	if rec.Key != nil {
		_ = rec.Key.Close()
	}
	if rec.Value == nil || !strings.HasSuffix(string(own), string(key)) {
		return nil, nil
	}
	value, err := protocol.ReadAll(rec.Value)
	if err != nil {
		return nil, err
	}
	e, err := consume.FromMessage(headersOf(rec.Headers), value)
	if err != nil {
		r.bus.log.Debug("a record among the progress of the writer cannot be used", "topic", r.topic, "partition",
			r.partition, "offset", rec.Offset, "err", err)
		return nil, nil
	}
	return e, nil
}

// headersOf returns the headers of a record in the form of NATS, as package consume reads them:
// with another prefix, percent-encoded, and with datacontenttype.
func headersOf(headers []protocol.Header) map[string][]string {
	all := map[string][]string{}
	for _, h := range headers {
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			all[publish.AttributePrefix+name] = []string{string(publish.AppendHeaderValue(nil, h.Value))}
		} else if h.Key == "content-type" {
			all[h.Key] = []string{string(h.Value)}
		}
	}
	return all
}
