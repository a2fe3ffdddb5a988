package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// CursorBucket is the key-value bucket of JetStream with the cursors of relays, each under the
// relay's name. Relays with a Reader use another.
const CursorBucket = "kubecdc-relay"

var errNoCursor = errors.New("no cursor")

// position is the value of a cursor.
type position struct {
	Stream   string    `json:"stream"`
	Created  string    `json:"created"` // creation time of the stream, which is its consume.Log.ID
	Position uint64    `json:"position"`
	Updated  time.Time `json:"updated"`
	Holder   string    `json:"holder"` // may move it: the id of one start of a relay
	Host     string    `json:"host"`   // of the holder, for display

	Note json.RawMessage `json:"note,omitempty"` // see driver.Noter
}

// after returns the position at which reading continues.
func (p *position) after() consume.Position {
	return consume.Position{Log: consume.Log{Name: p.Stream, ID: p.Created}, Next: p.Position + 1}
}

// cursor is a key of the bucket that this relay holds. Each write requires the previous revision,
// so only one of two relays continues.
type cursor struct {
	kv     jetstream.KeyValue
	name   string
	before position // the value when it was taken
	made   bool     // the key did not exist

	last     position // as stored, with its revision
	revision uint64
}

// cursorBucket returns the name of the bucket with the cursors of relays.
func (o Opener) cursorBucket() string {
	if o.Reader != nil {
		// a user who may write to a bucket can empty it (Nats-Rollup: all), so this one belongs to
		// the reader alone
		return CursorBucket + "-" + o.Reader.Consumers
	}
	return CursorBucket
}

// openBucket opens the bucket of the cursor. It creates a missing one, unless the relay is
// confined: a user who may create a stream may copy any other stream.
func (s *relaySubscription) openBucket(ctx context.Context, replicas int) (jetstream.KeyValue, error) {
	bucket := s.cfg.cursorBucket()
	kv, err := s.js.KeyValue(ctx, bucket)
	missing := errors.Is(err, jetstream.ErrBucketNotFound)
	switch {
	case missing && s.cfg.Reader != nil:
		return nil,
			fmt.Errorf(
				"bucket %s, which holds the relay's cursor, does not exist: an administrator creates it (nats kv add %s)",
				bucket, bucket)
	case missing:
		kv, err = s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      bucket,
			Description: "positions of kubecdc relays",
			History:     1,
			Replicas:    max(replicas, 1),
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			kv, err = s.js.KeyValue(ctx, bucket) // another client was faster
		}
	}
	if err != nil {
		return nil,
			fmt.Errorf("open bucket %s, which holds the relay's cursor (may this user read and create it?): %w", bucket,
				err)
	}
	return kv, nil
}

// takeCursor makes this relay the holder of its cursor, and creates the cursor if it does not
// exist.
func takeCursor(ctx context.Context, kv jetstream.KeyValue, name string, first position) (*cursor, error) {
	c := &cursor{kv: kv, name: name}
	for failures := 1; ; failures++ {
		before, revision, err := readPosition(ctx, kv, name)
		if err != nil {
			return nil, err
		}
		at := before
		if revision == 0 {
			at = first
		}
		if at.Stream != first.Stream {
			return nil, finalError{
				fmt.Errorf(
					"the cursor of relay %s belongs to stream %s, but the relay reads stream %s: give the relay another name, or delete key %s of bucket %s",
					name, at.Stream, first.Stream, name, kv.Bucket()),
			}
		}
		c.before, c.made = before, revision == 0
		host, _ := os.Hostname()
		at.Holder = nuid.Next()
		at.Host = cmp.Or(host, "unknown")
		at.Updated = time.Now().UTC()
		value, err := json.Marshal(at)
		if err != nil {
			return nil, err
		}
		if c.made {
			c.revision, err = kv.Create(ctx, name, value)
		} else {
			c.revision, err = kv.Update(ctx, name, value, revision)
		}
		switch {
		case err == nil:
			c.last = at
			return c, nil
		case errors.Is(err, jetstream.ErrKeyExists) && ctx.Err() == nil:
			// It has moved, another relay takes it too, or the replica that answered lags.
			if err = pause.For(ctx, publish.BusyBackoff().Delay(failures)); err == nil {
				continue
			}
		}
		return nil, fmt.Errorf("take cursor %s: %w", name, err)
	}
}

// readPosition reads a cursor; its revision is 0 if it does not exist. The error is a finalError if
// the value is no cursor.
func readPosition(ctx context.Context, kv jetstream.KeyValue, name string) (at position, revision uint64, err error) {
	entry, err := kv.Get(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return at, 0, nil
	case err != nil:
		return at, 0, fmt.Errorf("read cursor %s: %w", name, err)
	}
	if err := json.Unmarshal(entry.Value(), &at); err != nil || at.Stream == "" {
		return at, 0, finalError{
			fmt.Errorf("key %s of bucket %s is not a relay cursor: delete it, and the relay starts over: %w",
				name, kv.Bucket(), cmp.Or(err, errNoCursor)),
		}
	}
	return at, entry.Revision(), nil
}

func readCursor(ctx context.Context, js jetstream.JetStream, bucket, name string) (position, error) {
	kv, err := js.KeyValue(ctx, bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return position{}, errNoCursor
	case err != nil:
		return position{}, fmt.Errorf("read cursor %s: %w", name, err)
	}
	at, revision, err := readPosition(ctx, kv, name)
	if err == nil && revision == 0 {
		err = errNoCursor
	}
	return at, err
}

func (c *cursor) save(ctx context.Context, at position) error {
	at.Updated = time.Now().UTC()
	value, err := json.Marshal(at)
	if err != nil {
		return err
	}
	revision, err := c.kv.Update(ctx, c.name, value, c.revision)
	if errors.Is(err, jetstream.ErrKeyExists) {
		// Another client has written; or this relay has, and the answer was lost.
		if err = c.reread(ctx); err == nil {
			revision, err = c.kv.Update(ctx, c.name, value, c.revision)
		}
	}
	if err != nil {
		return fmt.Errorf("save cursor %s: %w", c.name, err)
	}
	c.last, c.revision = at, revision
	return nil
}

// release clears the holder of the cursor, so that the next relay logs no warning.
func (c *cursor) release(ctx context.Context) {
	at := c.last
	at.Holder, at.Updated = "", time.Now().UTC()
	if value, err := json.Marshal(at); err == nil {
		_, _ = c.kv.Update(ctx, c.name, value, c.revision) // on failure the next relay takes over as after a crash
	}
}

func (c *cursor) reread(ctx context.Context) error {
	at, revision, err := readPosition(ctx, c.kv, c.name)
	var invalid finalError
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: %w", subscription.ErrElsewhere, err)
	case err != nil:
		return err
	case revision == 0:
		return fmt.Errorf("%w: its cursor was deleted: after a restart it starts over", subscription.ErrElsewhere)
	case at.Holder != c.last.Holder:
		return fmt.Errorf("%w: its cursor was taken over on %s at %s: run only one relay of a name",
			subscription.ErrElsewhere, at.Host, at.Updated.Format(time.RFC3339))
	}
	c.revision = revision
	return nil
}
