package producer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/gzip"
	"github.com/segmentio/kafka-go/compress/lz4"
	"github.com/segmentio/kafka-go/compress/snappy"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Offsets of the fields of a record batch in a request's record set: a size of four bytes, then the
// batch (Kafka's protocol guide, "Record Batch", magic 2). All numbers are big-endian.
const (
	atBatchLength   = 12 // of the bytes after it
	atLeaderEpoch   = 16
	atMagic         = 20
	atCRC           = 21 // CRC-32C of the bytes after it
	atAttributes    = 25 // the low three bits: the codec
	atLastOffset    = 27
	atFirstTime     = 31
	atMaxTime       = 39
	atProducer      = 47
	atProducerEpoch = 55
	atSequence      = 57
	atCount         = 61
	Head            = 65 // bytes before the records
)

// maxRecordHead is the maximum size of a record before its key: length, attributes, time and
// offset.
const maxRecordHead = binary.MaxVarintLen32 + 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32

// Record is one event for the partition, together with the tombstone that follows it.
type Record struct {
	Event     *encode.Event // its body, content type and attributes
	Key       []byte
	Time      int64 // milliseconds since 1970
	Tombstone bool  // a record with the key and no value follows, in the same batch
	Opening   bool  // it begins a new topic: other topics have the event from before
}

// Size returns the maximum number of bytes that r adds to a batch, before compression.
func (r *Record) Size() int {
	n := maxRecordHead + r.length()
	if r.Tombstone {
		n += maxRecordHead + tombstoneLength(r.Key)
	}
	return n
}

// Count returns the number of Kafka records for r.
func (r *Record) Count() int {
	if r.Tombstone {
		return 2
	}
	return 1
}

func (r *Record) length() int {
	n := lengthOf(len(r.Key)) + lengthOf(len(r.Event.Body)) + 1 + lengthOf(len(contentType)) +
		lengthOf(len(r.Event.ContentType))
	headers := 1
	for i := range r.Event.Attributes {
		if a := &r.Event.Attributes[i]; a.Name != mediaType {
			headers++
			n += lengthOf(len(headerPrefix)+len(a.Name)) + lengthOf(len(a.Value))
		}
	}
	if r.Opening {
		headers++
		n += lengthOf(len(consume.OpeningHeader)) + lengthOf(len(isOpening))
	}
	return n - 1 + varintLength(headers)
}

// The Kafka binding of CloudEvents (1.0.2): in binary mode, attributes are headers; in both modes,
// the header content-type is the media type of the value.
const (
	contentType  = "content-type"
	headerPrefix = "ce_"
	mediaType    = "datacontenttype" // contentType has its value
	isOpening    = "true"            // the value of consume.OpeningHeader
)

// append appends r, beginning with the length of its key.
func (r *Record) append(b []byte) []byte {
	b = appendText(b, r.Key)
	b = appendText(b, r.Event.Body)
	headers := 1
	for i := range r.Event.Attributes {
		if r.Event.Attributes[i].Name != mediaType {
			headers++
		}
	}
	if r.Opening {
		headers++
	}
	b = binary.AppendVarint(b, int64(headers))
	b = appendText(b, contentType)
	b = appendText(b, r.Event.ContentType)
	for i := range r.Event.Attributes {
		if a := &r.Event.Attributes[i]; a.Name != mediaType {
			b = binary.AppendVarint(b, int64(len(headerPrefix)+len(a.Name)))
			b = append(b, headerPrefix...)
			b = append(b, a.Name...)
			b = appendText(b, a.Value)
		}
	}
	if r.Opening {
		b = appendText(b, consume.OpeningHeader)
		b = appendText(b, isOpening)
	}
	return b
}

// appendTombstone appends the record with the key, no value and no headers.
func appendTombstone(b, key []byte) []byte {
	b = appendText(b, key)
	b = binary.AppendVarint(b, -1)
	return binary.AppendVarint(b, 0)
}

func tombstoneLength(key []byte) int { return lengthOf(len(key)) + 2 }

func appendText[T string | []byte](dst []byte, text T) []byte {
	dst = binary.AppendVarint(dst, int64(len(text)))
	return append(dst, text...)
}

// lengthOf returns the encoded size of a text of n bytes, with its length.
func lengthOf(n int) int { return varintLength(n) + n }

// varintLength returns the number of bytes of binary.AppendVarint for n, which must not be
// negative.
func varintLength(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }

type batch struct {
	set   []byte // encoded
	count int    // records of Kafka
}

