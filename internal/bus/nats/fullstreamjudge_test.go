package nats_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/pause"
)

// recordJudge compares acknowledged events with the records of streams.
type recordJudge struct {
	t  *testing.T
	js jetstream.JetStream
	by nats.JetStreamContext // asks the leader

	mu      sync.Mutex
	streams map[string]*judgedStream
	total   int

	age     time.Duration // max_age: records that are older may be gone
	horizon time.Time     // records before it may be gone since an earlier max_age
}

// judgedStream is the state of a stream.
type judgedStream struct {
	unread  map[string]time.Time // acknowledged and not yet read: when it was first sent, by message id
	records map[uint64]judgedRecord
	ids     map[string]uint64
	last    uint64
	acked   map[string]bool
	removed int // by max_age
	late    int // not judged: max_age may have removed them before they were read
}

type judgedRecord struct {
	id string
	at time.Time
}

func newRecordJudge(t *testing.T, js jetstream.JetStream) *recordJudge {
	t.Helper()
	by, err := js.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return &recordJudge{t: t, js: js, by: by, streams: map[string]*judgedStream{}, age: time.Hour}
}

// String describes what was read.
func (j *recordJudge) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := fmt.Sprintf("%d events acknowledged", j.total)
	for name, st := range j.streams {
		s += fmt.Sprintf("; %s: %d records, %d removed by age, %d not judged", name, len(st.records), st.removed,
			st.late)
	}
	return s
}

// of returns the state of a stream. It must be called with mu held.
func (j *recordJudge) of(stream string) *judgedStream {
	s := j.streams[stream]
	if s == nil {
		s = &judgedStream{
			unread:  map[string]time.Time{},
			records: map[uint64]judgedRecord{},
			ids:     map[string]uint64{},
			acked:   map[string]bool{},
		}
		j.streams[stream] = s
	}
	return s
}

// acked records that a stream has acknowledged an event, which was first sent at a time.
func (j *recordJudge) acked(stream, id string, begun time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total++
	s := j.of(stream)
	s.acked[id] = true
	if s.ids[id] == 0 {
		s.unread[id] = begun
	}
}

func (j *recordJudge) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.total
}

func (j *recordJudge) forget(stream string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.streams, stream)
}

// allow sets the age from which records may be gone. A replica may have removed what was older
// than the former age, and lead later.
func (j *recordJudge) allow(age time.Duration) {
	j.horizon = time.Now().Add(-j.age)
	j.age = age
}

// mayBeGone reports whether max_age may have removed a record of that time.
func (j *recordJudge) mayBeGone(at time.Time) bool {
	return at.Before(j.horizon) || time.Since(at) >= j.age
}

