package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// Env decides what becomes of a test that needs a broker: "" skips it where none can be had, "require" fails it there,
// "skip" skips it everywhere.
const Env = "KUBECDC_KAFKA"

// Listener is one of those that a node has for clients.
type Listener string

// Plain is on every node, the others with Options.Secure.
const (
	Plain     Listener = "CLIENT"
	TLS       Listener = "TLS"
	MutualTLS Listener = "MUTUAL_TLS" // clients have to show a certificate of the cluster's CA
	SASL      Listener = "SASL"       // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, in plain text
	SASLTLS   Listener = "SASL_TLS"   // the same mechanisms over TLS
)

// Options are what differs from one node that anyone may write to. The zero value is that.
type Options struct {
	// Nodes is how many there are; 0 is 1. Topics have up to three replicas, and with three nodes two have to have a record
	// before it is acknowledged to acks=all.
	Nodes int

	// Properties of every node, as in server.properties, over those that this package sets.
	Properties map[string]string

	// Secure adds the listeners with TLS and SASL, a CA, a user and a signer of tokens: Cluster.Security.
	Secure bool

	// Advertise is asked, for each listener of each node that clients may use, where they shall connect to, host:port,
	// instead of at addr, where it listens: a proxy that a test can cut. It is called before the node's first start, and
	// again with other addresses if another process took a port in between. Nil, or an answer of "": at addr.
	Advertise func(node int, listener Listener, addr string) (string, error)

	// ClusterID is sixteen bytes in base64url; "" is the same for all.
	ClusterID string

	// Dir holds data, keys and logs and is kept by Stop. Empty: a new temporary directory, removed by Stop.
	Dir string

	// Output is where an installation says what it does, should there be one. Nil: os.Stderr.
	Output io.Writer

	flags []string // of the JVM
}

// Cluster is running nodes. Its methods are safe for concurrent use, except that a node may not be started and ended at
// the same time.
type Cluster struct {
	opts     Options
	in       installation
	dir      string
	tempDir  bool
	security *Security // nil without Options.Secure
	nodes    []*Node
	stop     sync.Once
}

// Start runs a cluster for the length of the test. Where no broker can be had the test is skipped, or fails, see Env. When
// the test has failed, the ends of the nodes' logs are in its log.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	Require(t)
	begin := time.Now()
	c, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	c.LogIfFailed(t)
	t.Logf("Kafka: %d node(s) ready after %s", len(c.nodes), time.Since(begin).Round(10*time.Millisecond))
	return c
}

// LogIfFailed adds the ends of the nodes' logs to the test's log when the test has ended and failed.
func (c *Cluster) LogIfFailed(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			for i, n := range c.nodes {
				t.Logf("end of the log of Kafka node %d:\n%s", i, n.logTail())
			}
		}
	})
}

// Require skips or fails the test where it cannot have a broker, see Env.
func Require(t testing.TB) {
	t.Helper()
	switch os.Getenv(Env) {
	case "skip":
		t.Skip("no test against a real Kafka broker: " + Env + "=skip")
	case "require":
		if err := Available(); err != nil {
			t.Fatalf("no Kafka broker can be had here, and %s=require: %v", Env, err)
		}
	default:
		if err := Available(); err != nil {
			t.Skipf("no Kafka broker can be had here: %v", err)
		}
	}
}

// New installs Kafka if it has to and starts a cluster. It returns when every node knows all others and answers clients.
// ctx bounds the start only; the nodes run until Stop. An error carries the end of the log of the node that failed; nothing
// is left running then.
func New(ctx context.Context, o Options) (*Cluster, error) {
	if o.Output == nil {
		o.Output = os.Stderr
	}
	in, err := install(ctx, o.Output)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(in.path(classes)); err == nil {
		o.flags = append(o.flags, "-XX:SharedArchiveFile="+in.path(classes))
	}
	return start(ctx, in, o)
}

func start(ctx context.Context, in installation, o Options) (_ *Cluster, err error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	c := &Cluster{opts: o, in: in, dir: o.Dir}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "kubecdc-kafka-"); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
		c.tempDir = true
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if o.Secure {
		if c.security, err = NewSecurity(filepath.Join(c.dir, "security")); err != nil {
			return nil, err
		}
	}
	// Each node's configuration names the ports of all: when one was taken, all get new ones.
	const tries = 10
	for range tries {
		if err = c.startOnFreePorts(ctx); !errors.Is(err, errPortTaken) {
			break
		}
		c.kill()
	}
	if err != nil {
		return nil, err
	}
	if o.Secure {
		if err := c.addScramUser(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) startOnFreePorts(ctx context.Context) error {
	c.nodes = nil
	for i := range c.opts.Nodes {
		n, err := newNode(ctx, c, i)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		if err := n.configure(); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		g.Go(func() error {
			if err := n.launch(); err != nil {
				return err
			}
			return n.waitReady(ctx, len(c.nodes))
		})
	}
	return g.Wait()
}

// Stop kills all nodes and removes a temporary directory. Calling it again does nothing.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		c.kill()
		if c.tempDir {
			_ = os.RemoveAll(c.dir) // A leftover in the temporary directory is not worth a failing test.
		}
	})
}

// kill does not ask: nodes that shut down in order wait for each other.
func (c *Cluster) kill() {
	for _, n := range c.nodes {
		n.Kill()
	}
}

// Dir is the directory with data and logs.
func (c *Cluster) Dir() string { return c.dir }

// Nodes is how many there are.
func (c *Cluster) Nodes() int { return len(c.nodes) }

// Node i, from 0. Its id, as Kafka has it, is i+1.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Brokers are the addresses that clients are given, host:port, one of each node.
func (c *Cluster) Brokers() []string { return c.BrokersAt(Plain) }

// BrokersAt are the addresses of another listener.
func (c *Cluster) BrokersAt(l Listener) []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.advertised[l])
	}
	return all
}

// Inside are the addresses of the listener that the nodes use among themselves: no proxy, no TLS, no SASL.
func (c *Cluster) Inside() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.address(inside))
	}
	return all
}

// Security is nil without Options.Secure.
func (c *Cluster) Security() *Security { return c.security }
