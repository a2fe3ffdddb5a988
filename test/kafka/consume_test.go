package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/wait"
)

// objectIn returns the name of an object whose records are in a partition, of n.
func objectIn(partition, n int) string {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	for i := 0; ; i++ {
		name := fmt.Sprint("web-", i)
		if (kafkago.Murmur2Balancer{}).Balance(kafkago.Message{Key: []byte("prod/core/configmaps/shop/" + name)},
			all...) == partition {
			return name
		}
	}
}

// newTopic creates a topic that no other run of the test uses.
func newTopic(t *testing.T, c *kafka.Cluster, name string, partitions int) string {
	t.Helper()
	name = fmt.Sprintf("%s-%d.prod", name, time.Now().UnixNano())
	if err := c.CreateTopic(t.Context(), name, partitions, nil); err != nil {
		t.Fatal(err)
	}
	return name
}

// updates returns versions of an object, stored at a time.
func updates(name string, from, to int, at time.Time) []kafkago.Message {
	var ms []kafkago.Message
	for rv := from; rv < to; rv++ {
		m := relayEvent("object.updated", name, rv)
		m.Time = at
		ms = append(ms, m)
	}
	return ms
}

// putAt writes versions of an object to a partition.
func putAt(t *testing.T, c *kafka.Cluster, topic string, partition int, name string, from, to int) {
	t.Helper()
	putMessages(t, c, topic, partition, updates(name, from, to, time.Now())...)
}

func putMessages(t *testing.T, c *kafka.Cluster, topic string, partition int, ms ...kafkago.Message) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		conn, err := kafkago.DialLeader(t.Context(), "tcp", c.Inside()[0], topic, partition)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.WriteMessages(ms...)
		return err
	})
}

