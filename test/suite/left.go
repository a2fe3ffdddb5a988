package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubecdc/kubecdc/test/process"
)

// endingLimit is the time that processes have to end after the tests.
const endingLimit = 3 * time.Second

// Tests runs the tests of a package, and returns the exit code: Run of testing.M, possibly followed
// by the package's cleanup. It implements the interface that goleak.VerifyTestMain requires.
type Tests func() int

// Run returns the exit code of the tests. It is 1 if they leave a file in the temporary directory,
// or a process. On Linux this includes processes that their children have started.
func (tests Tests) Run() int {
	code := tests()
	for _, left := range append(leftFiles(), leftProcesses()...) {
		fmt.Fprintf(os.Stderr, "FAIL: the tests leave behind %s\n", left)
		code = 1
	}
	return code
}

func leftFiles() []string {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, e := range entries {
		left = append(left, filepath.Join(os.TempDir(), e.Name()))
	}
	return left
}

// leftProcesses kills the children that do not end by themselves, and returns them.
func leftProcesses() []string {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(endingLimit); ; <-tick.C {
		var left []string
		over := time.Now().After(deadline)
		for _, c := range process.Children() {
			if c.PID == removerPID {
				continue
			}
			left = append(left, fmt.Sprintf("process %d: %s", c.PID, c.Command))
			if over {
				_ = syscall.Kill(c.PID, syscall.SIGKILL) // Fails only if it has ended.
			}
		}
		if over || len(left) == 0 {
			return left
		}
	}
}
