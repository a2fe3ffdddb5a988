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

	"github.com/kubecdc/kubecdc/internal/bus/claim"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// ObjectScheme is the scheme of references into JetStream's object store:
// nats-obj://<bucket>/<name>, in the account of the stream that has the record.
const ObjectScheme = "nats-obj"

const (
	// bucketGrace is the time that a bucket keeps objects longer than the stream keeps the records
	// that refer to them.
	bucketGrace = 24 * time.Hour
	putTimeout  = 10 * time.Second // of each request that stores an object
	chunkSize   = 128 << 10        // as in nats.go; smaller if the server's limit requires it
)

// objectStore is a claim store in JetStream. It uses the connection of a Bus.
type objectStore struct {
	bus     *Bus
	cfg     driver.ObjectStore
	retry   *claim.Retry
	checked atomic.Bool // the bucket has been compared with the stream
}

// ObjectStore implements driver.ObjectStorer. A new bucket has the replicas of the actual stream,
// and keeps objects a day longer than that stream keeps records; the stream's configuration does
// not matter. An existing bucket with less is used, with a warning.
func (b *Bus) ObjectStore(c driver.ObjectStore, log *slog.Logger, m *publish.Metrics) publish.ClaimStore {
	return &objectStore{bus: b, cfg: c, retry: claim.NewRetry("object store "+c.Bucket, log, m)}
}

// Put implements ClaimStore.
func (o *objectStore) Put(
	ctx context.Context, name, contentType string, body []byte, retried func(reason string),
) (string, error) {
	err := o.retry.Do(ctx, name, retried, func(ctx context.Context) error {
		return o.put(ctx, name, contentType, body)
	})
	if err != nil {
		return "", err
	}
	return ObjectScheme + "://" + o.cfg.Bucket + "/" + name, nil
}

func (o *objectStore) put(ctx context.Context, name, contentType string, body []byte) error {
	err := o.bus.link.awaitUp(ctx)
	if err == nil {
		err = o.bus.fence.Pass(ctx)
	}
	if err != nil {
		return err
	}
	connected, done := o.bus.link.during(ctx)
	defer done()
	js, err := jetStreamIn(o.bus.cfg.Domain, o.bus.conn.Load())
	if err != nil {
		return err
	}
	o.bus.dialer.guarded.Load().Carry()
	bucket, err := o.bucket(connected, js)
	if err == nil {
		err = o.write(connected, js, bucket, name, contentType, body)
	}
	if connected.Err() != nil && ctx.Err() == nil && err != nil {
		return nats.ErrDisconnected // the response is lost with the connection
	}
	return o.markFinal(err)
}

// write stores an object in the format of ADR-20. It sends chunks to a subject of their own. The
// description then goes to the subject of the name, where it replaces the previous one and
// completes the object. Each message is acknowledged before the next is sent.
//
// ObjectStore.Put of nats.go (v1.55.0) would be wrong here. It reuses one message for all chunks in
// flight. If a chunk gets no responder, because the bucket has no leader for a moment, it resends
// the message with its current content. The resulting object is acknowledged but unreadable.
func (o *objectStore) write(
	ctx context.Context, js jetstream.JetStream, bucket jetstream.ObjectStore, name, contentType string, body []byte,
) (err error) {
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
			Name: name, Metadata: map[string]string{headerContent: contentType}, Opts: &jetstream.ObjectMetaOptions{
				ChunkSize: uint32(size),
			},
		},
		Bucket: o.cfg.Bucket,
		NUID:   nuid.Next(),
		Size:   uint64(len(body)),
	}
	described := false // the description was sent, and may have been stored
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

func (o *objectStore) stream() string { return "OBJ_" + o.cfg.Bucket }

func (o *objectStore) chunks(id string) string { return "$O." + o.cfg.Bucket + ".C." + id }

// purge removes chunks that belong to no object. If it fails, the bucket's age limit removes them
// later.
func (o *objectStore) purge(ctx context.Context, js jetstream.JetStream, id string) {
	_, err := within(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		stream, err := js.Stream(ctx, o.stream())
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(o.chunks(id)))
		}
		return stream, err
	})
	if err != nil {
		o.retry.Log.Debug("chunks that belong to no object are left in the bucket", "bucket", o.cfg.Bucket, "id", id,
			"err", err)
	}
}

// within calls f with its own timeout. Each request has the same timeout, so an object of any size
// can be stored.
func within[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	return f(ctx)
}

