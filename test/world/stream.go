package world

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// StreamName is the agent's default name of the stream.
const StreamName = "KUBECDC"

// Stream has all records on the bus so far. Its goroutines read them as they arrive.
type Stream struct {
	JS jetstream.JetStream // Nil if the bus is not JetStream.
	// Body reads a record again, in structured mode. Nil: the bus does not keep records.
	Body func(ctx context.Context, lane int, position uint64) ([]byte, error)
	// laneOf returns the lane of an object on a bus with several lanes. Nil: there is one lane.
	laneOf func(oracle.ObjectKey) int
	// Lanes returns the number of lanes. It may be called after the first record has been read.
	Lanes func() int

	mu      sync.Mutex
	records []oracle.Record
	seen    map[string]bool
	letters map[string]oracle.Letter // By id.
	bytes   int64
	latest  time.Time // When the last record was read.
	err     error
}

// ReadStream reads the stream of the bus until the test ends. The stream need not exist yet.
func ReadStream(t testing.TB, b *Bus, r *oracle.Reader) *Stream {
	t.Helper()
	js, err := jetstream.New(b.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	s := newStream()
	s.JS = js
	s.Body = func(ctx context.Context, _ int, position uint64) ([]byte, error) {
		stream, err := js.Stream(ctx, StreamName)
		if err != nil {
			return nil, err
		}
		msg, err := stream.GetMsg(ctx, position)
		if err != nil {
			return nil, err
		}
		return msg.Data, nil
	}
	s.Run(t, func(ctx context.Context) error { return s.consume(ctx, r) })
	return s
}

func newStream() *Stream {
	return &Stream{seen: make(map[string]bool), letters: make(map[string]oracle.Letter), latest: time.Now()}
}

// ReadLines reads records as the stdout bus prints them, one per line.
func ReadLines(t testing.TB, lines io.Reader, r *oracle.Reader) *Stream {
	t.Helper()
	s := newStream()
	s.Run(t, func(context.Context) error {
		scanner := bufio.NewScanner(lines)
		scanner.Buffer(nil, 16<<20)
		for n := uint64(1); scanner.Scan(); n++ {
			s.add(r.Read(oracle.Message{Position: n, Body: scanner.Bytes()}), len(scanner.Bytes()))
		}
		return scanner.Err()
	})
	return s
}

// Run runs read in a goroutine until the test ends.
func (s *Stream) Run(t testing.TB, read func(context.Context) error) {
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

// consume creates a new ordered consumer after each error, because a consumer does not survive a
// stopped or killed bus.
func (s *Stream) consume(ctx context.Context, r *oracle.Reader) error {
	var last uint64
	for ctx.Err() == nil {
		err := s.consumeFrom(ctx, r, &last)
		if err == nil || ctx.Err() != nil {
			continue
		}
		_ = wait.For(ctx, 100*time.Millisecond, func() error { return err }) // Wait before the next attempt.
	}
	return context.Cause(ctx)
}

func (s *Stream) consumeFrom(ctx context.Context, r *oracle.Reader, last *uint64) error {
	consumer, err := s.JS.OrderedConsumer(ctx, StreamName, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *last + 1,
	})
	if err != nil {
		return err
	}
	// The short expiry and heartbeat detect a pull that was lost with the previous leader.
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
			s.add(oracle.Record{Position: sequence, Problems: []string{
				fmt.Sprintf("the stream goes from sequence %d to %d", *last, sequence),
			}}, 0)
		}
		*last = sequence
		m := oracle.Message{
			Position: sequence,
			Subject:  msg.Subject(),
			Header:   msg.Headers(),
			Body:     msg.Data(),
			Stored:   meta.Timestamp,
		}
		if m.Subject == DeadSubject() {
			s.Bury(r.ReadLetter(m))
			continue
		}
		s.add(r.Read(m), len(m.Body))
	}
}

func (s *Stream) add(rec oracle.Record, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, rec)
	s.seen[rec.ID] = true
	if rec.Letter != "" {
		s.seen[rec.Letter] = true // This record is in the dead letters: do not wait for it.
	}
	s.bytes += int64(bytes)
	s.latest = time.Now()
}

// All returns the records read so far.
func (s *Stream) All() []oracle.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[:len(s.records):len(s.records)]
}

