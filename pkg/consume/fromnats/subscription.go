package fromnats

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// runExpires is the lifetime of a request of Run. The server keeps a connection that has died
// silently, and delivers to its requests. The client finds the death after 10 s without data: its
// last request, which data preceded, has then been gone for seconds.
const (
	runExpires = 5 * time.Second
	runBeat    = 2 * time.Second // the client accepts less than half of runExpires
)

// subscription receives the messages of a durable consumer. It does not reconnect: a Run replaces a
// broken one.
type subscription struct {
	consume  jetstream.ConsumeContext
	messages chan jetstream.Msg // if it is full, the connection's goroutine for this subscription waits
	broken   chan error         // has the first error
	done     chan struct{}      // closed: nobody reads messages any more
}

func newSubscription(c jetstream.Consumer, conn *nats.Conn) (*subscription, error) {
	s := &subscription{messages: make(chan jetstream.Msg, 16), broken: make(chan error, 1), done: make(chan struct{})}
	var err error
	s.consume, err = c.Consume(
		func(m jetstream.Msg) {
			select {
			case s.messages <- m:
			case <-s.done:
			}
		},
		jetstream.PullMaxMessagesWithBytesLimit(prefetchMessages, max(prefetchBytes, int(conn.MaxPayload())+64<<10)),
		jetstream.PullExpiry(runExpires), jetstream.PullHeartbeat(runBeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			select {
			case s.broken <- err:
			default:
			}
		}),
	)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *subscription) stop() {
	close(s.done)
	s.consume.Stop()
}
