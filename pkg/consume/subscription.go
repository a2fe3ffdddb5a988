package consume

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// prefetchBytes is the size of a request; a record of the server's maximum size must fit.
	prefetchBytes    = 4 << 20
	prefetchMessages = 512

	heartbeat = 5 * time.Second // interval of the server's heartbeats
	expires   = 30 * time.Second
)

// subscription receives the messages of a consumer on the server. It does not reconnect: a reader replaces a broken one.
type subscription struct {
	consumer  jetstream.Consumer
	segment   segment
	consume   jetstream.ConsumeContext
	messages  chan jetstream.Msg // if it is full, the connection's goroutine for this subscription waits
	broken    chan error         // has the first error
	done      chan struct{}      // closed: nobody reads messages any more
	delivered uint64             // the consumer's sequence of the last message
	pending   uint64             // number of the consumer's records after that message
	end       uint64             // end of the stream when lookAround last found no record waiting for delivery
	blocked   atomic.Int64       // ns for which messages have waited for the reader since it was last caught up
}

func newSubscription(c jetstream.Consumer, conn *nats.Conn, of segment) (*subscription, error) {
	s := &subscription{
		consumer: c, segment: of, pending: c.CachedInfo().NumPending,
		messages: make(chan jetstream.Msg, 16), broken: make(chan error, 1), done: make(chan struct{}),
	}
	options := []jetstream.PullConsumeOpt{
		jetstream.PullMaxMessagesWithBytesLimit(prefetchMessages, max(prefetchBytes, int(conn.MaxPayload())+64<<10)),
		jetstream.PullExpiry(expires), jetstream.PullHeartbeat(heartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			select {
			case s.broken <- err:
			default:
			}
		}),
	}
	if of.records > 0 {
		options = append(options, jetstream.StopAfter(of.records))
	}
	var err error
	s.consume, err = c.Consume(func(m jetstream.Msg) {
		select {
		case s.messages <- m:
			return
		default:
		}
		began := time.Now()
		select {
		case s.messages <- m:
			s.blocked.Add(int64(time.Since(began)))
		case <-s.done:
		}
	}, options...)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *subscription) waited() time.Duration { return time.Duration(s.blocked.Load()) }

func (s *subscription) stop() {
	close(s.done)
	s.consume.Stop()
}
