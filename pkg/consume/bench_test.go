package consume_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// recordOf12KB is an update of a pod of 5.5 KB, encoded as the agent does.
func recordOf12KB(tb testing.TB) []byte {
	tb.Helper()
	res := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	ref := object.NewRef(res, "shop", "web-6d4cf56db6-x7k2p", "0b6f3f0e-5d7c-4a53-9a57-0d3a8f5f1a11")
	var docs [2][]byte
	var env strings.Builder
	for i := range 26 {
		fmt.Fprintf(&env, `{"name":"SETTING_%d","valueFrom":{"configMapKeyRef":{"name":"web","key":"%d"}}},`, i, i)
	}
	for i, f := range []string{"before", "after"} {
		raw, err := os.ReadFile("../../internal/encode/testdata/objects/pod-unready." + f + ".json")
		if err != nil {
			tb.Fatal(err)
		}
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			tb.Fatal(err)
		}
		docs[i] = []byte(replaced(tb, b.String(), `"env":[`, `"env":[`+env.String()))
	}
	d := &object.Delta{
		Op: object.Updated, Ref: ref, ResourceVersion: 48390, Previous: 48211, Observed: 1795187000123456789,
		Before:    object.New(ref, 48211, 0, nil, docs[0]),
		After:     object.New(ref, 48390, 0, nil, docs[1]),
		ChangedBy: []byte(`[{"manager":"kubelet","operation":"Update","time":"2026-11-20T15:07:12Z"}]`),
	}
	var ev encode.Event
	o := encode.Options{Cluster: "prod-eu-1", ClusterUID: "11e0c3a4-7d0b-4c0e-9a53-3a1f5e0f6a77", Before: true, Patch: true}
	if err := encode.New(o).Encode(&ev, d); err != nil {
		tb.Fatal(err)
	}
	return ev.Body
}

// BenchmarkRead reads records of 12 KB from an embedded server, which uses the same processors.
func BenchmarkRead(b *testing.B) {
	record := recordOf12KB(b)
	bus := startBus(b)
	nc, js := bus.client()
	bus.stream(js, consume.DefaultStream)
	const records = 10000
	for range records {
		if err := nc.Publish("kubecdc.x.object.core.pods.shop.web", record); err != nil {
			b.Fatal(err)
		}
	}
	until(b, "all are stored", func() bool {
		s, err := js.Stream(b.Context(), consume.DefaultStream)
		return err == nil && s.CachedInfo().State.LastSeq == records
	})
	source := consume.JetStream{URL: bus.ClientURL()}
	q := consume.Query{Start: consume.Beginning(), StopAtEnd: true}

	b.Run("jetstream", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		for n := 0; n < b.N; {
			r, err := source.Read(b.Context(), q)
			if err != nil {
				b.Fatal(err)
			}
			for ; n < b.N; n++ {
				if _, err = r.Next(b.Context()); err != nil {
					break
				}
			}
			if err != nil && !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
			r.Close()
		}
	})
	b.Run("run", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		done := errors.New("done")
		for n := 0; n < b.N; {
			ctx, cancel := context.WithCancelCause(b.Context())
			left := min(b.N-n, records)
			err := consume.Run(ctx, consume.RunOptions{JetStream: source, Start: q.Start, Durable: fmt.Sprint("d", b.N, "-", n)}, func(context.Context, *consume.Event) error {
				n++
				if left--; left == 0 {
					cancel(done)
				}
				return nil
			})
			if !errors.Is(err, done) {
				b.Fatal(err)
			}
		}
	})
	// The cost of nats.go alone: the same consumer counts the messages and discards them.
	b.Run("baseline-nats.go", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		for n := 0; n < b.N; {
			c, err := js.OrderedConsumer(b.Context(), consume.DefaultStream, jetstream.OrderedConsumerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			messages, err := c.Messages()
			if err != nil {
				b.Fatal(err)
			}
			for left := min(b.N-n, records); left > 0; left-- {
				if _, err := messages.Next(); err != nil {
					b.Fatal(err)
				}
				n++
			}
			messages.Stop()
		}
	})
}

func BenchmarkParse(b *testing.B) {
	record := recordOf12KB(b)
	b.Run("consume", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := consume.Parse(record); err != nil {
				b.Fatal(err)
			}
		}
	})
	// The same fields read with encoding/json; before, after and patch stay raw as well.
	b.Run("baseline-encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		b.ReportAllocs()
		for b.Loop() {
			var e struct {
				ID, Source, Type, Subject, Time, Cluster, Kind, Namespace, Name, UID, Op, Sequence string

				Data consume.Data
			}
			if err := json.Unmarshal(record, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
}
