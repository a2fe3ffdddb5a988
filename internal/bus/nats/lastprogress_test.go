package nats_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// The bus is asked through these.
var (
	_ driver.Limiter        = (*natsbus.Bus)(nil)
	_ driver.LastProgresser = (*natsbus.Bus)(nil)
)

const progressSubject = "kubecdc.prod-eu-1.progress." + bustest.Writer

var (
	pods     = bustest.Pods
	services = &object.Resource{Version: "v1", Name: "services", Kind: "Service", Namespaced: true}
)

// saysAt is what the progress number n of bustest.Progress says about a scope.
func saysAt(r *object.Resource, scope string, rv, n uint64) publish.ScopeProgress {
	at := bustest.Began.Add(time.Duration(n) * time.Minute)
	return publish.ScopeProgress{
		Resource:        r.String(),
		Scope:           scope,
		Count:           1,
		ResourceVersion: rv,
		To:              at.Add(-time.Second),
		At:              at,
	}
}

// The last progress of a writer is that of its last run, with the newest entry of each scope.
func TestLastProgress(t *testing.T) {
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		for _, template := range []string{"", "cdc.{cluster}.{name}"} {
			t.Run(string(mode)+" "+template, func(t *testing.T) {
				s := bustest.StartAnyServer(t, t.TempDir(), -1)
				js := bustest.Admin(t, s.ClientURL())
				cfg := bustest.NATSConfig(s.ClientURL())
				cfg.Subject = template
				r := bustest.RunNATS(t, cfg)
				send := func(run string, d *object.Delta) {
					t.Helper()
					if err := r.Publish(t.Context(), bustest.EncodeProgress(t, mode, run, d)); err != nil {
						t.Fatal(err)
					}
				}
				expect := func(want *publish.ProgressEvent) {
					t.Helper()
					got, ok, err := r.LastProgress(t.Context(), bustest.Writer)
					if err != nil || ok != (want != nil) {
						t.Fatalf("%v, %v, want %v", ok, err, want != nil)
					}
					if want == nil {
						want = new(publish.ProgressEvent)
					}
					if diff := cmp.Diff(*want, got); diff != "" {
						t.Errorf("-want +got\n%s", diff)
					}
				}
				expect(nil)
				if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
					t.Fatal(err)
				}
				expect(nil)

				at := bustest.ScopeAt
				send("0-1000", bustest.Progress(9, at(services, "", 50), at(pods, "pods/old", 50)))
				send("0-2000", bustest.Progress(1, at(services, "", 60), at(pods, "", 60)))
				for rv := range 40 {
					if err := r.Publish(t.Context(), bustest.Event("web-1", rv+2, `{}`)); err != nil {
						t.Fatal(err)
					}
				}
				send("0-2000", bustest.Progress(5, at(services, "", 70)))
				send("0-2000", bustest.Progress(6, at(pods, "pods/a", 71), at(pods, "pods/b", 0)))
				last := bustest.Progress(7, at(pods, "pods/a", 72))
				last.Report.Ends = true
				send("0-2000", last)
				send("0-2000", last) // a copy, within the duplicate window
				for _, foreign := range []string{"hello", "{}"} {
					if _, err := js.Publish(t.Context(), progressSubject, []byte(foreign)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := js.Publish(t.Context(), "kubecdc.prod-eu-1.progress.other", []byte("x")); err != nil {
					t.Fatal(err)
				}
				expect(&publish.ProgressEvent{
					Writer: bustest.Writer, Run: "0-2000", Time: bustest.Began.Add(7 * time.Minute), Ends: true,
					Scopes: []publish.ScopeProgress{
						saysAt(pods, "pods/a", 72, 7), noVersion(saysAt(pods, "pods/b", 0, 6)),
						saysAt(services, "", 70, 5),
					},
				})
				if _, ok, err := r.LastProgress(t.Context(), "other"); ok || err != nil {
					t.Errorf("another writer: %v, %v", ok, err)
				}

				// A run with a higher epoch is later, whatever came last.
				send("3-1500", bustest.Progress(8, at(pods, "", 90)))
				send("0-2000", bustest.Progress(9, at(pods, "", 80)))
				next := &publish.ProgressEvent{
					Writer: bustest.Writer, Run: "3-1500", Time: bustest.Began.Add(8 * time.Minute),
					Scopes: []publish.ScopeProgress{saysAt(pods, "", 90, 8)},
				}
				expect(next)
				for _, rec := range bustest.Records(t, js, "KUBECDC") {
					if string(rec.Data) != "x" &&
						strings.Contains(string(rec.Data)+fmt.Sprint(rec.Header), "/progress/") &&
						rec.Subject != progressSubject {
						t.Errorf("progress has the subject %s", rec.Subject)
					}
				}

				stream, err := js.Stream(t.Context(), "KUBECDC")
				if err != nil {
					t.Fatal(err)
				}
				if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(progressSubject)); err != nil {
					t.Fatal(err)
				}
				expect(nil)
				if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
					t.Fatal(err)
				}
				expect(nil)
			})
		}
	}
}

