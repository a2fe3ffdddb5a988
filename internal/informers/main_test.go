package informers_test

import (
	"flag"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// The second handler spaces errors by the time of the last one, for the whole process. In a
	// bubble it may be that of another bubble, whose clock was ahead: client-go's goroutine would
	// sleep for as long.
	runtime.ErrorHandlers = runtime.ErrorHandlers[:1]
	drawTheSame()
	goleak.VerifyTestMain(m)
}

// drawTheSame has TestMachine run the same few cases each time, unless -rapid.checks or -rapid.seed
// is given: what others find belongs to the long tier (make test-faults).
func drawTheSame() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" || f.Name == "rapid.seed" })
	if given {
		return
	}
	for name, value := range map[string]string{"rapid.checks": "20", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
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
