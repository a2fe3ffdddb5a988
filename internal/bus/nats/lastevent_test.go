package nats_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestHeard(t *testing.T) {
	at := time.Date(2026, 11, 20, 15, 0, 0, 123456789, time.UTC)
	stream := func(s object.StreamEvent) *object.Delta {
		s.Resource = bustest.Pods
		at = at.Add(time.Minute)
		return &object.Delta{Stream: &s, Observed: at.UnixNano()}
	}
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		t.Run(string(mode), func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			js := bustest.Admin(t, s.ClientURL())
			// The agent did not create this stream: it does not allow direct reads.
			config := jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
				"kubecdc.>",
			}, Discard: jetstream.DiscardNew}
			found, err := js.CreateStream(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
			e := encode.New(encode.Options{Cluster: "prod-eu-1", ClusterUID: "11e0", Mode: mode})
			expect := func(resource *object.Resource, want publish.StreamEvent, there bool) {
				t.Helper()
				got, ok, err := r.LastStreamEvent(t.Context(), resource)
				if err != nil || ok != there {
					t.Fatalf("heard: %v, %v, want %v", ok, err, there)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
			expect(bustest.Pods, publish.StreamEvent{}, false)

			// If there are several scopes, the last event of any of them counts.
			for _, tc := range []struct {
				delta *object.Delta
				want  publish.StreamEvent
			}{
				{
					stream(object.StreamEvent{
						Kind:            object.SnapshotStarted,
						Scope:           "pods/shop",
						Snapshot:        "s1",
						ResourceVersion: 700,
					}),
					publish.StreamEvent{Scope: "pods/shop", ResourceVersion: 700},
				},
				{
					stream(object.StreamEvent{
						Kind:            object.SnapshotCompleted,
						Scope:           "pods?labelSelector=team in (\"a b\",ü%)",
						Snapshot:        "s1",
						ResourceVersion: 690,
					}),
					publish.StreamEvent{Scope: "pods?labelSelector=team in (\"a b\",ü%)", ResourceVersion: 690},
				},
				{
					stream(object.StreamEvent{Kind: object.ScopeStarted, Scope: "pods/h3", ResourceVersion: 710}),
					publish.StreamEvent{Scope: "pods/h3", ResourceVersion: 710},
				},
				{
					stream(object.StreamEvent{
						Kind:   object.Gap,
						Scope:  "pods",
						From:   710,
						To:     820,
						Reason: object.Expired,
					}),
					publish.StreamEvent{Scope: "pods", ResourceVersion: 820},
				},
				{
					stream(object.StreamEvent{Kind: object.Gap, Scope: "pods", From: 820, Reason: "forbidden"}),
					publish.StreamEvent{Scope: "pods", ResourceVersion: 820},
				},
				{
					stream(object.StreamEvent{
						Kind:    object.Gap,
						Scope:   "pods",
						From:    820,
						To:      300,
						Reason:  object.Rewound,
						History: 12,
					}),
					publish.StreamEvent{Scope: "pods", ResourceVersion: 300, History: 12},
				},
				{
					stream(object.StreamEvent{
						Kind:            object.ScopeStarted,
						Scope:           "pods",
						ResourceVersion: 310,
						History:         12,
					}),
					publish.StreamEvent{Scope: "pods", ResourceVersion: 310, History: 12},
				},
			} {
				var ev encode.Event
				if err := e.Encode(&ev, tc.delta); err != nil {
					t.Fatal(err)
				}
				if err := r.Publish(t.Context(), &ev); err != nil {
					t.Fatal(err)
				}
				tc.want.At = time.Unix(0, tc.delta.Observed).UTC()
				expect(bustest.Pods, tc.want, true)
			}
			expect(&object.Resource{Group: "apps", Version: "v1", Name: "deployments"}, publish.StreamEvent{}, false)

			// Records that cannot be parsed do not count.
			for _, foreign := range []string{
				`hello`, `{}`, `{"type":"dev.kubecdc.progress","scope":"pods","data":{"resourceVersion":"x"}}`,
				`{"type":"dev.kubecdc.progress","data":{"resourceVersion":"1"}}`,
				`{"type":"dev.kubecdc.object.read","scope":"pods","data":{"resourceVersion":"1"}}`,
			} {
				if _, err := js.Publish(t.Context(), "kubecdc.prod-eu-1.stream.core.pods",
					[]byte(foreign)); err != nil {
					t.Fatal(err)
				}
				expect(bustest.Pods, publish.StreamEvent{}, false)
			}
			if err := found.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			expect(bustest.Pods, publish.StreamEvent{}, false)
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			expect(bustest.Pods, publish.StreamEvent{}, false)
		})
	}
}

