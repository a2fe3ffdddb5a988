package kafka_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/versions"
)

// A broker older than all tested ones is logged once, whatever the number of connections.
func TestAnOlderBrokerIsLogged(t *testing.T) {
	const line = "the broker is older than all versions that the tests run with"
	for version, want := range map[int16]int{9: 1, 10: 0, 13: 0} {
		m := newModel(1)
		m.metadataVersion = version
		m.topic("kubecdc.prod-eu-1", 1)
		m.topic("dead.prod-eu-1", 1)
		listen(t, m, nil)
		k := runKafka(t, kafkaConfig(m.addrs...), nil)
		for i := range 3 {
			if err := k.once(keyed("k", i+1)); err != nil {
				t.Fatal(err)
			}
		}
		log := k.log.String()
		if got := bustest.Lines(log, line); got != want {
			t.Errorf("Metadata %d: %d lines, want %d:\n%s", version, got, want, log)
		}
		if want > 0 &&
			(!strings.Contains(log, `version="before 2.8"`) ||
				!strings.Contains(log, fmt.Sprintf("tested=%q", versions.Kafka().Range()))) {
			t.Errorf("the line does not say what is tested:\n%s", log)
		}
		if err := k.stop(); err != nil {
			t.Error(err)
		}
	}
}
