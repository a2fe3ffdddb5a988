package publish_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Only live changes have a lag: an object that is read, or whose change is inferred, was changed at
// an unknown time. If the clock was set back, the lag is 0.
func TestLagOfLiveChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, reg := newJournal(), prometheus.NewRegistry()
		observed := func(name string, ago time.Duration) *object.Delta {
			d := change(j, name, 7, 10)
			d.Observed = time.Now().Add(-ago).UnixNano()
			return d
		}
		live, ahead := observed("live", 3*time.Second), observed("ahead", -time.Second)
		read, inferred := observed("read", 5*time.Second), observed("inferred", 7*time.Second)
		read.Op, read.Snapshot = object.Read, "s1"
		read.Before, read.Previous = nil, 0
		inferred.Inferred = true
		if err := dispatchAll(t, &recorder{j: j, name: "bus"}, publish.Options{}, encode.Structured, reg, nil,
			live, ahead, read, inferred); err != nil {
			t.Fatal(err)
		}
		if count, sum := histogram(t, reg, "kubecdc_publish_lag_seconds"); count != 2 || sum != 3 {
			t.Errorf("%d lags of %v seconds, want 2 of 3", count, sum)
		}
		if count, _ := histogram(t, reg, "kubecdc_publish_duration_seconds"); count != 4 {
			t.Errorf("%d events are counted, want 4", count)
		}
	})
}
