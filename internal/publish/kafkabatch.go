package publish

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/gzip"
	"github.com/segmentio/kafka-go/compress/lz4"
	"github.com/segmentio/kafka-go/compress/snappy"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Where the fields of a record batch lie in a request's record set: a size of four bytes, then the batch (Kafka's
// protocol guide, "Record Batch", magic 2). All numbers are big-endian.
const (
	atBatchLength   = 12 // of what follows it
	atLeaderEpoch   = 16
	atMagic         = 20
	atCRC           = 21 // CRC-32C of what follows it
	atAttributes    = 25 // the low three bits: the codec
	atLastOffset    = 27
	atFirstTime     = 31
	atMaxTime       = 39
	atProducer      = 47
	atProducerEpoch = 55
	atSequence      = 57
	atCount         = 61
	batchHead       = 65 // the records begin here
)

// maxRecordHead is the most that a record has before its key: length, attributes, time and offset.
const maxRecordHead = binary.MaxVarintLen32 + 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32

// maxKeptRecord is how large a buffer a record keeps for its next event.
const maxKeptRecord = 64 << 10

// record is a copy of one event on its way to one partition; a tombstone behind it is part of it.
type record struct {
	buf       []byte // from the length of the key on, and behind that the tombstone's
	tombstone int    // where that begins; len(buf): there is none
	time      int64  // milliseconds since 1970
	done      chan error
	abandoned atomic.Bool // nobody waits for it any more; then it is not used again

	// Of an event that is traced: why its batches were sent again. Whoever sends them appends, whoever waits reads when done has
	// been told.
	traced   bool
	failed   []Failure
	failures int
}

// load copies ev by the Kafka binding of CloudEvents (1.0.2): attributes are headers, in binary mode, and the media type of
// the value is the header content-type in either mode.
func (r *record) load(ev *encode.Event, key []byte, tombstones bool) {
	b := appendVarBytes(r.buf[:0], key)
	b = appendVarBytes(b, ev.Body)
	headers := 1
	for i := range ev.Attributes {
		if ev.Attributes[i].Name != "datacontenttype" { // content-type holds it
			headers++
		}
	}
	b = binary.AppendVarint(b, int64(headers))
	b = appendVarString(b, "content-type")
	b = appendVarString(b, ev.ContentType)
	for i := range ev.Attributes {
		if a := &ev.Attributes[i]; a.Name != "datacontenttype" {
			b = binary.AppendVarint(b, int64(len("ce_")+len(a.Name)))
			b = append(b, "ce_"...)
			b = append(b, a.Name...)
			b = appendVarBytes(b, a.Value)
		}
	}
	r.tombstone = len(b)
	d := ev.Delta
	if tombstones && d != nil && d.Stream == nil && d.Op == object.Deleted {
		b = appendVarBytes(b, key)
		b = binary.AppendVarint(b, -1) // null
		b = binary.AppendVarint(b, 0)  // no headers
	}
	r.buf = b
	r.traced, r.failed, r.failures = ev.Trace.Sampled(), r.failed[:0], 0
	if r.time = time.Now().UnixMilli(); d != nil && d.Observed > 0 {
		r.time = d.Observed / int64(time.Millisecond)
	}
}

// noteFailure notes why a batch with r is sent again.
func (r *record) noteFailure(reason string) {
	if !r.traced {
		return
	}
	r.failures++
	if len(r.failed) < MaxFailures {
		r.failed = append(r.failed, Failure{At: time.Now(), Reason: reason})
	}
}

// size is what r adds to a batch at most.
func (r *record) size() int {
	return len(r.buf) + r.count()*maxRecordHead
}

// count is how many records of Kafka r is.
func (r *record) count() int {
	if r.tombstone < len(r.buf) {
		return 2
	}
	return 1
}