// build encodes the batch of records, except producer and sequence, which stamp sets.
func (b *batch) build(records []*Record, c *Codec) error {
	c.busy <- struct{}{}
	defer func() { <-c.busy }()
	size := 0
	for _, r := range records {
		size += r.Size()
	}
	plain := c.get(&c.plains, size)
	defer c.put(&plain, &c.plains)
	b.count = 0
	first := records[0].Time
	last := first
	for _, r := range records {
		last = max(last, r.Time)
		plain = r.append(b.begin(plain, r.length(), r.Time-first))
		if r.Tombstone {
			plain = appendTombstone(b.begin(plain, tombstoneLength(r.Key), r.Time-first), r.Key)
		}
	}
	if cap(b.set) < Head {
		b.set = c.get(&c.sets, 4<<10)
	}
	b.set = b.set[:Head]
	clear(b.set)
	codecID := c.id
	var err error
	b.set, err = c.append(b.set, plain)
	if err != nil {
		return fmt.Errorf("compress a batch with %s: %w", c.name, err)
	}
	if len(b.set)-Head >= len(plain) { // compression does not help
		b.set, codecID = append(b.set[:Head], plain...), 0
	}
	if len(b.set) > math.MaxInt32 {
		return fmt.Errorf("a batch of %d bytes", len(b.set))
	}
	h := binary.BigEndian
	h.PutUint32(b.set, uint32(len(b.set)-4))
	h.PutUint32(b.set[atBatchLength:], uint32(len(b.set)-atLeaderEpoch))
	h.PutUint32(b.set[atLeaderEpoch:], math.MaxUint32) // -1: set by the broker
	b.set[atMagic] = 2
	h.PutUint16(b.set[atAttributes:], uint16(codecID))
	h.PutUint32(b.set[atLastOffset:], uint32(b.count-1))
	h.PutUint64(b.set[atFirstTime:], uint64(first))
	h.PutUint64(b.set[atMaxTime:], uint64(last))
	h.PutUint32(b.set[atCount:], uint32(b.count))
	return nil
}

// begin appends the part of a Kafka record before its key; length is that of the rest.
func (b *batch) begin(plain []byte, length int, since int64) []byte {
	var head [maxRecordHead]byte
	h := append(head[:0], 0) // attributes: none
	h = binary.AppendVarint(h, since)
	h = binary.AppendVarint(h, int64(b.count))
	b.count++
	plain = binary.AppendVarint(plain, int64(len(h)+length))
	return append(plain, h...)
}

// stamp sets the producer and first sequence of b. The same stamp gives the same bytes.
func (b *batch) stamp(id int64, epoch int16, sequence int32) {
	h := binary.BigEndian
	h.PutUint64(b.set[atProducer:], uint64(id))
	h.PutUint16(b.set[atProducerEpoch:], uint16(epoch))
	h.PutUint32(b.set[atSequence:], uint32(sequence))
	h.PutUint32(b.set[atCRC:], crc32.Checksum(b.set[atAttributes:], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant

// Codec compresses the record batches of any number of producers. It is safe for concurrent use.
type Codec struct {
	name   string
	id     int8
	append func(dst, src []byte) ([]byte, error)
	busy   chan struct{} // one element for each batch being built; others wait. Never closed.

	plains, sets sync.Pool // of *[]byte: records before compression, and batches
}

// NewCodec returns the codec of that name; "" is zstd. slots bounds the number of batches built at
// once: each needs the memory of its uncompressed records and of an encoder.
func NewCodec(name string, slots int) (*Codec, error) {
	c := &Codec{name: name, busy: make(chan struct{}, slots)}
	switch name {
	case "none":
		c.append = func(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }
	case "", "zstd":
		// Level 1 of zstd: most of the gain for a third of the time. The window bounds the memory
		// of brokers and consumers.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(slots),
			zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, fmt.Errorf("compression zstd: %w", err)
		}
		c.id = int8(compress.Zstd)
		c.append = func(dst, src []byte) ([]byte, error) { return enc.EncodeAll(src, dst), nil }
	case "gzip":
		c.stream(&gzip.Codec{})
	case "snappy":
		c.stream(&snappy.Codec{}) // in the framing of xerial, which Java's clients read
	case "lz4":
		c.stream(&lz4.Codec{})
	default:
		return nil, fmt.Errorf("compression %q: must be zstd, lz4, snappy, gzip or none", name)
	}
	return c, nil
}

func (c *Codec) stream(codec compress.Codec) {
	c.id = codec.Code()
	c.append = func(dst, src []byte) ([]byte, error) {
		out := bytes.NewBuffer(dst)
		w := codec.NewWriter(out)
		if _, err := w.Write(src); err != nil {
			_ = w.Close()
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	}
}

// maxKept is the largest buffer that is reused for another batch: enough for the default limit of
// topics.
const maxKept = 2 << 20

func (*Codec) get(from *sync.Pool, n int) []byte {
	if b, ok := from.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, n)
}

func (*Codec) put(b *[]byte, to *sync.Pool) {
	if kept := *b; cap(kept) > 0 && cap(kept) <= maxKept {
		to.Put(&kept)
	}
	*b = nil
}
