package kit

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

// Kit is a dependency that must be installed before a test can run.
type Kit struct {
	Name  string     // of the directory, which also has a hash of Pins and Steps
	Needs [][]string // commands that succeed if it can be installed
	Pins  []string   // files that pin the versions; copied to the directory that install runs in
	Steps [][]string
	// Folder is the directory that Pins are below; "": that of the test. Two tests that have it in
	// common share the kit.
	Folder string
}

// Dir returns the kit's directory; the first test that needs it installs it. On a machine that
// lacks the requirements the test is skipped, or fails if CI is set. It is also skipped with
// -short, as under the race detector, which does not look into other programs.
func (k *Kit) Dir(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs programs that others have written")
	}
	if err := k.Missing(t.Context()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err, "\nInstall it; CI is set, so that nothing is skipped.")
		}
		t.Skip(err)
	}
	dir, err := k.Install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Missing returns what the machine lacks to install the kit, nil if it lacks nothing.
func (k *Kit) Missing(ctx context.Context) error {
	for _, command := range k.Needs {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s needs a machine where this works: %q: %w\n%s", k.Name, command, err, out)
		}
	}
	return nil
}

// Install installs the kit unless that is done, and returns its directory in the user's cache
// directory. Several processes may ask at once: one installs, the others wait.
func (k *Kit) Install(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, k.Steps)
	for _, pin := range k.Pins {
		content, err := os.ReadFile(filepath.Join(k.Folder, pin))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", pin, len(content), content)
	}
	dir := filepath.Join(cache, "kubecdc", fmt.Sprintf("consumers-%s-%x", k.Name, hash.Sum(nil)[:8]))
	if err := k.install(ctx, dir); err != nil {
		return "", fmt.Errorf("install %s: %w", k.Name, err)
	}
	return dir, nil
}

// install runs the steps in dir unless they have run there before.
func (k *Kit) install(ctx context.Context, dir string) error {
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
		content, err := os.ReadFile(filepath.Join(k.Folder, pin))
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
	fmt.Fprintf(os.Stderr, "kit: %s, once\n", strings.Join(argv, " "))
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				fmt.Fprintf(os.Stderr, "kit: %s: %s\n", argv[0], time.Since(start).Round(time.Second))
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
