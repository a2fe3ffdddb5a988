package encode

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Mode is the content mode of CloudEvents.
type Mode string

// The content modes.
const (
	Structured Mode = "structured" // attributes and data in one JSON document
	Binary     Mode = "binary"     // attributes in headers, the body is the data
)

// Options configure the content of events.
type Options struct {
	Cluster    string // the configured name; "" means ClusterUID
	ClusterUID string // the UID of namespace kube-system
	Mode       Mode   // "": Structured
	Before     bool   // send the object before
	Patch      bool   // send the patch
	Epoch      uint64 // of the leader; 0: there is no election, and events have no epoch
	Writer     string // names what the agent keeps its positions in, across restarts; "": stream events name no writer
	Run        string // names the term of this process as a writer
	Checkpoint string // what the agent keeps its positions in, for people; "": not known
	Node       string // the agent's node; "": none
	// SampleRatio is the fraction of object events that are traced, from 0 to 1; the event id
	// decides.
	SampleRatio float64
}

// Encoder encodes deltas. Many workers share one, and each reuses an Event of its own. An Encoder
// is immutable, so it is safe for concurrent use.
type Encoder struct {
	o      Options
	source string
	epoch  string // "": none

	rejected uint64 // see setTrace
}

// New returns an Encoder.
func New(o Options) *Encoder {
	if o.Cluster == "" {
		o.Cluster = o.ClusterUID
	}
	e := &Encoder{
		o:        o,
		source:   string(appendPathSegment([]byte("/kubernetes/"), o.Cluster)),
		rejected: rejected(o.SampleRatio),
	}
	if o.Epoch > 0 {
		e.epoch = strconv.FormatUint(o.Epoch, 10)
	}
	return e
}

// The violations of the contract.
var (
	errNoCluster  = errors.New("neither a cluster name nor a cluster uid")
	errNoRef      = errors.New("no resource")
	errNoUID      = errors.New("no uid")
	errNoVersion  = errors.New("no resourceVersion")
	errNoSnapshot = errors.New("no snapshot id")
	errNoBefore   = errors.New("no object before")
	errNoAfter    = errors.New("no object after")
	errNoScope    = errors.New("no scope")
	errNoReason   = errors.New("no reason")
	errNoWriter   = errors.New("no writer")
)

// Encode makes ev the event of d, and reuses ev's buffers. After an error ev is only valid for
// another Encode.
func (e *Encoder) Encode(ev *Event, d *object.Delta) error {
	return e.encodeInMode(ev, d, e.o.Mode, nil)
}

func (e *Encoder) encodeInMode(ev *Event, d *object.Delta, mode Mode, s *shortening) error {
	ev.Reset()
	ev.Delta = d
	if err := e.fillEvent(ev, d, mode, s); err != nil {
		switch {
		case d.Report != nil:
			return fmt.Errorf("encode progress %d: %w", d.Report.Number, err)
		case d.Stream != nil:
			return fmt.Errorf("encode %s %s: %w", d.Stream.Kind, d.Stream.Scope, err)
		case d.Ref == nil || d.Ref.Resource == nil:
			return fmt.Errorf("encode delta: %w", err)
		}
		return fmt.Errorf("encode %s rv=%d: %w", d.Ref.Key, d.ResourceVersion, err)
	}
	return nil
}

func (e *Encoder) fillEvent(ev *Event, d *object.Delta, mode Mode, s *shortening) error {
	if e.o.Cluster == "" {
		return errNoCluster
	}
	check := checkObject
	attributes := e.putObjectAttributes
	data := e.appendObjectData
	switch {
	case d.Stream != nil:
		check = checkStream
		attributes = e.putStreamAttributes
		data = e.appendStreamData
	case d.Report != nil:
		check = e.checkReport
		attributes = e.putReportAttributes
		data = e.appendReport
	}
	if err := check(d, s); err != nil {
		return err
	}
	attributes(ev, d)
	s.putAttributes(ev)

	var err error
	if mode == Binary {
		ev.ContentType = dataType
		ev.Attributes = ev.attributes
		ev.Body, err = data(ev.Body, ev, d, s)
		return err
	}
	ev.ContentType = structuredType
	body := append(ev.Body, '{')
	for i := range ev.attributes {
		a := &ev.attributes[i]
		body = append(body, '"')
		body = append(body, a.Name...)
		body = append(body, `":"`...)
		body = jsonscan.AppendInside(body, a.Value)
		body = append(body, `",`...)
	}
	body = append(body, `"data":`...)
	body, err = data(body, ev, d, s)
	ev.Body = append(body, '}')
	return err
}

// checkObject checks that d has everything that the contract requires of its op, except for the
// members that s omits.
func checkObject(d *object.Delta, s *shortening) error {
	var before, after, version bool
	switch d.Op {
	case object.Created, object.Read, object.Entered:
		after, version = true, true
	case object.Updated:
		before = true
		after = true
		version = true
	case object.Left:
		before, version = true, true
	case object.Deleted: // its id does not contain a version
		before = true
	default:
		return fmt.Errorf("unknown op %q", d.Op)
	}
	switch {
	case d.Ref == nil || d.Ref.Resource == nil:
		return errNoRef
	case d.Ref.UID == "":
		return errNoUID
	case version && d.ResourceVersion == 0:
		return errNoVersion
	case before && d.Before == nil && !s.isWithoutObjects():
		return errNoBefore
	case after && d.After == nil && !s.isWithoutObjects():
		return errNoAfter
	case d.Op == object.Read && d.Snapshot == "":
		return errNoSnapshot
	}
	return nil
}

func checkStream(d *object.Delta, _ *shortening) error {
	s := d.Stream
	switch {
	case s.Resource == nil:
		return errNoRef
	case s.Scope == "":
		return errNoScope
	}
	switch s.Kind {
	case object.SnapshotStarted, object.SnapshotCompleted:
		if s.Snapshot == "" {
			return errNoSnapshot
		}
	case object.ScopeStarted:
		if s.ResourceVersion == 0 {
			return errNoVersion
		}
	case object.ScopeEnded:
		if s.End == "" {
			return errNoReason
		}
	case object.Gap:
	default:
		return fmt.Errorf("unknown kind of stream event %q", s.Kind)
	}
	return nil
}
