package kafkanet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// meter measures as a broker does: bytes of the last 10 to 11 s, by the second. It withholds what
// would exceed the quota, and names the pause after which the rate has fallen to it.
type meter struct {
	quota   float64 // bytes/s
	samples map[int64]float64
}

func (m *meter) fetch(now time.Time, bytes int) (pause time.Duration) {
	sum := float64(bytes)
	for second, n := range m.samples {
		if now.Unix()-second >= window {
			delete(m.samples, second)
			continue
		}
		sum += n
	}
	elapsed := window - 1 + float64(now.Nanosecond())/1e9
	if over := sum/elapsed - m.quota; over > 0 {
		return time.Duration(over / m.quota * elapsed * float64(time.Second))
	}
	m.samples[now.Unix()] += float64(bytes)
	return 0
}

// A reader under a quota gets most of it, as long as a batch is a small part of what the quota
// permits in a window.
func TestPaceOfFetches(t *testing.T) {
	t.Parallel()
	const quota, length = 50_000, 10 * time.Minute
	for _, largest := range []int{1_000, 20_000, 70_000} {
		rng := rand.New(rand.NewPCG(1, uint64(largest)))
		m := meter{quota: quota, samples: map[int64]float64{}}
		var p pace
		begin := time.Unix(1_000_000, 0)
		got := 0
		for now := begin; now.Sub(begin) < length; now = now.Add(2 * time.Millisecond) {
			if now.Before(p.after) {
				now = p.after
			}
			size := largest/2 + rng.IntN(largest/2)
			for pause := m.fetch(now, size); pause > 0; pause = m.fetch(now, size) {
				p.slow(now)
				now = now.Add(pause)
			}
			p.add(now, size)
			got += size
		}
		rate := float64(got) / length.Seconds()
		t.Logf("batches of up to %d bytes: %.0f bytes/s", largest, rate)
		if rate < 0.9*quota || rate > 1.1*quota {
			t.Errorf("batches of up to %d bytes: %.0f bytes/s with a quota of %d", largest, rate, quota)
		}
	}
}

// A broker cuts an answer off within a batch, which is paid for and of no use.
func TestFewLargeBatchesAreFetchedAlone(t *testing.T) {
	t.Parallel()
	answer := func(batches int) *fetch.Response {
		var p fetch.ResponsePartition
		if batches > 0 {
			p.RecordSet.Records = &protocol.RecordStream{Records: make([]protocol.RecordReader, batches)}
		}
		return &fetch.Response{Topics: []fetch.ResponseTopic{{Partitions: []fetch.ResponsePartition{p}}}}
	}
	for _, tc := range []struct {
		batches, bytes int
		size           int32
		known          bool
	}{
		{0, 22, 0, false},
		{1, 50_000, oneBatch, true},
		{1, 1_000, limitedBytes, true},
		{64, 64_000, limitedBytes, true},
		{2, 60_000, oneBatch, true},
	} {
		size, known := nextFetch(answer(tc.batches), tc.bytes)
		if size != tc.size || known != tc.known {
			t.Errorf("%d batches, %d bytes: %d, %t, want %d, %t", tc.batches, tc.bytes, size, known, tc.size, tc.known)
		}
	}
}