// noVersion is an entry of a scope without a resourceVersion: it claims nothing.
func noVersion(s publish.ScopeProgress) publish.ScopeProgress {
	s.To = time.Time{}
	return s
}

func TestLastProgressEndsWithTheBus(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	bustest.StopServer(s)
	gone := errors.New("no time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
	defer cancel()
	if _, _, err := r.LastProgress(ctx, bustest.Writer); !errors.Is(err, gone) {
		t.Errorf("without a server: %v, want %v", err, gone)
	}
	r.Stop()
	if _, _, err := r.LastProgress(t.Context(), bustest.Writer); !errors.Is(err, publish.ErrClosed) {
		t.Errorf("after the end: %v, want %v", err, publish.ErrClosed)
	}
}

// The first record of the span is found in any stream, with few requests.
func TestFirstRecordOfASpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var records []*natsgo.RawStreamMsg
		sequence, at := uint64(0), bustest.Began
		for range rapid.IntRange(1, 30).Draw(t, "records") {
			sequence += rapid.OneOf(rapid.Uint64Range(1, 3), rapid.Uint64Range(1, 1<<40)).Draw(t, "distance")
			at = at.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes")) * time.Minute)
			records = append(records, &natsgo.RawStreamMsg{Sequence: sequence, Time: at})
		}
		last := records[len(records)-1]
		from := last.Time.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "span")) * time.Minute)
		requests := 0
		got, err := natsbus.FirstSince(last, from, func(sequence uint64) (*natsgo.RawStreamMsg, error) {
			requests++
			i := sort.Search(len(records), func(i int) bool { return records[i].Sequence >= sequence })
			if i == len(records) {
				return nil, fmt.Errorf("no record from %d on", sequence)
			}
			return records[i], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := records[sort.Search(len(records), func(i int) bool { return !records[i].Time.Before(from) })]
		if got != want || requests > 80 {
			t.Fatalf("got record %d after %d requests, want %d", got.Sequence, requests, want.Sequence)
		}
	})
}

// Records that are removed meanwhile are an error, after which the caller asks again.
func TestFirstRecordOfASpanIsRemoved(t *testing.T) {
	removed := errors.New("removed")
	_, err := natsbus.FirstSince(&natsgo.RawStreamMsg{Sequence: 100}, time.Time{},
		func(uint64) (*natsgo.RawStreamMsg, error) { return nil, removed })
	if !errors.Is(err, removed) {
		t.Errorf("got %v", err)
	}
}

// The bus knows how large an event may be.
func TestLargestEvent(t *testing.T) {
	cfg := bustest.NATSConfig("")
	for name, tc := range map[string]struct {
		configured, msgSize, want int
	}{
		"configured":       {900 << 10, -1, 900 << 10},
		"of the server":    {0, -1, 1<<20 - 16<<10},
		"of the stream":    {0, 100 << 10, 84 << 10},
		"the least counts": {10 << 10, 100 << 10, 10 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			config := jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
				"kubecdc.>",
			}, Discard: jetstream.DiscardNew, MaxMsgSize: int32(tc.msgSize)}
			if _, err := bustest.Admin(t, s.ClientURL()).CreateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			cfg.URL, cfg.MaxEventBytes = s.ClientURL(), tc.configured
			r := bustest.RunNATS(t, cfg)
			if got := r.MaxEventBytes(); got != tc.configured && got != tc.want { // the check may be over already
				t.Errorf("before the check: %d", got)
			}
			if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
				t.Fatal(err)
			}
			if got := r.MaxEventBytes(); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// A server with small messages has the whole progress of many scopes, in several events.
func TestProgressInSmallMessages(t *testing.T) {
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.MaxEventBytes = 32 << 10
	r := bustest.RunNATS(t, cfg)
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil { // it is connected
		t.Fatal(err)
	}
	limit := r.MaxEventBytes() / 2
	if limit < 8<<10 || limit > 32<<10 {
		t.Fatalf("the limit is %d bytes", limit)
	}
	const resources = 2000
	var scopes []object.ScopeReport
	n := uint64(0)
	send := func() {
		t.Helper()
		n++
		d := bustest.Progress(n, scopes...)
		d.Observed = bustest.Began.UnixNano() // all of one minute
		ev := bustest.EncodeProgress(t, encode.Structured, "0-1000", d)
		if ev.Size() > limit {
			t.Fatalf("an event of %d bytes, the limit is %d", ev.Size(), limit)
		}
		if err := r.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		scopes = nil
	}
	for k := range resources {
		name := fmt.Sprintf("resource-%05d", k)
		scopes = append(scopes,
			bustest.ScopeAt(&object.Resource{Group: "example.com", Version: "v1", Name: name}, "", uint64(k+1)))
		if len(scopes) == 100 {
			send()
		}
	}
	got, ok, err := r.LastProgress(t.Context(), bustest.Writer)
	if err != nil || !ok || len(got.Scopes) != resources {
		t.Fatalf("%d entries of %d in %d events, %v, %v", len(got.Scopes), resources, n, ok, err)
	}
}
