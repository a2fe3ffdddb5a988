package relay

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Target is the bus that receives the records, each as an event; [RecordOf] returns its record. It
// gets events in structured mode, even those that were read in binary mode. It may implement
// Limited.
type Target = publish.Bus

// Limited is a Target that does not want stream events, or wants fewer than publish.InFlight
// records in flight.
type Limited interface {
	Stream() bool
	InFlight() int
}

// LossReader is a Target that deletes what a snapshot leaves out, and so must know what it did not
// get. New calls ReadLosses.
//
// losses returns the time before which records about a resource ("deployments.apps") may be missing
// at the target: a snapshot that began after it has what they would have shown. It returns false if
// none is missing.
type LossReader interface {
	ReadLosses(losses func(of consume.ClusterKey, resource string) (until time.Time, lost bool))
}

// delivery is a record in flight to the target. It is the Acker of its delta.
type delivery struct {
	relay   *Relay
	record  *driver.Record
	slots   []*slot // of all copies of the record
	skipped bool
}

// RecordOf returns the record of an event from a relay.
func RecordOf(e *publish.Event) *driver.Record {
	return e.Delta.Acker.(*delivery).record //nolint:forcetypeassert // the relay makes all of them
}

func (d *delivery) Acked(*object.Delta) {
	if !d.skipped {
		d.relay.metrics.delivered.WithLabelValues(d.relay.o.Name).Inc()
	}
	for _, s := range d.slots {
		d.relay.marks.finish(s)
	}
	d.relay.marks.endRecord(resourceOf(d.record.Event))
}

func (r *Relay) newDelta(rec *driver.Record, slots ...*slot) *object.Delta {
	d := deltaOf(rec.Event)
	d.Acker = &delivery{relay: r, record: rec, slots: slots}
	return d
}

// structuredType is the media type of CloudEvents' JSON format (JSON event format 1.0, section 3).
const structuredType = "application/cloudevents+json"

// encoder encodes a record as an event in structured mode, byte for byte if it was read so.
type encoder struct{}

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
		ClusterUID:   []byte(e.ClusterUID),
		Type:         []byte(e.Type),
		PartitionKey: []byte(e.PartitionKey),
		ContentType:  structuredType,
		Body:         body,
	}
	switch {
	case e.Progress != nil:
		ev.Writer = []byte(e.Progress.Writer)
	case e.Type == consume.TypeScopeStarted, e.Type == consume.TypeSnapshotStarted:
		ev.Writer, ev.Run = []byte(e.Stream.Writer), []byte(e.Stream.Run)
	}
	return nil
}

var errWhole = errors.New("a relay sends whole events only")

func (encoder) EncodeShort(*encode.Event, *object.Delta, encode.Short) error { return errWhole }

func (encoder) EncodeWhole(*encode.Event, *object.Delta) error { return errWhole }

// deltaOf returns the part of a delta that subjects, topics and keys are made of.
func deltaOf(e *consume.Event) *object.Delta {
	if e.Progress != nil {
		return &object.Delta{Observed: e.Time.UnixNano(), Report: reportOf(e.Progress)}
	}
	r := &object.Resource{
		Group:      e.Group(),
		Version:    e.APIVersion,
		Name:       e.Resource,
		Kind:       e.Kind,
		Namespaced: e.Namespace != "",
	}
	if r.Group != "" {
		r.Version = e.APIVersion[len(r.Group)+1:]
	}
	d := &object.Delta{Observed: e.Time.UnixNano(), History: e.History()}
	if s := e.Stream; s != nil {
		d.Stream = &object.StreamEvent{
			Kind:            object.StreamKind(e.Type.Name()),
			Resource:        r,
			Scope:           e.Scope,
			History:         d.History,
			Snapshot:        s.Snapshot,
			Objects:         s.Objects,
			ResourceVersion: version(s.ResourceVersion),
			From:            version(s.FromResourceVersion),
			To:              version(s.ToResourceVersion),
			Since:           s.Since,
			Reason:          s.Reason,
			Recovered:       s.Recovered,
			End:             s.End,
		}
		return d
	}
	d.Op = e.Op
	d.Ref = object.NewRef(r, e.Namespace, e.Name, e.UID)
	d.ResourceVersion, d.Previous = version(e.ResourceVersion), version(e.Data.PreviousResourceVersion)
	d.Inferred, d.Snapshot = e.Data.Inferred, e.Data.Snapshot
	return d
}

// reportOf returns the part of a report that its destination is made of.
func reportOf(p *consume.Progress) *object.Report {
	r := &object.Report{
		Number:        uint64(max(p.Number, 0)),
		Since:         p.Since,
		Ends:          p.Ends,
		To:            p.To,
		SnapshotBegan: p.SnapshotBegan,
	}
	for i := range p.Scopes {
		s := &p.Scopes[i]
		plural, group, _ := strings.Cut(s.Resource, ".")
		r.Scopes = append(r.Scopes, object.ScopeReport{
			Resource:        &object.Resource{Group: group, Name: plural},
			Scope:           s.Scope,
			Count:           s.Count,
			ResourceVersion: version(s.ResourceVersion),
			History:         s.History,
			To:              s.To,
			SnapshotBegan:   s.SnapshotBegan,
		})
	}
	return r
}

func version(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
