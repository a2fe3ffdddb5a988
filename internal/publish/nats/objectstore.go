package nats

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/claim"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/relay"
)

// ObjectScheme is the scheme of references into JetStream's object store: nats-obj://<bucket>/<name>, in the account whose
// stream the record is from.
const ObjectScheme = "nats-obj"

const (
	// bucketGrace is for how much longer than the records a bucket keeps what they refer to.
	bucketGrace = 24 * time.Hour
	putTimeout  = 10 * time.Second // of each request that stores an object
	chunkSize   = 128 << 10        // that of nats.go; smaller where the server takes less
)

// ObjectStore is a claim store in JetStream, on the connection of a Bus.
type ObjectStore struct {
	bus     *Bus
	cfg     driver.ObjectStore
	retry   *claim.Retry
	checked atomic.Bool // the bucket was compared with the stream
}

// NewObjectStore checks the configuration. A bucket that is created has the replicas of b's stream, and keeps objects for a day
// longer than that keeps records, whatever was configured for the stream. It logs a warning about an existing one with less.
func NewObjectStore(b *Bus, cfg driver.ObjectStore, log *slog.Logger, m *publish.Metrics) (*ObjectStore, error) {
	if cfg.Bucket == "" {
		return nil, errors.New("object store: no name of a bucket")
	}
	for _, c := range []byte(cfg.Bucket) {
		if (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && (c < '0' || '9' < c) && c != '-' && c != '_' {
			return nil, fmt.Errorf("object store: bucket %q: want letters, digits, - and _", cfg.Bucket)
		}
	}
	return &ObjectStore{bus: b, cfg: cfg, retry: claim.NewRetry("object store "+cfg.Bucket, log, m)}, nil
}

// Put implements ClaimStore.
func (o *ObjectStore) Put(ctx context.Context, name, contentType string, body []byte) (string, error) {
	err := o.retry.Do(ctx, name, func(ctx context.Context) error { return o.put(ctx, name, contentType, body) })
	if err != nil {
		return "", err
	}
	return ObjectScheme + "://" + o.cfg.Bucket + "/" + name, nil
}

func (o *ObjectStore) put(ctx context.Context, name, contentType string, body []byte) error {
	err := o.bus.link.wait(ctx)
	if err == nil {
		err = o.bus.fence.Pass(ctx)
	}
	if err != nil {
		return err
	}
	connected, done := o.bus.link.during(ctx)
	defer done()
	js, err := relay.JetStreamIn(o.bus.cfg.Domain, o.bus.conn.Load())
	if err != nil {
		return err
	}
	o.bus.dialer.guarded.Load().Carry()
	bucket, err := o.bucket(connected, js)
	if err == nil {
		err = o.final(o.write(connected, js, bucket, name, contentType, body))
	}
	if connected.Err() != nil && ctx.Err() == nil && err != nil {
		return nats.ErrDisconnected // what the server says to it will not come any more
	}
	return err
}

// write stores an object as ADR-20 has it: chunks under a subject of their own, then, under that of the name and in place of
// the one before, the description that makes them an object. Each is acknowledged before the next is sent.
//
// Not ObjectStore.Put of nats.go (v1.55.0), which has all chunks on their way in one message that it fills anew: a chunk
// that nobody takes at first, since the bucket has no leader for a moment, it sends again with what the message holds by
// then. That makes an object which is acknowledged and cannot be read.
func (o *ObjectStore) write(ctx context.Context, js jetstream.JetStream, bucket jetstream.ObjectStore, name, contentType string, body []byte) (err error) {
	old, err := within(ctx, func(ctx context.Context) (*jetstream.ObjectInfo, error) {
		return bucket.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
	})
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	size := chunkSize
	if limit := js.Conn().MaxPayload() / 2; 0 < limit && limit < chunkSize {
		size = int(limit)
	}
	info := jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{
			Name: name, Metadata: map[string]string{headerContent: contentType}, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(size)},
		},
		Bucket: o.cfg.Bucket, NUID: nuid.Next(), Size: uint64(len(body)),
	}
	described := false // maybe: the description was sent, and nobody knows what became of it
	defer func() {
		if err != nil && !described {
			o.purge(ctx, js, info.NUID)
		}
	}()
	send := func(m *nats.Msg) error {
		_, err := within(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
			return js.PublishMsg(ctx, m, jetstream.WithExpectStream(o.stream()))
		})
		return err
	}
	digest := sha256.New()
	for chunk := range slices.Chunk(body, size) {
		if err := send(&nats.Msg{Subject: o.chunks(info.NUID), Data: chunk}); err != nil {
			return err
		}
		digest.Write(chunk)
		info.Chunks++
	}
	info.Digest = jetstream.GetObjectDigestValue(digest)
	description, err := json.Marshal(&info)
	if err != nil {
		return err
	}
	if err := send(&nats.Msg{
		Subject: "$O." + o.cfg.Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name)),
		Header:  nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}, Data: description,
	}); err != nil {
		described = !errors.As(err, new(*jetstream.APIError)) && !errors.Is(err, jetstream.ErrNoStreamResponse)
		return err
	}
	if old != nil && !old.Deleted {
		o.purge(ctx, js, old.NUID)
	}
	return nil
}

func (o *ObjectStore) stream() string { return "OBJ_" + o.cfg.Bucket }

func (o *ObjectStore) chunks(id string) string { return "$O." + o.cfg.Bucket + ".C." + id }

