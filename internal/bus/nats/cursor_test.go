package nats_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// lagging is a JetStream whose bucket is read from a replica that has the newest entry only from
// current on.
type lagging struct {
	jetstream.JetStream
	bucket laggingBucket
}

func (l *lagging) KeyValue(context.Context, string) (jetstream.KeyValue, error) {
	return &l.bucket, nil
}

type laggingBucket struct {
	jetstream.KeyValue
	current time.Time
	reads   int
}

func (b *laggingBucket) Get(ctx context.Context, _ string) (jetstream.KeyValueEntry, error) {
	b.reads++
	if time.Now().Before(b.current) {
		return entry(1), ctx.Err()
	}
	return entry(2), ctx.Err()
}

func (*laggingBucket) Update(ctx context.Context, _ string, _ []byte, revision uint64) (uint64, error) {
	<-time.After(time.Millisecond) // the way to the leader and back
	if revision != 2 {
		return 0, jetstream.ErrKeyExists
	}
	return 3, ctx.Err()
}

// entry is one of that revision.
type entry uint64

func (entry) Bucket() string                  { return nats.CursorBucket }
func (entry) Key() string                     { return "r" }
func (entry) Value() []byte                   { return []byte(`{"stream":"KUBECDC","position":7}`) }
func (e entry) Revision() uint64              { return uint64(e) }
func (entry) Created() time.Time              { return time.Time{} }
func (entry) Delta() uint64                   { return 0 }
func (entry) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

// The server is not asked again and again while the replica that answers reads does not have the
// newest cursor yet.
func TestCursorOnALaggingReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), publish.RequestTimeout)
		defer cancel()
		js := &lagging{bucket: laggingBucket{current: time.Now().Add(2 * time.Second)}}
		if err := nats.TakeCursor(ctx, js, "r", "KUBECDC"); err != nil {
			t.Fatal(err)
		}
		if n := js.bucket.reads; n > 20 {
			t.Errorf("the cursor was read %d times", n)
		}
	})
}
