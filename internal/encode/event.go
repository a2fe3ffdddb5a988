package encode

import (
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/patch"
)

const (
	// structuredType is the media type of CloudEvents' JSON format (JSON event format 1.0, section
	// 3).
	structuredType = "application/cloudevents+json"
	dataType       = "application/json"
)

// maxKept is the largest buffer that an Event keeps for its next delta. Without this bound, each of
// a thousand workers would eventually hold buffers of the size of the largest object.
const maxKept = 64 << 10

// Event is one encoded CloudEvent. The zero value is ready for Encode. Its byte slices alias its
// own buffers and are valid until the next Encode or Reset. It belongs to one goroutine.
type Event struct {
	// Delta is the source of the event.
	Delta *object.Delta

	ID           []byte // unique together with Source; a duplicate has the same ID
	Source       []byte
	ClusterUID   []byte // distinguishes clusters of one Source
	Type         []byte
	PartitionKey []byte // the same for all events of one object, of one scope, or of the progress of one writer
	// of the progress of an agent (Delta.Report), and of the start of a scope or snapshot; nil:
	// another event
	Writer []byte
	Run    []byte // the run of the writer, of the start of a scope or snapshot; nil: another event

	// ContentType is the media type of Body: CloudEvents' JSON format in structured mode, JSON in
	// binary mode.
	ContentType string
	// Attributes are, in binary mode, all context attributes in the order of structured mode. They
	// include datacontenttype, which the Kafka and HTTP bindings map to their content-type header
	// (ContentType has the same value), and the NATS binding to ce-datacontenttype. In structured
	// mode Attributes is nil.
	Attributes []Attribute
	// Body is the whole event in structured mode, its data in binary mode.
	Body []byte

	// Trace is the context in the attribute traceparent.
	Trace Trace

	// Truncated are the members of data that EncodeShort omitted, as listed in data.truncated; nil
	// if none. Encode and EncodeWhole omit a patch that is too costly (patch.ErrCostly).
	Truncated []string

	// TooDeep reports that the event contains an object of more than object.MaxLevels levels.
	// Parsers of consumers may not bear it: it must be shortened like an event that is too large.
	TooDeep bool

	attributes []Attribute
	values     []byte // of the attributes
	before     []byte // an object that the patch needs but the body does not contain
	differ     patch.Differ
}

// Attribute is a context attribute of an event. Value is valid UTF-8 without control characters;
// the publisher escapes other characters that its binding forbids in a header.
type Attribute struct {
	Name  string
	Value []byte
}

// Reset releases the delta, and buffers that a large object has enlarged. Encode calls it first; a
// worker calls it when it becomes idle.
func (ev *Event) Reset() {
	*ev = Event{
		Body:       reuse(ev.Body),
		attributes: ev.attributes[:0],
		values:     reuse(ev.values),
		before:     reuse(ev.before),
		differ:     ev.differ,
	}
}

// Footprint returns the memory of the event's buffers, in bytes.
func (ev *Event) Footprint() int {
	return cap(ev.Body) + cap(ev.values) + cap(ev.before)
}

// Size returns the size that counts against the limit of a bus, in bytes: the body and, in binary
// mode, the names and values of the attributes. A binding that escapes values adds a few bytes.
func (ev *Event) Size() int {
	n := len(ev.Body)
	for i := range ev.Attributes {
		n += len(ev.Attributes[i].Name) + len(ev.Attributes[i].Value)
	}
	return n
}

// Visited returns the number of bytes that the comparison for the patch has read, each as often as
// it was read. It measures for how long the event occupied its encoder.
func (ev *Event) Visited() int { return ev.differ.Visited() }

func reuse(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}
