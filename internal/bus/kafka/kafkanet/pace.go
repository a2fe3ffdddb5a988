package kafkanet

import (
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// window is the time over which a broker measures: by default 11 samples of a second
// (quota.window.num, quota.window.size.seconds).
const window = 11

// pace spreads the fetches from a broker with a quota over time. Without it, a client fetches what
// the quota permits in a burst, and the broker withholds everything until the burst leaves its
// window.
type pace struct {
	bytes [window + 1]int64 // of answers, by the second
	last  int64             // the newest second in bytes, since 1970
	rate  float64           // bytes/s; 0: not known
	after time.Time         // of the next fetch
	size  int32             // of the next fetch; 0: oneBatch
}

// growth is the increase of the rate with each fetch that is not withheld.
const growth = 1.02

// move makes the second of now the newest one.
func (p *pace) move(now time.Time) {
	second := now.Unix()
	for p.last = max(p.last, second-int64(len(p.bytes))); p.last < second; {
		p.last++
		p.bytes[p.last%int64(len(p.bytes))] = 0
	}
}

// add notes an answer of a number of bytes.
func (p *pace) add(now time.Time, bytes int) {
	p.move(now)
	p.bytes[p.last%int64(len(p.bytes))] += int64(bytes)
	if p.rate > 0 {
		p.after = now.Add(time.Duration(float64(bytes) / p.rate * float64(time.Second)))
		p.rate *= growth
	}
}

// slow notes that an answer was withheld: what arrived within the window is the rate.
func (p *pace) slow(now time.Time) {
	p.move(now)
	sum := int64(0)
	for _, n := range p.bytes {
		sum += n
	}
	p.rate = float64(sum) / window
}

// noteFetch notes the answer to a fetch from b, of a number of bytes.
func (n *Network) noteFetch(b *broker, res protocol.Message, received int) {
	r, ok := res.(*fetch.Response)
	if !ok {
		return
	}
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if isWithheld(res) {
		b.pace.slow(now)
		return
	}
	if now.Sub(b.until) > calm {
		b.pace.rate = 0 // the broker has no quota any more, or one that is not used up
	}
	b.pace.add(now, received)
	if size, known := nextFetch(r, received); known {
		b.pace.size = size
	}
}
