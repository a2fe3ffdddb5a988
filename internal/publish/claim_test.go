package publish_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const bucketName = "KUBECDC_LARGE"

func newObjectStore(tb testing.TB, r *running, cfg publish.ObjectStoreConfig) *publish.ObjectStore {
	tb.Helper()
	s, err := publish.NewObjectStore(r.NATS, cfg, r.log.Logger(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// text is as large as it looks: it does not compress.
func text(tb testing.TB, size int) string {
	tb.Helper()
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(rand.Text())
	}
	return b.String()[:size]
}

// Objects of 0.5 to 1.4 MB by way of a server that takes 256 KiB: the record says where the whole is, and a consumer gets it,
// byte for byte.
func TestLargeObjectsIntoJetStream(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1, func(o *server.Options) { o.MaxPayload = 256 << 10 })
	cfg := testConfig(s.ClientURL())
	cfg.MaxEventBytes, cfg.Stream.MaxAge = 200<<10, 48*time.Hour
	r, j := run(t, cfg), newJournal()
	wholes := map[string]encode.Event{}
	var ds []*object.Delta
	for i, size := range []int{10, 500 << 10, 900 << 10, 1400 << 10} {
		name := fmt.Sprintf("web-%d", i)
		for rv := 2; rv < 4; rv++ {
			ref := object.NewRef(pods, "shop", name, "uid-"+name)
			doc := func(rv int) *object.Object {
				return object.New(ref, uint64(rv), 0, nil, fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":%q},"text":%q}`, name, text(t, size)))
			}
			d := &object.Delta{Op: object.Updated, Ref: ref, Scope: "pods", Before: doc(rv - 1), After: doc(rv), ResourceVersion: uint64(rv), Previous: uint64(rv - 1), Observed: 1, Acker: j}
			ds = append(ds, d)
			var whole encode.Event
			if err := newEncoder(encode.Binary).EncodeWhole(&whole, d); err != nil {
				t.Fatal(err)
			}
			wholes[string(whole.ID)] = whole
		}
	}
	o := publish.Options{MaxEventBytes: cfg.MaxEventBytes, Oversize: allOversize, Claims: newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucketName, Create: true})}
	if err := dispatchAll(t, r.bus(), o, encode.Binary, nil, r.log, ds...); err != nil {
		t.Fatal(err)
	}

	reader, err := (&consume.JetStream{URL: s.ClientURL()}).Read(t.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var tracker consume.Tracker
	for range len(ds) {
		e, err := reader.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !tracker.Apply(e).News {
			t.Errorf("%s is no news", e.ID)
		}
		whole, err := reader.Whole(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		want := wholes[e.ID]
		if e.Name == "web-0" {
			if e.DataRef != "" || whole != e {
				t.Errorf("%s was put aside", e.ID)
			}
			continue
		}
		if !strings.HasPrefix(e.DataRef, "nats-obj://KUBECDC_LARGE/") || e.Data.After != nil || !slices.Equal(e.Data.Truncated, []string{"before", "after", "patch"}) {
			t.Errorf("%s: %s without %v", e.ID, e.DataRef, e.Data.Truncated)
		}
		if got, err := whole.MarshalJSON(); err != nil || string(got) != string(want.Body) {
			t.Errorf("%s: %v, the whole has %d bytes, want %d", e.ID, err, len(got), len(want.Body))
		}
	}
	if tracker.Len() != 4 {
		t.Errorf("the tracker knows %d objects", tracker.Len())
	}
	checkBucket(t, admin(t, s.ClientURL()), 72*time.Hour, 6)
}

func checkBucket(tb testing.TB, js jetstream.JetStream, ttl time.Duration, objects int) {
	tb.Helper()
	b, err := js.ObjectStore(tb.Context(), bucketName)
	if err != nil {
		tb.Fatal(err)
	}
	list, err := b.List(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	status, err := b.Status(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if len(list) != objects || status.TTL() != ttl || status.Storage() != jetstream.FileStorage {
		tb.Errorf("%d objects, kept for %v, in %v", len(list), status.TTL(), status.Storage())
	}
}

// Put again, a claim is there once: nothing of the first is left, and the reference is the same.
func TestObjectStoreReplaces(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	store := newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucketName, Create: true})
	for range 3 {
		body := text(t, 1<<20)
		ref, err := store.Put(t.Context(), "c0ffee", "application/cloudevents+json", []byte(body))
		if err != nil || ref != "nats-obj://KUBECDC_LARGE/c0ffee" {
			t.Fatalf("%s, %v", ref, err)
		}
		js := admin(t, s.ClientURL())
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
	checkBucket(t, admin(t, s.ClientURL()), 0, 1)
}

func TestObjectStoreLeavesABucketAsItIs(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	js := admin(t, s.ClientURL())
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: bucketName, TTL: time.Hour, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(s.ClientURL())
	cfg.Stream.MaxAge = time.Minute
	store := newObjectStore(t, run(t, cfg), publish.ObjectStoreConfig{Bucket: bucketName})
	if _, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte("x")); err != nil {
		t.Fatal(err)
	}
	checkBucket(t, js, time.Hour, 1)
}

// A bucket is made like the stream that is there, not like the one that was configured; one that is there already and is
// less than the stream is warned of, once.
func TestObjectStoreFollowsTheStream(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name                 string
		existing, configured time.Duration // of the stream; 0: for ever
		bucket               time.Duration // of one that exists; 0: none does
		want                 time.Duration // of the bucket
		warned               bool
	}{
		{name: "longer", existing: 90 * day, configured: 7 * day, want: 91 * day},
		{name: "shorter", existing: day, configured: 7 * day, want: 2 * day},
		{name: "for ever", existing: 0, configured: 7 * day, want: 0},
		{name: "not configured", existing: 90 * day, configured: 0, want: 91 * day},
		{name: "bucket with less", existing: 90 * day, configured: 7 * day, bucket: 8 * day, want: 8 * day, warned: true},
		{name: "bucket with less than for ever", existing: 0, configured: 7 * day, bucket: 8 * day, want: 8 * day, warned: true},
		{name: "bucket with as much", existing: 90 * day, configured: 7 * day, bucket: 90 * day, want: 90 * day},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := startServer(t, t.TempDir(), -1)
			js := admin(t, s.ClientURL())
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, MaxAge: tc.existing, Discard: jetstream.DiscardNew,
			}); err != nil {
				t.Fatal(err)
			}
			if tc.bucket != 0 {
				if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: bucketName, TTL: tc.bucket, Storage: jetstream.FileStorage}); err != nil {
					t.Fatal(err)
				}
			}
			cfg := testConfig(s.ClientURL())
			cfg.Stream.MaxAge = tc.configured
			r := run(t, cfg)
			store := newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucketName, Create: true})
			for range 2 {
				if _, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			checkBucket(t, js, tc.want, 1)
			warnings := 0
			if tc.warned {
				warnings = 1
			}
			if got := lines(r.log.String(), "dataref leads nowhere"); got != warnings {
				t.Errorf("warned %d times, want %d:\n%s", got, warnings, r.log.String())
			}
		})
	}
}

