package consume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// objectScheme is the scheme of references to JetStream's object store: nats-obj://<bucket>/<name>, in the account of the stream.
const objectScheme = "nats-obj://"

// ErrReference is wrapped by errors about a reference that Whole cannot follow, because its scheme is not nats-obj. The referenced content is a
// record in structured mode, which Parse reads.
var ErrReference = errors.New("not a reference into JetStream's object store")

// Whole returns the event that e was before it was shortened to fit on the bus. It reads the object of Event.DataRef from JetStream's object
// store. It returns an event without a reference unchanged, even if Data.Truncated names missing members, because nothing stores them. If the
// object was removed, it returns e with an error that wraps jetstream.ErrObjectNotFound. A bucket that the agent has created keeps objects
// for a day longer than the stream kept records at that time.
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

// withoutStore is Whole of a Reader whose bus has no store that the package reads.
func withoutStore(e *Event) (*Event, error) {
	if e.DataRef == "" {
		return e, nil
	}
	return e, fmt.Errorf("the whole of %s is at %q: %w", e.ID, e.DataRef, ErrReference)
}

// Whole implements Reader with the function Whole on the reader's connection. ctx limits the time of its attempts. A lost connection is an error.
func (r *jetStreamReader) Whole(ctx context.Context, e *Event) (*Event, error) {
	return Whole(ctx, r.js, e)
}
