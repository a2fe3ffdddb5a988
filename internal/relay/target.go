package relay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Target is where records go.
//
// Deliver returns nil only after the receiver has acknowledged the record, and retries by itself what may pass, as
// publish.Publisher does: an error that wraps publish.ErrRefused is about this record, any other is for good, or the cause
// of ctx. Safe for concurrent use; callers never have two calls in flight for one object. Run keeps connections, where there
// are any, until ctx ends.
type Target interface {
	Deliver(ctx context.Context, r *Record) error
	Run(ctx context.Context) error
	Ready() error
	// Stream tells whether events about the stream are wanted.
	Stream() bool
	// Workers is how many records may be on their way at once.
	Workers() int
}

// Bus is a bus of package publish.
type Bus interface {
	publish.Publisher
	Run(ctx context.Context) error
	Ready() error
}

// DefaultWorkers is how many records are on their way to a bus at once.
const DefaultWorkers = 64

// NewBus relays to a bus, with that many records on their way at once; 0: DefaultWorkers. What comes in binary mode goes on in
// structured mode.
func NewBus(b Bus, workers int) Target { return bus{b, cmp.Or(workers, DefaultWorkers)} }

type bus struct {
	Bus
	workers int
}

func (b bus) Deliver(ctx context.Context, r *Record) error {
	ev, err := eventOf(r.Event)
	if err != nil {
		return err
	}
	return b.Publish(ctx, ev)
}

func (bus) Stream() bool   { return true }
func (b bus) Workers() int { return b.workers }

// NewWriter relays to w, a JSON line each.
func NewWriter(w io.Writer) Target { return writer{publish.NewStdout(w)} }

type writer struct{ *publish.Stdout }

func (w writer) Deliver(ctx context.Context, r *Record) error {
	ev, err := eventOf(r.Event)
	if err != nil {
		return err
	}
	return w.Publish(ctx, ev)
}

func (writer) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (writer) Ready() error { return nil }
func (writer) Stream() bool { return true }
func (writer) Workers() int { return 1 } // lines come out as the records lie on the bus

// structuredType is the media type of CloudEvents' JSON format (JSON event format 1.0, section 3).
const structuredType = "application/cloudevents+json"

// eventOf makes an event for a bus of one that was read: in structured mode, to the letter where it was read so.
func eventOf(e *consume.Event) (*encode.Event, error) {
	body, err := e.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", publish.ErrRefused, err) // it will not be better next time
	}
	return &encode.Event{
		Delta:        deltaOf(e),
		ID:           []byte(e.ID),
		Source:       []byte(e.Source),
		Type:         []byte(e.Type),
		PartitionKey: []byte(e.PartitionKey),
		ContentType:  structuredType,
		Body:         body,
	}, nil
}

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
