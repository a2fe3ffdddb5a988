package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// streamName is the agent's default.
const streamName = "KUBECDC"

// stream is all records on the bus so far. Goroutines of its own read them as they come.
type stream struct {
	js jetstream.JetStream // Nil where the bus is another.
	// body is the record once more, in structured mode; nil where the bus does not keep it.
	body func(ctx context.Context, lane int, position uint64) ([]byte, error)
	// laneOf is where a bus of several lanes puts an object; nil: it has one.
	laneOf func(objectKey) int
	// lanes is how many there are, once the first record has been read.
	lanes func() int

	mu      sync.Mutex
	records []record
	seen    map[string]bool
	letters map[string]letter // By id.
	bytes   int64
	latest  time.Time // When the last record was read.
	err     error
}

// readStream reads the stream of the bus until the test ends. The stream need not exist yet.
func readStream(t testing.TB, b *bus, r *reader) *stream {
	t.Helper()
	js, err := jetstream.New(b.connect(t))
	if err != nil {
		t.Fatal(err)
	}
	s := newStream()
	s.js, s.body = js, func(ctx context.Context, _ int, position uint64) ([]byte, error) {
		stream, err := js.Stream(ctx, streamName)
		if err != nil {
			return nil, err
		}
		msg, err := stream.GetMsg(ctx, position)
		if err != nil {
			return nil, err
		}
		return msg.Data, nil
	}
	s.run(t, func(ctx context.Context) error { return s.consume(ctx, r) })
	return s
}

func newStream() *stream {
	return &stream{seen: make(map[string]bool), letters: make(map[string]letter), latest: time.Now()}
}

// readLines reads records as the stdout bus prints them, one in a line.
func readLines(t testing.TB, lines io.Reader, r *reader) *stream {
	t.Helper()
	s := newStream()
	s.run(t, func(context.Context) error {
		scanner := bufio.NewScanner(lines)
		scanner.Buffer(nil, 16<<20)
		for n := uint64(1); scanner.Scan(); n++ {
			s.add(r.read(message{Position: n, Body: scanner.Bytes()}), len(scanner.Bytes()))
		}
		return scanner.Err()
	})
	return s
}

func (s *stream) run(t testing.TB, read func(context.Context) error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		err := read(ctx)
		if isStopped(ctx) {
			err = nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
	})
	t.Cleanup(func() {
		cancel(errStopped)
		wg.Wait()
		if s.err != nil {
			t.Errorf("read the stream: %v", s.err)
		}
	})
}

// consume reads from one ordered consumer after the other: a bus that is stopped or killed takes them along.
func (s *stream) consume(ctx context.Context, r *reader) error {
	var last uint64
	for ctx.Err() == nil {
		err := s.consumeFrom(ctx, r, &last)
		if err == nil || ctx.Err() != nil {
			continue
		}
		_ = await(ctx, 100*time.Millisecond, func() error { return err }) // A moment before the next try.
	}
	return context.Cause(ctx)
}

func (s *stream) consumeFrom(ctx context.Context, r *reader, last *uint64) error {
	consumer, err := s.js.OrderedConsumer(ctx, streamName, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *last + 1,
	})
	if err != nil {
		return err
	}
	// A pull that a new leader knows nothing of is missed soon.
	messages, err := consumer.Messages(jetstream.PullExpiry(2*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	defer messages.Stop()
	for {
		msg, err := messages.Next()
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		sequence := meta.Sequence.Stream
		if sequence <= *last {
			continue
		}
		if sequence != *last+1 {
			// The agent's stream neither drops nor expires anything during a test.
			s.add(record{Position: sequence, Problems: []string{fmt.Sprintf("the stream goes from sequence %d to %d", *last, sequence)}}, 0)
		}
		*last = sequence
		m := message{Position: sequence, Subject: msg.Subject(), Header: msg.Headers(), Body: msg.Data(), Stored: meta.Timestamp}
		if m.Subject == deadSubject() {
			s.bury(r.readLetter(m))
			continue
		}
		s.add(r.read(m), len(m.Body))
	}
}

func (s *stream) add(rec record, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, rec)
	s.seen[rec.ID] = true
	if rec.Letter != "" {
		s.seen[rec.Letter] = true // It will not come any more.
	}
	s.bytes += int64(bytes)
	s.latest = time.Now()
}

// all is what has been read so far.
func (s *stream) all() []record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[:len(s.records):len(s.records)]
}

// readUpTo counts the records of changes up to a revision that have been read, and all stream events but progress.
func (s *stream) readUpTo(rev uint64) func() uint64 {
	from, n := 0, 0
	return func() uint64 {
		all := s.all()
		for _, rec := range all[from:] {
			if rec.Stream != progress && rec.Rev <= rev {
				n++
			}
		}
		from = len(all)
		return uint64(n + len(s.buried()))
	}
}

func (s *stream) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// missing is how many of the expectations have no record yet, and one of them.
func (s *stream) missing(want map[objectKey][]expectation) (n int, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range want {
		for i := range list {
			if !s.seen[list[i].ID] {
				n, id = n+1, list[i].ID
			}
		}
	}
	return n, id
}

// comingLimit bounds the wait for records that keep coming. Seen with the race detector: two minutes.
const comingLimit = 10 * time.Minute

// waitFor waits until there is a record for each expectation, or none has come for the time idle. It is left to judge to
// say what is missing.
func (s *stream) waitFor(t testing.TB, want map[objectKey][]expectation, idle time.Duration) {
	t.Helper()
	begin := time.Now()
	eventually(t, comingLimit, func() error {
		n, id := s.missing(want)
		s.mu.Lock()
		latest := s.latest
		s.mu.Unlock()
		if n == 0 || time.Since(latest) > idle && time.Since(begin) > idle {
			return nil
		}
		return fmt.Errorf("%d records have not come, while others do; one of them: %s", n, id)
	})
	if n, id := s.missing(want); n > 0 {
		t.Logf("%d records have not come, and none for %s; one of them: %s", n, idle, id)
	}
}

// completed waits until each resource's snapshot is completed and returns where it was taken, by scope.
func (s *stream) completed(t testing.TB, resources ...string) map[scope]snapshot {
	t.Helper()
	return s.snapshots(t, snapshotCompleted, resources...)
}

// started is completed for the begin of the snapshots.
func (s *stream) started(t testing.TB, resources ...string) map[scope]snapshot {
	t.Helper()
	return s.snapshots(t, snapshotStarted, resources...)
}

func (s *stream) snapshots(t testing.TB, kind string, resources ...string) map[scope]snapshot {
	t.Helper()
	found := make(map[scope]snapshot)
	from := 0
	eventually(t, time.Minute, func() error {
		all := s.all()
		for _, rec := range all[from:] {
			if rec.Stream == kind {
				found[rec.Scope] = snapshot{ID: rec.Snapshot, Rev: rec.Rev}
			}
		}
		from = len(all)
		for _, resource := range resources {
			ok := false
			for sc := range found {
				ok = ok || sc.Resource == resource
			}
			if !ok {
				return fmt.Errorf("no %s of %s on the bus", kind, resource)
			}
		}
		return nil
	})
	return found
}

// viewOf is what an agent sees that took these snapshots.
func viewOf(snapshots map[scope]snapshot) view {
	return view{Snapshot: func(key objectKey) (snapshot, bool) {
		for sc, snap := range snapshots {
			if sc.has(key) {
				return snap, true
			}
		}
		return snapshot{}, false
	}}
}
