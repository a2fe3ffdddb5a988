package encode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// podUnready returns the versions of a pod of 3.8 KB whose container has become unready.
func podUnready(b testing.TB) (before, after []byte) {
	b.Helper()
	var versions [2][]byte
	for i, name := range []string{"before", "after"} {
		raw, err := os.ReadFile("../object/patch/testdata/objects/pod-unready." + name + ".json")
		if err != nil {
			b.Fatal(err)
		}
		versions[i] = bytes.TrimSpace(raw)
	}
	return versions[0], versions[1]
}

// podUpdate is a pod of 3.8 KB whose container has become unready.
func podUpdate(b testing.TB) (d *object.Delta, before, after []byte) {
	before, after = podUnready(b)
	ref := object.NewRef(pods, "shop", "web-6d4cf56db6-x7k2p", "0b6f3f0e-5d7c-4a53-9a57-0d3a8f5f1a11")
	codec := object.NewCodec(before)
	return &object.Delta{
		Op: object.Updated, Ref: ref, ResourceVersion: 48390, Previous: 48211, Observed: observed.UnixNano(),
		Before:    object.New(ref, 48211, 0, codec, before),
		After:     object.New(ref, 48390, 0, codec, after),
		ChangedBy: []byte(`[{"manager":"kubelet","operation":"Update","time":"2026-11-20T15:07:12Z"}]`),
	}, before, after
}

func BenchmarkEncode(b *testing.B) {
	d, before, after := podUpdate(b)
	for _, bc := range []struct {
		name   string
		change func(o *encode.Options)
	}{
		{"structured", func(*encode.Options) {}},
		{"binary", func(o *encode.Options) { o.Mode = encode.Binary }},
		{"no-patch", func(o *encode.Options) { o.Patch = false }},
		{"no-before", func(o *encode.Options) { o.Before = false }},
	} {
		o := full
		bc.change(&o)
		e := encode.New(o)
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			var ev encode.Event
			for b.Loop() {
				if err := e.Encode(&ev, d); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(ev.Body)))
		})
	}

	// The same event by way of the SDK, from objects that are ready as JSON, without a patch.
	b.Run("baseline-sdk-no-patch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ev := event.New()
			ev.SetID("pods/0b6f3f0e-5d7c-4a53-9a57-0d3a8f5f1a11/48390")
			ev.SetSource("/kubernetes/prod-eu-1")
			ev.SetType("dev.kubecdc.object.updated")
			ev.SetSubject("/api/v1/namespaces/shop/pods/web-6d4cf56db6-x7k2p")
			ev.SetTime(time.Unix(0, d.Observed))
			ev.SetDataSchema("https://kubecdc.dev/schema/object/v1")
			for _, x := range [][2]string{
				{"cluster", "prod-eu-1"},
				{"clusteruid", full.ClusterUID},
				{"apiversion", "v1"},
				{"kind", "Pod"},
				{"resource", "pods"},
				{"namespace", "shop"},
				{"name", d.Ref.Name()},
				{"uid", d.Ref.UID},
				{"op", "u"},
				{"resourceversion", "48390"},
				{"sequence", "00000000000000048390"},
				{"partitionkey", "prod-eu-1/core/pods/shop/" + d.Ref.Name()},
			} {
				ev.SetExtension(x[0], x[1])
			}
			if err := ev.SetData(event.ApplicationJSON, map[string]any{
				"op": "u", "resourceVersion": "48390", "previousResourceVersion": "48211",
				"before":    json.RawMessage(before),
				"after":     json.RawMessage(after),
				"changedBy": json.RawMessage(d.ChangedBy),
			}); err != nil {
				b.Fatal(err)
			}
			if _, err := json.Marshal(ev); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkEncodeDeep is the event of an update of an object that diverges on each level, beside a
// flat object of the same size.
func BenchmarkEncodeDeep(b *testing.B) {
	for _, size := range []int{120_000, 1_200_000} {
		for _, levels := range []int{0, 10, 98, 490} {
			name := fmt.Sprintf("%d-levels/%d-bytes", levels, size)
			if levels == 0 {
				name = fmt.Sprintf("flat/%d-bytes", size)
			}
			before, after := deepPair(levels, size)
			d := updateOf("web-1", before, after)
			e := encode.New(full)
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(after)))
				for b.Loop() {
					var ev encode.Event // the buffers of so large an event are not kept
					if err := e.Encode(&ev, d); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
