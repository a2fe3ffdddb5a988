package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Run implements publish.Bus. It connects, checks the stream or creates it if configured, and keeps
// the connection until ctx ends.
func (b *Bus) Run(ctx context.Context) error {
	defer b.shutdown() // after all goroutines that use flights
	g, ctx := errgroup.WithContext(ctx)
	b.dialer = b.opener().dialer(ctx, b.fence)
	// An unusable file at the start is an error of the configuration; later, the file may be in the
	// middle of a rotation.
	if err := b.Check(); err != nil {
		return err
	}
	g.Go(func() error { return b.sweep(ctx) })
	g.Go(func() error { return b.send(ctx) })
	g.Go(func() error { return b.isolate(ctx) })
	g.Go(func() error {
		// All other goroutines may block in a socket; breaking the connection unblocks them.
		<-ctx.Done()
		b.closed.Store(true) // so that the break does not count as a loss
		b.dialer.Break()
		return nil
	})
	g.Go(func() error {
		for failures := 1; ; failures++ {
			err := b.runConnection(ctx)
			if !errors.Is(err, errGone) {
				return err
			}
			// nats.go closes a connection for good after a server error that it does not know. The
			// bus closes one to use other credentials. The server may accept the next connection.
			if suppressed, ok := b.window.First("gone"); ok {
				b.log.Warn("connection to bus was closed, reconnecting", "servers", b.servers, "err", err, "suppressed",
					suppressed)
			}
			b.onDown(nil, err)
			if pause.For(ctx, publish.BusyBackoff().Delay(min(failures, 10))) != nil {
				return nil
			}
		}
	})
	return g.Wait()
}

// Check returns the error with which Run would end at once: an unusable file of credentials or TLS.
// It does not connect.
func (b *Bus) Check() error {
	_, _, err := b.connectOptions(nil)
	return err
}

// shutdown ends all events in flight and all later events.
func (b *Bus) shutdown() {
	b.closed.Store(true)
	b.link.close()
	b.metrics.Connected.Set(0)
	for _, end := range b.table.close() {
		b.reportEnd(end)
	}
}

// errGone means that a connection is closed for good, and that a new one may succeed.
var errGone = errors.New("connection closed")

// runConnection opens a connection and supervises it until nats.go closes it.
func (b *Bus) runConnection(ctx context.Context) (err error) {
	gone := make(chan struct{}) // closed by nats.go's last callback
	options, err := b.options(gone)
	if err != nil { // the file was usable at the start
		b.noteTrouble(err)
		return fmt.Errorf("%w: %w", errGone, err)
	}
	nc, err := nats.Connect(b.cfg.URL, options...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", b.servers, publish.WithoutURL(err))
	}
	defer func() {
		if !errors.Is(err, errGone) {
			b.closed.Store(true) // this close is not a loss
		}
		b.dialer.Break() // otherwise Close may block in the socket
		nc.Close()
		<-gone
	}()
	return b.supervise(ctx, nc, gone)
}

// supervise checks the stream on request, and sets the link up if the stream is in order.
func (b *Bus) supervise(ctx context.Context, nc *nats.Conn, gone <-chan struct{}) error {
	if _, err := nc.Subscribe(b.inbox+".*", b.onAnswer); err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	js, err := jetStreamIn(b.cfg.Domain, nc)
	if err != nil {
		return err
	}
	b.conn.Store(nc)
	if !nc.IsConnected() {
		b.noteTrouble(b.dialer.causeOf(nc.LastError()))
	}
	look := time.NewTimer(publish.LogAge)
	defer look.Stop()
	for failures := 0; ; {
		look.Reset(publish.LogAge)
		if b.lookAgain {
			look.Reset(publish.LogPause)
		}
		select {
		case <-b.wake:
		case <-look.C:
			if nc.IsConnected() {
				b.lookAgain = b.lookAtLog(ctx, js)
			}
			continue
		case <-ctx.Done():
			return nil
		case <-b.renew:
			return fmt.Errorf("%w: the credentials in %s have changed", errGone, b.cfg.Auth.NKeySeedFile)
		case <-gone:
			return fmt.Errorf("%w: %w", errGone, nc.LastError())
		}
		epoch := b.link.lost()
		if !nc.IsConnected() {
			continue // the next connection requests a check
		}
		err := b.check(ctx, nc, js)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, publish.ErrStream):
			return err
		case err != nil && b.link.lost() != epoch:
			// The connection is lost, and the next one requests a check.
		case err != nil:
			failures++
			if b.checkAgain(ctx, err, failures) != nil {
				return nil
			}
		default:
			failures = 0
			b.accepted = true
			b.raise(nc, epoch)
		}
	}
}

