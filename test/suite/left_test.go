//go:build linux

package suite_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/test/suite"
)

// asTests is the environment variable that makes this test binary do one of things instead of its
// tests.
const asTests = "SUITE_TEST_AS_TESTS"

// things are actions of tests, by name.
func things() map[string]func() error {
	return map[string]func() error{
		"a file that is removed": func() error {
			dir, err := os.MkdirTemp("", "removed-")
			return errors.Join(err, os.Remove(dir))
		},
		"a file": func() error {
			file, err := os.CreateTemp("", "forgotten-")
			return errors.Join(err, file.Close())
		},
		"a child": func() error {
			return exec.Command("sleep", "3600.5").Start()
		},
		"a child of a child": func() error {
			return exec.Command("sh", "-c", "sleep 3600.25 &").Run()
		},
		"a child that is ending": func() error {
			return exec.Command("sleep", "0.2").Start()
		},
	}
}

// tests is the TestMain of a package whose tests do one thing.
func tests(what string) int {
	return suite.Tests(func() int {
		if err := things()[what](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		return 0
	}).Run()
}

// TestWhatIsLeftFails checks that the exit code is 1 if the tests leave a file or a process.
func TestWhatIsLeftFails(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what string
		code int
		want string // in the output
	}{
		{"a file that is removed", 0, ""},
		{"a file", 1, "/forgotten-"},
		{"a child", 1, "sleep 3600.5"},
		{"a child of a child", 1, "sleep 3600.25"},
		{"a child that is ending", 0, ""},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), asTests+"="+tc.what)
			said, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(said), tc.want) {
				t.Errorf("exit code %d, want %d, and %q in what it says (%v):\n%s", code, tc.code, tc.want, err, said)
			}
		})
	}
}
