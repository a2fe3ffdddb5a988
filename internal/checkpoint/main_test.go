package checkpoint_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// holdFile makes this test binary another agent: it locks the checkpoint file of that name, says
// so, and keeps it until its input ends.
const holdFile = "KUBECDC_TEST_HOLD_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdFile); path != "" {
		if _, err := checkpoint.OpenFile(path).Lock(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("locked")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// otherAgent is a process that holds the lock of a checkpoint file until kill.
func otherAgent(t *testing.T, path string) (pid int, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdFile+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "locked\n" {
		t.Fatalf("the other agent said %q, %v", line, err)
	}
	return cmd.Process.Pid, kill
}