// So it is with replicas.
func TestObjectStoreHasTheReplicasOfTheStream(t *testing.T) {
	t.Parallel()
	var urls []string
	for _, s := range startCluster(t) {
		urls = append(urls, s.ClientURL())
	}
	js := admin(t, strings.Join(urls, ","))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, Replicas: 3, Discard: jetstream.DiscardNew,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "LESS", Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	r := run(t, testConfig(strings.Join(urls, ","))) // which has one
	for bucket, want := range map[string]int{bucketName: 3, "LESS": 1} {
		store := newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucket, Create: true})
		if _, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte("x")); err != nil {
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
	if got := lines(r.log.String(), "bucket has fewer replicas than the stream"); got != 1 {
		t.Errorf("warned %d times of the bucket that was there:\n%s", got, r.log.String())
	}
}

func TestObjectStoreRefusals(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	r := run(t, testConfig(s.ClientURL()))
	_, err := newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucketName}).Put(t.Context(), "c0ffee", "text/plain", []byte("x"))
	if !errors.Is(err, publish.ErrRefused) || !strings.Contains(err.Error(), "nats object add KUBECDC_LARGE") {
		t.Errorf("no bucket: %v", err)
	}
	for _, name := range []string{"", "a.b", "a b", "ä"} {
		if _, err := publish.NewObjectStore(r.NATS, publish.ObjectStoreConfig{Bucket: name}, discard, nil); err == nil {
			t.Errorf("bucket %q is taken", name)
		}
	}
	r.stop()
	if _, err := newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucketName}).Put(t.Context(), "c0ffee", "text/plain", nil); !errors.Is(err, publish.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A full bucket and a lost connection are waited out; the log says so.
func TestObjectStoreWaits(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, strings.TrimPrefix(s.ClientURL(), "nats://"))
	js := admin(t, s.ClientURL())
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: bucketName, MaxBytes: 64 << 10, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	r := run(t, testConfig(p.URL()))
	store := newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucketName, Create: true})
	body := text(t, 300<<10)
	done := make(chan error, 1)
	go func() {
		_, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte(body))
		done <- err
	}()
	wait(t, "the log says that the bucket is full", func() bool { return lines(r.log.String(), "is full: raise its max_bytes") > 0 })
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
	if _, err := store.Put(ended, "c0ffee", "text/plain", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// A bucket that has no leader for a moment, while the chunks of an object are on their way, gets them in order all the same.
func TestObjectStoreWithoutALeader(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1)
	js := admin(t, s.ClientURL())
	b, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: bucketName, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+bucketName)
	if err != nil {
		t.Fatal(err)
	}
	all := stream.CachedInfo().Config
	deaf := all
	deaf.Subjects = []string{"$O." + bucketName + ".M.>"} // nobody takes chunks, as between two leaders
	if _, err := js.UpdateStream(t.Context(), deaf); err != nil {
		t.Fatal(err)
	}
	r := run(t, testConfig(s.ClientURL()))
	wait(t, "the publisher is connected", func() bool { return r.Ready() == nil })
	store := newObjectStore(t, r, publish.ObjectStoreConfig{Bucket: bucketName})
	const chunk = 64 << 10
	body := text(t, 1<<20)
	done := make(chan error, 1)
	before := bytesIn(t, s)
	go func() {
		_, err := store.Put(t.Context(), "c0ffee", "text/plain", []byte(body))
		done <- err
	}()
	wait(t, "a chunk has come", func() bool { return bytesIn(t, s) > before+chunk })
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

