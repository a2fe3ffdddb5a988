package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// DefaultInFlight is how many calls of Publish may be on their way at once; see NATSConfig.InFlight.
const DefaultInFlight = 1024

const (
	ackTimeout    = 5 * time.Second  // until the first attempt is made again; it doubles
	maxAckTimeout = 30 * time.Second // for each of the later ones
	apiTimeout    = 5 * time.Second  // of a call of the JetStream API
	dialTimeout   = 5 * time.Second  // of dialling, and of the handshake
	flushTimeout  = 10 * time.Second // of a write to the socket; below the agent's grace period
	pingInterval  = 20 * time.Second
	sweepInterval = 100 * time.Millisecond
)

func busyBackoff() backoff { return backoff{first: 100 * time.Millisecond, limit: 5 * time.Second} }

func raceBackoff() backoff { return backoff{first: 5 * time.Millisecond, limit: time.Second} }

func checkBackoff() backoff { return backoff{first: 100 * time.Millisecond, limit: 10 * time.Second} }

func dialBackoff() backoff { return backoff{first: 100 * time.Millisecond, limit: 5 * time.Second} }

// NATSConfig says where a NATS publisher publishes to.
type NATSConfig struct {
	URL           string // nats://host:port, several of one cluster separated by commas; what is before @ is never logged
	Cluster       string // of Kubernetes: {cluster} in subjects
	Subject       string // template, see NewSubjects; "": DefaultSubject
	Stream        Stream
	MaxEventBytes int // the largest event that will be published: stream and server must take it
	Auth          NATSAuth
	TLS           NATSTLS

	// InFlight bounds the calls of Publish that are on their way; further ones wait their turn. 0: DefaultInFlight. At
	// least the number of workers, or some will always wait.
	InFlight int
	// AckTimeout is how long the first attempt waits for its acknowledgement; further ones wait longer. 0: 5 s.
	AckTimeout time.Duration
}

// NATS publishes to a JetStream stream over one connection. See the package's documentation for how.
type NATS struct {
	cfg      NATSConfig
	log      *slog.Logger
	metrics  *Metrics
	subjects *Subjects
	acks     ackReader
	servers  string // for the log

	inbox   string
	waiters []*waiter
	free    chan *waiter // holds those that no call of Publish has; never closed

	dialer *dialer
	conn   atomic.Pointer[nats.Conn]
	gate   *gate
	closed atomic.Bool
	wake   chan struct{} // room for one: the stream is to be checked; a full one says so already. Never closed.
	window window
}

