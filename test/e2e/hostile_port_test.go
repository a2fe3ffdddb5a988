package e2e_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	child "github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestHostileConnections opens thousands of connections to an agent's port. Most of them ask for
// the metrics, and read nothing. The probe of the kubelet must be answered within a second, and the
// agent must keep within 60 % of the chart's memory limit.
func TestHostileConnections(t *testing.T) {
	slow(t)
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	notRacing(t)
	t.Parallel()
	connections := size(500, 3000, 15_000)
	const mostMemory, answered = 307 << 20, time.Second
	p := world.SharedPlane(t)
	namespace := "hostile-connections"
	p.NewNamespace(t, namespace)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: world.StartBus(t), Env: []string{chartLimit}, Watch: `
  - resources: [configmaps]
    namespaces: [` + namespace + `]
`})
	a.Ready(t)
	addr := strings.TrimPrefix(a.URL, "http://")
	var slowest time.Duration
	for n := range connections {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n%3 > 0 { // the others are idle
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") // fails if it was closed
		}
		if n%100 > 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*answered)
		begin := time.Now()
		_, err = a.Get(ctx, "/healthz")
		cancel()
		if err != nil {
			t.Fatalf("after %d connections: %v", n, err)
		}
		slowest = max(slowest, time.Since(begin))
	}
	memory, err := child.ReadMemory(a.Cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d connections: /healthz within %s, peak of memory %d MiB", connections, slowest.Round(time.Millisecond),
		memory.Peak>>20)
	if slowest > answered {
		t.Errorf("/healthz took %s, want at most %s", slowest, answered)
	}
	if memory.Peak > mostMemory {
		t.Errorf("peak of memory: %d MiB, want at most %d", memory.Peak>>20, mostMemory>>20)
	}
}
