package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
)

const bucketName = bustest.BucketName

func newObjectStore(tb testing.TB, r *bustest.NATS, cfg driver.ObjectStore) publish.ClaimStore {
	tb.Helper()
	return r.ObjectStore(cfg, r.Log.Logger(), nil)
}

// A claim that is put again is stored once: nothing of the first one is left, and the reference is
// the same.
func TestObjectStoreReplaces(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	store := newObjectStore(t, r, driver.ObjectStore{Bucket: bucketName, Create: true})
	for range 3 {
		body := bustest.Text(1 << 20)
		ref, err := store.Put(t.Context(), "c0ffee", "application/cloudevents+json", []byte(body), nil)
		if err != nil || ref != "nats-obj://KUBECDC_LARGE/c0ffee" {
			t.Fatalf("%s, %v", ref, err)
		}
		js := bustest.Admin(t, s.ClientURL())
		b, err := js.ObjectStore(t.Context(), bucketName)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.GetString(t.Context(), "c0ffee"); err != nil || got != body {
			t.Fatalf("%v, %d bytes", err, len(got))
		}
		stream, err := js.Stream(t.Context(), "OBJ_"+bucketName)
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().State.Msgs; got != 9 { // 8 chunks and the description
			t.Errorf("%d messages", got)
		}
	}
	bustest.CheckBucket(t, bustest.Admin(t, s.ClientURL()), 0, 1)
}

func TestObjectStoreLeavesABucketAsItIs(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	js := bustest.Admin(t, s.ClientURL())
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{
		Bucket:  bucketName,
		TTL:     time.Hour,
		Storage: jetstream.FileStorage,
	}); err != nil {
		t.Fatal(err)
	}
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.Stream.MaxAge.Duration = time.Minute
	store := newObjectStore(t, bustest.RunNATS(t, cfg), driver.ObjectStore{Bucket: bucketName})
	if _, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	bustest.CheckBucket(t, js, time.Hour, 1)
}

// A bucket is created like the existing stream, not like the configured one. If an existing bucket
// keeps less than the stream, a warning is logged once.
func TestObjectStoreFollowsTheStream(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name                 string
		existing, configured time.Duration // of the stream; 0: forever
		bucket               time.Duration // of an existing bucket; 0: there is none
		want                 time.Duration // of the bucket
		warned               bool
	}{
		{name: "longer", existing: 90 * day, configured: 7 * day, want: 91 * day},
		{name: "shorter", existing: day, configured: 7 * day, want: 2 * day},
		{name: "for ever", existing: 0, configured: 7 * day, want: 0},
		{name: "not configured", existing: 90 * day, configured: 0, want: 91 * day},
		{
			name:       "bucket with less",
			existing:   90 * day,
			configured: 7 * day,
			bucket:     8 * day,
			want:       8 * day,
			warned:     true,
		},
		{
			name:       "bucket with less than for ever",
			existing:   0,
			configured: 7 * day,
			bucket:     8 * day,
			want:       8 * day,
			warned:     true,
		},
		{name: "bucket with as much", existing: 90 * day, configured: 7 * day, bucket: 90 * day, want: 90 * day},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			js := bustest.Admin(t, s.ClientURL())
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, MaxAge: tc.existing, Discard: jetstream.DiscardNew,
			}); err != nil {
				t.Fatal(err)
			}
			if tc.bucket != 0 {
				if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{
					Bucket:  bucketName,
					TTL:     tc.bucket,
					Storage: jetstream.FileStorage,
				}); err != nil {
					t.Fatal(err)
				}
			}
			cfg := bustest.NATSConfig(s.ClientURL())
			cfg.Stream.MaxAge.Duration = tc.configured
			r := bustest.RunNATS(t, cfg)
			store := newObjectStore(t, r, driver.ObjectStore{Bucket: bucketName, Create: true})
			for range 2 {
				if _, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte("x"), nil); err != nil {
					t.Fatal(err)
				}
			}
			bustest.CheckBucket(t, js, tc.want, 1)
			warnings := 0
			if tc.warned {
				warnings = 1
			}
			if got := bustest.Lines(r.Log.String(), "dataref is then invalid"); got != warnings {
				t.Errorf("warned %d times, want %d:\n%s", got, warnings, r.Log.String())
			}
		})
	}
}

