package consumers_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/test/kafka"
)

// sdk describes how one language's SDK shows events.
type sdk struct {
	name      string
	argv      func(t testing.TB, program string) []string
	precision time.Duration // of its times
	decodes   bool          // the percent-encoding of attributes over HTTP in binary mode
}

var sdks = []sdk{
	{"python", func(t testing.TB, program string) []string {
		return []string{filepath.Join(python.Dir(t), "venv", "bin", "python"), "testdata/" + program + ".py"}
	}, time.Microsecond, true},
	{"javascript", func(t testing.TB, program string) []string {
		return []string{"node", filepath.Join(nodeModules(t, "testdata"), program+".mjs")}
	}, time.Millisecond, false},
}

// options returns the options of the events. Both content modes must have the same content.
func options(mode encode.Mode) encode.Options {
	return encode.Options{
		Cluster: "prod eu/1", ClusterUID: "11e0c3a4-7d0b-4c0e-9a53-3a1f5e0f6a77", Mode: mode, Before: true, Patch: true,
		Writer: "3f0a5c1e9b7d2846", Run: "0-1795186799000", Checkpoint: "configmap kubecdc/positions", Node: "node-1",
	}
}

// wanted returns the content of the events in order, read from structured mode as plain JSON.
func wanted(t testing.TB) []event {
	t.Helper()
	var all []event
	for _, d := range deltas(t) {
		var ev encode.Event
		if err := encode.New(options(encode.Structured)).Encode(&ev, d); err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(ev.Body, &members); err != nil {
			t.Fatal(err)
		}
		e := event{Attributes: map[string]string{}, Data: members["data"]}
		delete(members, "data")
		for name, value := range members {
			e.Attributes[name] = value.(string)
		}
		all = append(all, e)
	}
	return all
}

// wantedByID is for buses that do not keep the order of all events.
func wantedByID(t testing.TB) map[string]event {
	t.Helper()
	all := map[string]event{}
	for _, e := range wanted(t) {
		all[e.Attributes["id"]] = e
	}
	return all
}

// TestSDKsKafka lets the SDKs parse a broker's records of each kind of event.
func TestSDKsKafka(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs that others have written")
	}
	const partitions = 3
	cluster := kafka.Start(t, kafka.Options{})
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		topic := "kubecdc." + string(mode)
		if err := cluster.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
			t.Fatal(err)
		}
		publishKafka(t, cluster.Brokers(), topic, mode)
		byPartition, err := cluster.Records(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		var records []kafkago.Message
		var lines []any
		for _, of := range byPartition {
			for _, r := range of {
				headers := map[string]string{}
				for _, h := range r.Headers {
					headers[h.Key] = string(h.Value)
				}
				records = append(records, r)
				lines = append(lines, map[string]any{
					"headers": headers,
					"key":     string(r.Key),
					"value":   string(r.Value),
				})
			}
		}
		for _, sdk := range sdks {
			t.Run(sdk.name+"/"+string(mode), func(t *testing.T) {
				got := parseLines(t, sdk.argv(t, "kafka"), lines)
				if len(got) != len(records) {
					t.Fatalf("%d events of %d records", len(got), len(records))
				}
				want, copies := wantedByID(t), map[string]int{}
				for i, e := range got {
					id := e.Attributes["id"]
					copies[id]++
					w, ok := want[id]
					if !ok {
						t.Fatalf("nobody has published %q", id)
					}
					// The SDKs take a record's key for the attribute. Those of stream events also
					// name the partition.
					w.Attributes = maps.Clone(w.Attributes)
					w.Attributes["partitionkey"] = string(records[i].Key)
					compare(t, w, e, sdk.precision)
				}
				for id, e := range want {
					n := 1
					if _, object := e.Attributes["op"]; !object {
						n = partitions // Each consumer of a partition must get them.
					}
					if copies[id] != n {
						t.Errorf("%s: %d records, want %d", id, copies[id], n)
					}
				}
			})
		}
	}
}

// publishKafka sends the deltas as the agent does.
func publishKafka(t testing.TB, brokers []string, topic string, mode encode.Mode) {
	t.Helper()
	p, err := kafkabus.New(kafkabus.Config{
		Brokers: brokers, Topic: topic, Env: driver.Env{Cluster: options(mode).Cluster, MaxEventBytes: 512 << 10},
	}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	within, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var ev encode.Event
	for _, d := range deltas(t) {
		if err := errors.Join(encode.New(options(mode)).Encode(&ev, d),
			bustest.Await(p, false).Publish(within, &ev)); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
