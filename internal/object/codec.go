package object

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"
	"weak"

	"github.com/klauspost/compress/s2"
)

// Codec compresses the JSON of objects of one resource, with one of them as the dictionary. Objects
// of a resource share names, structure and most values, so little more than the differences is
// stored. Safe for concurrent use. A nil Codec compresses without a dictionary.
type Codec struct {
	sample []byte
	dict   *s2.Dict // for decoding; it never builds a table

	// For encoding, s2 builds a table of 32 KiB for each dictionary, too much for a thousand
	// resources that rarely change. The pool lets the garbage collector free the table; latest
	// ensures that all entries of the pool are the same one.
	encoders sync.Pool // of *s2.Dict
	mu       sync.Mutex
	latest   weak.Pointer[s2.Dict]
}

// The first byte of a packed object.
const (
	packedRaw  = iota // JSON as it is
	packedS2          // an s2 block
	packedDict        // an s2 block that needs the Codec's dictionary

	packedDeep     = 1 << 7 // set in addition: the JSON has more than MaxLevels levels
	packedHides    = 1 << 6 // set in addition: Scanned.Hides
	packedRedacted = 1 << 5 // set in addition: Scanned.Redacted
	packedFlags    = packedDeep | packedHides | packedRedacted
)

const (
	// A smaller block saves less than it costs.
	packMin = 64
	// A smaller sample saves less than its table costs.
	sampleMin = 256
	// s2 copies a dictionary that does not have this much spare capacity.
	dictMargin = 16
)

var errDamaged = errors.New("packed object is damaged")

// NewCodec returns a Codec with sample as its dictionary: the JSON of a typical object, or of
// several, concatenated. Only the first 64 KiB of a sample are used; a sample that is too short to
// help is ignored. A Codec holds a copy of its sample, and 32 KiB more while it compresses. Objects
// packed with a Codec keep it alive.
func NewCodec(sample []byte) *Codec {
	c := &Codec{}
	if len(sample) < sampleMin {
		return c
	}
	sample = sample[:min(len(sample), s2.MaxDictSize)]
	c.sample = append(make([]byte, 0, len(sample)+dictMargin), sample...)
	c.dict = c.newDict()
	c.encoders.New = c.encoder
	return c
}

func (c *Codec) newDict() *s2.Dict { return s2.MakeDictManual(c.sample, 0) }

// encoder returns the *s2.Dict that another goroutine encodes with, or a new one.
func (c *Codec) encoder() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.latest.Value()
	if d == nil {
		d = c.newDict()
		c.latest = weak.Make(d)
	}
	return d
}

// packers holds the output buffers of pack, whose size is not known in advance. All Codecs share
// them: there are many more Codecs than goroutines that pack.
//
//nolint:gochecknoglobals // spare memory, not state
var packers = sync.Pool{New: func() any { return new([]byte) }}

// pack compresses json.
func (c *Codec) pack(json []byte) string {
	if len(json) < packMin {
		return packRaw(json)
	}
	scratch := packers.Get().(*[]byte)
	defer func() {
		if cap(*scratch) <= bufferGiant {
			packers.Put(scratch)
		}
	}()
	packed := slices.Grow((*scratch)[:0], 1+s2.MaxEncodedLen(len(json)))
	packed = packed[:cap(packed)]
	*scratch = packed
	var block []byte // after the first byte, which names the format
	if c != nil && c.dict != nil {
		packed[0] = packedDict
		d := c.encoders.Get().(*s2.Dict)
		block = d.Encode(packed[1:], json)
		c.encoders.Put(d)
	} else {
		packed[0] = packedS2
		block = s2.Encode(packed[1:], json)
	}
	if len(block) >= len(json) {
		return packRaw(json)
	}
	return string(append(packed[:1], block...)) // copies nothing unless s2 has allocated another buffer
}

func packRaw(json []byte) string {
	var b strings.Builder
	b.Grow(1 + len(json))
	b.WriteByte(packedRaw)
	b.Write(json)
	return b.String()
}

// unpackedSize returns the length of the JSON that pack was given, 0 if packed is damaged.
func unpackedSize(packed string) int {
	if packed == "" {
		return 0
	}
	if packed[0]&^packedFlags == packedRaw {
		return len(packed) - 1
	}
	size, _ := binary.Uvarint(unsafe.Slice(unsafe.StringData(packed), len(packed))[1:])
	return int(min(size, math.MaxInt32))
}

// appendUnpacked appends the JSON that pack was given.
func (c *Codec) appendUnpacked(dst []byte, packed string) ([]byte, error) {
	if packed == "" {
		return dst, errDamaged
	}
	// s2 only reads the slice. A copy of the string would cost as much as decoding it.
	kind, block := packed[0]&^packedFlags, unsafe.Slice(unsafe.StringData(packed), len(packed))[1:]
	if kind == packedRaw {
		return append(dst, block...), nil
	}
	size, _ := binary.Uvarint(block)
	if size > 1<<31 {
		return dst, errDamaged
	}
	n := len(dst)
	dst = slices.Grow(dst, int(size))
	var err error
	switch {
	case kind == packedS2:
		_, err = s2.Decode(dst[n:n+int(size)], block)
	case kind == packedDict && c != nil && c.dict != nil:
		_, err = c.dict.Decode(dst[n:n+int(size)], block)
	default:
		err = errDamaged
	}
	if err != nil {
		return dst[:n], err
	}
	return dst[:n+int(size)], nil
}
