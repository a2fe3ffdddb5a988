package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/history"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/publish/nats"
	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
	"github.com/kubecdc/kubecdc/internal/publish/stdout"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/replay"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// BenchmarkReplay compares a replay from JetStream to JetStream with reading the one and writing to the other alone. The events have
// objects of 2.5 KB before and after.
func BenchmarkReplay(b *testing.B) {
	const events = 30_000
	var record strings.Builder
	filler := strings.Repeat("x", 2500)
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	write := func(id, kind string, more, data map[string]any) {
		e := map[string]any{
			"specversion": "1.0", "id": "pods/" + id, "source": "/kubernetes/c", "type": consume.TypePrefix + kind, "time": now.Format(time.RFC3339Nano),
			"cluster": "c", "apiversion": "v1", "kind": "Pod", "resource": "pods", "data": data,
		}
		for k, v := range more {
			e[k] = v
		}
		line, err := json.Marshal(e)
		if err != nil {
			b.Fatal(err)
		}
		record.Write(append(line, '\n'))
	}
	bound := map[string]any{"snapshot": "s", "resourceVersion": "1", "objects": 0}
	write("s/started", "snapshot.started", map[string]any{"scope": "pods"}, bound)
	write("s/completed", "snapshot.completed", map[string]any{"scope": "pods"}, bound)
	from := now
	const progress = 3 // the record passes the moment
	for range progress {
		now = now.Add(time.Millisecond)
		write(fmt.Sprint("progress/1/", now.UnixNano()), "progress", map[string]any{"scope": "pods"}, map[string]any{"resourceVersion": "1"})
	}
	for i := range events {
		now = now.Add(time.Millisecond)
		rv, name := i+2, fmt.Sprint("web-", i%1000)
		write(fmt.Sprintf("u%d/%d", i%1000, rv), "object.updated", map[string]any{
			"namespace": "shop", "name": name, "uid": fmt.Sprint("u", i%1000), "op": "u", "resourceversion": fmt.Sprint(rv), "sequence": fmt.Sprintf("%020d", rv),
			"partitionkey": "c/core/pods/shop/" + name,
		}, map[string]any{"op": "u", "resourceVersion": fmt.Sprint(rv), "before": map[string]any{"x": filler}, "after": map[string]any{"x": filler}})
	}
	run := func(record *history.Record, target relay.Target) time.Duration {
		o := replay.Options{Record: record, Selection: &history.Selection{}, From: timeline.At(from), To: timeline.Now(now)}
		began := time.Now()
		r, err := replay.Prepare(context.Background(), o)
		if err == nil {
			err = r.Run(context.Background(), target, slog.New(slog.DiscardHandler))
		}
		if err != nil {
			b.Fatal(err)
		}
		if sent := r.Sent(); sent != events+progress+2 {
			b.Fatalf("%d events sent", sent)
		}
		return time.Since(began)
	}
	bus := func(url string) relay.Target {
		n, err := natsbus.New(natsbus.Config{URL: url, Env: driver.Env{Cluster: "c"}, Stream: natsbus.Stream{Create: true}}, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	file := &history.Record{Source: lines(record.String())}
	for b.Loop() {
		source := publishtest.StartServer(b, b.TempDir(), -1).ClientURL()
		target := publishtest.StartServer(b, b.TempDir(), -1).ClientURL()
		writing := run(file, bus(source))
		stream := &consume.JetStream{URL: source}
		began := time.Now()
		r, err := stream.Read(b.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
		for err == nil {
			_, err = r.Next(b.Context())
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		reading := time.Since(began)
		_ = r.Close()
		both := run(&history.Record{Source: stream, Seek: true}, bus(target))
		lined := run(&history.Record{Source: stream, Seek: true}, stdout.New(io.Discard, nil))
		rate := func(d time.Duration) float64 { return events / d.Seconds() }
		b.ReportMetric(rate(reading), "read/s")
		b.ReportMetric(rate(writing), "write/s")
		b.ReportMetric(rate(both), "replay/s")
		b.ReportMetric(rate(lined), "lines/s")
	}
}
