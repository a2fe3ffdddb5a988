package kafka_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// observed is keyed, of a change that the agent observed some time ago.
func observed(key string, n int, ago time.Duration) *encode.Event {
	ev := keyed(key, n)
	ev.Delta.Observed = time.Now().Add(-ago).UnixNano()
	return ev
}

// Events that have waited for longer than the topic's message.timestamp.before.max.ms are stored
// with a new timestamp, once and in order. Their time is in the event.
func TestOldTimestampsAreReplaced(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 2)
	m.config["message.timestamp.before.max.ms"] = "60000"
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	k.block(t, m)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			key := "k" + strconv.Itoa(i)
			for n := 1; n <= 3; n++ {
				if err := k.Publish(t.Context(), observed(key, n, time.Duration(3-n)*time.Hour)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	k.unblock(t, m)
	wg.Wait()
	last := map[string]int{}
	for p := range 2 {
		for _, r := range m.logOf("kubecdc.prod-eu-1", p) {
			if age := time.Now().UnixMilli() - r.time; age > 60_000 {
				t.Errorf("%s of %s is %d ms old", r.value, r.key, age)
			}
			if number(r) != last[r.key]+1 || r.epoch != 0 {
				t.Errorf("%s: %s in epoch %d follows %d", r.key, r.value, r.epoch, last[r.key])
			}
			last[r.key] = number(r)
		}
	}
	if len(last) != 100 {
		t.Errorf("%d objects, want 100", len(last))
	}
}

// The answer to a batch is lost, and its timestamps are too old when it is sent again. The broker
// checks timestamps before it checks for duplicates, so it refuses a batch that it has. With new
// timestamps it must still detect the duplicate.
func TestReplacedTimestampMakesNoCopy(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	script := []fault{{}, {lostAfter: true}, {code: kafkago.InvalidTimestamp}, {lostAfter: true}}
	m.fault = func(*modelPartition) (f fault) {
		if len(script) > 0 {
			f, script = script[0], script[1:]
		}
		return f
	}
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	for n := 1; n <= 4; n++ {
		if err := k.Publish(t.Context(), observed("a", n, time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, r := range m.logOf("kubecdc.prod-eu-1", 0) {
		got = append(got, r.value)
	}
	if want := "1 2 3 4"; strings.Join(got, " ") != want || len(script) > 0 {
		t.Errorf("log is %v, want %s (%d of the script left)", got, want, len(script))
	}
}

// Among records with old timestamps, one that is refused permanently is sent alone.
func TestOldTimestampsBesideARefusedEvent(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	m.config["message.timestamp.before.max.ms"] = "60000"
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	k.block(t, m)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ev := observed("k"+strconv.Itoa(i), 1, time.Hour)
			if i == 7 {
				ev.Body = []byte("poison")
			}
			if err := k.Publish(t.Context(), ev); (err != nil) != (i == 7) {
				t.Errorf("event %d: %v", i, err)
			}
		})
	}
	k.unblock(t, m)
	wg.Wait()
	if got := len(m.logOf("kubecdc.prod-eu-1", 0)); got != 19 {
		t.Errorf("%d records, want 19", got)
	}
}

// If the clocks differ by more than the topic allows, a new timestamp does not help: events wait,
// and the publisher reports why.
func TestClocksThatDiffer(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	// as if the agent's clock were a second ahead of the topic's limit
	m.config["message.timestamp.after.max.ms"] = "-1000"
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Publish(t.Context(), observed("a", 1, 0)); err != nil {
			t.Error(err)
		}
	})
	wait(t, "advice", func() bool { return k.Ready() != nil && strings.Contains(k.log.String(), "compare the clocks") })
	m.mu.Lock()
	delete(m.config, "message.timestamp.after.max.ms")
	m.mu.Unlock()
	wg.Wait()
	wait(t, "ready again", func() bool { return k.Ready() == nil })
	if got := len(m.logOf("kubecdc.prod-eu-1", 0)); got != 1 {
		t.Errorf("%d records, want 1", got)
	}
}
