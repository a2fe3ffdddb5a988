package kafka

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/test/process"
)

const (
	inside     Listener = "INSIDE"
	controller Listener = "CONTROLLER"

	clusterID = "a3ViZWNkYy10ZXN0LTAwMA" // sixteen bytes, in base64url

	bootstrap = "bootstrap.checkpoint" // a name of Kafka
	classes   = "classes.jsa"

	// readyTimeout bounds the wait for one node if the caller's context has no deadline. Observed:
	// 2 s to 8 s; the rest is for a machine with other work.
	readyTimeout = 2 * time.Minute

	// grace is how long an orderly shutdown may take.
	grace = 30 * time.Second
)

// errPortTaken is for errors.Is: a node could not bind a port.
var errPortTaken = errors.New("port taken by another process")

// Node is a broker and a controller in one process.
type Node struct {
	cluster    *Cluster
	index      int
	dir        string
	ports      map[Listener]int
	advertised map[Listener]string

	mu    sync.Mutex
	child *process.Child // of the last start
	runs  int
}

func newNode(ctx context.Context, c *Cluster, index int) (*Node, error) {
	n := &Node{
		cluster:    c,
		index:      index,
		dir:        filepath.Join(c.dir, fmt.Sprintf("node-%d", index)),
		ports:      map[Listener]int{},
		advertised: map[Listener]string{},
	}
	if err := os.MkdirAll(n.tmp(), 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	for _, l := range n.listeners() {
		port, err := process.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		n.ports[l] = port
		n.advertised[l] = n.address(l)
		if c.opts.Advertise == nil || l == inside || l == controller {
			continue
		}
		instead, err := c.opts.Advertise(index, l, n.address(l))
		if err != nil {
			return nil, fmt.Errorf("advertise node %d: %w", index, err)
		}
		if instead != "" {
			n.advertised[l] = instead
		}
	}
	return n, nil
}

func (n *Node) listeners() []Listener {
	all := []Listener{inside, Plain}
	if n.cluster.zoo == nil {
		all = append(all, controller)
	}
	if n.cluster.opts.Secure {
		all = append(all, TLS, MutualTLS, SASL, SASLTLS)
	}
	return all
}

func (n *Node) id() int { return n.index + 1 }

func (n *Node) address(l Listener) string { return fmt.Sprintf("127.0.0.1:%d", n.ports[l]) }

// tmp returns the temporary directory of the node's JVM.
func (n *Node) tmp() string { return n.file("tmp") }

func (n *Node) file(name string) string { return filepath.Join(n.dir, name) }

// configure writes the node's properties, and formats its data directory unless it has been.
func (n *Node) configure() error {
	var voters, listen, advertised, protocols []string
	for _, other := range n.cluster.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.id(), other.address(controller)))
	}
	for _, l := range n.listeners() {
		listen = append(listen, fmt.Sprintf("%s://%s", l, n.address(l)))
		protocols = append(protocols, fmt.Sprintf("%s:%s", l, protocolOf(l)))
		if l != controller {
			advertised = append(advertised, fmt.Sprintf("%s://%s", l, n.advertised[l]))
		}
	}
	replicas := strconv.Itoa(min(3, n.cluster.opts.Nodes))
	insync := "1"
	if n.cluster.opts.Nodes >= 3 {
		insync = "2"
	}
	config := map[string]string{
		"process.roles": "broker,controller", "node.id": strconv.Itoa(n.id()), "log.dirs": n.file("data"),
		"listeners": strings.Join(listen, ","), "advertised.listeners": strings.Join(advertised, ","),
		"listener.security.protocol.map": strings.Join(protocols, ","),
		"controller.listener.names":      string(controller), "inter.broker.listener.name": string(inside),
		"controller.quorum.voters": strings.Join(voters, ","),

		"auto.create.topics.enable": "false", "default.replication.factor": replicas, "min.insync.replicas": insync,
		"offsets.topic.replication.factor": replicas, "offsets.topic.num.partitions": "4",
		"transaction.state.log.replication.factor": replicas, "transaction.state.log.min.isr": insync,
		"transaction.state.log.num.partitions": "4", "group.initial.rebalance.delay.ms": "0",

		// A killed node is detected after this time, and not after nine seconds.
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",
		// Test data has timestamps of other days.
		"log.retention.ms": "-1", "log.message.timestamp.after.max.ms": "9223372036854775807",
		// By default, the cleaner's buffer is half of the heap.
		"log.cleaner.dedupe.buffer.size": "8388608",
		"num.network.threads":            "2", "num.io.threads": "4", "background.threads": "2",
	}
	if n.cluster.zoo != nil {
		n.cluster.zoo.configure(config)
	}
	if n.cluster.security != nil {
		n.cluster.security.properties(config)
	}
	maps.Copy(config, n.cluster.opts.Properties)
	if err := os.WriteFile(n.file("server.properties"), properties(config), 0o600); err != nil {
		return fmt.Errorf("configuration of node %d: %w", n.index, err)
	}
	if n.cluster.zoo != nil {
		return nil // a broker formats its data itself
	}
	return n.format()
}

// protocolOf returns Kafka's name for the security of a listener.
func protocolOf(l Listener) string {
	switch l {
	case TLS, MutualTLS:
		return "SSL"
	case SASL:
		return "SASL_PLAINTEXT"
	case SASLTLS:
		return "SASL_SSL"
	default:
		return "PLAINTEXT"
	}
}

