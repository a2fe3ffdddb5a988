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

// Env says what to do with a test that needs a broker: "" skips it if none is available, "require"
// fails it then, "skip" always skips it.
const Env = "KUBECDC_KAFKA"

// Listener is a listener of a node for clients.
type Listener string

// Plain is on every node, the others with Options.Secure.
const (
	Plain     Listener = "CLIENT"
	TLS       Listener = "TLS"
	MutualTLS Listener = "MUTUAL_TLS" // clients must have a certificate of the cluster's CA
	SASL      Listener = "SASL"       // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, in plain text
	SASLTLS   Listener = "SASL_TLS"   // the same mechanisms over TLS
)

// Options has the differences from one node that anyone may write to, which is the zero value.
type Options struct {
	// Nodes is the number of nodes; 0 is 1. Topics have up to three replicas. With three nodes, two
	// must have a record before it is acknowledged to acks=all.
	Nodes int

	// Properties of every node, as in server.properties. They override those of this package.
	Properties map[string]string

	// Secure adds the listeners with TLS and SASL, a CA, a user and a signer of tokens:
	// Cluster.Security.
	Secure bool

	// Advertise returns the address, host:port, that a node advertises for a listener that clients
	// may use. A test can return a proxy that it can cut. addr is the address at which the node
	// listens. Advertise is called before the node's first start, and again with other addresses if
	// another process took a port in between. If it is nil or returns "", addr is advertised.
	Advertise func(node int, listener Listener, addr string) (string, error)

	// ClusterID is sixteen bytes in base64url; "" is the same for all.
	ClusterID string

	// Dir holds data, keys and logs and is kept by Stop. Empty: a new temporary directory, removed
	// by Stop.
	Dir string

	// Output receives the progress of an installation, if there is one. Nil: os.Stderr.
	Output io.Writer

	flags []string // of the JVM
}

// Cluster is running nodes. Its methods are safe for concurrent use, except that one node must not
// be started and ended at the same time.
type Cluster struct {
	opts     Options
	in       installation
	dir      string
	tempDir  bool
	security *Security  // nil without Options.Secure
	zoo      *zooKeeper // nil if the version needs none
	nodes    []*Node
	stop     sync.Once
}

// Start runs a cluster for the duration of the test. If no broker is available, the test is
// skipped, or fails, see Env. If the test fails, its log has the ends of the nodes' logs.
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

// LogIfFailed adds the ends of the nodes' logs to the test's log when the test has ended and
// failed.
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

// Require skips or fails the test if no broker is available, see Env.
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

// New installs Kafka if necessary and starts a cluster. It returns when every node has registered
// all others and answers clients. ctx bounds the start only; the nodes run until Stop. An error
// includes the end of the log of the node that failed. Nothing is left running then.
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
		c.dir, err = os.MkdirTemp("", "kubecdc-kafka-")
		if err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
		c.tempDir = true
	}
	c.dir, err = filepath.Abs(c.dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if o.Secure && !IsPinned() {
		return nil, fmt.Errorf("a cluster of another version (%s) cannot be secure", VersionEnv)
	}
	if hasZooKeeper() {
		c.zoo, err = c.startZooKeeper(ctx)
		if err != nil {
			return nil, err
		}
	}
	if o.Secure {
		c.security, err = NewSecurity(filepath.Join(c.dir, "security"))
		if err != nil {
			return nil, err
		}
	}
	// Each node's configuration names the ports of all nodes: if one port is taken, all nodes get
	// new ones.
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
		if c.zoo != nil {
			c.zoo.child.Kill()
		}
		if c.tempDir {
			_ = os.RemoveAll(c.dir) // A leftover in the temporary directory is not worth a failed test.
		}
	})
}

// kill does not shut down in order, because nodes would wait for each other.
func (c *Cluster) kill() {
	for _, n := range c.nodes {
		n.Kill()
	}
}

// Dir returns the directory with data and logs.
func (c *Cluster) Dir() string { return c.dir }

// Nodes returns the number of nodes.
func (c *Cluster) Nodes() int { return len(c.nodes) }

// Node returns node i, from 0. Its id in Kafka is i+1.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Brokers returns the advertised addresses, host:port, one of each node.
func (c *Cluster) Brokers() []string { return c.BrokersAt(Plain) }

// BrokersAt returns the addresses of another listener.
func (c *Cluster) BrokersAt(l Listener) []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.advertised[l])
	}
	return all
}

// Inside returns the addresses of the listener that the nodes use among themselves: no proxy, no
// TLS, no SASL.
func (c *Cluster) Inside() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.address(inside))
	}
	return all
}

// Security returns nil without Options.Secure.
func (c *Cluster) Security() *Security { return c.security }
