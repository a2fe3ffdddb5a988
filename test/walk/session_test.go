package walk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/wait"
)

// session is a user's terminal: a home directory, a working directory, an environment.
type session struct {
	t    *testing.T
	home string
	dir  string
	path string // the directory with its tools
	env  []string
	logs int

	running map[string]*process.Child // by command line
}

func newSession(t *testing.T, path string, env ...string) *session {
	t.Helper()
	home, dir := t.TempDir(), t.TempDir()
	s := &session{t: t, home: home, dir: dir, path: path, running: map[string]*process.Child{}}
	s.env = append(
		[]string{
			"HOME=" + home, "PATH=" + path + ":" + os.Getenv("PATH"), "KUBECONFIG=", "XDG_DATA_HOME=",
			"XDG_RUNTIME_DIR=" + home, "NO_COLOR=1",
		}, env...)
	return s
}

// shell runs a shell command and returns its output. A failure ends the test.
func (s *session) shell(line string) string {
	s.t.Helper()
	out, err := s.try(line)
	if err != nil {
		s.t.Fatalf("$ %s\n%s%v", line, out, err)
	}
	return out
}

// try is shell for a command that may fail.
func (s *session) try(line string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	cmd.WaitDelay = 10 * time.Second // the rest of a pipeline may hold its output
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// start runs a command in the background until the test ends.
func (s *session) start(line string) {
	s.t.Helper()
	s.logs++
	spec := process.Spec{
		Name: line, Argv: []string{"bash", "-c", "cd " + s.dir + " && exec " + line}, Env: s.env,
		Log: filepath.Join(s.dir, fmt.Sprintf("log-%d", s.logs)),
	}
	child, err := process.Start(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	s.running[line] = child
	s.t.Cleanup(func() { _ = child.Stop(30 * time.Second) }) // end checks the exit status
}

// end stops a command that start has started, and fails the test if its exit status is not 0.
func (s *session) end(line string) {
	s.t.Helper()
	if err := s.running[line].Stop(30 * time.Second); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the output of a running command matches the expression, and returns the match
// and its groups.
func (s *session) shows(line, expression string) []string {
	s.t.Helper()
	re, child := regexp.MustCompile(expression), s.running[line]
	var m []string
	wait.Eventually(s.t, time.Minute, func() error {
		text, err := os.ReadFile(child.Log)
		if err != nil {
			s.t.Fatal(err)
		}
		m = re.FindStringSubmatch(string(text))
		if m != nil {
			return nil
		}
		select {
		case <-child.Done():
			s.t.Fatal(child.Failed(errors.New("ended")))
		default:
		}
		return fmt.Errorf("$ %s\n%s\nnever showed %s", line, text, expression)
	})
	return m
}

// has fails the test unless text has all of the parts.
func (s *session) has(line, text string, parts ...string) {
	s.t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			s.t.Errorf("$ %s\n%s\nlacks %q", line, text, p)
		}
	}
}
