package producer

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/gzip"
	"github.com/segmentio/kafka-go/compress/lz4"
	"github.com/segmentio/kafka-go/compress/snappy"
)

// Codec compresses the record batches of any number of producers. It is safe for concurrent use.
type Codec struct {
	name   string
	id     int8
	append func(dst, src []byte) ([]byte, error)
	busy   chan struct{} // one element for each batch being built; others wait. Never closed.

	plains, sets sync.Pool // of *[]byte: records before compression, and batches
}

// NewCodec returns the codec of that name; "" is zstd. slots bounds the number of batches built at once: each needs the memory of its
// uncompressed records and of an encoder.
func NewCodec(name string, slots int) (*Codec, error) {
	c := &Codec{name: name, busy: make(chan struct{}, slots)}
	switch name {
	case "none":
		c.append = func(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }
	case "", "zstd":
		// Level 1 of zstd: most of the gain for a third of the time. The window bounds the memory of brokers and consumers.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(slots),
			zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, fmt.Errorf("compression zstd: %w", err)
		}
		c.id, c.append = int8(compress.Zstd), func(dst, src []byte) ([]byte, error) { return enc.EncodeAll(src, dst), nil }
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
	c.id, c.append = codec.Code(), func(dst, src []byte) ([]byte, error) {
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

// maxKept is the largest buffer that is reused for another batch: enough for the default limit of topics.
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
