package reload

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// waits checks for how long a changed configuration has waited, as the metric says.
func (r *reloading) waits(t *testing.T, want time.Duration) {
	t.Helper()
	const name = "kubecdc_config_reload_pending_seconds"
	err := testutil.GatherAndCompare(r.reg, strings.NewReader(fmt.Sprintf(`
# HELP kubecdc_config_reload_pending_seconds Time for which a changed configuration file has been valid and not in force for all scopes; 0 if it is. It waits for the API server, or for the bus to acknowledge earlier events.
# TYPE kubecdc_config_reload_pending_seconds gauge
kubecdc_config_reload_pending_seconds %v
`, want.Seconds())), name)
	if err != nil {
		t.Error(err)
	}
}

// A changed file whose application does not end is shown within a minute, and the agent is not
// ready: what the file redacts may be sent.
func TestReloadThatHangsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.waits(t, 0)
		r.holds = make(chan struct{})
		r.swap(t, reloadBase+"watch: [{resources: [pods], redact: [spec]}]\n")
		r.pass()
		began := *r.Status().Taking
		<-time.After(time.Until(began.Add(pendingFor - time.Second)))
		if err := r.Check(); err != nil || r.Hangs() {
			t.Errorf("before a minute: %v", err)
		}
		<-time.After(time.Second)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "was changed and is not in force yet") ||
			!r.Hangs() {
			t.Errorf("after a minute: %v", err)
		}
		r.waits(t, pendingFor)
		close(r.holds)
		synctest.Wait()
		r.expect(t, [4]float64{1}, true)
		if r.Hangs() {
			t.Error("it hangs, although it is in force")
		}
		r.waits(t, 0)
	})
}

// A configuration that is in force, but not for all scopes, is shown within a minute. It does not
// make the agent unready: these scopes send nothing new.
func TestReloadThatWaitsForTheBusIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.drain = time.Now()
		<-time.After(pendingFor - time.Second)
		r.waits(t, pendingFor-time.Second)
		if err := r.Check(); err != nil {
			t.Errorf("before a minute: %v", err)
		}
		<-time.After(time.Second)
		if err := r.Check(); err == nil ||
			!strings.Contains(err.Error(), "the bus has not acknowledged their earlier events: pods;") || r.Hangs() {
			t.Errorf("after a minute: %v", err)
		}
		r.drain = time.Time{}
		r.expect(t, [4]float64{}, true)
	})
}
