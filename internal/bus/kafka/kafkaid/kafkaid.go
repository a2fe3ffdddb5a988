package kafkaid

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// ErrUnsupported is returned for brokers before Kafka 2.8, which report no topic ids.
var ErrUnsupported = errors.New("the broker reports no topic ids: use Kafka 2.8 or later")

// IDs are the ids of a cluster and its topics.
type IDs struct {
	Cluster string
	// by name, in the form of Kafka's tools; without topics that do not exist or may not be
	// described
	Topics map[string]string
}

// Reports reports whether a broker reports topic ids. newest has its newest version of each
// request.
func Reports(newest map[protocol.ApiKey]int16) bool { return newest[protocol.Metadata] >= version }

// Lookup requests the ids of topics from the broker at addr, through c.Transport.
func Lookup(ctx context.Context, c *kafka.Client, addr net.Addr, topics []string) (*IDs, error) {
	versions, err := c.ApiVersions(ctx, &kafka.ApiVersionsRequest{Addr: addr})
	if err == nil {
		err = versions.Error
	}
	if err != nil {
		return nil, fmt.Errorf("get topic ids: %w", err)
	}
	if !slices.ContainsFunc(versions.ApiKeys, func(k kafka.ApiVersionsResponseApiKey) bool {
		return k.ApiKey == int(protocol.Metadata) && k.MinVersion <= version && version <= k.MaxVersion
	}) {
		return nil, ErrUnsupported
	}
	res, err := c.Transport.RoundTrip(ctx, addr, &request{topics: topics})
	if err != nil {
		return nil, fmt.Errorf("get topic ids: %w", err)
	}
	r, ok := res.(*response)
	if !ok {
		return nil, errors.New("get topic ids: the broker's response is about something else")
	}
	return &r.ids, nil
}

// Cause returns an error of kafka.Client without the name of the method that kafka-go puts before
// it.
func Cause(err error) error {
	if cause := errors.Unwrap(err); cause != nil && strings.HasPrefix(err.Error(), "kafka.(*Client).") {
		return cause
	}
	return err
}

const (
	version     = 10 // of Metadata: the first version with topic ids
	correlation = 0x6b63
	client      = "kubecdc"
	largest     = 64 << 20 // maximum size of an answer
)

type request struct{ topics []string }

type response struct{ ids IDs }

//nolint:revive,staticcheck // the name is that of the interface
func (*request) ApiKey() protocol.ApiKey { return protocol.Metadata }

//nolint:revive,staticcheck // the name is that of the interface
func (*response) ApiKey() protocol.ApiKey { return protocol.Metadata }

func (*request) Required(map[protocol.ApiKey]int16) bool { return true }

func (r *request) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(protocol.Metadata))
	b = binary.BigEndian.AppendUint16(b, version)
	b = binary.BigEndian.AppendUint32(b, correlation)
	b = binary.BigEndian.AppendUint16(b, uint16(len(client)))
	b = append(b, client...)
	b = append(b, 0) // no tagged fields in the header
	b = binary.AppendUvarint(b, uint64(len(r.topics))+1)
	for _, name := range r.topics {
		b = append(b, make([]byte, 16)...) // topic id 0: the request has the name
		b = binary.AppendUvarint(b, uint64(len(name))+1)
		b = append(b, name...)
		b = append(b, 0)
	}
	b = append(b, 0, 0, 0, 0) // create no topics, omit permissions of cluster and topics; no tagged fields
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := rw.Write(b); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(rw, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > largest {
		return nil, fmt.Errorf("the broker's answer has %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(rw, body); err != nil {
		return nil, err
	}
	return parse(body)
}

func parse(body []byte) (*response, error) {
	d := decoder{rest: body}
	if d.number(4) != correlation {
		return nil, errors.New("the broker's answer is to another request")
	}
	d.tags()
	d.skip(4) // throttle time
	for range d.array() {
		d.skip(4) // a broker: id, host, port, rack
		d.text()
		d.skip(4)
		d.text()
		d.tags()
	}
	res := &response{IDs{Cluster: d.text(), Topics: map[string]string{}}}
	d.skip(4) // controller
	for range d.array() {
		code := kafka.Error(d.number(2))
		name := d.text()
		id := d.take(16)
		d.skip(1) // internal
		for range d.array() {
			d.skip(2 + 4 + 4 + 4)
			for range 3 { // replicas: all, in sync, offline
				d.skip(4 * d.array())
			}
			d.tags()
		}
		d.skip(4)
		d.tags()
		if (code == 0 || code == kafka.LeaderNotAvailable) && len(id) == 16 && [16]byte(id) != [16]byte{} {
			res.ids.Topics[name] = base64.RawURLEncoding.EncodeToString(id)
		}
	}
	d.skip(4)
	d.tags()
	if d.short {
		return nil, errors.New("the broker's answer is cut short")
	}
	return res, nil
}

// decoder reads the primitives of Kafka's protocol. Reads beyond the end return zeros and set
// short.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.rest, d.short = nil, true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) skip(n int) { d.take(n) }

func (d *decoder) number(n int) int32 {
	v := uint32(0)
	for _, b := range d.take(n) {
		v = v<<8 | uint32(b)
	}
	return int32(v)
}

func (d *decoder) uvarint() int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > math.MaxInt32 {
		d.rest, d.short = nil, true
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

// array returns the number of elements of a compact array. Each element has at least one byte.
func (d *decoder) array() int {
	n := max(d.uvarint()-1, 0)
	if n > len(d.rest) {
		d.rest, d.short = nil, true
		return 0
	}
	return n
}

// text returns a compact string, "" for null.
func (d *decoder) text() string { return string(d.take(max(d.uvarint()-1, 0))) }

func (d *decoder) tags() {
	for range d.uvarint() {
		d.uvarint()
		if d.short {
			return
		}
		d.skip(d.uvarint())
	}
}
