package kafka_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/suite"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(8); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(suite.Tests(func() int {
		defer build.Remove()
		defer lasting.stop()
		defer mortal.stop()
		return m.Run()
	}))
}

// The clusters that tests share. Each test has its own topics.
var (
	// lasting is one node that no test stops. Plain is behind a proxy that one test cuts; the other
	// tests use Cluster.Inside.
	lasting = &shared{proxied: true}

	// mortal has NODES nodes. Tests kill, stop and pause them, one test at a time.
	mortal = &shared{nodes: os.Getenv("NODES")}
)

// shared is a cluster that is started by the first test that needs it. It runs until all tests have
// ended.
type shared struct {
	nodes   string // "": one
	proxied bool

	once    sync.Once
	cluster *kafka.Cluster
	err     error
	proxy   *proxy.Proxy // between clients and Plain
	plain   string       // the address behind the proxy
	serving errgroup.Group
	cancel  context.CancelFunc

	held sync.Mutex
}

// get returns the cluster. If the test fails, the ends of the nodes' logs are in its log.
func (s *shared) get(t *testing.T) *kafka.Cluster {
	t.Helper()
	needsBroker(t)
	s.once.Do(s.start)
	if s.err != nil {
		t.Fatal(s.err)
	}
	s.cluster.LogIfFailed(t)
	return s.cluster
}

// hold is get for one test at a time. It starts the nodes that an earlier test left stopped or
// paused.
func (s *shared) hold(t *testing.T) *kafka.Cluster {
	t.Helper()
	needsBroker(t)
	s.held.Lock()
	t.Cleanup(s.held.Unlock)
	c := s.get(t)
	for i := range c.Nodes() {
		if n := c.Node(i); n.Continue() != nil {
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// holdOne is hold for tests of one node.
func (s *shared) holdOne(t *testing.T) *kafka.Cluster {
	t.Helper()
	if nodes(t) > 1 {
		return kafka.Start(t, kafka.Options{Secure: kafka.IsPinned()})
	}
	return s.hold(t)
}

func needsBroker(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a Kafka broker, which takes seconds")
	}
	kafka.Require(t)
}

func (s *shared) start() {
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	o := kafka.Options{Secure: kafka.IsPinned()}
	o.Nodes, s.err = strconv.Atoi(orElse(s.nodes, "1"))
	if s.err != nil {
		return
	}
	if s.proxied {
		o.Advertise = func(_ int, l kafka.Listener, addr string) (string, error) {
			if l != kafka.Plain {
				return "", nil
			}
			p, err := proxy.Listen(addr)
			if err != nil {
				return "", err
			}
			s.proxy, s.plain = p, addr
			s.serving.Go(func() error { return p.Run(ctx) })
			return p.Addr(), nil
		}
	}
	s.cluster, s.err = kafka.New(ctx, o)
}

func (s *shared) stop() {
	if s.cluster != nil {
		s.cluster.Stop()
	}
	if s.cancel != nil {
		s.cancel()
		_ = s.serving.Wait() // A proxy that failed has failed its test.
	}
}
