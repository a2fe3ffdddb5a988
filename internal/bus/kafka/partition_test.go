package kafka_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/kafka"
)

// The expected values are those of org.apache.kafka.common.utils.UtilsTest.testMurmur2, as int32.
func TestPartitionsAreThoseOfJava(t *testing.T) {
	const many = 1_000_003
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got, want := kafka.PartitionOf([]byte(key), many), int(hash&0x7fffffff)%many; got != want {
			t.Errorf("%s: %d, want %d", key, got, want)
		}
	}
}
