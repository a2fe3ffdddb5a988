package nats

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// Reader confines those who read the bus to some of its subjects, as their permissions do.
type Reader struct {
	// Consumers is fromnats.JetStream.Consumers of commands. A relay appends its name to it.
	Consumers string   `yaml:"consumers,omitempty"`
	Subjects  []string `yaml:"subjects,omitempty"`
}

const (
	mostConsumers = 64 // of a reader, as in package consume
	longestName   = 64
)

// consumersOf returns the prefix of a relay's consumers.
func (r *Reader) consumersOf(relay string) string { return r.Consumers + "-" + relay }

// bucket returns the name of the bucket with the cursors of the reader's relays. A user who may
// write to a bucket can empty it (Nats-Rollup: all), so this one belongs to this reader alone.
func (r *Reader) bucket() string { return CursorBucket + "-" + r.Consumers }

// only names the subjects, for people.
func (r *Reader) only() string {
	return "the reader may read only " + strings.Join(r.Subjects, ", ") + " (bus.nats.reader.subjects)"
}

var readerName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,` + fmt.Sprint(longestName) + `}$`)

// readerSubject matches tokens separated by dots, of which a whole one may be a wildcard.
var readerSubject = regexp.MustCompile(`^([^\x00-\x20\x7f.*>]+|\*)(\.([^\x00-\x20\x7f.*>]+|\*))*(\.>)?$`)

// withReaderKeys adds the constraints of the reader's keys.
func withReaderKeys(all map[string]check.Key) map[string]check.Key {
	all["reader.consumers"] = check.Key{Pattern: readerName.String(), Required: true}
	all["reader.subjects"] = check.Key{Required: true, NotEmpty: true}
	all["reader.subjects[]"] = check.Key{Pattern: readerSubject.String()}
	return all
}

func (r *Reader) validate(path *field.Path, f *driver.Facts) field.ErrorList {
	switch {
	case r == nil:
		return nil
	case f.Target:
		return field.ErrorList{
			field.Forbidden(path, "is for the bus that is read, and a relay writes to its target: remove it"),
		}
	}
	var list field.ErrorList
	names, subjects := path.Child("consumers"), path.Child("subjects")
	if r.Consumers == "" {
		list = append(list, field.Required(names, "is missing: the names of the reader's consumers begin with it"))
	} else {
		list = append(list, check.Matches(names, r.Consumers, readerName,
			fmt.Sprintf(`must be at most %d of A-Z, a-z, 0-9, "-" and "_"`, longestName))...)
	}
	switch {
	case len(r.Subjects) == 0:
		list = append(list, field.Required(subjects, "is missing: list the subjects that the reader may read"))
	case len(r.Subjects) > mostConsumers:
		list = append(list, field.TooMany(subjects, len(r.Subjects), mostConsumers))
	}
	for i, s := range r.Subjects {
		at := subjects.Index(i)
		wrong := check.Matches(at, s, readerSubject,
			"must be a subject such as kubecdc.*.object.*.*.shop.*: * for a token, > at the end")
		if j := slices.IndexFunc(r.Subjects[:i], func(other string) bool {
			return subject.Overlap(s, other)
		}); j >= 0 && wrong == nil {
			wrong = field.ErrorList{
				field.Invalid(at, s,
					fmt.Sprintf("must not overlap with %s: its records would be read twice", subjects.Index(j))),
			}
		}
		list = append(list, wrong...)
	}
	return list
}

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
func (c *Config) confine(bus fromnats.JetStream, consumers string) (*confined, error) {
	limit, err := subjectfilter.NewLimit(c.Subject, c.Reader.Subjects)
	if err != nil {
		return nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	bus.Consumers, bus.Subjects = consumers, c.Reader.Subjects
	s := &confined{bus: bus, limit: limit, only: c.Reader.only(), copies: &copies{template: c.Subject}}
	s.bus.OnOpen = s.copies.note
	return s, nil
}

// Reads implements driver.Confined.
func (s *confined) Reads(objects []consume.Objects, events consume.Events, cluster string) (some, all bool) {
	some, all = s.limit.Reads(objects, events, cluster)
	_, copied := s.copies.reads(objects, events, cluster)
	return some, all && copied
}

// Only implements driver.Confined.
func (s *confined) Only() string {
	if copied := s.copies.only(); copied != "" {
		return s.only + "; " + copied
	}
	return s.only
}

// Traits implements consume.Source: the subjects of its consumers are fixed.
func (s *confined) Traits() consume.Traits { return consume.Traits{OneLog: true} }

// Read implements consume.Source.
func (s *confined) Read(ctx context.Context, q consume.Query) (consume.Reader, error) {
	if some, _ := s.Reads(q.Objects, q.Events, ""); !some {
		return nil, &OutsideError{s.only}
	}
	q.LastOfEach = false // a subject may have records of several objects
	r, err := s.bus.Read(ctx, q)
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
