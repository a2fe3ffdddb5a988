package publish_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

const bucketName = bustest.BucketName

// Objects of 0.5 to 1.4 MB pass through a server that takes 256 KiB: the record refers to the whole
// event, and a consumer gets it byte for byte.
func TestLargeObjectsIntoJetStream(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1, func(o *server.Options) { o.MaxPayload = 256 << 10 })
	cfg := testConfig(s.ClientURL())
	cfg.MaxEventBytes, cfg.Stream.MaxAge.Duration = 200<<10, 48*time.Hour
	r, j := run(t, cfg), newJournal()
	wholes := map[string]encode.Event{}
	var ds []*object.Delta
	for i, size := range []int{10, 500 << 10, 900 << 10, 1400 << 10} {
		name := fmt.Sprintf("web-%d", i)
		for rv := 2; rv < 5; rv++ {
			ref := object.NewRef(pods, "shop", name, "uid-"+name)
			doc := func(rv int) *object.Object {
				return object.New(ref, uint64(rv), 0, nil,
					fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":%q},"text":%q}`, name, bustest.Text(size)))
			}
			d := &object.Delta{
				Op:              object.Updated,
				Ref:             ref,
				Scope:           "pods",
				Before:          doc(rv - 1),
				After:           doc(rv),
				ResourceVersion: uint64(rv),
				Previous:        uint64(rv - 1),
				Observed:        1,
				Acker:           j,
			}
			if rv == 4 {
				d.Op, d.After = object.Deleted, nil
			}
			ds = append(ds, d)
			var whole encode.Event
			if err := newEncoder(encode.Binary).EncodeWhole(&whole, d); err != nil {
				t.Fatal(err)
			}
			wholes[string(whole.ID)] = whole
		}
	}
	o := publish.Options{MaxEventBytes: cfg.MaxEventBytes, Oversize: allOversize, Claims: newObjectStore(t, r)}
	if err := dispatchAll(t, r.Bus, o, encode.Binary, nil, r.Log, ds...); err != nil {
		t.Fatal(err)
	}

	reader, err := (&fromnats.JetStream{URL: s.ClientURL()}).Read(t.Context(), consume.Query{
		Start:     consume.Beginning(),
		StopAtEnd: true,
	})
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
		members := []string{"before", "after", "patch"}
		if e.Op == consume.Deleted {
			members = members[:1]
		}
		if !strings.HasPrefix(e.DataRef, "nats-obj://KUBECDC_LARGE/") || e.Data.Before != nil ||
			!slices.Equal(e.Data.Truncated, members) {
			t.Errorf("%s: %s without %v", e.ID, e.DataRef, e.Data.Truncated)
		}
		if got, err := whole.MarshalJSON(); err != nil || string(got) != string(want.Body) {
			t.Errorf("%s: %v, the whole has %d bytes, want %d", e.ID, err, len(got), len(want.Body))
		}
	}
	if tracker.Len() != 0 {
		t.Errorf("the tracker knows %d objects", tracker.Len())
	}
	bustest.CheckBucket(t, admin(t, s.ClientURL()), 72*time.Hour, 9)
}

// The max_payload of the server is lowered while the agent runs. The server closes the connection
// at the first event above it. The event is then shortened, like one that was too large from the
// start, and the others are sent whole.
func TestPayloadLimitIsLoweredWhileTheAgentRuns(t *testing.T) {
	t.Parallel()
	var options *server.Options
	s := startServer(t, t.TempDir(), -1, func(o *server.Options) { options = o })
	cfg := testConfig(s.ClientURL())
	r, j := run(t, cfg), newJournal()
	o := publish.Options{MaxEventBytes: cfg.MaxEventBytes, Oversize: allOversize, Claims: newObjectStore(t, r)}
	if err := dispatchAll(t, r.Bus, o, encode.Binary, nil, r.Log, change(j, "web-1", 2, 150<<10)); err != nil {
		t.Fatal(err)
	}
	lowered := options.Clone()
	lowered.MaxPayload = 64 << 10
	if err := s.ReloadOptions(lowered); err != nil {
		t.Fatal(err)
	}
	ds := []*object.Delta{change(j, "web-1", 3, 150<<10), change(j, "web-1", 4, 10), change(j, "web-2", 5, 50<<10)}
	for i := range 50 {
		ds = append(ds, change(j, fmt.Sprintf("small-%d", i), 6, 10))
	}
	if err := dispatchAll(t, r.Bus, o, encode.Binary, nil, r.Log, ds...); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range records(t, admin(t, s.ClientURL()), "KUBECDC") {
		e, err := consume.FromMessage(m.Header, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if e.Data.Truncated != nil || e.Name == "web-1" {
			got[e.Name+"/"+e.ResourceVersion] = fmt.Sprint(e.Data.Truncated, " ", e.DataRef != "")
		}
	}
	want := map[string]string{
		"web-1/2": "[] false",
		"web-1/3": "[before after patch] true",
		"web-1/4": "[] false",
		"web-2/5": "[before patch] false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The complete path of a poisoned event: to the dead letters of a real stream, reported by a gap
// before the next version.
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
	o := publish.Options{DeadLetters: r.Bus}
	if err := dispatchAll(t, poisoned, o, encode.Binary, nil, r.Log, change(j, "web-1", 6, 10),
		change(j, "web-1", 7, 10), change(j, "web-1", 8, 10)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range records(t, admin(t, s.ClientURL()), "KUBECDC") {
		e, err := consume.FromMessage(m.Header, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Subject+" "+describe(e))
		if strings.HasSuffix(m.Subject, ".dead") &&
			e.DeadLetterReason != "refused: the bus rejects the event: a receiver between us" {
			t.Errorf("because %q", e.DeadLetterReason)
		}
	}
	want := []string{
		"kubecdc.prod-eu-1.object.core.pods.shop.web-1 web-1/6",
		"kubecdc.prod-eu-1.dead web-1/7",
		"kubecdc.prod-eu-1.scope.core.pods.pods%2Fshop gap " + letterID,
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
		got, err := fromnats.Whole(t.Context(), js, e)
		if err == nil || want != nil && !errors.Is(err, want) || got != e {
			t.Errorf("%s: %v, want %v", ref, err, want)
		}
	}
}
