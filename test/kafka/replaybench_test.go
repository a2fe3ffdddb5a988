package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/relay/replay"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
	"github.com/kubecdc/kubecdc/test/kafka"
)

// BenchmarkReplay compares a replay from a JetStream to each target with reading the JetStream
// alone, and with writing to the target alone from memory. The ratio is to the slower one. All
// servers share the processors.
func BenchmarkReplay(b *testing.B) {
	const events, sentBesides = 30_000, 5 // a snapshot of no objects, and progress
	lines, from, to := benchRecord(b, events)
	log := slog.New(slog.DiscardHandler)
	jetStream := func(b *testing.B, url string) relay.Target {
		b.Helper()
		t, err := natsbus.New(natsbus.Config{URL: url, Env: driver.Env{Cluster: "c"}, Stream: natsconfig.Stream{
			Create: true,
		}}, log, nil)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	run := func(b *testing.B, read *record.Record, target relay.Target) time.Duration {
		b.Helper()
		began := time.Now()
		r, err := replay.Prepare(context.Background(), replay.Options{
			Record: read, Selection: &record.Selection{}, From: timeline.At(from), To: timeline.Now(to),
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Run(context.Background(), target, log); err != nil {
			b.Fatal(err)
		}
		if sent := r.Sent(); sent != events+sentBesides {
			b.Fatalf("%d events sent", sent)
		}
		return time.Since(began)
	}
	choose, err := subjectfilter.Choose("", func(error) {})
	if err != nil {
		b.Fatal(err)
	}
	source := &fromnats.JetStream{URL: startNATS(b), Choose: choose}
	memory, stream := &record.Record{Source: lines}, &record.Record{Source: source}
	run(b, memory, jetStream(b, source.URL))
	for _, target := range []struct {
		name string
		open func(b *testing.B) func() relay.Target
	}{
		{"jetstream", func(b *testing.B) func() relay.Target {
			return func() relay.Target { return jetStream(b, startNATS(b)) }
		}},
		{"kafka", func(b *testing.B) func() relay.Target {
			c, topics := kafka.Start(b, kafka.Options{}), 0
			return func() relay.Target {
				topics++
				topic := fmt.Sprintf("copy-%d.c", topics)
				if err := c.CreateTopic(b.Context(), topic, 12, nil); err != nil {
					b.Fatal(err)
				}
				t, err := kafkabus.New(kafkabus.Config{Brokers: c.Inside(), Topic: topic, Env: driver.Env{
					Cluster:       "c",
					MaxEventBytes: 900 << 10,
				}}, log, nil)
				if err != nil {
					b.Fatal(err)
				}
				return t
			}
		}},
		{"http", func(b *testing.B) func() relay.Target {
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
			}))
			b.Cleanup(receiver.Close)
			cfg := publishhttp.Config{}
			cfg.SetDefaults()
			cfg.URL = receiver.URL
			return func() relay.Target {
				t, err := publishhttp.New(cfg, log, nil)
				if err != nil {
					b.Fatal(err)
				}
				return t
			}
		}},
		{"lines", func(*testing.B) func() relay.Target {
			return func() relay.Target { return stdout.New(io.Discard, nil) }
		}},
	} {
		b.Run(target.name, func(b *testing.B) {
			open := target.open(b)
			run(b, stream, open()) // a broker that has just started is slow
			var reading, writing, both time.Duration
			for b.Loop() {
				reading += readAll(b, source)
				writing += run(b, memory, open())
				both += run(b, stream, open())
			}
			rate := func(d time.Duration) float64 { return events * float64(b.N) / d.Seconds() }
			b.ReportMetric(rate(reading), "read/s")
			b.ReportMetric(rate(writing), "write/s")
			b.ReportMetric(rate(both), "replay/s")
			b.ReportMetric(max(reading, writing).Seconds()/both.Seconds(), "ratio")
		})
	}
}

func readAll(b *testing.B, source consume.Source) time.Duration {
	b.Helper()
	began := time.Now()
	r, err := source.Read(b.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for err == nil {
		_, err = r.Next(b.Context())
	}
	if !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
	return time.Since(began)
}

// benchRecord makes a record of updates of a thousand objects of 2.5 KB, and returns the moments
// before and after them. As with versions of an object, some content of an event is new and does
// not compress.
func benchRecord(b *testing.B, events int) (record linesOf, from, to time.Time) {
	b.Helper()
	var out strings.Builder
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	write := func(id, kind string, more, data map[string]any) {
		e := map[string]any{
			"specversion": "1.0",
			"id":          "pods/" + id,
			"source":      "/kubernetes/c",
			"type":        consume.TypePrefix + kind,
			"time":        now.Format(time.RFC3339Nano),
			"cluster":     "c",
			"apiversion":  "v1",
			"kind":        "Pod",
			"resource":    "pods",
			"data":        data,
		}
		for k, v := range more {
			e[k] = v
		}
		line, err := json.Marshal(e)
		if err != nil {
			b.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	bound := map[string]any{"snapshot": "s", "resourceVersion": "1", "objects": 0}
	write("s/started", "snapshot.started", map[string]any{"scope": "pods"}, bound)
	write("s/completed", "snapshot.completed", map[string]any{"scope": "pods"}, bound)
	from = now
	for range 3 { // the record passes the moment
		now = now.Add(time.Millisecond)
		write(fmt.Sprint("progress/1/", now.UnixNano()), "progress", map[string]any{"scope": "pods"}, map[string]any{
			"resourceVersion": "1",
		})
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same in every run
	text := func(digits int) string {
		var s strings.Builder
		for range digits {
			s.WriteByte('a' + byte(random.IntN(26)))
		}
		return s.String()
	}
	same := text(2400)
	object := func() map[string]any { return map[string]any{"x": same, "y": text(100)} }
	before := object()
	for i := range events {
		now = now.Add(time.Millisecond)
		rv := i + 2
		name := fmt.Sprint("web-", i%1000)
		after := object()
		write(fmt.Sprintf("u%d/%d", i%1000, rv), "object.updated", map[string]any{
			"namespace":       "shop",
			"name":            name,
			"uid":             fmt.Sprint("u", i%1000),
			"op":              "u",
			"resourceversion": fmt.Sprint(rv),
			"sequence":        fmt.Sprintf("%020d", rv),
			"partitionkey":    "c/core/pods/shop/" + name,
		}, map[string]any{"op": "u", "resourceVersion": fmt.Sprint(rv), "before": before, "after": after})
		before = after
	}
	return linesOf(out.String()), from, now
}

// linesOf is a record in memory, as a Source.
type linesOf string

// Traits implements consume.Source.
func (l linesOf) Traits() consume.Traits { return consume.Traits{OneLog: true} }

// Read implements consume.Source.
func (l linesOf) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	return fromfile.NewLines("record", strings.NewReader(string(l)), q), nil
}
