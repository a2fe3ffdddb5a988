package fromnats

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A pull consumer says how far its server has looked only in idle heartbeats, so a reader requests
// them. The client library hides them. A request looks like this:
//
//	reader                                       server
//	batch 512, heartbeat 5 s  ────────────────▶
//	                          ◀────────────────  record 7, the consumer's 1st
//	                          ◀────────────────  record 9, the consumer's 2nd
//	                          ◀────────────────  100: looked up to record 30, the 2nd was the last
//	                          ◀────────────────  408: the time is over, 510 are given back
//
// The heartbeat proves that no record from 10 to 30 matches the filter, if both records have
// arrived. No other answer of the server does: its count of pending records belongs to a replica
// that may lag.

const (
	// prefetchBytes and prefetchMessages limit what the server sends ahead, for all consumers of a
	// reader together.
	prefetchBytes    = 4 << 20
	prefetchMessages = 512
	leastBytes       = 256 << 10 // for one consumer
	leastMessages    = 16

	expires        = 30 * time.Second
	heartbeat      = 5 * time.Second       // at rest
	quickHeartbeat = 20 * time.Millisecond // while a horizon is waited for
	quickExpires   = time.Second           // of a request that only asks for quick heartbeats
	silenceLimit   = 2 * heartbeat         // without a message: the server does not serve the consumer
)

// errLostOnTheWay is the cause of an interruption: a message of a consumer has not arrived.
var errLostOnTheWay = errors.New("records were lost on the way from the server")

// record is a record that has arrived.
type record struct {
	*nats.Msg
	seq     uint64 // in the stream
	pending uint64 // records that match the filter and follow, as far as the server knew
	stored  time.Time
}

// pull receives the records of one consumer, which has one filter. It does not reconnect: a reader
// replaces a broken one. Besides arrive, its methods belong to the reader's goroutine.
type pull struct {
	consumer *jetstream.ConsumerInfo // at its creation
	conn     *nats.Conn
	requests string // subject
	sub      *nats.Subscription
	wake     func() // called when something has arrived
	messages int    // limits of a request
	bytes    int
	lives    time.Duration // a request

	arrived struct {
		sync.Mutex
		queue    []*nats.Msg
		returned int  // records that were requested, and will not come
		large    bool // the next record is larger than a request allows
		beat     beat
		at       time.Time // of the last message
		broken   error
	}

	wanted    int       // records that were requested and are not in hand
	asked     time.Time // of the last request
	isHeld    bool      // the consumer has a fixed name, so one request must always wait on the server
	renewed   time.Time // of the last request that was not quick
	quick     time.Time // until when quick heartbeats are requested
	delivered uint64    // the consumer's number of the last record
	pending   uint64    // records that match and follow, as far as the server knew
	since     time.Time // records stored before it that come first are dropped
	dried     bool      // the server may have waited for a request since the reader was caught up

	head    *record // the next record; nil if none is in hand
	horizon uint64  // no record up to it will come after those in hand
}

// beat is an idle heartbeat.
type beat struct {
	looked    uint64 // sequence of the stream up to which the server has looked
	delivered uint64 // number of the last record of the consumer
}

// newPull subscribes to what a consumer delivers. before is the sequence before its first record.
func newPull(c *jetstream.ConsumerInfo, conn *nats.Conn, requests string, parts int, before uint64, wake func(),
) (*pull, error) {
	p := &pull{
		consumer: c,
		conn:     conn,
		requests: requests,
		wake:     wake,
		messages: max(prefetchMessages/parts, leastMessages),
		bytes:    max(prefetchBytes/parts, leastBytes),
		horizon:  before,
		pending:  c.NumPending,
	}
	sub, err := conn.Subscribe(conn.NewInbox(), p.arrive)
	if err != nil {
		return nil, err
	}
	// The requests bound what arrives.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		_ = sub.Unsubscribe()
		return nil, err
	}
	p.sub = sub
	return p, nil
}

// stop ends the subscription. The consumer remains on the server.
func (p *pull) stop() { _ = p.sub.Unsubscribe() }

// name is the consumer's.
func (p *pull) name() string { return p.consumer.Name }

// server names the server that reads for the consumer.
func (p *pull) server() string {
	if c := p.consumer.Cluster; c != nil && c.Leader != "" {
		return c.Leader
	}
	return p.conn.ConnectedServerName()
}

