package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

// DefaultInFlight is how many calls of Publish may be on their way at once; see NATSConfig.InFlight.
const DefaultInFlight = 1024

const (
	ackTimeout    = 5 * time.Second  // until the first attempt is made again; it doubles
	maxAckTimeout = 30 * time.Second // for each of the later ones
	flushTimeout  = 10 * time.Second // of a write to the socket; below the agent's grace period
	pingInterval  = 20 * time.Second
	sweepInterval = 100 * time.Millisecond
)

const defaultInbox = "_INBOX" // nats.InboxPrefix without its dot

// BusyBackoff is that of a bus that does not take an event now.
func BusyBackoff() Backoff { return Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second} }

func raceBackoff() Backoff { return Backoff{First: 5 * time.Millisecond, Limit: time.Second} }

func checkBackoff() Backoff { return Backoff{First: 100 * time.Millisecond, Limit: 10 * time.Second} }

func dialBackoff() Backoff { return Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second} }

// NATSConfig says where a NATS publisher publishes to.
type NATSConfig struct {
	URL           string // nats://host:port, several of one cluster separated by commas; what is before @ is never logged
	Cluster       string // of Kubernetes: {cluster} in subjects
	Subject       string // template, see NewSubjects; "": DefaultSubject
	Stream        Stream
	MaxEventBytes int // the largest event that will be published: stream and server must take it
	Auth          NATSAuth
	TLS           *TLS // nil: as the URL's scheme and the server ask for, with the system's authorities

	InboxPrefix string // of the subjects of acknowledgements and answers, without the final dot; "": _INBOX
	Domain      string // the JetStream domain that has the stream; "": that of the server

	// DeadLetter is the subject of dead letters, a template with {cluster} as its only placeholder; "": there are none.
	DeadLetter string
	// DeadLetterOptional: a stream that exists and does not take DeadLetter is used without. Else it is refused.
	DeadLetterOptional bool

	// Key is where the configuration describes this bus, for advice: "" is "bus.nats".
	Key string
	// FullAdvice is what to do when the stream is full, in place of the general advice.
	FullAdvice string

	// Fence is asked before each message, and before each write of one to the socket. nil: everything passes.
	Fence Fence

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
	subjects *subject.Template
	acks     ackReader
	servers  string      // for the log
	dead     string      // subject of dead letters; "": none
	deadOff  atomic.Bool // the stream does not take it

	inbox   string
	Waiters []*waiter
	free    chan *waiter // holds those that no call of Publish has; never closed

	dialer *dialer
	conn   atomic.Pointer[nats.Conn]
	gate   *gate
	fence  *Fencing
	closed atomic.Bool
	why    atomic.Pointer[string] // why there is no connection, or no stream; nil: not known, or there is
	logs   *Logs                  // of the one stream
	tail   *Tail                  // its end

	lookAgain bool // soon, at the identity of the stream; of supervise's goroutine

	renew chan struct{} // room for one: the connection must be made anew, with other credentials. Never closed.

	seedOf atomic.Pointer[string] // public key of the seed that the connection uses; "": it uses none

	quarantine *quarantine
	wake       chan struct{} // room for one: the stream is to be checked; a full one says so already. Never closed.
	window     Window
}