// NewNATS checks the configuration and returns a publisher that Run connects.
func NewNATS(cfg NATSConfig, log *slog.Logger, m *Metrics) (*NATS, error) {
	subjects, err := NewSubjects(cfg.Subject, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	servers, err := serversOf(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Stream.Name == "" {
		cfg.Stream.Name = DefaultStream
	}
	if strings.ContainsAny(cfg.Stream.Name, " \t\r\n.*>/\\\"") {
		return nil, fmt.Errorf("stream name %q: must not contain spaces, quotes, dots, wildcards or slashes", cfg.Stream.Name)
	}
	if cfg.Stream.DiscardOld && cfg.Stream.MaxBytes > 0 {
		return nil, fmt.Errorf("stream %s: would lose events silently as configured: discard old with maxBytes drops records that nobody may have read: set bus.nats.stream.discard to new", cfg.Stream.Name)
	}
	if cfg.InFlight <= 0 {
		cfg.InFlight = DefaultInFlight
	}
	if cfg.AckTimeout <= 0 {
		cfg.AckTimeout = ackTimeout
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	n := &NATS{
		cfg:      cfg,
		log:      log,
		metrics:  m,
		subjects: subjects,
		acks:     newAckReader(cfg.Stream.Name),
		servers:  servers,
		inbox:    nats.NewInbox(),
		waiters:  make([]*waiter, cfg.InFlight),
		free:     make(chan *waiter, cfg.InFlight),
		gate:     newGate(),
		wake:     make(chan struct{}, 1),
	}
	for i := range n.waiters {
		n.waiters[i] = newWaiter(i)
		n.free <- n.waiters[i]
	}
	return n, nil
}

// Ready returns nil while a connection stands whose stream has been checked.
func (n *NATS) Ready() error {
	if open, _ := n.gate.isOpen(); !open || n.closed.Load() {
		return fmt.Errorf("not connected to %s, or stream %s not checked yet", n.servers, n.cfg.Stream.Name)
	}
	return nil
}

// Publish implements Publisher. It waits for Run to have connected.
func (n *NATS) Publish(ctx context.Context, ev *encode.Event) error {
	w, err := n.acquire(ctx)
	if err != nil {
		return err
	}
	defer n.release(w)
	w.load(n, ev)
	timeouts, busy := 0, 0
	for attempt := uint64(1); ; attempt++ {
		if err := n.gate.wait(ctx); err != nil {
			return err
		}
		if n.closed.Load() {
			return ErrClosed
		}
		o := n.try(ctx, w, attempt, timeouts)
		switch o.kind {
		case acked:
			if o.duplicate {
				n.metrics.duplicates.Inc()
			}
			return nil
		case refused:
			return fmt.Errorf("publish %s to %s: %w: %s", ev.ID, w.subject, ErrRefused, o.detail)
		case ended:
			if n.closed.Load() {
				return ErrClosed
			}
			return context.Cause(ctx)
		case retry:
		}
		n.noteRetry(w, ev, attempt, &o)
		delay := busyBackoff()
		switch o.reason {
		case reasonTimeout:
			timeouts++
			continue // it has waited enough
		case reasonConnection:
			if open, _ := n.gate.isOpen(); !open {
				busy = 0
				continue // the gate holds it until the connection stands
			}
			delay = raceBackoff() // the connection is gone, but the gate is not shut yet
		}
		busy++
		if err := sleep(ctx, delay.delay(busy)); err != nil {
			return err
		}
	}
}

func (n *NATS) acquire(ctx context.Context) (*waiter, error) {
	select {
	case w := <-n.free:
		return w, nil
	default:
	}
	select {
	case w := <-n.free:
		return w, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (n *NATS) release(w *waiter) {
	w.msg.Data = nil
	n.free <- w // there is room for all
}

// try sends the message once and waits for what becomes of it.
func (n *NATS) try(ctx context.Context, w *waiter, attempt uint64, timeouts int) outcome {
	if attempt > 1 {
		w.msg.Reply = string(w.appendReply(nil, n.inbox, attempt))
	}
	// A server that is slow, with a stalled disk say, must not get all messages again and again.
	timeout := min(n.cfg.AckTimeout<<min(timeouts, 10), max(maxAckTimeout, n.cfg.AckTimeout))
	w.arm(ctx, attempt, timeout)
	err := n.conn.Load().PublishMsg(&w.msg)
	w.sent()
	if err != nil {
		if o, ok := w.disarm(); ok && o.kind == acked {
			return o
		}
		return n.sendError(err)
	}
	select {
	case o := <-w.done:
		return o
	case <-ctx.Done():
		if o, ok := w.disarm(); ok && o.kind == acked {
			return o
		}
		return outcome{kind: ended}
	}
}

// sendError tells what an error of PublishMsg means.
func (n *NATS) sendError(err error) outcome {
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return outcome{kind: refused, detail: err.Error()}
	case errors.Is(err, nats.ErrConnectionClosed) && n.closed.Load():
		return outcome{kind: ended}
	}
	return outcome{reason: reasonConnection, detail: err.Error()}
}

// noteRetry counts, logs the first of its kind in each window, and asks for a look at the stream where it may be gone.
func (n *NATS) noteRetry(w *waiter, ev *encode.Event, attempt uint64, o *outcome) {
	n.metrics.retries.WithLabelValues(o.reason).Inc()
	level, advice := slog.LevelWarn, "none: it is retried until the bus has it"
	switch o.reason {
	case reasonConnection:
		return // connection state is logged where it changes
	case reasonNoResponders:
		n.requestCheck()
	case reasonStreamFull, reasonLimit:
		level, advice = slog.LevelError, "the stream is full, events wait: raise its limits or shorten its max_age"
	case reasonOtherStream:
		level, advice = slog.LevelError, "another stream takes the subject: see that only one does"
	}
	if suppressed, ok := n.window.first(o.reason); ok {
		n.log.Log(context.Background(), level, "event is published again", "reason", o.reason, "advice", advice, "detail", o.detail,
			"stream", n.cfg.Stream.Name, "event_id", string(ev.ID), "subject", w.subject, "attempt", attempt,
			"suppressed", suppressed)
	}
}

// Run connects, checks the stream, creates it where told to, and keeps the connection until ctx ends; then it returns
// nil. A bus that is not there yet is no error: Run says so and goes on trying. It returns an error that wraps ErrStream
// where the stream would lose events silently, and another where credentials or certificates cannot be read.
//
// End ctx only after the last call of Publish has returned: those that have not then return ErrClosed. Call it once.
func (n *NATS) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	n.dialer = &dialer{ctx: ctx, timeout: dialTimeout}
	gone := make(chan struct{}) // closed by nats.go's last callback
	options, err := n.options(gone)
	if err != nil {
		n.shutdown()
		return err
	}
	g.Go(func() error { return n.sweep(ctx) })
	g.Go(func() error {
		// Everything below may stand in a socket: this is what frees it.
		<-ctx.Done()
		n.closed.Store(true) // so that it is not taken for a loss
		n.dialer.Break()
		return nil
	})
	g.Go(func() error {
		nc, err := nats.Connect(n.cfg.URL, options...)
		if err != nil {
			n.shutdown()
			return fmt.Errorf("connect to %s: %w", n.servers, withoutURL(err))
		}
		defer func() {
			n.shutdown()
			n.dialer.Break() // or Close may wait for a socket
			nc.Close()
			<-gone
			n.shutdown() // for those that began to wait in between
		}()
		return n.supervise(ctx, nc, gone)
	})
	return g.Wait()
}

// supervise checks the stream whenever asked to, and opens the gate when it is in order.
func (n *NATS) supervise(ctx context.Context, nc *nats.Conn, gone <-chan struct{}) error {
	if _, err := nc.Subscribe(n.inbox+".*", n.onAck); err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	n.conn.Store(nc)
	if !nc.IsConnected() {
		if _, ok := n.window.first("reconnect"); ok {
			n.log.Warn("bus cannot be reached yet, trying on", "servers", n.servers, "err", errText(n.dialer.why(nc.LastError())))
		}
	}
	for failures := 0; ; {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return nil
		case <-gone:
			return fmt.Errorf("connection to %s closed: %w", n.servers, nc.LastError())
		}
		_, epoch := n.gate.isOpen()
		if !nc.IsConnected() {
			continue // whoever reconnects wakes us
		}
		switch err := n.check(ctx, nc, js); {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
			if n.gate.unlock(epoch) {
				n.metrics.connected.Set(1)
				n.log.Info("connected to bus", "server", nc.ConnectedAddr(), "stream", n.cfg.Stream.Name)
			}
		case errors.Is(err, ErrStream):
			return err
		default:
			failures++
			if suppressed, ok := n.window.first("check"); ok {
				n.log.Warn("stream cannot be checked, trying on", "stream", n.cfg.Stream.Name, "err", errText(err),
					"suppressed", suppressed)
			}
			if sleep(ctx, checkBackoff().delay(failures)) != nil {
				return nil
			}
			n.requestCheck()
		}
	}
}

// check looks at server and stream.
func (n *NATS) check(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	if !nc.HeadersSupported() {
		return fmt.Errorf("%w: server %s does not know headers: it must be nats-server 2.2 or later", ErrStream, nc.ConnectedServerVersion())
	}
	if need := n.cfg.MaxEventBytes + headRoom; nc.MaxPayload() < int64(need) {
		return fmt.Errorf("%w: the server's max_payload is %d bytes, and an event may need %d: raise it, or lower event.maxBytes", ErrStream, nc.MaxPayload(), need)
	}
	return n.stream(ctx, js)
}

func (n *NATS) requestCheck() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// sweep ends attempts whose acknowledgement is overdue, and frees calls that cannot see the end of their ctx.
func (n *NATS) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if len(n.free) == len(n.waiters) {
				continue
			}
			stuck := false
			for _, w := range n.waiters {
				stuck = w.check(now) || stuck
			}
			if stuck {
				// Its socket write has blocked, or somebody else's that holds the connection's lock. All on the
				// connection try again after the reconnect, under the same ids.
				n.dialer.Break()
			}
		}
	}
}

// onAck runs in the one goroutine of the subscription. It does not block.
func (n *NATS) onAck(m *nats.Msg) {
	index, call, attempt, ok := parseReply(m.Subject[len(n.inbox)+1:])
	if !ok || index >= len(n.waiters) {
		return
	}
	n.waiters[index].answer(call, attempt, n.acks.read(m))
}

// onDown runs in nats.go's callback goroutine, after the connection broke. All that wait for an acknowledgement try
// again. That may be too many: the callback may be late, and some may have been sent on the next connection already.
// It costs a copy, which carries the same id.
func (n *NATS) onDown(_ *nats.Conn, err error) {
	if n.gate.shut() && !n.closed.Load() {
		n.metrics.connected.Set(0)
		n.log.Warn("connection to bus lost, reconnecting", "servers", n.servers, "err", errText(err))
	}
	for _, w := range n.waiters {
		w.fail(outcome{reason: reasonConnection, detail: "connection lost"})
	}
}

// shutdown lets every call of Publish return ErrClosed.
func (n *NATS) shutdown() {
	n.closed.Store(true)
	n.metrics.connected.Set(0)
	n.gate.end()
	for _, w := range n.waiters {
		w.fail(outcome{kind: ended})
	}
}

// sleep waits, and returns the cause of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
