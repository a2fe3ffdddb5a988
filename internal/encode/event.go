package encode

import "github.com/kubecdc/kubecdc/internal/object"

const (
	// structuredType is the media type of CloudEvents' JSON format (JSON event format 1.0, section 3).
	structuredType = "application/cloudevents+json"
	dataType       = "application/json"
)

// maxKept is how large a buffer an Event keeps for its next delta. Without that bound, every worker of a thousand would
// in time hold buffers of the size of the largest object.
const maxKept = 64 << 10

// Event is one encoded CloudEvent. The zero value is ready for Encode. Its byte slices lie in buffers of its own: they hold
// until the next Encode or Reset, and who needs them longer copies them. It belongs to one goroutine.
type Event struct {
	// Delta is what the event was made of.
	Delta *object.Delta

	ID           []byte // with Source unique; a second copy has the same
	Source       []byte
	Type         []byte
	PartitionKey []byte // the same for all events of one object, or of one scope

	// ContentType is the media type of Body: CloudEvents' JSON format in structured mode, JSON in binary mode.
	ContentType string
	// Attributes are, in binary mode, all context attributes in a fixed order, as in structured mode, datacontenttype
	// among them: the Kafka and HTTP bindings map it to their content-type header (ContentType holds the same), NATS' to
	// ce-datacontenttype. In structured mode nil.
	Attributes []Attribute
	// Body is the whole event in structured mode, its data in binary mode.
	Body []byte

	// Trace is the context that the attribute traceparent has.
	Trace Trace

	// Truncated are the members of data that EncodeShort has left out, as data.truncated lists them; nil: none.
	Truncated []string

	attributes []Attribute
	values     []byte // of the attributes
	before     []byte // an object that the patch needs and the body does not
	differ     differ
}

// Attribute is a context attribute of an event. Value is valid UTF-8 without control characters; what else a binding
// forbids in a header, the publisher escapes.
type Attribute struct {
	Name  string
	Value []byte
}

// Reset lets go of the delta, and of buffers that a large object has made grow. Encode begins with it; a worker that goes
// idle calls it too.
func (ev *Event) Reset() {
	*ev = Event{
		Body:       reuse(ev.Body),
		attributes: ev.attributes[:0],
		values:     reuse(ev.values),
		before:     reuse(ev.before),
		differ:     ev.differ,
	}
}

// Footprint is how many bytes of memory the event's buffers hold.
func (ev *Event) Footprint() int {
	return cap(ev.Body) + cap(ev.values) + cap(ev.before)
}

// Size is what a bus has to take, in bytes, and what its limit is compared with: the body, and in binary mode the names and
// values of the attributes. A binding that escapes values makes them a little larger.
func (ev *Event) Size() int {
	n := len(ev.Body)
	for i := range ev.Attributes {
		n += len(ev.Attributes[i].Name) + len(ev.Attributes[i].Value)
	}
	return n
}

func reuse(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}
