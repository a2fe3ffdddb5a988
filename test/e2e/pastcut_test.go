package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestBusGoesAwayDuringAnAnswer breaks the connection while a command reads the record. If the bus
// comes back, the answer must be complete. Otherwise the command must fail, and not print an answer
// that looks complete.
func TestBusGoesAwayDuringAnAnswer(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace, objects = "cut", 2000
	p := world.SharedPlane(t)
	p.NewNamespace(t, namespace)
	p.MakeMany(t, namespace, "many", objects)
	bus := world.StartBus(t)
	world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - {resources: [configmaps], namespaces: [" + namespace + "]}",
	})
	s := world.ReadStream(t, bus, p.Reader())
	s.Completed(t, "configmaps")
	name, at := "cm/many-7", fmt.Sprint("rv:", p.Now(t))
	commands := map[string][]string{
		"get":     {"get", "cm", "-n", namespace, "--at", at, "-o", "name"},
		"history": {"history", "cm", "-n", namespace, "-o", "table"},
		"diff":    {"diff", at, "now", "cm", "-n", namespace},
		"blame":   {"blame", name, "-n", namespace},
	}
	reads := map[string]int{"get": 2, "history": 3, "diff": 2, "blame": 1} // the connection that reads the objects
	ask := func(t *testing.T, url string, args []string) (out, said string, code int) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), build.SharedAgent(t), append(args, "--bus", url)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	for command, args := range commands {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			want, said, code := ask(t, bus.URL, args)
			if code != 0 || command != "diff" && !strings.Contains(want, "many-7") {
				t.Fatalf("without a cut: exit code %d, %s", code, said)
			}
			t.Run("for a moment", func(t *testing.T) {
				t.Parallel()
				via := world.RunProxy(t, world.HostPort(bus.URL))
				broken := breakOff(t, via, reads[command], false)
				got, said, code := ask(t, "nats://"+via.Addr(), args)
				<-broken
				if code != 0 || got != want {
					t.Errorf("exit code %d, %d bytes, want %d: %s", code, len(got), len(want), said)
				}
				if command != "blame" && via.Accepted() <= reads[command] {
					t.Errorf("%d connections: none was broken off", via.Accepted())
				}
			})
			if command == "blame" { // it reads too little of one object to be interrupted
				return
			}
			t.Run("for good", func(t *testing.T) {
				t.Parallel()
				via := world.RunProxy(t, world.HostPort(bus.URL))
				broken := breakOff(t, via, reads[command], true)
				got, said, code := ask(t, "nats://"+via.Addr(), args)
				<-broken
				if code != 1 ||
					!strings.Contains(said,
						"the bus was unreachable for 30s, so the answer is incomplete: repeat the command when the bus is back") {
					t.Errorf("exit code %d: %s", code, said)
				}
				if strings.Contains(said, "exact") || command != "history" && got != "" {
					t.Errorf("an answer: %.300s%s", got, said)
				}
			})
		})
	}
}

// breakOff breaks the n-th connection through a proxy after some of the record has passed. If
// forGood is set, it refuses all later connections.
func breakOff(t *testing.T, via *proxy.Proxy, n int, forGood bool) (done <-chan struct{}) {
	t.Helper()
	via.Delay(10 * time.Millisecond) // delays each piece, so that it is not read at once
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		err := wait.For(t.Context(), 20*time.Second, func() error {
			if got := via.Accepted(); got < n || via.Open() == 0 {
				return fmt.Errorf("%d connections, %d are open", got, via.Open())
			}
			return nil
		})
		via.Truncate(100 << 10)
		if err == nil && forGood {
			err = wait.For(t.Context(), 20*time.Second, func() error {
				if via.Open() > 0 {
					return errors.New("the connection is not broken yet")
				}
				return nil
			})
			via.Refuse(true)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	return broken
}
