package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/wait"
)

// nodes returns the number of nodes for a test of leaders: NODES of the environment.
func nodes(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(orElse(os.Getenv("NODES"), "1"))
	if err != nil || n < 1 {
		t.Fatalf("NODES=%q: want a number", os.Getenv("NODES"))
	}
	return n
}

func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// write stores a record under a key in one partition by a connection to its leader, and retries
// while there is none.
func write(t testing.TB, c *kafka.Cluster, topic string, partition int, key, value string) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := kafkago.DialLeader(ctx, "tcp", c.Brokers()[firstRunning(c)], topic, partition)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.WriteMessages(kafkago.Message{Key: []byte(key), Value: []byte(value), Headers: []kafkago.Header{{
			Key:   "h",
			Value: []byte(key),
		}}})
		return err
	})
}

func firstRunning(c *kafka.Cluster) int {
	for i := range c.Nodes() {
		if c.Node(i).Running() {
			return i
		}
	}
	return 0
}

// lines returns a topic's records as text, by partition.
func lines(t testing.TB, c *kafka.Cluster, topic string) [][]string {
	t.Helper()
	partitions, err := c.Records(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for _, records := range partitions {
		var one []string
		for _, r := range records {
			one = append(one, fmt.Sprintf("%s=%s", r.Key, r.Value))
		}
		all = append(all, one)
	}
	return all
}

func TestClusterKeepsItsRecordsWhenNodesAreKilled(t *testing.T) {
	t.Parallel()
	const topic = "kept"
	c := mortal.hold(t)
	if err := c.CreateTopic(t.Context(), topic, 2, map[string]string{"retention.ms": "86400000"}); err != nil {
		t.Fatal(err)
	}
	write(t, c, topic, 0, "a", "1")
	write(t, c, topic, 1, "b", "2")
	before := c.Brokers()
	for i := range 2 {
		leader, err := c.Leader(t.Context(), topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := c.Node(leader)
		pid := n.PID()
		if i == 0 {
			n.Kill()
		} else {
			n.Stop()
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) || n.Running() || n.PID() != 0 {
			t.Fatalf("node %d: process %d is still there: %v", leader, pid, err)
		}
		if c.Nodes() > 1 {
			write(t, c, topic, 0, "a", fmt.Sprint("while node ", i, " is away")) // Another node leads.
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitInSync(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, c.Brokers()); diff != "" {
		t.Errorf("other addresses after restarts (-before +after):\n%s", diff)
	}
	want := [][]string{{"a=1"}, {"b=2"}}
	if c.Nodes() > 1 {
		want[0] = append(want[0], "a=while node 0 is away", "a=while node 1 is away")
	}
	if diff := cmp.Diff(want, lines(t, c, topic)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestPausedNodeDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := mortal.holdOne(t)
	n := c.Node(0)
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	// The signal reaches one thread after the other, so the first request may still be answered.
	wait.Eventually(t, time.Minute, func() error {
		dialer := &kafkago.Dialer{Timeout: 10 * time.Second}
		conn, err := dialer.DialContext(t.Context(), "tcp", c.Brokers()[0]) // The kernel accepts the connection.
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Brokers(); err == nil {
			return errors.New("a paused node has answered")
		}
		return nil
	})
	if err := n.Continue(); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(t.Context(), "after-a-pause", 1, nil); err != nil {
		t.Fatal(err)
	}
}

func TestFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	needsBroker(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c, err := kafka.New(t.Context(), kafka.Options{Properties: map[string]string{
		"num.io.threads": "none",
	}, Output: io.Discard})
	if err == nil {
		c.Stop()
		t.Fatal("started")
	}
	for _, want := range []string{"Kafka node 0", "num.io.threads"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
