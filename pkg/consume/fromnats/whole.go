package fromnats

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// objectScheme is the scheme of references to JetStream's object store: nats-obj://<bucket>/<name>,
// in the account of the stream.
const objectScheme = "nats-obj://"

// Whole returns the event that e was before it was shortened to fit on the bus. It reads the object
// of Event.DataRef from JetStream's object store. It returns an event without a reference
// unchanged, even if Data.Truncated names missing members, because nothing stores them. If the
// object was removed, it returns e with an error that wraps jetstream.ErrObjectNotFound. A bucket
// that the agent has created keeps objects for a day longer than the stream kept records at that
// time.
func Whole(ctx context.Context, js jetstream.JetStream, e *consume.Event) (*consume.Event, error) {
	if e.DataRef == "" {
		return e, nil
	}
	path, ok := strings.CutPrefix(e.DataRef, objectScheme)
	name := ""
	if ok {
		path, name, ok = strings.Cut(path, "/")
	}
	if !ok || path == "" || name == "" {
		return consume.WithoutStore(e)
	}
	record, err := readObject(ctx, js, path, name)
	if err != nil {
		return e, fmt.Errorf("the whole of %s: %w", e.ID, err)
	}
	whole, err := consume.Parse(record)
	switch {
	case err != nil:
		return e, fmt.Errorf("the whole of %s: %s in bucket %s: %w", e.ID, name, path, err)
	case whole.ID != e.ID || whole.Source != e.Source:
		return e,
			fmt.Errorf("the whole of %s: %s in bucket %s is another event: %s of %s", e.ID, name, path, whole.ID,
				whole.Source)
	}
	return whole, nil
}

// readObject reads an object from a bucket. Any replica of the bucket may answer, and one that lags
// does not have a new object. So it asks again until the bucket's leader confirms that the object
// does not exist, or ctx ends.
func readObject(ctx context.Context, js jetstream.JetStream, bucket, name string) ([]byte, error) {
	store, err := js.ObjectStore(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	for attempt := 0; ; attempt++ {
		record, err := store.GetBytes(ctx, name)
		if err == nil {
			return record, nil
		}
		err = fmt.Errorf("read %s from bucket %s: %w", name, bucket, err)
		if !errors.Is(err, jetstream.ErrObjectNotFound) {
			return nil, err
		}
		exists, unknown := hasObject(ctx, js, bucket, name)
		switch {
		case unknown != nil:
			return nil,
				fmt.Errorf("a replica says that bucket %s has no %s, and the bucket's leader does not confirm it: %w",
					bucket, name, unknown)
		case !exists:
			return nil, err
		}
		if err := pause.For(ctx, min(retryFirst<<min(attempt, 10), retryMax)); err != nil {
			return nil, err
		}
	}
}

// hasObject reports whether a bucket has an object, as its leader knows it.
func hasObject(ctx context.Context, js jetstream.JetStream, bucket, name string) (bool, error) {
	s := &JetStream{
		Conn:     js.Conn(),
		Domain:   js.Options().Domain,
		Stream:   "OBJ_" + bucket,
		Subjects: []string{"$O." + bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))},
	}
	r, err := s.read(ctx, consume.Query{Start: consume.Beginning(), StopAtEnd: true, LastOfEach: true})
	if err != nil {
		return false, err
	}
	defer func() { _ = r.Close() }() // its error is always nil
	exists := false
	for {
		record, err := r.nextRecord(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return exists, nil
		case err != nil:
			return false, err
		}
		var description jetstream.ObjectInfo
		if err := json.Unmarshal(record.Data, &description); err != nil {
			return false, fmt.Errorf("read the description of %s: %w", name, err)
		}
		exists = !description.Deleted
	}
}

// Whole implements consume.Reader with the function Whole on the reader's connection. ctx limits
// the time of its attempts. A lost connection is an error.
func (r *jetStreamReader) Whole(ctx context.Context, e *consume.Event) (*consume.Event, error) {
	return Whole(ctx, r.js, e)
}
