package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// CursorBucket is the key-value bucket of JetStream that holds the cursors of relays, each under the relay's name.
const CursorBucket = "kubecdc-relay"

const apiTimeout = 5 * time.Second

var errNoCursor = errors.New("no cursor")

// position is the value of a cursor.
type position struct {
	Stream   string    `json:"stream"`
	Created  string    `json:"created"` // when the stream was created, which is its consume.Log.ID
	Position uint64    `json:"position"`
	Updated  time.Time `json:"updated"`
	Holder   string    `json:"holder"` // who may move it: an id of one start of a relay
	Host     string    `json:"host"`   // where that is, for people
}

// after is where reading continues.
func (p *position) after() consume.Position {
	return consume.Position{Log: consume.Log{Name: p.Stream, ID: p.Created}, Next: p.Position + 1}
}

// cursor is a key of the bucket that this relay holds. Every write names the revision before it, so that of two relays only
// one goes on.
type cursor struct {
	kv     jetstream.KeyValue
	name   string
	before position // what was there when it was taken
	made   bool     // nothing was

	mu       sync.Mutex // guards the two below; save is not called twice at a time
	last     position
	revision uint64
}

// takeCursor makes this relay the holder of its cursor, which is made where it does not exist.
func takeCursor(ctx context.Context, js jetstream.JetStream, name string, first position, replicas int) (*cursor, error) {
	kv, err := js.KeyValue(ctx, CursorBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: CursorBucket, Description: "where the relays of kubecdc have come to", History: 1, Replicas: max(replicas, 1),
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			kv, err = js.KeyValue(ctx, CursorBucket) // somebody else was faster
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s, which holds the relay's cursor (may this user read and create it?): %w", CursorBucket, err)
	}
	c := &cursor{kv: kv, name: name}
	for failures := 1; ; failures++ {
		entry, err := kv.Get(ctx, name)
		made := errors.Is(err, jetstream.ErrKeyNotFound)
		at := first
		switch {
		case made:
		case err != nil:
			return nil, fmt.Errorf("read cursor %s: %w", name, err)
		default:
			if at, err = parsePosition(name, entry.Value()); err != nil {
				return nil, fatalError{err}
			}
			if at.Stream != first.Stream {
				return nil, fatalError{fmt.Errorf("the cursor of relay %s is one in stream %s, and it is to read stream %s: give the relay another name, or delete key %s of bucket %s",
					name, at.Stream, first.Stream, name, CursorBucket)}
			}
		}
		c.before, c.made = at, made
		at.Holder, at.Host, at.Updated = nuid.Next(), host(), time.Now().UTC()
		value, err := json.Marshal(at)
		if err != nil {
			return nil, err
		}
		if made {
			c.before = position{}
			c.revision, err = kv.Create(ctx, name, value)
		} else {
			c.revision, err = kv.Update(ctx, name, value, entry.Revision())
		}
		switch {
		case err == nil:
			c.last = at
			return c, nil
		case errors.Is(err, jetstream.ErrKeyExists) && ctx.Err() == nil:
			// It has moved, somebody else takes it too, or the replica that has answered lags behind.
			if err = backoff(ctx, failures); err == nil {
				continue
			}
		}
		return nil, fmt.Errorf("take cursor %s: %w", name, err)
	}
}

func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func parsePosition(name string, value []byte) (position, error) {
	var at position
	if err := json.Unmarshal(value, &at); err != nil || at.Stream == "" {
		return at, fmt.Errorf("key %s of bucket %s is no cursor of a relay: delete it, and the relay begins anew: %w",
			name, CursorBucket, cmpErr(err, errNoCursor))
	}
	return at, nil
}

// readCursor reads a cursor that it leaves to its holder.
func readCursor(ctx context.Context, js jetstream.JetStream, name string) (position, error) {
	kv, err := js.KeyValue(ctx, CursorBucket)
	if err == nil {
		var entry jetstream.KeyValueEntry
		if entry, err = kv.Get(ctx, name); err == nil {
			return parsePosition(name, entry.Value())
		}
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return position{}, errNoCursor
	}
	return position{}, fmt.Errorf("read cursor %s: %w", name, err)
}

// save moves the cursor.
func (c *cursor) save(ctx context.Context, at position) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at.Updated = time.Now().UTC()
	value, err := json.Marshal(at)
	if err != nil {
		return err
	}
	revision, err := c.kv.Update(ctx, c.name, value, c.revision)
	if errors.Is(err, jetstream.ErrKeyExists) {
		// Somebody else has written; or this relay has, and the answer was lost.
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

// release says that nobody holds the cursor any more, so that the next one has nothing to wonder about.
func (c *cursor) release(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.last
	at.Holder, at.Updated = "", time.Now().UTC()
	if value, err := json.Marshal(at); err == nil {
		_, _ = c.kv.Update(ctx, c.name, value, c.revision) // else it is taken over as from one that has crashed
	}
}

// reread finds out whose the cursor is.
func (c *cursor) reread(ctx context.Context) error {
	entry, err := c.kv.Get(ctx, c.name)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return fmt.Errorf("%w: its cursor has been deleted: started again, it begins anew", ErrElsewhere)
	case err != nil:
		return err
	}
	at, err := parsePosition(c.name, entry.Value())
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrElsewhere, err)
	case at.Holder != c.last.Holder:
		return fmt.Errorf("%w: its cursor was taken over on %s at %s: run a relay of one name once", ErrElsewhere, at.Host, at.Updated.Format(time.RFC3339))
	}
	c.revision = entry.Revision()
	return nil
}

// withoutURL takes the URL, which may hold a secret, out of an error of net/url.
func withoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}

func cmpErr(err, fallback error) error {
	if err == nil {
		return fallback
	}
	return withoutURL(err)
}