// format does what kafka-storage format does, see installation.format.
func (n *Node) format() error {
	data := n.file("data")
	if _, err := os.Stat(filepath.Join(data, "meta.properties")); err == nil {
		return nil
	}
	features, err := os.ReadFile(n.cluster.in.path(bootstrap))
	if err != nil {
		return fmt.Errorf("format node %d: %w", n.index, err)
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f // Kafka rejects ids that begin with a dash.
	meta := properties(map[string]string{
		"version": "1", "cluster.id": cmp.Or(n.cluster.opts.ClusterID, clusterID), "node.id": strconv.Itoa(n.id()),
		"directory.id": base64.RawURLEncoding.EncodeToString(id[:]),
	})
	err = errors.Join(
		os.MkdirAll(filepath.Dir(filepath.Join(data, checkpoint())), 0o700),
		os.WriteFile(filepath.Join(data, checkpoint()), features, 0o600),
		os.WriteFile(filepath.Join(data, "meta.properties"), meta, 0o600),
	)
	if err != nil {
		return fmt.Errorf("format node %d: %w", n.index, err)
	}
	return nil
}

// properties is a file as Java reads it, in order.
func properties(values map[string]string) []byte {
	var b bytes.Buffer
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&b, "%s=%s\n", name, escape.Replace(values[name]))
	}
	return b.Bytes()
}

// launch returns as soon as the process exists.
func (n *Node) launch() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running() {
		return fmt.Errorf("start Kafka node %d: it is running already, pid %d", n.index, n.child.PID())
	}
	flags := append([]string{"-XX:ErrorFile=" + n.file("crash.log")}, n.cluster.opts.flags...)
	if s := n.cluster.security; s != nil {
		flags = append(flags, s.flags()...)
	}
	argv := append(n.cluster.in.java(n.tmp(), flags...), "kafka.Kafka", n.file("server.properties"))
	n.runs++
	child, err := process.Start(process.Spec{
		Name: fmt.Sprintf("Kafka node %d", n.index), Argv: argv, Log: n.file(fmt.Sprintf("log-%d", n.runs)),
	})
	if err != nil {
		return err
	}
	n.child = child
	return nil
}

// running must be called with the lock held.
func (n *Node) running() bool {
	if n.child == nil {
		return false
	}
	select {
	case <-n.child.Done():
		return false
	default:
		return true
	}
}

func (n *Node) current() *process.Child {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running() {
		return nil
	}
	return n.child
}

// Start runs a stopped node with the same data and ports, and returns when it serves again.
func (n *Node) Start(ctx context.Context) error {
	if err := n.configure(); err != nil {
		return err
	}
	for {
		if err := n.launch(); err != nil {
			return err
		}
		err := n.waitReady(ctx, 1)
		// ZooKeeper has the session of a killed broker until its timeout, and the broker ends then.
		if err == nil || n.cluster.zoo == nil || ctx.Err() != nil || !bytes.Contains(n.log(), []byte("NodeExists")) {
			return err
		}
	}
}

// Kill kills the node, like a power cut that loses no writes. It returns when the process is gone.
func (n *Node) Kill() {
	if c := n.current(); c != nil {
		c.Kill()
	}
}

// Stop shuts the node down, which hands over its partitions, and kills it after half a minute. It
// returns when the process is gone.
func (n *Node) Stop() {
	if c := n.current(); c != nil {
		_ = c.Stop(grace) // It is gone in any case. After a signal, a JVM exits with 143.
	}
}

// Pause stops the node with SIGSTOP: its connections stay, and nothing is answered. Continue
// resumes it.
func (n *Node) Pause() error {
	if c := n.current(); c != nil {
		return c.Pause()
	}
	return fmt.Errorf("pause Kafka node %d: it does not run", n.index)
}

// Continue resumes a paused node.
func (n *Node) Continue() error {
	if c := n.current(); c != nil {
		return c.Continue()
	}
	return fmt.Errorf("continue Kafka node %d: it does not run", n.index)
}

// Running reports whether the process exists, paused or not.
func (n *Node) Running() bool { return n.current() != nil }

// PID returns the process ID, or 0 if the node does not run.
func (n *Node) PID() int {
	if c := n.current(); c != nil {
		return c.PID()
	}
	return 0
}

// waitReady waits until the node has this many registered nodes that serve, including itself.
func (n *Node) waitReady(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	c := n.current()
	if c == nil {
		return n.failed(errors.New("ended at once"))
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-c.Done():
			return n.failed(errors.New("ended before it was ready"))
		case <-ctx.Done():
			return n.failed(fmt.Errorf("not ready: %w; last answer: %w", context.Cause(ctx), last))
		case <-tick.C:
		}
		if err := n.ready(ctx, nodes); err == nil {
			return nil
		} else if ctx.Err() == nil { // Otherwise the error is only that of the context.
			last = err
		}
	}
}

func (n *Node) failed(err error) error {
	n.mu.Lock()
	c := n.child
	n.mu.Unlock()
	if c == nil {
		return fmt.Errorf("Kafka node %d: %w", n.index, err)
	}
	err = c.Failed(err)
	tail := n.logTail()
	if bytes.Contains(tail, []byte("Address already in use")) ||
		bytes.Contains(tail, []byte("two listeners on the same port")) {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// log returns the log of the last run.
func (n *Node) log() []byte {
	n.mu.Lock()
	name := n.file(fmt.Sprintf("log-%d", n.runs))
	n.mu.Unlock()
	text, _ := os.ReadFile(name)
	return text
}

// logTail returns the end of the log of the last run.
func (n *Node) logTail() []byte {
	text := n.log()
	const most = 8 << 10
	return bytes.TrimSpace(text[max(0, len(text)-most):])
}