// retry repeats what fails while there is no leader.
func (j *recordJudge) retry(what string, f func(context.Context) error) {
	j.t.Helper()
	var err error
	for limit := time.Now().Add(time.Minute); time.Now().
		Before(limit); _ = pause.For(j.t.Context(), 50*time.Millisecond) {
		ctx, cancel := context.WithTimeout(j.t.Context(), 2*time.Second)
		err = f(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	j.t.Fatalf("%s: %v", what, err)
}

func (j *recordJudge) info(stream string) (info *jetstream.StreamInfo) {
	j.t.Helper()
	j.retry("look up "+stream, func(ctx context.Context) error {
		s, err := j.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info = s.CachedInfo()
		if info.Cluster == nil || info.Cluster.Leader == "" {
			return errors.New("no leader")
		}
		return nil
	})
	return info
}

func (j *recordJudge) leader(stream string) string { return j.info(stream).Cluster.Leader }

// get reads records from the leader, several at a time; nil if the stream does not have one.
func (j *recordJudge) get(stream string, sequences []uint64) []*nats.RawStreamMsg {
	j.t.Helper()
	records := make([]*nats.RawStreamMsg, len(sequences))
	var g errgroup.Group
	g.SetLimit(16)
	for i, sequence := range sequences {
		g.Go(func() (err error) {
			for limit := time.Now().Add(time.Minute); time.Now().
				Before(limit); _ = pause.For(j.t.Context(), 20*time.Millisecond) {
				ctx, cancel := context.WithTimeout(j.t.Context(), 2*time.Second)
				records[i], err = j.by.GetMsg(stream, sequence, nats.Context(ctx))
				cancel()
				if errors.Is(err, nats.ErrMsgNotFound) {
					records[i], err = nil, nil
				}
				if err == nil {
					return nil
				}
			}
			return fmt.Errorf("read record %d of %s: %w", sequence, stream, err)
		})
	}
	if err := g.Wait(); err != nil {
		j.t.Fatal(err)
	}
	return records
}

// note compares a record with what was read at its sequence before.
func (j *recordJudge) note(stream string, sequence uint64, m *nats.RawStreamMsg) {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.of(stream)
	id := m.Header.Get("Nats-Msg-Id")
	if known, ok := s.records[sequence]; ok && known.id != id {
		j.t.Errorf("LOST: %s: record %d was %s, and is %s now", stream, sequence, known.id, id)
	}
	s.records[sequence] = judgedRecord{id, m.Time}
	s.ids[id] = sequence
	s.last = max(s.last, sequence)
	delete(s.unread, id)
}

// lagLimit is the time for which a new leader may lack records: it first applies those that its
// predecessors have acknowledged.
const lagLimit = 15 * time.Second

// readNew reads the records that have come since, among which each event must be that was
// acknowledged before. If max_age removed records before they were read, nothing is known of
// events that are older than the first record after these.
func (j *recordJudge) readNew(stream string) {
	j.t.Helper()
	j.mu.Lock()
	s := j.of(stream)
	due := maps.Clone(s.unread)
	next := s.last + 1
	j.mu.Unlock()
	known := j.readFrom(stream, next)
	for limit := time.Now().Add(lagLimit); ; _ = pause.For(j.t.Context(), 100*time.Millisecond) {
		missing := j.missing(stream, due, known)
		if len(missing) == 0 {
			return
		}
		if time.Now().After(limit) {
			j.t.Errorf("LOST: %s: %d acknowledged events have no record, first %s", stream, len(missing), missing[0])
			j.mu.Lock()
			for _, id := range missing {
				delete(s.unread, id) // said once
			}
			j.mu.Unlock()
			return
		}
		j.readFrom(stream, next) // the leader may have been behind
	}
}

// readFrom reads the records from a sequence on. It returns a time: all records of later events
// that the stream had were read, and earlier ones may have expired before.
func (j *recordJudge) readFrom(stream string, next uint64) (known time.Time) {
	j.t.Helper()
	before := j.info(stream).State
	var sequences []uint64
	for sequence := max(next, before.FirstSeq); sequence <= before.LastSeq; sequence++ {
		sequences = append(sequences, sequence)
	}
	records := j.get(stream, sequences)
	first := j.info(stream).State.FirstSeq
	expired := next < before.FirstSeq
	for i, m := range records {
		switch {
		case m == nil:
			expired = expired || sequences[i] < first
		case expired:
			known, expired = m.Time, false
			fallthrough
		default:
			j.note(stream, sequences[i], m)
		}
	}
	if expired {
		return time.Now()
	}
	return known
}

// missing lists the events that have not been read, and removes those that cannot be judged.
func (j *recordJudge) missing(stream string, due map[string]time.Time, known time.Time) (missing []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.of(stream)
	for id, begun := range due {
		_, unread := s.unread[id]
		switch {
		case !unread:
		case begun.Before(known):
			delete(s.unread, id)
			s.late++
		default:
			missing = append(missing, id)
		}
	}
	return missing
}

// readAll reads all records again. Those read before must be there, unless max_age has removed
// them: then they are the oldest.
func (j *recordJudge) readAll(stream string) {
	j.t.Helper()
	j.readNew(stream)
	for limit := time.Now().Add(lagLimit); ; _ = pause.For(j.t.Context(), 100*time.Millisecond) {
		wrong := j.vanished(stream)
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(limit) {
			j.t.Errorf("LOST: %s: %d acknowledged records are gone:\n%s", stream, len(wrong),
				strings.Join(wrong[:min(len(wrong), 5)], "\n"))
			return
		}
	}
}

// vanished lists the acknowledged records that have disappeared other than by their age.
func (j *recordJudge) vanished(stream string) (wrong []string) {
	j.mu.Lock()
	s := j.of(stream)
	sequences := make([]uint64, 0, len(s.records))
	for sequence := range s.records {
		sequences = append(sequences, sequence)
	}
	j.mu.Unlock()
	slices.Sort(sequences)
	records := j.get(stream, sequences)
	first := j.info(stream).State.FirstSeq
	for i, sequence := range sequences {
		if records[i] != nil {
			j.note(stream, sequence, records[i])
			continue
		}
		j.mu.Lock()
		record := s.records[sequence]
		switch {
		case sequence < first && j.mayBeGone(record.at):
			delete(s.records, sequence)
			s.removed++
		case s.acked[record.id]:
			wrong = append(wrong, fmt.Sprintf("record %d (%s), %v old, first is %d, max_age %v",
				sequence, record.id, time.Since(record.at), first, j.age))
		}
		j.mu.Unlock()
	}
	return wrong
}
