package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestBufferingProxy has a proxy that buffers the watches of one resource. The agent finds it, gets
// the changes nevertheless, and says after the third time what it is. Nothing is lost.
func TestBufferingProxy(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	onlyLong(t, "six minutes")
	p := world.SharedPlane(t)
	g := world.StartGateway(t, p)
	g.Buffer("widgets", true)
	o := observe(t, "buffering", world.AgentConfig{Kubeconfig: g.Kubeconfig(t, p)})
	held := injected{why: oracle.InterruptedSilent, from: o.begun}
	o.awaitHealth(t, 150*time.Second, "stale", "held_back")
	for n := range 4 { // Watches of 30 s.
		found := o.Now(t)
		wait.Eventually(t, 45*time.Second, func() error {
			all := o.Stream.All()
			for i := range all {
				if all[i].Op != "" && all[i].Key.Resource == oracle.Widgets && all[i].Rev > found {
					return nil
				}
			}
			return fmt.Errorf("%d: the bus has no change of widgets after revision %d", n, found)
		})
	}
	log, err := os.ReadFile(o.Agent.Log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "a proxy seems to buffer watches"); n != 1 {
		oracle.Fail(t, "it is said %d times that a proxy buffers", n)
	}
	held.until = time.Now()
	g.Buffer("widgets", false)
	o.note(t, held, oracle.Widgets)
	o.awaitHealth(t, 30*time.Second, "ok", "")
	o.stop()
	world.Pass(t.Context(), calm)
	o.StopAgent(t)
	o.judgeObjects(t)
}