func appendVarBytes(dst, b []byte) []byte {
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func appendVarString(dst []byte, s string) []byte {
	dst = binary.AppendVarint(dst, int64(len(s)))
	return append(dst, s...)
}

// restamp makes the present time the timestamp of records. Consumers find the time of an event in its attribute.
func restamp(records []*record) {
	now := time.Now().UnixMilli()
	for _, r := range records {
		r.time = now
	}
}

// batch is the record set of one request: one record batch.
type batch struct {
	set   []byte // as it is sent
	count int    // records of Kafka
}

// maxKeptBatch is how large a buffer is kept for the next batch: enough for the default limit of topics.
const maxKeptBatch = 2 << 20

// plains hold the records of a batch before compression, while it is built. A batch that waits for its leader has none.
//
//nolint:gochecknoglobals // spare memory, not state
var plains = sync.Pool{New: func() any { return new([]byte) }}

// build makes the batch of records but for producer and sequence, which stamp puts in.
func (b *batch) build(records []*record, c *codec) error {
	scratch := plains.Get().(*[]byte) // nothing else is put there
	plain := (*scratch)[:0]
	defer func() {
		if *scratch = plain; cap(plain) <= maxKeptBatch {
			plains.Put(scratch)
		}
	}()
	b.count = 0
	first := records[0].time
	last := first
	for _, r := range records {
		last = max(last, r.time)
		plain = b.add(plain, r.buf[:r.tombstone], r.time-first)
		if r.tombstone < len(r.buf) {
			plain = b.add(plain, r.buf[r.tombstone:], r.time-first)
		}
	}
	if cap(b.set) < batchHead {
		b.set = make([]byte, batchHead, 4<<10)
	}
	clear(b.set[:batchHead])
	codecID := c.id
	var err error
	if b.set, err = c.append(b.set[:batchHead], plain); err != nil {
		return fmt.Errorf("compress a batch with %s: %w", c.name, err)
	}
	if len(b.set)-batchHead >= len(plain) { // then it is no use
		b.set, codecID = append(b.set[:batchHead], plain...), 0
	}
	if len(b.set) > math.MaxInt32 {
		return fmt.Errorf("a batch of %d bytes", len(b.set))
	}
	h := binary.BigEndian
	h.PutUint32(b.set, uint32(len(b.set)-4))
	h.PutUint32(b.set[atBatchLength:], uint32(len(b.set)-atLeaderEpoch))
	h.PutUint32(b.set[atLeaderEpoch:], math.MaxUint32) // -1: the broker knows
	b.set[atMagic] = 2
	h.PutUint16(b.set[atAttributes:], uint16(codecID))
	h.PutUint32(b.set[atLastOffset:], uint32(b.count-1))
	h.PutUint64(b.set[atFirstTime:], uint64(first))
	h.PutUint64(b.set[atMaxTime:], uint64(last))
	h.PutUint32(b.set[atCount:], uint32(b.count))
	return nil
}

// add appends one record of Kafka to plain. body is what follows time and offset.
func (b *batch) add(plain, body []byte, since int64) []byte {
	var head [maxRecordHead]byte
	h := append(head[:0], 0) // attributes: none
	h = binary.AppendVarint(h, since)
	h = binary.AppendVarint(h, int64(b.count))
	b.count++
	plain = binary.AppendVarint(plain, int64(len(h)+len(body)))
	plain = append(plain, h...)
	return append(plain, body...)
}

// stamp makes b the batch with that sequence of a producer. The same stamp gives the same bytes.
func (b *batch) stamp(p producer) {
	h := binary.BigEndian
	h.PutUint64(b.set[atProducer:], uint64(p.id))
	h.PutUint16(b.set[atProducerEpoch:], uint16(p.epoch))
	h.PutUint32(b.set[atSequence:], uint32(p.sequence))
	h.PutUint32(b.set[atCRC:], crc32.Checksum(b.set[atAttributes:], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant

// codec compresses the records of batches. Safe for concurrent use.
type codec struct {
	name   string
	id     int8
	append func(dst, src []byte) ([]byte, error)
}

// newCodec returns the codec of that name; "" is zstd. slots bounds how many batches are compressed at once: an encoder
// may hold some megabytes.
func newCodec(name string, slots int) (*codec, error) {
	if name == "" {
		name = "zstd"
	}
	var c compress.Codec
	switch name {
	case "none":
		return &codec{name: name, append: func(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }}, nil
	case "zstd":
		// Level 1 of zstd: most of the gain for a third of the time. The window bounds what a broker and consumers need.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(slots),
			zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, fmt.Errorf("compression zstd: %w", err)
		}
		return &codec{name: name, id: int8(compress.Zstd), append: func(dst, src []byte) ([]byte, error) {
			return enc.EncodeAll(src, dst), nil
		}}, nil
	case "gzip":
		c = &gzip.Codec{}
	case "snappy":
		c = &snappy.Codec{} // in the framing of xerial, which is what Java's clients read
	case "lz4":
		c = &lz4.Codec{}
	default:
		return nil, fmt.Errorf("compression %q: must be zstd, lz4, snappy, gzip or none", name)
	}
	busy := make(chan struct{}, slots) // one for each that is compressing; further ones wait their turn. Never closed.
	return &codec{name: name, id: c.Code(), append: func(dst, src []byte) ([]byte, error) {
		busy <- struct{}{}
		defer func() { <-busy }()
		out := appender{dst}
		w := c.NewWriter(&out)
		if _, err := w.Write(src); err != nil {
			_ = w.Close()
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		return out.b, nil
	}}, nil
}

// appender is a writer onto a slice.
type appender struct{ b []byte }

var _ io.Writer = (*appender)(nil)

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}
