package nats

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	ackTimeout    = 5 * time.Second  // before an unanswered attempt is repeated; it doubles
	maxAckTimeout = 30 * time.Second // limit for each later attempt
	flushTimeout  = 10 * time.Second // of a write to the socket; less than the agent's grace period
	sweepInterval = 100 * time.Millisecond
	// idleSweepInterval is the interval while nothing is in flight. It is less than ackTimeout, so
	// that the first attempt that is overdue is found in time.
	idleSweepInterval = time.Second
)

func raceBackoff() publish.Backoff {
	return publish.Backoff{First: 5 * time.Millisecond, Limit: time.Second}
}

func checkBackoff() publish.Backoff {
	return publish.Backoff{First: 100 * time.Millisecond, Limit: 10 * time.Second}
}

// Config is the settings of the bus.
type Config = natsconfig.Config

// Opener makes writers and readers of settings.
type Opener struct{ *Config }

// Open implements driver.Opener.
func (o Opener) Open(e *driver.Env) (publish.Bus, error) {
	cfg := *o.Config
	cfg.Env, cfg.DeadLetterOptional = *e, e.DeadLetter == natsconfig.DefaultDeadSubject
	return New(cfg, e.Log, e.Metrics)
}

// Bus publishes to a JetStream stream. The package documentation describes how.
type Bus struct {
	cfg      Config
	log      *slog.Logger
	metrics  *publish.Metrics
	subjects *subject.Template
	acks     ackReader
	servers  string      // for the log
	inbox    string      // prefix of the subjects of acknowledgements
	dead     string      // subject of dead letters; "" without one
	deadOff  atomic.Bool // the stream does not accept the subject

	transformed atomic.Bool // the stream stores records under other subjects
	loses       atomic.Bool // the server may lose records of the stream if it is full

	// limits of the server and of the stream for a message, in bytes; below 1: none, or not known
	maxPayload, maxMsgSize atomic.Int64

	fence  *publish.Fencing
	table  *table
	link   *link
	dialer *dialer
	conn   atomic.Pointer[nats.Conn]
	closed atomic.Bool            // Run is ending: a closed connection is not a loss
	why    atomic.Pointer[string] // why there is no connection or no stream; nil if unknown or if there is one
	window publish.Window

	logs      *publish.Logs // of the one stream
	tail      *publish.Tail // its end
	lookAgain bool          // read the identity of the stream again soon; only supervise's goroutine uses it
	accepted  bool          // the server and the stream have passed a check; only supervise's goroutine uses it

	wake   publish.Signal         // requests a check of the stream
	renew  publish.Signal         // requests a new connection with other credentials
	seedOf atomic.Pointer[string] // public key of the seed that the connection uses; "" without a seed
}

// New returns a bus for valid settings. Run connects it.
func New(cfg Config, log *slog.Logger, m *publish.Metrics) (*Bus, error) {
	subjects, err := subject.New(cfg.Subject, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	servers, err := serversOf(cfg.URL)
	if err != nil {
		return nil, err
	}
	cfg.Key = cmp.Or(cfg.Key, "bus.nats")
	cfg.InboxPrefix = cmp.Or(cfg.InboxPrefix, natsconfig.DefaultInbox)
	cfg.Stream.Name = cmp.Or(cfg.Stream.Name, natsconfig.DefaultStream)
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, ackTimeout)
	b := &Bus{
		cfg:      cfg,
		log:      log,
		metrics:  cmp.Or(m, publish.NewMetrics(nil)),
		subjects: subjects,
		acks:     newAckReader(cfg.Stream.Name, cfg.Domain),
		servers:  servers,
		inbox:    cfg.InboxPrefix + "." + nuid.Next(),
		fence:    publish.NewFencing(cfg.Fence),
		table:    newTable(),
		link:     newLink(),
		logs:     publish.NewLogs(func(string, *object.Resource, string) bool { return true }),
		wake:     publish.NewSignal(),
		renew:    publish.NewSignal(),
	}
	b.tail = b.logs.Tail(cfg.Stream.Name, 0)
	if cfg.DeadLetter != "" {
		b.dead, err = natsconfig.DeadLetterSubject(cfg.DeadLetter, cfg.Cluster)
		if err != nil {
			return nil, err
		}
		if p := subjects.Patterns(); anyCovers(p, b.dead) {
			return nil,
				fmt.Errorf(
					"dead-letter subject %q: is a subject of events (%s), whose consumers would get dead letters: use another",
					cfg.DeadLetter, strings.Join(p, ", "))
		}
	}
	return b, nil
}

// Logs returns the logs that compare the stream with its recorded identity.
func (b *Bus) Logs() *publish.Logs { return b.logs }

// Ready returns nil while a connection is up whose stream has been checked. Its error names the
// cause and the fix.
func (b *Bus) Ready() error {
	if b.link.up.Load() {
		return nil
	}
	if why := b.why.Load(); why != nil {
		return fmt.Errorf("not connected to %s: %s", b.servers, *why)
	}
	return fmt.Errorf("not connected to %s, or stream %s not checked yet", b.servers, b.cfg.Stream.Name)
}

func (b *Bus) opener() Opener { return Opener{&b.cfg} }