// purge removes chunks that belong to no object. What it leaves behind goes with the bucket's age.
func (o *ObjectStore) purge(ctx context.Context, js jetstream.JetStream, id string) {
	_, err := within(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		stream, err := js.Stream(ctx, o.stream())
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(o.chunks(id)))
		}
		return stream, err
	})
	if err != nil {
		o.retry.Log.Debug("chunks that belong to no object are left in the bucket", "bucket", o.cfg.Bucket, "id", id, "err", err)
	}
}

// within calls f with its share of the time: as much for each request, so that no object is too large for it.
func within[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	return f(ctx)
}

// bucket finds or creates it.
func (o *ObjectStore) bucket(ctx context.Context, js jetstream.JetStream) (jetstream.ObjectStore, error) {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	bucket, err := js.ObjectStore(ctx, o.cfg.Bucket)
	switch {
	case err == nil && o.checked.Load():
		return bucket, nil
	case err == nil:
		return bucket, o.check(ctx, js, bucket)
	case !errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, o.final(err)
	case !o.cfg.Create:
		return nil, fmt.Errorf("%w: there is no bucket %s, and claimCheck.objectStore.create is not set: nats object add %s", publish.ErrRefused, o.cfg.Bucket, o.cfg.Bucket)
	}
	// As the stream is, not as it was configured: one that exists is used as it is.
	s, err := js.Stream(ctx, o.bus.cfg.Stream.Name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s, to make bucket %s like it: %w", o.bus.cfg.Stream.Name, o.cfg.Bucket, err)
	}
	records := s.CachedInfo().Config
	c := jetstream.ObjectStoreConfig{
		Bucket:      o.cfg.Bucket,
		Description: "Events of Kubernetes objects that are too large for the bus, put here by kubecdc",
		Storage:     jetstream.FileStorage,
		Replicas:    max(records.Replicas, 1),
		MaxBytes:    o.cfg.MaxBytes,
	}
	if records.MaxAge > 0 {
		c.TTL = records.MaxAge + bucketGrace
	}
	bucket, err = js.CreateObjectStore(ctx, c)
	if errors.Is(err, jetstream.ErrBucketExists) { // somebody was faster
		bucket, err = js.ObjectStore(ctx, o.cfg.Bucket)
	} else if err == nil {
		o.retry.Log.Info("bucket created", "bucket", o.cfg.Bucket, "replicas", c.Replicas, "max_age", c.TTL, "max_bytes", c.MaxBytes)
	}
	return bucket, o.final(err)
}

// check warns of a bucket that keeps objects for less long than the stream keeps the records that refer to them, or in fewer copies. It
// does so once: what is in the bucket is not ours to judge again with each object.
func (o *ObjectStore) check(ctx context.Context, js jetstream.JetStream, bucket jetstream.ObjectStore) error {
	status, err := bucket.Status(ctx)
	if err != nil {
		return o.final(err)
	}
	s, err := js.Stream(ctx, o.bus.cfg.Stream.Name)
	if err != nil {
		return fmt.Errorf("look up stream %s, to compare bucket %s with it: %w", o.bus.cfg.Stream.Name, o.cfg.Bucket, err)
	}
	records := s.CachedInfo().Config
	if o.checked.Swap(true) {
		return nil
	}
	edit := "nats stream edit " + o.stream()
	if ttl := status.TTL(); ttl > 0 && (records.MaxAge == 0 || ttl < records.MaxAge) {
		advice := edit + " --max-age=-1"
		if records.MaxAge > 0 {
			advice = edit + " --max-age=" + (records.MaxAge + bucketGrace).String()
		}
		o.retry.Log.Warn("bucket keeps large events for less long than the stream keeps the records that refer to them: later their dataref leads nowhere",
			"bucket", o.cfg.Bucket, "max_age", ttl, "stream", records.Name, "stream_max_age", records.MaxAge, "advice", advice)
	}
	if copies := status.Replicas(); copies < records.Replicas {
		o.retry.Log.Warn("bucket has fewer replicas than the stream: large events are lost, or wait, with servers that the stream does without",
			"bucket", o.cfg.Bucket, "replicas", copies, "stream", records.Name, "stream_replicas", records.Replicas,
			"advice", fmt.Sprintf("%s --replicas=%d", edit, records.Replicas))
	}
	return nil
}

// codeSealed is JetStream's for a stream that was sealed (nats-server, server/errors.json).
const codeSealed = 10109

// final tells errors that no retry helps against. What it does not know may pass: waiting costs less than a dead letter.
func (o *ObjectStore) final(err error) error {
	if err == nil {
		return nil
	}
	api := new(jetstream.APIError)
	switch {
	case errors.Is(err, jetstream.ErrInvalidStoreName), errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", publish.ErrRefused, err)
	case errors.As(err, &api):
		switch out := readError(api.Code, int(api.ErrorCode), api.Description); {
		case api.ErrorCode == codeReplicas:
			return fmt.Errorf("%w: create bucket %s: %w: make it by hand (nats object add %s --replicas=1)", publish.ErrRefused, o.cfg.Bucket, err, o.cfg.Bucket)
		case out.kind == refused, api.ErrorCode == codeOverlap, api.ErrorCode == codeInvalidConfig, api.ErrorCode == codeSealed:
			return fmt.Errorf("%w: bucket %s: %w: see 'nats object info %s'", publish.ErrRefused, o.cfg.Bucket, err, o.cfg.Bucket)
		case out.reason == publish.ReasonStreamFull:
			return fmt.Errorf("bucket %s is full: raise its max_bytes (nats stream edit OBJ_%s): %w", o.cfg.Bucket, o.cfg.Bucket, err)
		}
	}
	return err
}