// The same holds for replicas.
func TestObjectStoreHasTheReplicasOfTheStream(t *testing.T) {
	t.Parallel()
	var urls []string
	for _, s := range startCluster(t) {
		urls = append(urls, s.ClientURL())
	}
	js := bustest.Admin(t, strings.Join(urls, ","))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, Replicas: 3, Discard: jetstream.DiscardNew,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{
		Bucket:  "LESS",
		Storage: jetstream.FileStorage,
	}); err != nil {
		t.Fatal(err)
	}
	// the configured stream has one replica
	r := bustest.RunNATS(t, bustest.NATSConfig(strings.Join(urls, ",")))
	for bucket, want := range map[string]int{bucketName: 3, "LESS": 1} {
		store := newObjectStore(t, r, driver.ObjectStore{Bucket: bucket, Create: true})
		if _, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
		s, err := js.Stream(t.Context(), "OBJ_"+bucket)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.CachedInfo().Config.Replicas; got != want {
			t.Errorf("bucket %s has %d replicas, want %d", bucket, got, want)
		}
	}
	if got := bustest.Lines(r.Log.String(), "bucket has fewer replicas than the stream"); got != 1 {
		t.Errorf("warned %d times of the bucket that was there:\n%s", got, r.Log.String())
	}
}

func TestObjectStoreRefusals(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	_, err := newObjectStore(t, r, driver.ObjectStore{Bucket: bucketName}).
		Put(t.Context(), "c0ffee", "text/plain", []byte("x"), nil)
	if !errors.Is(err, publish.ErrRefused) || !strings.Contains(err.Error(), "nats object add KUBECDC_LARGE") {
		t.Errorf("no bucket: %v", err)
	}
	for _, name := range []string{"", "a.b", "a b", "ä"} {
		if _, err := newObjectStore(t, r, driver.ObjectStore{Bucket: name}).
			Put(t.Context(), "c0ffee", "text/plain", []byte("x"), nil); !errors.Is(err, publish.ErrRefused) {
			t.Errorf("bucket %q: %v", name, err)
		}
	}
	r.Stop()
	if _, err := newObjectStore(t, r, driver.ObjectStore{Bucket: bucketName}).
		Put(t.Context(), "c0ffee", "text/plain", nil, nil); !errors.Is(err, publish.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// The store waits while a bucket is full or a connection is lost; the log says so.
func TestObjectStoreWaits(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, strings.TrimPrefix(s.ClientURL(), "nats://"))
	js := bustest.Admin(t, s.ClientURL())
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{
		Bucket:   bucketName,
		MaxBytes: 64 << 10,
		Storage:  jetstream.FileStorage,
	}); err != nil {
		t.Fatal(err)
	}
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	store := newObjectStore(t, r, driver.ObjectStore{Bucket: bucketName, Create: true})
	body := bustest.Text(300 << 10)
	done := make(chan error, 1)
	go func() {
		_, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte(body), nil)
		done <- err
	}()
	bustest.Wait(t, "the log says that the bucket is full", func() bool {
		return bustest.Lines(r.Log.String(), "is full: set another one in claimCheck.objectStore.bucket") > 0
	})
	p.Cut()
	stream, err := js.Stream(t.Context(), "OBJ_"+bucketName)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.MaxBytes = -1
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b, err := js.ObjectStore(t.Context(), bucketName)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.GetString(t.Context(), "c0ffee"); err != nil || got != body {
		t.Errorf("%v, %d bytes", err, len(got))
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Put(ended, "c0ffee", "text/plain", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// A bucket that has no leader for a moment, while the chunks of an object are in flight, still gets
// them in order.
func TestObjectStoreWithoutALeader(t *testing.T) {
	t.Parallel()
	s := bustest.StartServer(t, t.TempDir(), -1)
	js := bustest.Admin(t, s.ClientURL())
	b, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{
		Bucket:  bucketName,
		Storage: jetstream.FileStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+bucketName)
	if err != nil {
		t.Fatal(err)
	}
	all := stream.CachedInfo().Config
	deaf := all
	deaf.Subjects = []string{"$O." + bucketName + ".M.>"} // nothing takes chunks, as between two leaders
	if _, err := js.UpdateStream(t.Context(), deaf); err != nil {
		t.Fatal(err)
	}
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	bustest.Wait(t, "the publisher is connected", func() bool { return r.Ready() == nil })
	store := newObjectStore(t, r, driver.ObjectStore{Bucket: bucketName})
	const chunk = 64 << 10
	body := bustest.Text(1 << 20)
	done := make(chan error, 1)
	before := bytesIn(t, s)
	go func() {
		_, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte(body), nil)
		done <- err
	}()
	bustest.Wait(t, "a chunk has come", func() bool { return bytesIn(t, s) > before+chunk })
	if _, err := js.UpdateStream(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, err := b.GetString(t.Context(), "c0ffee"); err != nil || got != body {
		t.Errorf("%v, %d bytes", err, len(got))
	}
}

// bytesIn returns the number of bytes that clients have sent to the server.
func bytesIn(tb testing.TB, s *server.Server) int64 {
	tb.Helper()
	v, err := s.Varz(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return v.InBytes
}
