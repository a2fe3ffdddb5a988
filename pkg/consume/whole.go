package consume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// objectScheme begins references into JetStream's object store: nats-obj://<bucket>/<name>, in the account of the stream.
const objectScheme = "nats-obj://"

// ErrReference is wrapped by errors about a reference that Whole does not follow: one that is no nats-obj://. Follow it
// yourself: what it leads to is a record in structured mode, as Parse reads it.
var ErrReference = errors.New("not a reference into JetStream's object store")

// Whole is the event that e was before it was shortened to fit on the bus, from JetStream's object store, where
// Event.DataRef says. An event without a reference is returned as it is, also where Data.Truncated names what it lacks:
// nobody has kept that. So is one whose whole was removed: jetstream.ErrObjectNotFound, which the error wraps, says that the bucket
// has it no more (one that the agent has made keeps it for a day longer than the stream kept records at that time).
func Whole(ctx context.Context, js jetstream.JetStream, e *Event) (*Event, error) {
	if e.DataRef == "" {
		return e, nil
	}
	path, ok := strings.CutPrefix(e.DataRef, objectScheme)
	name := ""
	if ok {
		path, name, ok = strings.Cut(path, "/")
	}
	if !ok || path == "" || name == "" {
		return withoutStore(e)
	}
	bucket, err := js.ObjectStore(ctx, path)
	if err != nil {
		return e, fmt.Errorf("the whole of %s: open bucket %s: %w", e.ID, path, err)
	}
	record, err := bucket.GetBytes(ctx, name)
	if err != nil {
		return e, fmt.Errorf("the whole of %s: read %s from bucket %s: %w", e.ID, name, path, err)
	}
	whole, err := Parse(record)
	switch {
	case err != nil:
		return e, fmt.Errorf("the whole of %s: %s in bucket %s: %w", e.ID, name, path, err)
	case whole.ID != e.ID || whole.Source != e.Source:
		return e, fmt.Errorf("the whole of %s: %s in bucket %s is another event: %s of %s", e.ID, name, path, whole.ID, whole.Source)
	}
	return whole, nil
}

// withoutStore returns an event whose whole, if there is one, is not in a store that the package reads.
func withoutStore(e *Event) (*Event, error) {
	if e.DataRef == "" {
		return e, nil
	}
	return e, fmt.Errorf("the whole of %s is at %q: %w", e.ID, e.DataRef, ErrReference)
}

// Whole implements Reader, by the function of that name on the reader's connection. ctx bounds how long it tries; a lost connection
// is an error.
func (r *jetStreamReader) Whole(ctx context.Context, e *Event) (*Event, error) {
	return Whole(ctx, r.js, e)
}