// NewNATS checks the configuration and returns a publisher that Run connects.
func NewNATS(cfg NATSConfig, log *slog.Logger, m *Metrics) (*NATS, error) {
	subjects, err := subject.New(cfg.Subject, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	servers, err := serversOf(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Key == "" {
		cfg.Key = "bus.nats"
	}
	if err := cfg.Auth.valid(); err != nil {
		return nil, err
	}
	cfg.InboxPrefix = cmp.Or(cfg.InboxPrefix, defaultInbox)
	if cfg.Stream.Name == "" {
		cfg.Stream.Name = DefaultStream
	}
	if strings.ContainsAny(cfg.Stream.Name, " \t\r\n.*>/\\\"") {
		return nil, fmt.Errorf("stream name %q: must not contain spaces, quotes, dots, wildcards or slashes", cfg.Stream.Name)
	}
	if cfg.Stream.DiscardOld && cfg.Stream.MaxBytes > 0 {
		return nil, fmt.Errorf("stream %s: would lose events silently as configured: discard old with maxBytes drops records that nobody may have read: set %s.stream.discard to new", cfg.Stream.Name, cfg.Key)
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
		acks:     newAckReader(cfg.Stream.Name, cfg.Domain),
		servers:  servers,
		inbox:    cfg.InboxPrefix + "." + nuid.Next(),
		Waiters:  make([]*waiter, cfg.InFlight),
		free:     make(chan *waiter, cfg.InFlight),
		gate:     newGate(),
		fence:    NewFencing(cfg.Fence),
		wake:     make(chan struct{}, 1),
		renew:    make(chan struct{}, 1),

		quarantine: newQuarantine(),
	}
	n.logs = NewLogs(func(string, *object.Resource, string) bool { return true })
	n.tail = n.logs.Tail(cfg.Stream.Name, 0)
	if cfg.DeadLetter != "" {
		if n.dead, err = DeadLetterSubject(cfg.DeadLetter, cfg.Cluster); err != nil {
			return nil, err
		}
		if p := subjects.Patterns(); anyCovers(p, n.dead) {
			return nil, fmt.Errorf("dead-letter subject %q: is one of the events' own (%s): consumers of those would get it: name another one", cfg.DeadLetter, strings.Join(p, ", "))
		}
	}
	for i := range n.Waiters {
		n.Waiters[i] = newWaiter(i)
		n.free <- n.Waiters[i]
	}
	return n, nil
}

// Ready returns nil while a connection stands whose stream has been checked. Its error says what keeps it from that, and
// what to do about it.
func (n *NATS) Ready() error {
	if open, _ := n.gate.isOpen(); !open || n.closed.Load() {
		if why := n.why.Load(); why != nil {
			return fmt.Errorf("not connected to %s: %s", n.servers, *why)
		}
		return fmt.Errorf("not connected to %s, or stream %s not checked yet", n.servers, n.cfg.Stream.Name)
	}
	return nil
}

// Publish implements Publisher. It waits for Run to have connected.
func (n *NATS) Publish(ctx context.Context, ev *encode.Event) error { return n.publish(ctx, ev, false) }

func (n *NATS) publish(ctx context.Context, ev *encode.Event, dead bool) error {
	w, err := n.acquire(ctx)
	if err != nil {
		return err
	}
	defer n.release(w)
	w.load(n, ev, dead)
	mark := n.tail.Mark()
	timeouts, busy, cuts := 0, 0, 0
	for attempt := uint64(1); ; attempt++ {
		if err := n.gate.wait(ctx); err != nil {
			return err
		}
		if n.closed.Load() {
			return ErrClosed
		}
		var o outcome
		if cuts < suspectAfter {
			o = n.try(ctx, w, attempt, timeouts, false)
		} else {
			cuts = 0
			o = n.alone(ctx, w, &attempt, timeouts)
		}
		switch o.kind {
		case acked:
			n.noteAck(mark, &o)
			return nil
		case refused:
			kind := ErrRefused
			if o.tooLarge {
				kind = ErrTooLarge
			}
			return fmt.Errorf("publish %s to %s: %w: %s", ev.ID, w.subject, kind, o.detail)
		case fenced:
			return fmt.Errorf("publish %s: %w", ev.ID, o.err)
		case ended:
			if n.closed.Load() {
				return ErrClosed
			}
			return context.Cause(ctx)
		case retry:
		}
		if o.reason == reasonHeld {
			if err := n.quarantine.wait(ctx); err != nil {
				return err
			}
			continue
		}
		switch {
		case o.cut:
			cuts++
		case o.reason != ReasonConnection: // the server lives with the event
			cuts = 0
		}
		n.noteRetry(w, ev, attempt, &o)
		NoteFailure(ctx, o.reason)
		delay := BusyBackoff()
		switch o.reason {
		case ReasonTimeout:
			timeouts++
			continue // it has waited enough
		case ReasonConnection:
			if open, _ := n.gate.isOpen(); !open {
				busy = 0
				continue // the gate holds it until the connection stands
			}
			delay = raceBackoff() // the connection is gone, but the gate is not shut yet
		}
		busy++
		if err := Sleep(ctx, delay.Delay(busy)); err != nil {
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

// try sends the message once and waits for what becomes of it. alone: nobody else sends.
func (n *NATS) try(ctx context.Context, w *waiter, attempt uint64, timeouts int, alone bool) outcome {
	if err := n.fence.Pass(ctx); err != nil {
		if ctx.Err() != nil {
			return outcome{kind: ended}
		}
		return outcome{kind: fenced, err: err}
	}
	if attempt > 1 {
		w.msg.Reply = string(w.appendReply(nil, n.inbox, attempt))
	}
	// A server that is slow, with a stalled disk say, must not get all messages again and again.
	timeout := min(n.cfg.AckTimeout<<min(timeouts, 10), max(maxAckTimeout, n.cfg.AckTimeout))
	w.arm(ctx, attempt, timeout)
	// Whoever sends alone turns the quarantine on, and then looks who waits: it sees us, or we see it.
	if !alone && n.quarantine.on.Load() {
		w.sent()
		if o, ok := w.disarm(); ok && o.kind == acked {
			return o
		}
		return outcome{reason: reasonHeld}
	}
	n.dialer.guarded.Load().Carry()
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
	case errors.Is(err, nats.ErrMaxPayload):
		return outcome{kind: refused, tooLarge: true, detail: err.Error()}
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return outcome{kind: refused, detail: err.Error()}
	case errors.Is(err, nats.ErrConnectionClosed) && n.closed.Load():
		return outcome{kind: ended}
	}
	return outcome{reason: ReasonConnection, detail: err.Error()}
}

// noteRetry counts, logs the first of its kind in each window, and asks for a look at the stream where it may be gone.
func (n *NATS) noteRetry(w *waiter, ev *encode.Event, attempt uint64, o *outcome) {
	n.metrics.Retries.WithLabelValues(o.reason).Inc()
	level, advice := slog.LevelWarn, "none: it is retried until the bus has it"
	switch o.reason {
	case ReasonConnection:
		return // connection state is logged where it changes
	case ReasonNoResponders:
		n.requestCheck()
	case ReasonLimit:
		level, advice = slog.LevelError, "a limit of the account or the server is reached, events wait: raise it, or free what other streams use"
	case ReasonStreamFull:
		level, advice = slog.LevelError, cmp.Or(n.cfg.FullAdvice,
			"the stream is full, events wait: raise its limits (nats stream edit "+n.cfg.Stream.Name+" --max-bytes=…) or shorten its max_age")
	case ReasonOtherStream:
		level, advice = slog.LevelError, "another stream takes the subject: see that only one does"
	}
	if suppressed, ok := n.window.First(o.reason); ok {
		n.log.Log(context.Background(), level, "event is published again", "reason", o.reason, "advice", advice, "detail", o.detail,
			"stream", n.cfg.Stream.Name, "event_id", string(ev.ID), "subject", w.subject, "attempt", attempt,
			"suppressed", suppressed)
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
			if len(n.free) == len(n.Waiters) {
				continue
			}
			stuck := false
			for _, w := range n.Waiters {
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
	if !ok || index >= len(n.Waiters) {
		return
	}
	n.Waiters[index].answer(call, attempt, n.acks.read(m))
}

// onDown runs in nats.go's callback goroutine, after the connection broke. All that wait for an acknowledgement try
// again. That may be too many: the callback may be late, and some may have been sent on the next connection already.
// It costs a copy, which carries the same id.
func (n *NATS) onDown(_ *nats.Conn, err error) {
	if n.gate.shut() && !n.closed.Load() {
		n.metrics.Connected.Set(0)
		n.log.Warn("connection to bus lost, reconnecting", "servers", n.servers, "err", errText(err))
	}
	cut := !n.dialer.broke() // else we have broken it ourselves, and no event is to blame
	for _, w := range n.Waiters {
		w.fail(outcome{reason: ReasonConnection, cut: cut, detail: "connection lost"})
	}
}

// shutdown lets every call of Publish return ErrClosed.
func (n *NATS) shutdown() {
	n.closed.Store(true)
	n.metrics.Connected.Set(0)
	n.gate.end()
	for _, w := range n.Waiters {
		w.fail(outcome{kind: ended})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
