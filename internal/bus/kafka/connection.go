package kafka

import (
	"context"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaid"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/versions"
)

// newNetwork returns the connections of b to its brokers.
func newNetwork(b *Bus) *kafkanet.Network {
	o := kafkanet.Options{
		ClientID:   clientID,
		Dial:       dialer(b.cfg.TLS, b.cfg.SASL),
		Mechanism:  mechanismOf(b.cfg.SASL),
		OnThrottle: b.noteThrottle,
		OnVersions: b.noteVersions,
	}
	if b.fence != nil {
		o.Guard = func(c net.Conn) kafkanet.Guard { return guarded{b.fence.Guard(c, false)} }
	}
	return kafkanet.New(o)
}

// guarded is a publish.Guard as a kafkanet.Guard.
type guarded struct{ *publish.Guard }

// Carry implements kafkanet.Guard.
func (g guarded) Carry(records bool) { g.Carries.Store(records) }

// Refused implements kafkanet.Guard.
func (g guarded) Refused() error {
	if g.Broke.Load() {
		return publish.ErrShut
	}
	return nil
}

// dialer returns the dial function for all brokers, configured or discovered. It reads the files of
// t for each connection.
func dialer(t *publish.TLS, s *kafkaconfig.SASL) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: publish.DialTimeout, KeepAlive: 15 * time.Second}
	if s.InPlaintext(t) {
		return publish.LoopbackOnly(d.DialContext)
	}
	return t.Dialer(d.DialContext)
}

// NewDialer returns a dialler for readers, with the TLS and the SASL of cfg.
func NewDialer(cfg *Config) (*kafka.Dialer, error) {
	if _, err := cfg.TLS.Config(); err != nil {
		return nil, err
	}
	// The field TLS is fixed; DialFunc reads the files for each connection.
	return &kafka.Dialer{
		ClientID:      clientID,
		Timeout:       2 * publish.DialTimeout,
		DialFunc:      dialer(cfg.TLS, cfg.SASL),
		SASLMechanism: mechanismOf(cfg.SASL),
	}, nil
}

// noteVersions logs, once, that a broker is older than all versions that the tests run with.
func (b *Bus) noteVersions(addr string, newest map[protocol.ApiKey]int16) {
	if kafkaid.Reports(newest) || b.old.Swap(true) {
		return
	}
	tested := versions.Kafka()
	b.log.Warn("the broker is older than all versions that the tests run with", "broker", addr, "version",
		versions.OldKafka,
		"tested", tested.Range(), "required", tested.Required, "advice", "see docs/reference/compatibility.md")
}

// noteThrottle counts a pause that a broker names because of a quota. It logs the first of each
// minute.
func (b *Bus) noteThrottle(addr string, until time.Time, added time.Duration) {
	b.metrics.Throttled.Add(added.Seconds())
	if suppressed, ok := b.window.First("throttled"); ok {
		b.log.Warn("a broker limits the agent by a quota: nothing is sent to it for a while", "broker", addr,
			"pause", time.Until(until).Round(time.Millisecond), "advice",
			"if events wait for long, raise the quota of the agent's user or client id",
			"client_id", clientID, "suppressed", suppressed)
	}
}

// Throttled implements driver.Throttler.
func (b *Bus) Throttled() (by string, until time.Time) {
	for addr, end := range b.conns.Pauses() {
		if end.After(until) {
			by, until = "a quota of broker "+addr, end
		}
	}
	return by, until
}
