package kafka_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A real broker has the progress of the agent in each partition, and the last one is found behind
// many other records, in each compression.
func TestLastProgress(t *testing.T) {
	t.Parallel()
	c := lasting.get(t)
	for compression, mode := range map[string]encode.Mode{
		"zstd":   encode.Structured,
		"lz4":    encode.Binary,
		"snappy": encode.Structured,
		"gzip":   encode.Binary,
		"none":   encode.Structured,
	} {
		t.Run(compression, func(t *testing.T) {
			t.Parallel()
			topic := "progress-" + compression
			start := func() *agent {
				return startPublisher(t, kafkabus.Config{
					Brokers: c.Inside(), Topic: topic, Compression: kafkaconfig.Compression(compression),
					Create: &kafkaconfig.Topic{Partitions: 3, ReplicationFactor: 1, Config: map[string]string{
						"retention.ms": "-1",
					}},
				})
			}
			a := start()
			send := func(run string, n uint64, scopes ...object.ScopeReport) {
				t.Helper()
				if err := a.await(t.Context(),
					bustest.EncodeProgress(t, mode, run, bustest.Progress(n, scopes...))); err != nil {
					t.Fatal(err)
				}
			}
			if p, ok, err := a.LastProgress(t.Context(), bustest.Writer); ok || err != nil {
				t.Errorf("before the first: %+v, %v", p, err)
			}
			services := &object.Resource{Version: "v1", Name: "services", Kind: "Service", Namespaced: true}
			send("0-1", 9, bustest.ScopeAt(bustest.Pods, "", 1))
			send("0-2", 2, bustest.ScopeAt(services, "", 2))
			publishVersions(t, a, 8, 5, make(acknowledged, 8))
			send("0-2", 3, bustest.ScopeAt(bustest.Pods, "", 3))
			publishVersions(t, a, 50, 40, make(acknowledged, 50)) // more than are read first
			for _, reader := range []*agent{a, start()} {
				p, ok, err := reader.LastProgress(t.Context(), bustest.Writer)
				if err != nil || !ok {
					t.Fatalf("%v, %v", ok, err)
				}
				got := fmt.Sprintf("%s %d", p.Run, len(p.Scopes))
				for _, s := range p.Scopes {
					got += fmt.Sprintf(" %s=%d", s.Resource, s.ResourceVersion)
				}
				if diff := cmp.Diff("0-2 2 pods=3 services=2", got); diff != "" {
					t.Error(diff)
				}
			}
			records, err := c.Records(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			for partition := range 3 {
				n := 0
				for _, r := range records[partition] {
					if strings.HasSuffix(string(r.Key), fmt.Sprintf("/progress/%s/%d", bustest.Writer, partition)) {
						n++
					}
				}
				if n != 3 {
					t.Errorf("partition %d has %d of 3", partition, n)
				}
			}
		})
	}
}
