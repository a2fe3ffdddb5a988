package e2e_test

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestKafkaLostResponse loses answers of the broker after it has stored the batch. The client must
// then repeat the batch in a form that the broker recognizes.
func TestKafkaLostResponse(t *testing.T) {
	slow(t)
	t.Parallel()
	lost := &lostResponses{rng: rand.New(rand.NewPCG(11, 11)), seen: make(map[[sha256.Size]byte]bool)}
	k := world.StartKafka(t, kafka.Options{
		Nodes: world.KafkaNodes(t),
		Advertise: func(_ int, l kafka.Listener, addr string) (string, error) {
			if l != kafka.Plain {
				return "", nil
			}
			p := world.RunProxy(t, addr)
			p.Inspect(lost.filter)
			return p.Addr(), nil
		},
	})
	run := &busTruth{To: k, Namespace: "lost-responses", Revisions: revisions(4_000)}
	got := run.run(t, world.SharedPlane(t))
	if lost.lost < 10 {
		t.Errorf("only %d answers were lost", lost.lost)
	}
	if got.Duplicates > 0 {
		oracle.Fail(t, "%d duplicates after %d lost answers", got.Duplicates, lost.lost)
	}
	t.Logf("%d of %d answers to batches were lost, %d batches came again", lost.lost, lost.answers, lost.again)
}

// lostResponses cuts a connection in place of an answer to a produce request. It does so at most
// once for each batch: a second cut after the same event would look like a refusal by the broker.
type lostResponses struct {
	mu                   sync.Mutex
	rng                  *rand.Rand
	seen                 map[[sha256.Size]byte]bool // The requests whose answers were lost.
	lost, answers, again int
}

// keyProduce is the API key of produce requests (KIP-896 keeps it 0).
const keyProduce = 0

// filter returns the filter of one connection. Kafka answers in the order of the requests, so the
// pending requests are a queue.
func (l *lostResponses) filter() proxy.Filter {
	type request struct {
		key int16
		sum [sha256.Size]byte // A digest of the bytes after the correlation id: a repeated batch has the same.
	}
	var asked []request
	up := &frames{each: func(frame []byte) bool {
		r := request{key: -1}
		if len(frame) >= 8 {
			r.key, r.sum = int16(binary.BigEndian.Uint16(frame)), sha256.Sum256(frame[8:])
		}
		asked = append(asked, r)
		return true
	}}
	down := &frames{each: func([]byte) bool {
		if len(asked) == 0 {
			return true
		}
		r := asked[0]
		asked = asked[1:]
		return r.key != keyProduce || !l.lose(r.sum)
	}}
	return func(isDown bool, piece []byte) bool {
		if isDown {
			return down.add(piece)
		}
		return up.add(piece)
	}
}

func (l *lostResponses) lose(batch [sha256.Size]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers++
	if l.seen[batch] {
		l.again++
		return false
	}
	if l.rng.IntN(5) > 0 {
		return false
	}
	l.seen[batch] = true
	l.lost++
	return true
}

// frames splits a byte stream into Kafka's frames: a length of four bytes, and as many bytes.
type frames struct {
	rest []byte
	each func(frame []byte) bool
}

// add returns false as soon as each does.
func (f *frames) add(piece []byte) bool {
	f.rest = append(f.rest, piece...)
	for len(f.rest) >= 4 {
		n := int(binary.BigEndian.Uint32(f.rest))
		if len(f.rest) < 4+n {
			return true
		}
		if !f.each(f.rest[4 : 4+n]) {
			return false
		}
		f.rest = append(f.rest[:0], f.rest[4+n:]...)
	}
	return true
}
