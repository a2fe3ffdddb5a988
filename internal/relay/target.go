package relay

import (
	"errors"
	"strconv"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Target is where records go: a bus. It gets each record as an event whose [RecordOf] is the record.
type Target interface {
	publish.Bus
	// Stream reports whether stream events are wanted.
	Stream() bool
	// InFlight is how many records may be in flight.
	InFlight() int
}

// NewBus relays to a bus of package publish. It sends events in structured mode, those that were read in binary mode too.
func NewBus(b publish.Bus) Target { return bus{b} }

type bus struct{ publish.Bus }

func (bus) Stream() bool  { return true }
func (bus) InFlight() int { return publish.InFlight }

// NewWriter relays to a bus that writes lines. They come out as the records lie on the bus.
func NewWriter(b publish.Bus) Target { return writer{b} }

type writer struct{ publish.Bus }

func (writer) Stream() bool  { return true }
func (writer) InFlight() int { return 1 }

// delivery is a record on its way to the target. It is the Acker of its delta.
type delivery struct {
	relay   *Relay
	record  *Record
	slots   []*slot // of all copies of the record
	skipped bool
}

// RecordOf returns the record of an event that a relay has handed to its target.
func RecordOf(e *publish.Event) *Record { return e.Delta.Acker.(*delivery).record } //nolint:forcetypeassert // the relay makes all of them

// Acked implements object.Acker.
func (d *delivery) Acked(*object.Delta) {
	if !d.skipped {
		d.relay.metrics.delivered.WithLabelValues(d.relay.o.Name).Inc()
	}
	for _, s := range d.slots {
		d.relay.marks.done(s)
	}
	d.relay.marks.end(resourceOf(d.record.Event))
}

// delta is the delta that the dispatcher is to bring to the target.
func (r *Relay) delta(rec *Record, slots ...*slot) *object.Delta {
	d := deltaOf(rec.Event)
	d.Acker = &delivery{relay: r, record: rec, slots: slots}
	return d
}

// structuredType is the media type of CloudEvents' JSON format (JSON event format 1.0, section 3).
const structuredType = "application/cloudevents+json"

// encoder makes the event of a record that was read: in structured mode, to the letter if it was read so.
type encoder struct{}

// Encode implements publish.Encoder.
func (encoder) Encode(ev *encode.Event, d *object.Delta) error {
	e := d.Acker.(*delivery).record.Event //nolint:forcetypeassert // the relay makes all of them
	body, err := e.MarshalJSON()
	if err != nil {
		return err
	}
	*ev = encode.Event{
		Delta:        d,
		ID:           []byte(e.ID),
		Source:       []byte(e.Source),
		Type:         []byte(e.Type),
		PartitionKey: []byte(e.PartitionKey),
		ContentType:  structuredType,
		Body:         body,
	}
	return nil
}

// errWhole says that a relay changes no event.
var errWhole = errors.New("a relay sends whole events only")

// EncodeShort implements publish.Encoder.
func (encoder) EncodeShort(*encode.Event, *object.Delta, encode.Short) error { return errWhole }

// EncodeWhole implements publish.Encoder.
func (encoder) EncodeWhole(*encode.Event, *object.Delta) error { return errWhole }

// deltaOf is as much of a delta as subjects, topics and keys are made of.
func deltaOf(e *consume.Event) *object.Delta {
	r := &object.Resource{
		Group: e.Group(), Version: e.APIVersion, Name: e.Resource, Kind: e.Kind, Namespaced: e.Namespace != "",
	}
	if r.Group != "" {
		r.Version = e.APIVersion[len(r.Group)+1:]
	}
	d := &object.Delta{Observed: e.Time.UnixNano(), History: e.History()}
	if s := e.Stream; s != nil {
		d.Stream = &object.StreamEvent{
			Kind:     object.StreamKind(e.Type[len(consume.TypePrefix):]),
			Resource: r, Scope: e.Scope, History: d.History, Snapshot: s.Snapshot, Objects: s.Objects,
			ResourceVersion: version(s.ResourceVersion), From: version(s.FromResourceVersion), To: version(s.ToResourceVersion),
			Since: s.Since, Reason: object.GapReason(s.Reason), Recovered: s.Recovered,
		}
		return d
	}
	d.Op = object.Op(e.Op[0])
	d.Ref = object.NewRef(r, e.Namespace, e.Name, e.UID)
	d.ResourceVersion, d.Previous = version(e.ResourceVersion), version(e.Data.PreviousResourceVersion)
	d.Inferred, d.Snapshot = e.Data.Inferred, e.Data.Snapshot
	return d
}

// version is a resourceVersion, 0 where it is no number.
func version(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
