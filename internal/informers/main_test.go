package informers_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// The second handler spaces errors by the time of the last one, for the whole process. In a bubble it may be that of another bubble, whose
	// clock was ahead: client-go's goroutine would sleep for as long.
	runtime.ErrorHandlers = runtime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

// metric sums a metric over its labels.
func metric(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