// readUpTo returns a function that counts the dead letters, and the records up to a revision except
// progress.
func (s *Stream) readUpTo(rev uint64) func() uint64 {
	from, n := 0, 0
	return func() uint64 {
		all := s.All()
		for _, rec := range all[from:] {
			if rec.Stream != oracle.Progress && rec.Rev <= rev {
				n++
			}
		}
		from = len(all)
		return uint64(n + len(s.DeadObjects()))
	}
}

// Size returns the number of bytes of all records.
func (s *Stream) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Has reports whether the record with this id has been read, or a gap event for its dead letter.
func (s *Stream) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[id]
}

// Quiet returns the time since the last record was read.
func (s *Stream) Quiet() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.latest)
}

// Missing returns the number of expectations without a record, and the id of one of them.
func (s *Stream) Missing(want map[oracle.ObjectKey][]oracle.Expectation) (n int, id string) {
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

// ComingLimit bounds the wait while records keep arriving. With the race detector, two minutes were
// observed.
const ComingLimit = 10 * time.Minute

// WaitFor waits until there is a record for each expectation, or until no record has arrived for
// the time idle. It does not fail the test for missing records, which Judge reports.
func (s *Stream) WaitFor(t testing.TB, want map[oracle.ObjectKey][]oracle.Expectation, idle time.Duration) {
	t.Helper()
	begin := time.Now()
	wait.Eventually(t, ComingLimit, func() error {
		n, id := s.Missing(want)
		s.mu.Lock()
		latest := s.latest
		s.mu.Unlock()
		if n == 0 || time.Since(latest) > idle && time.Since(begin) > idle {
			return nil
		}
		return fmt.Errorf("%d records have not come, while others do; one of them: %s", n, id)
	})
	if n, id := s.Missing(want); n > 0 {
		t.Logf("%d records have not come, and none for %s; one of them: %s", n, idle, id)
	}
}

// Completed waits until each resource's snapshot is completed, and returns the snapshots by scope.
func (s *Stream) Completed(t testing.TB, resources ...string) map[oracle.Scope]oracle.Snapshot {
	t.Helper()
	return s.snapshots(t, oracle.SnapshotCompleted, resources...)
}

// Started is Completed for the start of the snapshots.
func (s *Stream) Started(t testing.TB, resources ...string) map[oracle.Scope]oracle.Snapshot {
	t.Helper()
	return s.snapshots(t, oracle.SnapshotStarted, resources...)
}

func (s *Stream) snapshots(t testing.TB, kind string, resources ...string) map[oracle.Scope]oracle.Snapshot {
	t.Helper()
	found := make(map[oracle.Scope]oracle.Snapshot)
	from := 0
	wait.Eventually(t, time.Minute, func() error {
		all := s.All()
		for _, rec := range all[from:] {
			if rec.Stream == kind {
				found[rec.Scope] = oracle.Snapshot{ID: rec.Snapshot, Rev: rec.Rev}
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

// ViewOf returns the View of an agent that took these snapshots.
func ViewOf(snapshots map[oracle.Scope]oracle.Snapshot) oracle.View {
	return oracle.View{Snapshot: func(key oracle.ObjectKey) (oracle.Snapshot, bool) {
		for sc, snap := range snapshots {
			if sc.Has(key) {
				return snap, true
			}
		}
		return oracle.Snapshot{}, false
	}}
}

// news returns the number of records without progress.
func (s *Stream) news() int {
	n := 0
	for _, rec := range s.All() {
		if rec.Stream != oracle.Progress {
			n++
		}
	}
	return n
}

// DeadSubject returns the default NATS subject of dead letters.
func DeadSubject() string { return "kubecdc." + oracle.Escape(ClusterName) + ".dead" }

// Bury adds a dead letter.
func (s *Stream) Bury(l oracle.Letter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters[l.ID] = l
	s.latest = time.Now()
}

// Dead returns the dead letters in no particular order.
func (s *Stream) Dead() []oracle.Letter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.letters))
}

// DeadObjects returns the object of each dead letter, by the event's id.
func (s *Stream) DeadObjects() map[string]oracle.ObjectKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	dead := make(map[string]oracle.ObjectKey, len(s.letters))
	for id := range s.letters {
		dead[id] = s.letters[id].Key
	}
	return dead
}

// End returns the position of the last record on the bus.
func (s *Stream) End(ctx context.Context) (uint64, error) {
	stream, err := s.JS.Stream(ctx, StreamName)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}
