package e2e_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestRotation replaces the authority and the certificates of both sides while records are sent,
// and cuts all connections. The new authority is unrelated to the previous one.
func TestRotation(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	// rotating rotates until ctx ends. The server must use the new certificates before the next
	// rotation.
	rotating := func(c *world.Certificates, cut func()) func(context.Context) error {
		return func(ctx context.Context) error {
			for ctx.Err() == nil {
				world.Pass(ctx, 500*time.Millisecond)
				if err := c.Rotate(); err != nil {
					return err
				}
				cut()
				err := wait.For(ctx, 30*time.Second, func() error {
					if c.Handshakes.Load() == 0 {
						return errors.New("no connection with the new certificates")
					}
					return nil
				})
				if err != nil {
					return world.IgnoreEnd(ctx, err) // After the last record, no connection is needed.
				}
			}
			return nil
		}
	}
	enough := func(c *world.Certificates) func() bool { return func() bool { return c.Generation.Load() > 4 } }
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		c := world.NewCertificates(t)
		o := world.BusOptions(server.RANDOM_PORT, t.TempDir())
		o.TLSConfig, o.TLSTimeout = c.Config(), 5
		s := world.StartServer(t, o)
		via := world.RunProxy(t, world.HostPort(s.ClientURL()))
		b := &world.Bus{URL: "tls://" + via.Addr(), More: c.YAML(), Options: []nats.Option{
			// The test reads in-process, over a connection that is never cut.
			nats.InProcessServer(s), nats.RootCAs(c.CAFile), nats.ClientCert(c.CertFile, c.KeyFile),
		}}
		run := &busTruth{
			To:        b,
			Namespace: "rotation-nats",
			Revisions: revisions(4_000),
			Trouble:   rotating(c, via.Cut),
			Enough:    enough(c),
		}
		run.run(t, p)
		t.Logf("%d generations of certificates", c.Generation.Load())
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		c := world.NewCertificates(t)
		h := world.StartReceiver(t, c.Config())
		via := world.RunProxy(t, world.HostPort(h.URL))
		h.URL, h.More = "https://"+via.Addr(), c.YAML()
		run := &busTruth{
			To:        h,
			Namespace: "rotation-http",
			Revisions: revisions(4_000),
			Trouble:   rotating(c, via.Cut),
			Enough:    enough(c),
		}
		run.run(t, p)
		t.Logf("%d generations of certificates", c.Generation.Load())
	})
}

// TestKafkaRotation is TestRotation for Kafka, whose brokers load new files when they are
// restarted.
func TestKafkaRotation(t *testing.T) {
	slow(t)
	k := world.StartKafka(t, kafka.Options{Nodes: world.KafkaNodes(t), Secure: true})
	sec := k.Security()
	k.Brokers = k.BrokersAt(kafka.MutualTLS)
	c := &world.Certificates{CAFile: sec.CAFile, CertFile: sec.CertFile, KeyFile: sec.KeyFile}
	k.More = c.YAML()
	var rotations atomic.Int64
	run := &busTruth{
		To: k, Namespace: "rotation-kafka", Revisions: revisions(4_000),
		Enough: func() bool { return rotations.Load() >= size[int64](2, 2, 3) },
		Trouble: func(ctx context.Context) error {
			for ctx.Err() == nil {
				if err := sec.Renew(); err != nil {
					return err
				}
				for i := range k.Nodes() {
					k.Node(i).Kill()
					if err := k.Node(i).Start(context.WithoutCancel(ctx)); err != nil {
						return err
					}
				}
				rotations.Add(1)
				if err := k.WaitInSync(ctx, k.Topic); err != nil {
					return world.IgnoreEnd(ctx, err)
				}
				world.Pass(ctx, time.Second)
			}
			return nil
		},
	}
	if got := run.run(t, world.SharedPlane(t)); got.Duplicates > 0 {
		oracle.Fail(t, "%d duplicates, of a producer that is idempotent", got.Duplicates)
	}
	t.Logf("%d rotations", rotations.Load())
}
