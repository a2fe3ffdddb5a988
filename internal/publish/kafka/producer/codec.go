package producer

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/gzip"
	"github.com/segmentio/kafka-go/compress/lz4"
	"github.com/segmentio/kafka-go/compress/snappy"
)

// Codec makes the record batches of any number of producers. It is safe for concurrent use.
type Codec struct {
	name   string
	id     int8
	append func(dst, src []byte) ([]byte, error)
	busy   chan struct{} // one for each batch that is being made; further ones wait their turn. Never closed.

	plains, sets sync.Pool // of *[]byte: records before compression, and batches
}

// NewCodec returns the codec of that name; "" is zstd. slots bounds how many batches are made at once: each takes the memory of its
// records before compression, and that of an encoder.
func NewCodec(name string, slots int) (*Codec, error) {
	c := &Codec{name: name, busy: make(chan struct{}, slots)}
	switch name {
	case "none":
		c.append = func(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }
	case "", "zstd":
		// Level 1 of zstd: most of the gain for a third of the time. The window bounds what a broker and consumers need.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(slots),
			zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, fmt.Errorf("compression zstd: %w", err)
		}
		c.id, c.append = int8(compress.Zstd), func(dst, src []byte) ([]byte, error) { return enc.EncodeAll(src, dst), nil }
	case "gzip":
		c.stream(&gzip.Codec{})
	case "snappy":
		c.stream(&snappy.Codec{}) // in the framing of xerial, which is what Java's clients read
	case "lz4":
		c.stream(&lz4.Codec{})
	default:
		return nil, fmt.Errorf("compression %q: must be zstd, lz4, snappy, gzip or none", name)
	}
	return c, nil
}

// stream compresses with a codec of kafka-go.
func (c *Codec) stream(codec compress.Codec) {
	c.id, c.append = codec.Code(), func(dst, src []byte) ([]byte, error) {
		out := appender{dst}
		w := codec.NewWriter(&out)
		if _, err := w.Write(src); err != nil {
			_ = w.Close()
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		return out.b, nil
	}
}

// appender is a writer onto a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// maxKept is how large a buffer is kept for another batch: enough for the default limit of topics.
const maxKept = 2 << 20

// get returns an empty buffer, with room for n bytes unless it was used before.
func (*Codec) get(from *sync.Pool, n int) []byte {
	if b, ok := from.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, n)
}

// put takes a buffer back.
func (*Codec) put(b *[]byte, to *sync.Pool) {
	if kept := *b; cap(kept) > 0 && cap(kept) <= maxKept {
		to.Put(&kept)
	}
	*b = nil
}