// A call before the bus has connected waits, and returns the last event of the existing stream.
func TestHeardWaitsForTheBus(t *testing.T) {
	dir := t.TempDir()
	s := bustest.StartAnyServer(t, dir, -1)
	port := bustest.PortOf(s)
	r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
	var ev encode.Event
	progress := &object.StreamEvent{
		Kind:            object.ScopeStarted,
		Resource:        bustest.Pods,
		Scope:           "pods",
		ResourceVersion: 7,
	}
	if err := encode.New(encode.Options{Cluster: "prod-eu-1"}).Encode(&ev, &object.Delta{
		Stream: progress,
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), &ev); err != nil {
		t.Fatal(err)
	}
	bustest.StopServer(s)

	gone := errors.New("no time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
	defer cancel()
	if _, _, err := r.LastStreamEvent(ctx, bustest.Pods); !errors.Is(err, gone) {
		t.Errorf("without a server: %v, want %v", err, gone)
	}

	type answer struct {
		version uint64
		ok      bool
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		h, ok, err := r.LastStreamEvent(t.Context(), bustest.Pods)
		answers <- answer{h.ResourceVersion, ok, err}
	}()
	bustest.StartAnyServer(t, dir, port)
	if got, want := <-answers, (answer{version: 7, ok: true}); got != want {
		t.Errorf("once the server is back: %+v, want %+v", got, want)
	}

	r.Stop()
	if _, _, err := r.LastStreamEvent(t.Context(), bustest.Pods); !errors.Is(err, publish.ErrClosed) {
		t.Errorf("after the end: %v, want %v", err, publish.ErrClosed)
	}
}

// The newest event of an object of a resource is that of any namespace and name. One that does not
// show an observed version does not count.
func TestNewestObjectEvent(t *testing.T) {
	for template, mode := range map[string]encode.Mode{
		"": encode.Structured,
		"k8s.{cluster}.all.{resource}.v1-{namespace}": encode.Binary,
		"k8s.objects": encode.Structured,
	} {
		t.Run(template, func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			cfg := bustest.NATSConfig(s.ClientURL())
			cfg.Subject = template
			b := bustest.RunNATS(t, cfg)
			e := encode.New(encode.Options{Cluster: cfg.Cluster, ClusterUID: "11e0", Mode: mode})
			expect := func(want publish.ObjectEvent, there bool) {
				t.Helper()
				got, ok, err := b.LastObjectEvent(t.Context(), bustest.Pods)
				if err != nil || ok != there {
					t.Fatalf("%v, %v, want %v", ok, err, there)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
			send := func(d *object.Delta) {
				t.Helper()
				d.Observed = 1
				var ev encode.Event
				if err := e.Encode(&ev, d); err != nil {
					t.Fatal(err)
				}
				if err := b.Publish(t.Context(), &ev); err != nil {
					t.Fatal(err)
				}
			}
			version := func(ref *object.Ref, rv uint64) *object.Object {
				return object.New(ref, rv, 0, nil, []byte(`{"metadata":{"name":"x"}}`))
			}
			expect(publish.ObjectEvent{}, false)
			a := object.NewRef(bustest.Pods, "shop", "a", "uid-a")
			z := object.NewRef(bustest.Pods, "other", "z", "uid-z")
			send(&object.Delta{
				Op: object.Created, Ref: z, After: version(z, 700), ResourceVersion: 700, Scope: "pods",
				ChangedBy: []byte(`[{"manager":"kubectl","operation":"Update","time":"2026-11-20T15:00:00Z"}]`),
			})
			want := publish.ObjectEvent{
				Namespace: "other", Name: "z", UID: "uid-z", ResourceVersion: 700,
				ChangedBy: []byte(`[{"manager":"kubectl","operation":"Update","time":"2026-11-20T15:00:00Z"}]`),
			}
			expect(want, true)
			send(&object.Delta{Stream: &object.StreamEvent{
				Kind:            object.ScopeStarted,
				Resource:        bustest.Pods,
				Scope:           "pods",
				ResourceVersion: 701,
			}})
			expect(want, true)
			send(&object.Delta{
				Op:              object.Deleted,
				Ref:             a,
				Before:          version(a, 690),
				ResourceVersion: 702,
				History:         3,
				Scope:           "pods",
			})
			expect(
				publish.ObjectEvent{
					Namespace:       "shop",
					Name:            "a",
					UID:             "uid-a",
					ResourceVersion: 702,
					History:         3,
					Gone:            true,
				}, true)
			send(&object.Delta{Op: object.Left, Ref: z, Before: version(z, 700), ResourceVersion: 703, Scope: "pods"})
			expect(publish.ObjectEvent{}, false)
			send(&object.Delta{
				Op:              object.Deleted,
				Inferred:        true,
				Ref:             z,
				Before:          version(z, 700),
				ResourceVersion: 704,
				Scope:           "pods",
			})
			expect(publish.ObjectEvent{}, false)
			if template == "k8s.objects" { // all resources have one subject
				other := object.NewRef(
					&object.Resource{
						Group:      "apps",
						Version:    "v1",
						Name:       "deployments",
						Kind:       "Deployment",
						Namespaced: true,
					}, "shop", "d", "uid-d")
				send(&object.Delta{
					Op:              object.Created,
					Ref:             other,
					After:           version(other, 705),
					ResourceVersion: 705,
					Scope:           "deployments.apps",
				})
				expect(publish.ObjectEvent{}, false)
			}
		})
	}
}
