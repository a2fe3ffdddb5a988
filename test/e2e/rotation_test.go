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
)

// TestRotation replaces authority and certificates of both sides while records are on their way, with a new authority that
// does not know the one before, and cuts all connections.
func TestRotation(t *testing.T) {
	slow(t)
	t.Parallel()
	p := sharedPlane(t)
	// rotating rotates until ctx ends; whoever is the server has to see the new certificates before the next rotation.
	rotating := func(c *certificates, cut func()) func(context.Context) error {
		return func(ctx context.Context) error {
			for ctx.Err() == nil {
				pass(ctx, 500*time.Millisecond)
				if err := c.rotate(); err != nil {
					return err
				}
				cut()
				err := await(ctx, 30*time.Second, func() error {
					if c.handshakes.Load() == 0 {
						return errors.New("no connection with the new certificates")
					}
					return nil
				})
				if err != nil {
					return ignoreEnd(ctx, err) // Behind the last record nobody needs a connection.
				}
			}
			return nil
		}
	}
	enough := func(c *certificates) func() bool { return func() bool { return c.generation.Load() > 4 } }
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		c := newCertificates(t)
		o := busOptions(server.RANDOM_PORT, t.TempDir())
		o.TLSConfig, o.TLSTimeout = c.config(), 5
		s := startServer(t, o)
		via := runProxy(t, hostPort(s.ClientURL()))
		b := &bus{URL: "tls://" + via.Addr(), more: c.yaml(), options: []nats.Option{
			// The test reads inside the process, over a connection that nobody cuts.
			nats.InProcessServer(s), nats.RootCAs(c.CAFile), nats.ClientCert(c.CertFile, c.KeyFile),
		}}
		run := &busTruth{To: b, Namespace: "rotation-nats", Revisions: revisions(4_000), Trouble: rotating(c, via.Cut), Enough: enough(c)}
		run.run(t, p)
		t.Logf("%d generations of certificates", c.generation.Load())
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		c := newCertificates(t)
		h := startReceiver(t, c.config())
		via := runProxy(t, hostPort(h.URL))
		h.URL, h.more = "https://"+via.Addr(), c.yaml()
		run := &busTruth{To: h, Namespace: "rotation-http", Revisions: revisions(4_000), Trouble: rotating(c, via.Cut), Enough: enough(c)}
		run.run(t, p)
		t.Logf("%d generations of certificates", c.generation.Load())
	})
}

// TestKafkaRotation is TestRotation for Kafka, whose brokers take up new files when they are started again.
func TestKafkaRotation(t *testing.T) {
	slow(t)
	k := startKafka(t, kafka.Options{Nodes: kafkaNodes(t), Secure: true})
	sec := k.Security()
	k.brokers = k.BrokersAt(kafka.MutualTLS)
	c := &certificates{CAFile: sec.CAFile, CertFile: sec.CertFile, KeyFile: sec.KeyFile}
	k.more = c.yaml()
	var rotations atomic.Int64
	run := &busTruth{
		To: k, Namespace: "rotation-kafka", Revisions: revisions(4_000),
		Enough: func() bool { return rotations.Load() >= 3 },
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
				if err := k.WaitInSync(ctx, k.topic); err != nil {
					return ignoreEnd(ctx, err)
				}
				pass(ctx, time.Second)
			}
			return nil
		},
	}
	if got := run.run(t, sharedPlane(t)); got.Duplicates > 0 {
		t.Errorf("%d duplicates, of a producer that is idempotent", got.Duplicates)
	}
	t.Logf("%d rotations", rotations.Load())
}