func readKafka(t *testing.T, s *fromkafka.Kafka, q consume.Query) consume.Reader {
	t.Helper()
	if q.OnRetry == nil {
		q.OnRetry = func(err error) { t.Log(err) }
	}
	r, err := s.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// next returns the ids of n events, or of all up to io.EOF if n is -1, sorted.
func next(t *testing.T, r consume.Reader, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ids []string
	last := map[int]uint64{}
	for len(ids) != n {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) && n < 0 {
			break
		}
		if err != nil {
			t.Fatalf("after %q: %v", ids, err)
		}
		if p := e.Position; p.Next <= last[p.Partition] || !slices.Contains(r.Positions(), p) || p.ID == "" {
			t.Fatalf("%s: position %+v after %d; the reader's are %+v", e.ID, p, last[p.Partition], r.Positions())
		}
		last[e.Position.Partition] = e.Position.Next
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

// versions returns the ids of versions of an object.
func versions(name string, from, to int) []string {
	var ids []string
	for rv := from; rv < to; rv++ {
		ids = append(ids, fmt.Sprintf("configmaps/%s/%d", name, rv))
	}
	slices.Sort(ids)
	return ids
}

func TestConsumeStarts(t *testing.T) {
	t.Parallel()
	const partitions = 3
	c := lasting.get(t)
	topic := newTopic(t, c, "starts", partitions)
	a, b := objectIn(0, partitions), objectIn(1, partitions)
	middle := time.Now()
	putMessages(t, c, topic, 0, updates(a, 0, 5, middle.Add(-time.Hour))...)
	// a tombstone
	putMessages(t, c, topic, 0, kafkago.Message{
		Key:  []byte("prod/core/configmaps/shop/" + a),
		Time: middle.Add(-time.Hour),
	})
	putAt(t, c, topic, 0, a, 5, 8)
	putAt(t, c, topic, 1, b, 0, 2)
	source := &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{topic}}
	all := append(versions(a, 0, 8), versions(b, 0, 2)...)
	late := append(versions(a, 5, 8), versions(b, 0, 2)...)
	slices.Sort(all)
	slices.Sort(late)
	first := readKafka(t, source, consume.Query{Start: consume.Beginning()})
	next(t, first, 4)
	rest := readKafka(t, source, consume.Query{Start: consume.After(first.Positions()...), StopAtEnd: true})
	if got := len(next(t, rest, -1)); got != 6 {
		t.Errorf("%d events after the positions of a reader that has returned 4 of 10", got)
	}
	for name, tc := range map[string]struct {
		start consume.Start
		want  []string
	}{
		"live": {consume.Live(), nil}, "beginning": {consume.Beginning(), all}, "since": {consume.Since(middle), late},
		"since now": {consume.Since(time.Now().Add(time.Hour)), nil}, "after none": {consume.After(), all},
	} {
		r := readKafka(t, source, consume.Query{Start: tc.start, StopAtEnd: true})
		if diff := cmp.Diff(tc.want, next(t, r, -1)); diff != "" || !r.CaughtUp() {
			t.Errorf("%s: caught up: %t, -want +got\n%s", name, r.CaughtUp(), diff)
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after the end: %v", name, err)
		}
	}

	live := readKafka(t, &fromkafka.Kafka{Brokers: c.Inside(), Match: func(name string) bool {
		return name == topic
	}}, consume.Query{})
	if !live.CaughtUp() {
		t.Error("a live reader has not caught up")
	}
	putAt(t, c, topic, 2, "x", 1, 3)
	if diff := cmp.Diff(versions("x", 1, 3), next(t, live, 2)); diff != "" || !live.CaughtUp() {
		t.Errorf("caught up: %t, -want +got\n%s", live.CaughtUp(), diff)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("had enough"))
	if _, err := live.Next(ctx); err == nil || err.Error() != "had enough" {
		t.Errorf("error %v", err)
	}
	putMessages(t, c, topic, 2, kafkago.Message{Value: []byte("{")})
	record := new(consume.RecordError)
	if _, err := live.Next(t.Context()); !errors.As(err, &record) || record.Position.Next != 3 ||
		!strings.HasPrefix(err.Error(), "topic "+topic+", partition 2, offset 2: ") {
		t.Errorf("error %v, %+v", err, record)
	}
	if _, err := (&fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{
		"none",
	}}).Read(t.Context(), consume.Query{}); !errors.Is(err, consume.ErrNoStream) {
		t.Errorf("error %v", err)
	}
	if _, err := (&fromkafka.Kafka{Brokers: []string{"127.0.0.1:1"}, Topics: []string{
		topic,
	}}).Read(t.Context(), consume.Query{}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
}

// counting is a dialer that counts the bytes that are read.
func counting(n *atomic.Int64) *kafkago.Dialer {
	return &kafkago.Dialer{
		Timeout: 10 * time.Second,
		DialFunc: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return countedConn{conn, n}, err
		},
	}
}

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// The history of one object reads only its partition, and with a start time only the records since
// then.
func TestConsumeOneObject(t *testing.T) {
	t.Parallel()
	const partitions, each, size = 12, 1000, 2_000
	c := lasting.get(t)
	topic := newTopic(t, c, "one", partitions)
	write := func(from, to int, at time.Time) {
		for p := range partitions {
			ms := updates(objectIn(p, partitions), from, to, at)
			for i := range ms {
				ms[i].Value = []byte(
					strings.Replace(string(ms[i].Value), `"data":{`,
						`"data":{"after":{"x":"`+strings.Repeat("x", size)+`"},`, 1))
			}
			for some := range slices.Chunk(ms, 10) {
				putMessages(t, c, topic, p, some...)
			}
		}
	}
	middle := time.Now()
	write(0, each/2, middle.Add(-time.Hour))
	write(each/2, each, middle.Add(time.Second))
	name := objectIn(5, partitions)
	for start, records := range map[*consume.Start]int{
		new(consume.Start):         0,
		ptr(consume.Beginning()):   each,
		ptr(consume.Since(middle)): each / 2,
	} {
		var bytes atomic.Int64
		source := &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{
			topic,
		}, Cluster: "prod", Dialer: counting(&bytes)}
		r := readKafka(t, source, consume.Query{
			Objects:   []consume.Objects{{Groups: []string{""}, Resource: "configmaps", Namespace: "shop", Name: name}},
			Start:     *start,
			StopAtEnd: true,
		})
		if diff := cmp.Diff(versions(name, each-records, each), next(t, r, -1)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		partition := float64(records) * (size + 350)
		t.Logf("%d records: %d bytes read, the partition has some %.0f", records, bytes.Load(), partition)
		if limit := 1.1*partition + 20_000; float64(bytes.Load()) > limit {
			t.Errorf("%d bytes were read for %d records of one of %d partitions, want at most %.0f", bytes.Load(),
				records, partitions, limit)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// recreate deletes a topic and creates it again.
func recreate(t *testing.T, c *kafka.Cluster, topic string, partitions int) {
	t.Helper()
	client := &kafkago.Client{Addr: kafkago.TCP(c.Inside()...), Transport: new(kafkago.Transport)}
	defer client.Transport.(*kafkago.Transport).CloseIdleConnections()
	id := func() string {
		ids, err := kafkaid.Lookup(t.Context(), client, client.Addr, []string{topic})
		if err != nil {
			t.Fatal(err)
		}
		return ids.Topics[topic]
	}
	before := id()
	deleteTopic(t, c, topic)
	wait.Eventually(t, time.Minute, func() error {
		if err := c.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
			return err
		}
		if now := id(); now == before || now == "" { // the deletion completes a little later
			return fmt.Errorf("topic %s has the id %q, before it had %q", topic, now, before)
		}
		return nil
	})
}

// A topic that is deleted and created again is read from its beginning, once, and the reader
// reports that. This holds for a reader that was reading and for one that was not, even if the new
// topic has more records than the old one.
func TestConsumeATopicThatIsCreatedAgain(t *testing.T) {
	t.Parallel()
	c := lasting.get(t)
	topic := newTopic(t, c, "again", 1)
	putAt(t, c, topic, 0, "web", 0, 5)
	source := &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{topic}}
	reading := readKafka(t, source, consume.Query{Start: consume.Beginning()})
	next(t, reading, 5)
	away := reading.Positions()
	recreate(t, c, topic, 1)
	putAt(t, c, topic, 0, "web", 10, 20)
	for name, r := range map[string]consume.Reader{
		"reading": reading, "away": readKafka(t, source, consume.Query{Start: consume.After(away...)}),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := r.Next(ctx)
		cancel()
		missed := new(consume.MissedError)
		if !errors.As(err, &missed) || !missed.Recreated || missed.Log != away[0].Log || missed.From != 5 {
			t.Fatalf("%s: error %v instead of a MissedError, the reader was at %+v and is at %+v", name, err, away,
				r.Positions())
		}
		if diff := cmp.Diff(versions("web", 10, 20), next(t, r, 10)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		again := readKafka(t, source, consume.Query{Start: consume.After(r.Positions()...), StopAtEnd: true})
		if got := next(t, again, -1); got != nil {
			t.Errorf("%s: read again: %q", name, got)
		}
	}
}

// Members of a group share the partitions and continue at the committed positions. Positions of
// another log, or beyond the read records, are not committed.
func TestConsumeWithAGroup(t *testing.T) {
	t.Parallel()
	const partitions = 2
	c := lasting.get(t)
	topic := newTopic(t, c, "group", partitions)
	putAt(t, c, topic, 0, "a", 0, 4)
	putAt(t, c, topic, 1, "b", 0, 4)
	source := &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{topic}, Group: topic}
	read := func(start consume.Start) (consume.Reader, fromkafka.Committer) {
		r := readKafka(t, source, consume.Query{Start: start})
		return r, r.(fromkafka.Committer)
	}
	r, group := read(consume.Beginning())
	if got := len(next(t, r, 8)); got != 8 || !r.CaughtUp() {
		t.Errorf("%d events, caught up: %t", got, r.CaughtUp())
	}
	at := r.Positions()
	for i := range at {
		at[i].Next--
	}
	foreign := at[0]
	foreign.ID, foreign.Next = "another/topic", 1
	ahead := at[1]
	ahead.Next = 100
	if err := group.Commit(t.Context(), at[0], at[1], foreign, ahead); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	one, _ := read(consume.Live())
	if diff := cmp.Diff([]string{"configmaps/a/3", "configmaps/b/3"}, next(t, one, 2)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	two, _ := read(consume.Live()) // nothing is committed: its partition begins with the last record
	wait.Eventually(t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _ = one.Next(ctx) // records of reassigned partitions are read again
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if e, err := two.Next(ctx); err != nil || !strings.HasSuffix(e.ID, "/3") {
			return fmt.Errorf("%v, %w", e, err)
		}
		return nil
	})
	for _, r := range []consume.Reader{one, two} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
