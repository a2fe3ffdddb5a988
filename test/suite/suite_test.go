package suite_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/suite"
	"github.com/kubecdc/kubecdc/test/wait"
)

// asBinary is the environment variable that makes this test binary start a child, which writes to
// the temporary directory all the time. Its value is the way in which the binary then ends.
const asBinary = "SUITE_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	if err := suite.Begin(7); err != nil {
		panic(err)
	}
	if end := os.Getenv(asBinary); end != "" {
		if err := binary(end); err != nil {
			panic(err)
		}
	}
	if what := os.Getenv(asTests); what != "" {
		os.Exit(tests(what))
	}
	goleak.VerifyTestMain(suite.Tests(m.Run))
}

// binary starts the child, prints the temporary directory and the child's process id, and ends in
// the given way.
func binary(end string) error {
	child, err := process.Start(process.Spec{
		Name: "writer", Argv: []string{
			"/bin/sh", "-c", `i=0; while :; do i=$((i+1)); mkdir "$TMPDIR/$i"; : > "$TMPDIR/$i/f"; done`,
		},
		Log: filepath.Join(os.TempDir(), "log"),
	})
	if err != nil {
		return err
	}
	fmt.Printf("%s %d\n", os.TempDir(), child.PID())
	if _, err := bufio.NewReader(os.Stdin).ReadByte(); err == nil && end == "panic" {
		panic("test timed out")
	}
	os.Exit(0)
	return nil
}

// TestNothingIsLeft ends a test binary in each way, including that of a test timeout, while a child
// writes to the temporary directory. The directory must be removed, and the child must end.
func TestNothingIsLeft(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"exit", "panic", "kill"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), asBinary+"="+end)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var dir string
			var pid int
			if _, err := fmt.Fscan(stdout, &dir, &pid); err != nil {
				t.Fatal(err)
			}
			wait.Eventually(t, time.Minute, func() error {
				_, err := os.Stat(filepath.Join(dir, "10", "f"))
				return err
			})
			switch end {
			case "exit":
				err = stdin.Close()
			case "panic":
				_, err = stdin.Write([]byte("\n"))
			case "kill":
				err = cmd.Process.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			wait.Eventually(t, time.Minute, func() error {
				if err := syscall.Kill(pid, 0); err == nil && !zombie(pid) {
					return fmt.Errorf("child %d runs", pid)
				}
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("%s is there: %w", dir, err)
				}
				return nil
			})
		})
	}
}

// zombie reports whether the process has ended, but its parent has not waited for it.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestTestsRunInParallel(t *testing.T) {
	if got := flag.Lookup("test.parallel").Value.String(); got != "7" {
		t.Errorf("-parallel is %s, want 7", got)
	}
}
