package consume_test

import (
	"encoding/json"
	"testing"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

func BenchmarkParse(b *testing.B) {
	record := consumetest.RecordOf12KB(b)
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
