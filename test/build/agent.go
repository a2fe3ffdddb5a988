package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Racing reports whether the agent under test is built with the race detector.
func Racing() bool { return os.Getenv("KUBECDC_E2E_RACE") == "1" }

// Agent builds the agent for one test and returns the path of the binary, which is deleted when the
// test ends.
func Agent(t testing.TB) string {
	t.Helper()
	path, err := AgentIn(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shared is the binary that SharedAgent built for this process.
var shared struct {
	sync.Mutex
	dir, path string
	err       error
}

// SharedAgent returns the path of the agent's binary, which it builds once for all tests of this
// process. The TestMain of a package that calls it must call Remove.
func SharedAgent(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.path == "" && shared.err == nil {
		shared.dir, shared.err = tempDir()
		if shared.err == nil {
			shared.path, shared.err = AgentIn(t.Context(), shared.dir)
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.path
}

func tempDir() (string, error) { return os.MkdirTemp("", "kubecdc-agent-") }

// Remove deletes the binary that SharedAgent built.
func Remove() {
	shared.Lock()
	defer shared.Unlock()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
}

// AgentIn builds the agent into dir and returns its path, or that of KUBECDC_E2E_AGENT. Each of env
// is a KEY=value for the build; CGO_ENABLED=0 is for an agent that runs where there is no libc,
// which cannot have the race detector.
func AgentIn(ctx context.Context, dir string, env ...string) (string, error) {
	if path := os.Getenv("KUBECDC_E2E_AGENT"); path != "" {
		return filepath.Abs(path)
	}
	root, err := Repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubecdc")
	args := []string{"build", "-o", path}
	if Racing() && !slices.Contains(env, "CGO_ENABLED=0") {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/agent")...)
	cmd.Dir = root
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return path, nil
}

// Repository returns the root of the repository, which is that of the agent's module. Tests run in
// the folder of their package.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/kubecdc/kubecdc\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod of github.com/kubecdc/kubecdc above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}