// arrive takes a message from the connection.
func (p *pull) arrive(m *nats.Msg) {
	a := &p.arrived
	a.Lock()
	defer p.wake()
	defer a.Unlock()
	if a.broken != nil {
		return // the consumer may be that of another reader now
	}
	a.at = time.Now()
	status := m.Header.Get("Status")
	if len(m.Data) > 0 || status == "" {
		a.queue = append(a.queue, m)
		return
	}
	returned, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	isReturned := err == nil
	switch description := m.Header.Get("Description"); {
	case status == "100":
		looked, err := strconv.ParseUint(m.Header.Get("Nats-Last-Stream"), 10, 64)
		if err != nil {
			return // of another kind
		}
		delivered, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64)
		if err != nil {
			return
		}
		a.beat = beat{looked, delivered}
	case (status == "408" || status == "409") && isReturned:
		a.returned += returned
		// A request that delivered a part ends the same way once its bytes are used up.
		a.large = a.large || description == "Message Size Exceeds MaxBytes" && returned == p.messages
	case status == "503":
		a.broken = nats.ErrNoResponders
	default:
		a.broken = fmt.Errorf("the server ends the request: %s %s", status, description)
	}
}

// advance takes into hand what has arrived: a record, or the horizon of a heartbeat. It drops
// records up to before. An error means that the consumer must be replaced.
func (p *pull) advance(before uint64) error {
	for p.head == nil {
		m, b, err := p.pop()
		switch {
		case err != nil:
			return err
		case m == nil && b.delivered > p.delivered:
			return errLostOnTheWay
		case m == nil:
			if b.delivered == p.delivered && b.looked > p.horizon {
				p.horizon = b.looked
			}
			return nil
		}
		r, err := p.read(m)
		if err != nil {
			return err
		}
		// A lagging server begins before the requested sequence or time.
		if r.seq <= max(before, p.horizon) || r.stored.Before(p.since) {
			continue
		}
		p.since = time.Time{}
		p.head = r
	}
	return nil
}

// pop returns the oldest message in the queue; without one, the last heartbeat.
func (p *pull) pop() (*nats.Msg, beat, error) {
	a := &p.arrived
	a.Lock()
	defer a.Unlock()
	if len(a.queue) == 0 {
		p.wanted -= a.returned
		a.returned = 0
		return nil, a.beat, a.broken
	}
	m := a.queue[0]
	a.queue[0] = nil
	a.queue = a.queue[1:]
	p.wanted--
	return m, beat{}, nil
}

// read reads the metadata of a record, and checks that none before it is missing.
func (p *pull) read(m *nats.Msg) (*record, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read the metadata of a record: %w", err)
	}
	if meta.Sequence.Consumer != p.delivered+1 {
		return nil, errLostOnTheWay
	}
	p.delivered++
	return &record{
		Msg:     m,
		seq:     meta.Sequence.Stream,
		pending: meta.NumPending,
		stored:  meta.Timestamp,
	}, nil
}

// takeHead returns the record in hand, and moves the horizon to it.
func (p *pull) takeHead() *record {
	r := p.head
	p.head = nil
	p.horizon = max(p.horizon, r.seq)
	p.pending = r.pending
	return r
}

// silentAt returns the time at which the pull will be silent, if nothing arrives.
func (p *pull) silentAt() time.Time {
	p.arrived.Lock()
	defer p.arrived.Unlock()
	last := p.arrived.at
	if p.asked.After(last) {
		last = p.asked
	}
	return last.Add(silenceLimit)
}

// hasArrived reports whether the server has sent anything.
func (p *pull) hasArrived() bool {
	p.arrived.Lock()
	defer p.arrived.Unlock()
	return !p.arrived.at.IsZero()
}

// refill requests more records if half of them have arrived. every is the interval of heartbeats.
func (p *pull) refill(every time.Duration) error {
	if p.hasLapsed() {
		return errLapsed
	}
	if p.wanted > p.messages/2 && !p.mustRenew() {
		return nil
	}
	a := &p.arrived
	a.Lock()
	queued, large := len(a.queue), a.large
	p.wanted -= a.returned
	a.returned, a.large = 0, false
	a.Unlock()
	if p.wanted <= queued && !p.asked.IsZero() {
		p.dried = true
	}
	p.renewed = time.Now()
	if large {
		return p.request(pullRequest{Batch: 1, Expires: p.lives, Heartbeat: every})
	}
	return p.request(pullRequest{
		Batch:     p.messages,
		MaxBytes:  p.bytes,
		Expires:   p.lives,
		Heartbeat: every,
	})
}

// requestQuick requests quick heartbeats for a while.
func (p *pull) requestQuick(now time.Time) error {
	if now.Before(p.quick) {
		return nil
	}
	p.quick = now.Add(quickExpires)
	return p.request(pullRequest{Batch: 1, Expires: quickExpires, Heartbeat: quickHeartbeat})
}

// pullRequest is a request for records, as JetStream's API has it.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"` // ns, as the heartbeat
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

func (p *pull) request(r pullRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	p.wanted += r.Batch
	p.asked = time.Now()
	return p.conn.PublishRequest(p.requests, p.sub.Subject, body)
}
