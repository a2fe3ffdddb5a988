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

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

const (
	ackTimeout    = 5 * time.Second  // until an unanswered attempt is made again; it doubles
	maxAckTimeout = 30 * time.Second // for each of the later ones
	flushTimeout  = 10 * time.Second // of a write to the socket; below the agent's grace period
	pingInterval  = 20 * time.Second
	sweepInterval = 100 * time.Millisecond
)

const defaultInbox = "_INBOX" // nats.InboxPrefix without its dot

func raceBackoff() publish.Backoff {
	return publish.Backoff{First: 5 * time.Millisecond, Limit: time.Second}
}

func checkBackoff() publish.Backoff {
	return publish.Backoff{First: 100 * time.Millisecond, Limit: 10 * time.Second}
}

func dialBackoff() publish.Backoff {
	return publish.Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second}
}

// Bus publishes to a JetStream stream. See the package's documentation for how.
type Bus struct {
	cfg      Config
	log      *slog.Logger
	metrics  *publish.Metrics
	subjects *subject.Template
	acks     ackReader
	servers  string      // for the log
	inbox    string      // prefix of the subjects of acknowledgements
	dead     string      // subject of dead letters; "": none
	deadOff  atomic.Bool // the stream does not take it

	fence  *publish.Fencing
	table  *table
	link   *link
	dialer *dialer
	conn   atomic.Pointer[nats.Conn]
	closed atomic.Bool            // Run ends: nothing is a loss any more
	why    atomic.Pointer[string] // why there is no connection, or no stream; nil: not known, or there is
	window publish.Window

	logs      *publish.Logs // of the one stream
	tail      *publish.Tail // its end
	lookAgain bool          // soon, at the identity of the stream; of supervise's goroutine

	wake   chan struct{}          // room for one: the stream is to be checked; a full one says so already. Never closed.
	renew  chan struct{}          // room for one: the connection must be made anew, with other credentials. Never closed.
	seedOf atomic.Pointer[string] // public key of the seed that the connection uses; "": it uses none
}

// New checks the configuration and returns a Bus that Run connects.
func New(cfg Config, log *slog.Logger, m *publish.Metrics) (*Bus, error) {
	subjects, err := subject.New(cfg.Subject, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	servers, err := serversOf(cfg.URL)
	if err != nil {
		return nil, err
	}
	if err := cfg.Auth.valid(); err != nil {
		return nil, err
	}
	cfg.Key = cmp.Or(cfg.Key, "bus.nats")
	cfg.InboxPrefix = cmp.Or(cfg.InboxPrefix, defaultInbox)
	cfg.Stream.Name = cmp.Or(cfg.Stream.Name, DefaultStream)
	if strings.ContainsAny(cfg.Stream.Name, " \t\r\n.*>/\\\"") {
		return nil, fmt.Errorf("stream name %q: must not contain spaces, quotes, dots, wildcards or slashes", cfg.Stream.Name)
	}
	if cfg.Stream.Discard == DiscardOld && cfg.Stream.MaxBytes > 0 {
		return nil, fmt.Errorf("stream %s: would lose events silently as configured: discard old with maxBytes drops records that nobody may have read: set %s.stream.discard to new", cfg.Stream.Name, cfg.Key)
	}
	if cfg.AckTimeout <= 0 {
		cfg.AckTimeout = ackTimeout
	}
	if m == nil {
		m = publish.NewMetrics(nil)
	}
	b := &Bus{
		cfg:      cfg,
		log:      log,
		metrics:  m,
		subjects: subjects,
		acks:     newAckReader(cfg.Stream.Name, cfg.Domain),
		servers:  servers,
		inbox:    cfg.InboxPrefix + "." + nuid.Next(),
		fence:    publish.NewFencing(cfg.Fence),
		table:    newTable(),
		link:     newLink(),
		logs:     publish.NewLogs(func(string, *object.Resource, string) bool { return true }),
		wake:     make(chan struct{}, 1),
		renew:    make(chan struct{}, 1),
	}
	b.tail = b.logs.Tail(cfg.Stream.Name, 0)
	if cfg.DeadLetter != "" {
		if b.dead, err = DeadLetterSubject(cfg.DeadLetter, cfg.Cluster); err != nil {
			return nil, err
		}
		if p := subjects.Patterns(); anyCovers(p, b.dead) {
			return nil, fmt.Errorf("dead-letter subject %q: is one of the events' own (%s): consumers of those would get it: name another one", cfg.DeadLetter, strings.Join(p, ", "))
		}
	}
	return b, nil
}

// Logs compares the stream with what is remembered of it.
func (b *Bus) Logs() *publish.Logs { return b.logs }

// Ready returns nil while a connection stands whose stream has been checked. Its error says what prevents that, and what to do about it.
func (b *Bus) Ready() error {
	if b.link.up.Load() {
		return nil
	}
	if why := b.why.Load(); why != nil {
		return fmt.Errorf("not connected to %s: %s", b.servers, *why)
	}
	return fmt.Errorf("not connected to %s, or stream %s not checked yet", b.servers, b.cfg.Stream.Name)
}
