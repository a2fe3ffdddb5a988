package consumers_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	root     = "../.." // of the repository
	examples = root + "/examples"
)

// kit is a dependency that must be installed before a test can run.
type kit struct {
	Name  string
	Needs [][]string // commands that succeed if it can be installed
	Pins  []string   // files that pin the versions; copied to the directory that install runs in
	Steps [][]string
}

var (
	python = kit{
		Name: "python", Needs: [][]string{{"python3", "-c", "import ensurepip, venv"}}, Pins: []string{examples + "/python/requirements.txt"},
		Steps: [][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"},
		},
	}
	javascript = kit{
		Name: "javascript", Needs: [][]string{{"node", "-e", "if (parseInt(process.versions.node) < 20) throw 'Node.js 20 is needed'"}, {"npm", "--version"}},
		Pins:  []string{examples + "/javascript/package.json", examples + "/javascript/package-lock.json"},
		Steps: [][]string{{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}},
	}
	natsCLI = kit{
		Name: "natscli", Needs: [][]string{{"go", "version"}}, Pins: []string{"natscli/go.mod", "natscli/go.sum"},
		Steps: [][]string{{"go", "build", "-o", "nats", "github.com/nats-io/natscli/nats"}},
	}
)

// dir returns the kit's directory; the first test that needs it installs it. Several processes may ask at once: one
// installs, the others wait. On a machine that lacks the requirements the test is skipped, or fails if CI is set. It is
// also skipped with -short, as under the race detector, which does not look into other programs.
func (k *kit) dir(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs programs that others have written")
	}
	for _, command := range k.Needs {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			reason := fmt.Sprintf("%s needs a machine where this works: %q: %v\n%s", k.Name, command, err, out)
			if os.Getenv("CI") != "" {
				t.Fatal(reason, "\nInstall it; CI is set, so that nothing is skipped.")
			}
			t.Skip(reason)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, k.Steps)
	for _, pin := range k.Pins {
		content, err := os.ReadFile(pin)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", pin, len(content), content)
	}
	dir := filepath.Join(cache, "kubecdc", fmt.Sprintf("consumers-%s-%x", k.Name, hash.Sum(nil)[:8]))
	if err := k.install(t.Context(), dir); err != nil {
		t.Fatalf("install %s: %v", k.Name, err)
	}
	return dir
}

// install runs the steps in dir unless they have run there before.
func (k *kit) install(ctx context.Context, dir string) error {
	done := filepath.Join(dir, ".installed")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(done); err == nil { // Installed by the process that held the lock.
		return nil
	}
	if err := os.RemoveAll(dir); err != nil { // Left by an interrupted run.
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, pin := range k.Pins {
		content, err := os.ReadFile(pin)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(pin)), content, 0o644); err != nil {
			return err
		}
	}
	for _, step := range k.Steps {
		if err := run(ctx, dir, step); err != nil {
			return err
		}
	}
	return os.WriteFile(done, nil, 0o644)
}

// run runs one step and reports every 15 seconds that it is still running.
func run(ctx context.Context, dir string, argv []string) error {
	name := argv[0]
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	cmd := exec.CommandContext(ctx, name, argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off")
	cmd.WaitDelay = 10 * time.Second // its children may hold its output
	start, tick := time.Now(), time.NewTicker(15*time.Second)
	defer tick.Stop()
	fmt.Fprintf(os.Stderr, "consumers: %s, once\n", strings.Join(argv, " "))
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				fmt.Fprintf(os.Stderr, "consumers: %s: %s\n", argv[0], time.Since(start).Round(time.Second))
			}
		}
	})
	out, err := cmd.CombinedOutput()
	close(ended)
	wg.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// lock takes an exclusive lock. It polls, because a blocked flock ignores ctx.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, context.Cause(ctx)), f.Close())
		case <-tick.C:
		}
	}
}
