package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/test/wait"
)

// askTimeout bounds one request to a node, which may have been paused.
const askTimeout = 10 * time.Second

// dial connects to a node from the inside. It has no background work and no cache, so answers are
// current.
func (n *Node) dial(ctx context.Context) (*kafkago.Conn, error) {
	dialer := &kafkago.Dialer{Timeout: askTimeout, ClientID: "kubecdc-test"}
	conn, err := dialer.DialContext(ctx, "tcp", n.address(inside))
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (n *Node) ready(ctx context.Context, nodes int) error {
	conn, err := n.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	brokers, err := conn.Brokers()
	if err != nil {
		return err
	}
	if len(brokers) < nodes || !slices.ContainsFunc(brokers, func(b kafkago.Broker) bool { return b.ID == n.id() }) {
		return fmt.Errorf("it knows these nodes: %v", brokers)
	}
	return nil
}

// anyone asks the running nodes one after the other until one has an answer.
func (c *Cluster) anyone(ctx context.Context, ask func(*kafkago.Conn) error) error {
	err := errors.New("no node runs")
	for _, n := range c.nodes {
		if !n.Running() {
			continue
		}
		var conn *kafkago.Conn
		conn, err = n.dial(ctx)
		if err != nil {
			continue
		}
		err = ask(conn)
		conn.Close()
		if err == nil {
			return nil
		}
	}
	return err
}

// until calls ask until it returns nil. When readyTimeout has passed, or ctx ends, it returns the
// last error of ask.
func until(ctx context.Context, what string, ask func() error) error {
	if err := wait.For(ctx, readyTimeout, ask); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// CreateTopic creates a topic with the cluster's default number of replicas, and returns when all
// partitions have leaders.
func (c *Cluster) CreateTopic(ctx context.Context, topic string, partitions int, config map[string]string) error {
	spec := kafkago.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: min(3, len(c.nodes))}
	for name, value := range config {
		spec.ConfigEntries = append(spec.ConfigEntries, kafkago.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	// The topic may exist from an earlier attempt, or because its deletion is under way. So each
	// attempt creates it.
	return until(ctx, "create topic "+topic, func() error {
		err := c.anyone(ctx, func(conn *kafkago.Conn) error { return conn.CreateTopics(spec) })
		if err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) {
			return err
		}
		for p := range partitions {
			if err := c.checkLeader(ctx, topic, p); err != nil {
				return fmt.Errorf("leader of %s/%d: %w", topic, p, err)
			}
		}
		return nil
	})
}

// checkLeader sends a request that only the leader of a partition answers. The nodes have the
// leader's id before the leader has its role.
func (c *Cluster) checkLeader(ctx context.Context, topic string, partition int) error {
	leader, err := c.findLeader(ctx, topic, partition)
	if err != nil {
		return err
	}
	conn, err := c.nodes[leader].dialPartition(ctx, topic, partition)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _, err = conn.ReadOffsets()
	return err
}

// Partitions returns the partitions of a topic in order, as one node has them now.
func (c *Cluster) Partitions(ctx context.Context, topic string) ([]kafkago.Partition, error) {
	var all []kafkago.Partition
	err := c.anyone(ctx, func(conn *kafkago.Conn) (err error) {
		all, err = conn.ReadPartitions(topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("partitions of topic %s: %w", topic, err)
	}
	slices.SortFunc(all, func(a, b kafkago.Partition) int { return a.ID - b.ID })
	return all, nil
}

// Leader returns the index of the node that leads the partition. It waits until there is a leader
// that runs.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int) (leader int, err error) {
	err = until(ctx, fmt.Sprintf("leader of %s/%d", topic, partition), func() error {
		leader, err = c.findLeader(ctx, topic, partition)
		return err
	})
	return leader, err
}

// findLeader returns the index of the node that leads the partition now.
func (c *Cluster) findLeader(ctx context.Context, topic string, partition int) (int, error) {
	all, err := c.Partitions(ctx, topic)
	if err != nil {
		return -1, err
	}
	if partition >= len(all) {
		return -1, fmt.Errorf("the topic has %d partitions", len(all))
	}
	leader := all[partition].Leader.ID - 1
	if leader < 0 || leader >= len(c.nodes) || !c.nodes[leader].Running() {
		return -1, errors.New("no leader")
	}
	return leader, nil
}

// WaitInSync returns when every partition of the topic has all its replicas in sync. Then all
// partitions stay writable if another node is killed.
func (c *Cluster) WaitInSync(ctx context.Context, topic string) error {
	return until(ctx, "replicas of "+topic, func() error {
		all, err := c.Partitions(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Error != nil || len(p.Isr) < len(p.Replicas) {
				return fmt.Errorf("partition %d: %d of %d in sync: %w", p.ID, len(p.Isr), len(p.Replicas), p.Error)
			}
		}
		return nil
	})
}

// Records returns all current records of a topic, by partition.
func (c *Cluster) Records(ctx context.Context, topic string) ([][]kafkago.Message, error) {
	partitions, err := c.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	all := make([][]kafkago.Message, len(partitions))
	for _, p := range partitions {
		err := until(ctx, fmt.Sprintf("read %s/%d", topic, p.ID), func() error {
			leader, err := c.Leader(ctx, topic, p.ID)
			if err != nil {
				return err
			}
			all[p.ID], err = c.nodes[leader].records(ctx, topic, p.ID)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// DeleteRecords removes the records of a topic before those at some positions, by partition, as
// retention does. A position is an offset and one.
func (c *Cluster) DeleteRecords(ctx context.Context, topic string, before map[int]uint64) error {
	type partition struct {
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
		Offset    uint64 `json:"offset"`
	}
	all := []partition{}
	for _, p := range slices.Sorted(maps.Keys(before)) {
		all = append(all, partition{topic, p, before[p] - 1})
	}
	text, err := json.Marshal(map[string]any{"partitions": all, "version": 1})
	if err != nil {
		return err
	}
	file := filepath.Join(c.nodes[0].tmp(), "delete-"+topic+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	out, err := c.Java(ctx, nil, "org.apache.kafka.tools.DeleteRecordsCommand",
		"--bootstrap-server", c.Inside()[0], "--offset-json-file", file)
	if err == nil && bytes.Contains(out, []byte("error")) {
		err = errors.New(string(out))
	}
	if err != nil {
		return fmt.Errorf("delete records of topic %s: %w", topic, err)
	}
	return nil
}

// dialPartition connects to a node that leads the partition.
func (n *Node) dialPartition(ctx context.Context, topic string, partition int) (*kafkago.Conn, error) {
	dialer := &kafkago.Dialer{Timeout: askTimeout, ClientID: "kubecdc-test"}
	leader := kafkago.Broker{Host: "127.0.0.1", Port: n.ports[inside], ID: n.id()}
	conn, err := dialer.DialPartition(ctx, "tcp", n.address(inside), kafkago.Partition{
		Topic:  topic,
		ID:     partition,
		Leader: leader,
	})
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (n *Node) records(ctx context.Context, topic string, partition int) ([]kafkago.Message, error) {
	conn, err := n.dialPartition(ctx, topic, partition)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	first, last, err := conn.ReadOffsets()
	if err != nil {
		return nil, err
	}
	if _, err := conn.Seek(first, kafkago.SeekAbsolute); err != nil {
		return nil, err
	}
	var all []kafkago.Message
	for next := first; next < last; {
		batch := conn.ReadBatchWith(kafkago.ReadBatchConfig{
			MinBytes: 1,
			MaxBytes: 16 << 20,
			MaxWait:  100 * time.Millisecond,
		})
		for {
			m, err := batch.ReadMessage()
			if err != nil {
				break
			}
			if m.Offset < next { // A batch is read from its beginning, even from a position inside.
				continue
			}
			next = m.Offset + 1
			if m.Offset < last {
				all = append(all, m)
			}
		}
		err := batch.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if next >= last {
			break
		}
		// Deleted or compacted records are not read, so the position may be beyond the last record.
		offset, _ := conn.Offset()
		next = max(next, offset)
	}
	return all, nil
}