// bytesIn is how much clients have sent to the server.
func bytesIn(tb testing.TB, s *server.Server) int64 {
	tb.Helper()
	v, err := s.Varz(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return v.InBytes
}

// The whole way of a poisoned event: into the dead letters of a real stream, told of by a gap, before the next version.
func TestDeadLettersOnJetStream(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	cfg := testConfig(s.ClientURL())
	cfg.DeadLetter = "kubecdc.{cluster}.dead"
	r, j := run(t, cfg), newJournal()
	poisoned := busFunc(func(ctx context.Context, ev *encode.Event) error {
		if ev.Delta.ResourceVersion == 7 {
			return fmt.Errorf("%w: a receiver between us", publish.ErrRefused)
		}
		return r.Publish(ctx, ev)
	})
	o := publish.Options{DeadLetters: publish.Blocking(r.DeadLetters(), nil, nil)}
	if err := dispatchAll(t, poisoned, o, encode.Binary, nil, r.log, change(j, "web-1", 6, 10), change(j, "web-1", 7, 10), change(j, "web-1", 8, 10)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range records(t, admin(t, s.ClientURL()), "KUBECDC") {
		e, err := consume.FromMessage(m.Header, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Subject+" "+describe(e))
		if strings.HasSuffix(m.Subject, ".dead") && e.DeadLetterReason != "refused: the bus refuses the event: a receiver between us" {
			t.Errorf("because %q", e.DeadLetterReason)
		}
	}
	want := []string{
		"kubecdc.prod-eu-1.object.core.pods.shop.web-1 web-1/6",
		"kubecdc.prod-eu-1.dead web-1/7",
		"kubecdc.prod-eu-1.stream.core.pods gap " + letterID,
		"kubecdc.prod-eu-1.object.core.pods.shop.web-1 web-1/8",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWholeRefusals(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	js := admin(t, s.ClientURL())
	b, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: bucketName})
	if err != nil {
		t.Fatal(err)
	}
	var ev encode.Event
	if err := newEncoder(encode.Structured).Encode(&ev, change(newJournal(), "web-1", 7, 10)); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{"other": string(ev.Body), "broken": "{", "alien": "{}"} {
		if _, err := b.PutString(t.Context(), name, body); err != nil {
			t.Fatal(err)
		}
	}
	for ref, want := range map[string]error{
		"nats-obj://KUBECDC_LARGE/none":   jetstream.ErrObjectNotFound,
		"nats-obj://NONE/none":            jetstream.ErrBucketNotFound,
		"nats-obj://KUBECDC_LARGE":        consume.ErrReference,
		"nats-obj:///x":                   consume.ErrReference,
		"https://claims.example/x":        consume.ErrReference,
		"file:///etc/passwd":              consume.ErrReference,
		"nats-obj://KUBECDC_LARGE/alien":  consume.ErrNotKubecdc,
		"nats-obj://KUBECDC_LARGE/broken": nil,
		"nats-obj://KUBECDC_LARGE/other":  nil,
	} {
		e := &consume.Event{ID: "pods/1/8", Source: "/kubernetes/prod-eu-1", DataRef: ref}
		got, err := consume.Whole(t.Context(), js, e)
		if err == nil || want != nil && !errors.Is(err, want) || got != e {
			t.Errorf("%s: %v, want %v", ref, err, want)
		}
	}
}