// bucket returns the bucket, and creates it if necessary.
func (o *objectStore) bucket(ctx context.Context, js jetstream.JetStream) (jetstream.ObjectStore, error) {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	bucket, err := js.ObjectStore(ctx, o.cfg.Bucket)
	missing := errors.Is(err, jetstream.ErrBucketNotFound)
	switch {
	case err == nil && o.checked.Load():
		return bucket, nil
	case missing && !o.cfg.Create:
		return nil,
			fmt.Errorf(
				"%w: bucket %s does not exist, and claimCheck.objectStore.create is not set: create it (nats object add %s)",
				publish.ErrRefused, o.cfg.Bucket, o.cfg.Bucket)
	case err != nil && !missing:
		return nil, err
	}
	// Use the actual stream, not its configuration: an existing stream is used as it is.
	info, err := lookUp(ctx, js, o.bus.cfg.Stream.Name)
	if err != nil {
		return nil, fmt.Errorf("compare bucket %s with the stream: %w", o.cfg.Bucket, err)
	}
	records := &info.Config
	if missing {
		return o.create(ctx, js, records)
	}
	status, err := bucket.Status(ctx)
	if err == nil && !o.checked.Swap(true) {
		o.warnOfLimits(status, records)
	}
	return bucket, err
}

func (o *objectStore) create(
	ctx context.Context, js jetstream.JetStream, records *jetstream.StreamConfig,
) (jetstream.ObjectStore, error) {
	c := jetstream.ObjectStoreConfig{
		Bucket:      o.cfg.Bucket,
		Description: "Events of Kubernetes objects that are too large for the bus, put here by kubecdc",
		Storage:     jetstream.FileStorage,
		Replicas:    max(records.Replicas, 1),
		MaxBytes:    int64(o.cfg.MaxBytes),
	}
	if records.MaxAge > 0 {
		c.TTL = records.MaxAge + bucketGrace
	}
	bucket, err := js.CreateObjectStore(ctx, c)
	if errors.Is(err, jetstream.ErrBucketExists) { // another agent was faster
		return js.ObjectStore(ctx, o.cfg.Bucket)
	}
	if err == nil {
		o.retry.Log.Info("bucket created", "bucket", o.cfg.Bucket, "replicas", c.Replicas, "max_age", c.TTL,
			"max_bytes", c.MaxBytes)
	}
	return bucket, err
}

// warnOfLimits warns once about a bucket that keeps objects for less time than the stream keeps
// their records, or in fewer copies.
func (o *objectStore) warnOfLimits(status jetstream.ObjectStoreStatus, records *jetstream.StreamConfig) {
	edit := "nats stream edit " + o.stream()
	if ttl := status.TTL(); ttl > 0 && (records.MaxAge == 0 || ttl < records.MaxAge) {
		advice := edit + " --max-age=-1"
		if records.MaxAge > 0 {
			advice = edit + " --max-age=" + (records.MaxAge + bucketGrace).String()
		}
		o.retry.Log.Warn(
			"bucket removes large events before the stream removes the records that refer to them: their dataref is then invalid",
			"bucket", o.cfg.Bucket, "max_age", ttl, "stream", records.Name, "stream_max_age", records.MaxAge, "advice",
			advice)
	}
	if copies := status.Replicas(); copies < records.Replicas {
		o.retry.Log.Warn(
			"bucket has fewer replicas than the stream: large events are lost or wait after failures that the stream survives",
			"bucket", o.cfg.Bucket, "replicas", copies, "stream", records.Name, "stream_replicas", records.Replicas,
			"advice", fmt.Sprintf("%s --replicas=%d", edit, records.Replicas))
	}
}

// markFinal marks permanent errors. An unknown error is treated as temporary: waiting costs less
// than a dead letter.
func (o *objectStore) markFinal(err error) error {
	api := new(jetstream.APIError)
	switch {
	case errors.Is(err, jetstream.ErrInvalidStoreName), errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", publish.ErrRefused, err)
	case !errors.As(err, &api):
		return err
	}
	switch out := readError(api.Code, int(api.ErrorCode), api.Description); {
	case api.ErrorCode == codeReplicas:
		return fmt.Errorf("%w: create bucket %s: %w: create it yourself (nats object add %s --replicas=1)",
			publish.ErrRefused, o.cfg.Bucket, err, o.cfg.Bucket)
	case out.kind == refused, api.ErrorCode == codeOverlap, api.ErrorCode == codeInvalidConfig,
		api.ErrorCode == codeSealed:
		return fmt.Errorf("%w: bucket %s: %w: check 'nats object info %s'", publish.ErrRefused, o.cfg.Bucket, err,
			o.cfg.Bucket)
	case out.reason == publish.ReasonStreamFull:
		return fmt.Errorf(
			"bucket %s is full: set another one in claimCheck.objectStore.bucket, or shorten the max_age of the stream and of the bucket (nats stream edit OBJ_%s --max-age=…): %w",
			o.cfg.Bucket, o.cfg.Bucket, err)
	}
	return err
}
