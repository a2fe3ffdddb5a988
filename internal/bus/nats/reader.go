package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// OutsideError is the error of a query that asks only for events which its reader may not read.
type OutsideError struct{ only string }

func (e *OutsideError) Error() string {
	return "the objects that are asked for are outside: " + e.only
}

// confined is the stream of a reader that has fixed names and subjects. It does not filter.
type confined struct {
	bus    fromnats.JetStream
	limit  *subjectfilter.Limit
	only   string
	copies *copies // of the stream, which may copy less
}

// confine returns the stream for a reader with the consumers of a prefix.
func (o Opener) confine(bus fromnats.JetStream, consumers string) (*confined, error) {
	limit, err := subjectfilter.NewLimit(o.Subject, o.Reader.Subjects)
	if err != nil {
		return nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	bus.Consumers, bus.Subjects = consumers, o.Reader.Subjects
	s := &confined{
		bus:    bus,
		limit:  limit,
		only:   o.Reader.Only(),
		copies: &copies{template: o.Subject},
	}
	s.bus.OnOpen = s.copies.note
	return s, nil
}

// Reads implements driver.Confined.
func (c *confined) Reads(objects []consume.Objects, events consume.Events, cluster string) (some, all bool) {
	some, all = c.limit.Reads(objects, events, cluster)
	_, copied := c.copies.reads(objects, events, cluster)
	return some, all && copied
}

// Only implements driver.Confined.
func (c *confined) Only() string {
	if copied := c.copies.only(); copied != "" {
		return c.only + "; " + copied
	}
	return c.only
}

// Traits implements consume.Source: the subjects of its consumers are fixed.
func (c *confined) Traits() consume.Traits { return consume.Traits{OneLog: true} }

// Read implements consume.Source.
func (c *confined) Read(ctx context.Context, q consume.Query) (consume.Reader, error) {
	if some, _ := c.Reads(q.Objects, q.Events, ""); !some {
		return nil, &OutsideError{c.only}
	}
	q.LastOfEach = false // a subject may have records of several objects
	r, err := c.bus.Read(ctx, q)
	if inUse := (*fromnats.InUseError)(nil); errors.As(err, &inUse) {
		err = &namesInUseError{inUse}
	}
	if err != nil {
		return nil, err
	}
	return confinedReader{r}, nil
}

// namesInUseError is an InUseError with advice for the user of a configuration.
type namesInUseError struct{ *fromnats.InUseError }

func (e *namesInUseError) Error() string {
	return fmt.Sprintf(
		"consumer %s is in use by another reader (%s): end that one, or read with a configuration and permissions for another name "+
			"(bus.nats.reader.consumers)", e.Consumer, e.By)
}

// Unwrap returns the error without the advice.
func (e *namesInUseError) Unwrap() error { return e.InUseError }

// confinedReader is a reader without access to the object store, which has the events of all
// namespaces. A request for an object would get no answer.
type confinedReader struct{ consume.Reader }

var errNoStore = errors.New("a reader with bus.nats.reader has no access to the object store")

// Whole implements consume.Reader.
func (r confinedReader) Whole(ctx context.Context, e *consume.Event) (*consume.Event, error) {
	if strings.HasPrefix(e.DataRef, ObjectScheme+"://") {
		return e, fmt.Errorf("the whole of %s is at %s: %w", e.ID, e.DataRef, errNoStore)
	}
	return r.Reader.Whole(ctx, e)
}
