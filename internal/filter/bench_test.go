package filter_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// BenchmarkNoise is what a ready-made filter costs per update, of those it withholds and of those
// it sends. The objects are compressed, as they are in the pipeline.
func BenchmarkNoise(b *testing.B) {
	for _, tc := range []struct{ name, withheld, sent string }{
		{"managed-fields-only", "deployment-applied-again", "deployment-scaled"},
		{"status-only", "pod-unready", "pod-bound"},
		{"lease-heartbeats", "lease-renewed", ""},
		{"node-heartbeats", "node-heartbeat", "node-not-ready"},
		{"endpoints-churn", "slice-grown", "slice-port"},
	} {
		for what, pair := range map[string]string{"withheld": tc.withheld, "sent": tc.sent} {
			if pair == "" {
				continue
			}
			b.Run(tc.name+"/"+what, func(b *testing.B) {
				r := resourceOf(b, pair)
				x := resourced(b, filter.Options{Noise: []string{tc.name}}, r)
				d := packed(b, r, pair)
				b.ReportAllocs()
				for b.Loop() {
					if got := x.Withholds(d) != ""; got != (what == "withheld") {
						b.Fatalf("withheld: %t", got)
					}
				}
			})
		}
	}
}

// BenchmarkWhere is what an expression costs per update. The last two open the object, or all of
// both.
func BenchmarkWhere(b *testing.B) {
	for _, tc := range []struct {
		name, where string
	}{
		{"operations", ""},
		{"op", `op != "d"`},
		{"changed", `changed("spec")`},
		{"changedOnly", `!changedOnly("status")`},
		{"member", `after.spec.replicas > 3`},
		{
			"decoded",
			`before.spec.template == after.spec.template && after.spec.template.spec.containers.all(c, c.image != "")`,
		},
	} {
		b.Run(tc.name, func(b *testing.B) {
			x := resourced(b, filter.Options{Operations: []string{
				"updated",
			}, Where: tc.where, OnError: "drop"}, deployments)
			d := packed(b, deployments, "deployment-scaled")
			b.ReportAllocs()
			for b.Loop() {
				if got := x.Withholds(d); got == filter.ReasonError {
					b.Fatal(got)
				}
			}
		})
	}
}

// packed is an update of real objects as the store has them.
func packed(b *testing.B, r *object.Resource, pair string) *object.Delta {
	b.Helper()
	before, after := []byte(stripped(b, real(b, pair, "before"))), []byte(stripped(b, real(b, pair, "after")))
	codec := object.NewCodec(before)
	ref := object.NewRef(r, "shop", "web", "u1")
	return &object.Delta{
		Op:              object.Updated,
		Ref:             ref,
		Before:          object.New(ref, 1, 0, codec, before),
		After:           object.New(ref, 2, 0, codec, after),
		ResourceVersion: 2,
		Previous:        1,
	}
}
