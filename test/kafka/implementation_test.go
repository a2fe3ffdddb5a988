package kafka_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestAnotherImplementation publishes to, and reads from, brokers that have no code in common with
// Apache Kafka: those of franz-go, which are written in Go. Leaders move meanwhile.
func TestAnotherImplementation(t *testing.T) {
	t.Parallel()
	const (
		topic      = "kubecdc.prod"
		partitions = 6
		brokers    = 3
	)
	c, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.SeedTopics(partitions, topic, "events.prod"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)

	t.Run("publish", func(t *testing.T) {
		const keys, versions = 16, 200
		a := startPublisher(t, kafkabus.Config{Brokers: c.ListenAddrs(), Topic: topic})
		acked := make(acknowledged, keys)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			publishVersions(t, a, keys, versions, acked)
		}()
		for round := range int32(10) {
			world.Pass(t.Context(), 50*time.Millisecond)
			for p := range int32(partitions) {
				if err := c.MoveTopicPartition(topic, p, (p+round)%brokers); err != nil {
					t.Error(err)
				}
			}
		}
		<-ended
		checkRecords(t, c, topic, keys, versions)
	})

	t.Run("read", func(t *testing.T) {
		const objects, versionsEach = 5, 40
		var want []string
		for n := range objects {
			name := fmt.Sprint("web-", n)
			conn, err := kafkago.DialLeader(t.Context(), "tcp", c.ListenAddrs()[0], "events.prod", n%partitions)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = conn.WriteMessages(updates(name, 1, versionsEach+1, time.Now())...); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			want = append(want, versions(name, 1, versionsEach+1)...)
		}
		r := readKafka(t, &fromkafka.Kafka{Brokers: c.ListenAddrs(), Topics: []string{"events.prod"}},
			consume.Query{Start: consume.Beginning(), StopAtEnd: true})
		got := next(t, r, -1)
		if len(got) != len(want) {
			t.Errorf("%d events, want %d", len(got), len(want))
		}
	})
}

// checkRecords reads a topic with a client of franz-go: each object's versions are there, in order,
// once.
func checkRecords(t *testing.T, c *kfake.Cluster, topic string, keys, versions int) {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := map[string]int{}
	for n := 0; n < keys*versions; {
		fetched := reader.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", n, keys*versions, err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			n++
			text, _, _ := strings.Cut(string(r.Value), " ")
			got, err := strconv.Atoi(text)
			if err != nil || got != last[string(r.Key)]+1 {
				oracle.Fail(t, "partition %d, offset %d: %s: version %s follows %d", r.Partition, r.Offset, r.Key, text,
					last[string(r.Key)])
			}
			last[string(r.Key)] = got
		})
	}
	for key, got := range last {
		if got != versions {
			oracle.Fail(t, "%s ends with version %d, want %d", key, got, versions)
		}
	}
}