// raise sets the link up and wakes the sender.
func (b *Bus) raise(nc *nats.Conn, epoch uint64) {
	b.why.Store(nil)
	if !b.link.raise(epoch) {
		return
	}
	b.table.wake.Raise()
	b.metrics.Connected.Set(1)
	b.log.Info("connected to bus", "server", nc.ConnectedAddr(), "stream", b.cfg.Stream.Name)
}

// checkAgain requests another check after a failed one, and waits.
func (b *Bus) checkAgain(ctx context.Context, err error, failures int) error {
	why := err.Error()
	b.why.Store(&why)
	if suppressed, ok := b.window.First("check"); ok {
		b.log.Warn("cannot check the stream, retrying", "stream", b.cfg.Stream.Name, "err", why, "suppressed",
			suppressed)
	}
	b.wake.Raise()
	return pause.For(ctx, checkBackoff().Delay(failures))
}

// check verifies the server and the stream.
func (b *Bus) check(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	ctx, done := b.link.during(ctx)
	defer done()
	if err := b.checkVersion(nc.ConnectedServerVersion()); err != nil {
		return err
	}
	payload := nc.MaxPayload()
	b.maxPayload.Store(payload)
	if need := b.cfg.MaxEventBytes + headRoom; payload < int64(need) {
		small := fmt.Sprintf(
			"the server's max_payload is %d bytes, and an event may need %d: raise it, or lower event.maxBytes",
			payload, need)
		if !b.accepted {
			return fmt.Errorf("%w: %s", publish.ErrStream, small)
		}
		b.warnOfLimit(small)
	}
	return b.ensureStream(ctx, js, nc.ConnectedServerVersion())
}

// warnOfLimit reports that a limit of the bus was lowered while it runs. The dispatcher shortens
// events above it: to end the agent would delay all others. At the start, such a limit is refused.
func (b *Bus) warnOfLimit(small string) {
	if suppressed, ok := b.window.First("limit"); ok {
		b.log.Warn(
			"the limit of the bus is below event.maxBytes: events above it count as too large, and the next start is refused",
			"stream", b.cfg.Stream.Name,
			"advice", small, "suppressed", suppressed)
	}
}

// link is the state of the connection: up while it is open and its stream has been checked.
type link struct {
	up atomic.Bool // written with mu held

	mu       sync.Mutex
	closed   bool
	epoch    uint64          // counts lost connections
	standing chan struct{}   // closed while the link is up, and after close
	current  context.Context //nolint:containedctx // canceled when the connection is lost
	lose     context.CancelFunc
}

func newLink() *link {
	l := &link{standing: make(chan struct{})}
	l.current, l.lose = context.WithCancel(context.Background())
	return l
}

// awaitUp returns nil when the link is up, ErrClosed when it is closed, and the cause of ctx if ctx
// ends first.
func (l *link) awaitUp(ctx context.Context) error {
	l.mu.Lock()
	standing := l.standing
	l.mu.Unlock()
	select {
	case <-standing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return publish.ErrClosed
	}
	return nil
}

// lost returns the number of lost connections.
func (l *link) lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// during returns a context that is also canceled when the connection is lost: the next connection
// never delivers the response.
func (l *link) during(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	current := l.current
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(current, cancel)
	return ctx, func() { stop(); cancel() }
}

// raise sets the link up, unless a connection was lost after epoch was read: then the check was
// made on the lost connection. It reports whether the link was down.
func (l *link) raise(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up.Load() || l.closed || l.epoch != epoch {
		return false
	}
	l.up.Store(true)
	close(l.standing)
	return true
}

// lower sets the link down after a loss, and reports whether it was up.
func (l *link) lower() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.lose()
	if l.closed {
		return false
	}
	l.current, l.lose = context.WithCancel(context.Background())
	if !l.up.Swap(false) {
		return false
	}
	l.standing = make(chan struct{})
	return true
}

// close sets the link down for good.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.lose()
	if !l.up.Swap(false) {
		close(l.standing)
	}
}
