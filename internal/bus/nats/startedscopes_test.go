package nats_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

var _ driver.ScopeLister = (*natsbus.Bus)(nil)

// The scopes of a run are those that it has started and not ended, whatever other runs and writers
// do.
func TestStartedScopes(t *testing.T) {
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		t.Run(string(mode), func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			js := bustest.Admin(t, s.ClientURL())
			r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
			const run = "0-1795186799000"
			n := int64(0)
			sendAs := func(writer, run string, e object.StreamEvent) {
				t.Helper()
				if e.Resource == nil {
					e.Resource = pods
				}
				e.ResourceVersion, e.Snapshot = 7, "s"
				if e.Kind == object.ScopeEnded {
					e.End = object.Deselected
				} else {
					e.Observation = &object.Observation{Rules: []byte(`[{}]`)}
				}
				n++
				d := &object.Delta{Stream: &e, Observed: bustest.Began.UnixNano() + n}
				ev := new(encode.Event)
				encoder := encode.New(encode.Options{
					Cluster:    "prod-eu-1",
					ClusterUID: "11e0",
					Mode:       mode,
					Writer:     writer,
					Run:        run,
				})
				if err := encoder.Encode(ev, d); err != nil {
					t.Fatal(err)
				}
				if err := r.Publish(t.Context(), ev); err != nil {
					t.Fatal(err)
				}
			}
			expect := func(want ...publish.StartedScope) {
				t.Helper()
				got, err := r.StartedScopes(t.Context(), pods, bustest.Writer, run)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
			send := func(kind object.StreamKind, scope string) {
				t.Helper()
				sendAs(bustest.Writer, run, object.StreamEvent{Kind: kind, Scope: scope})
			}
			expect()
			sendAs(bustest.Writer, "0-1795186700000", object.StreamEvent{
				Kind:  object.ScopeStarted,
				Scope: "pods/former",
			})
			sendAs("another", run, object.StreamEvent{Kind: object.ScopeStarted, Scope: "pods/another"})
			sendAs(bustest.Writer, run, object.StreamEvent{
				Kind:     object.ScopeStarted,
				Scope:    "services",
				Resource: services,
			})
			expect()
			send(object.ScopeStarted, "pods/b")
			send(object.ScopeStarted, "pods/a")
			send(object.SnapshotStarted, "pods/a")
			send(object.SnapshotStarted, "pods/part")
			send(object.ScopeStarted, "pods/ended")
			send(object.ScopeEnded, "pods/ended")
			send(object.ScopeStarted, "pods/again")
			send(object.ScopeEnded, "pods/again")
			send(object.ScopeStarted, "pods/again")
			sendAs("another", run, object.StreamEvent{Kind: object.ScopeEnded, Scope: "pods/b"})
			want := []publish.StartedScope{{Name: "pods/a"}, {Name: "pods/again"}, {Name: "pods/b"}, {
				Name:       "pods/part",
				BySnapshot: true,
			}}
			expect(want...)
			foreign := bustest.Records(t, js, "KUBECDC")[0].Subject
			if _, err := js.Publish(t.Context(), foreign, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			expect(want...)
			if got, err := r.StartedScopes(t.Context(), pods, bustest.Writer, "no run"); got != nil || err != nil {
				t.Errorf("a run without a name: %v, %v", got, err)
			}
			if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
				t.Fatal(err)
			}
			expect()
		})
	}
}
