package controlplane

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	testModule       = "github.com/kubecdc/kubecdc/test"
	kubernetesModule = "k8s.io/kubernetes"

	// progressEvery limits the log to a few dozen lines, but shows that the build is not stuck.
	progressEvery = 15 * time.Second
)

// Build returns the path of the multi-call binary of package test/cluster, and compiles it unless
// it is in the user's cache directory. Its name contains a hash of the sources, so that a change of
// version is a new build. Several processes may call Build at the same time: one builds, the others
// wait for it.
//
// Build writes its progress to w, one line every 15 s, and nothing if the binary exists. It needs
// the go command and, unless the module cache has Kubernetes, the module proxy.
func Build(ctx context.Context, w io.Writer) (string, error) { return BuildVersion(ctx, "", w) }

// BuildVersion is Build for a minor version of Kubernetes, for example "1.36". The directory
// test/cluster/versions has the modules of each, and the etcd that belongs to it. "" is the version
// of test/cluster/go.mod.
func BuildVersion(ctx context.Context, version string, w io.Writer) (string, error) {
	src, err := sourceDir(ctx)
	if err != nil {
		return "", fmt.Errorf("sources of the control plane: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	return build(ctx, src, version, filepath.Join(cache, "kubecdc"), w)
}

// IsBuilt reports whether the user's cache directory has the binary that Build returns.
func IsBuilt(ctx context.Context) bool {
	src, err := sourceDir(ctx)
	if err != nil {
		return false
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return false
	}
	hash, err := hashSources(src, modFile(""))
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(cache, "kubecdc", "controlplane-"+hash))
	return err == nil
}

func build(ctx context.Context, src, version, dir string, w io.Writer) (path string, err error) {
	mod := modFile(version)
	hash, err := hashSources(src, mod)
	if err != nil {
		return "", fmt.Errorf("sources of the control plane: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	path = filepath.Join(dir, "controlplane-"+hash)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}

	unlock, err := lock(ctx, path+".lock", w)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // Built by the process that held the lock.
		return path, nil
	}
	// Linked under another name and then renamed, so that a file of the final name is always
	// complete.
	tmp := path + ".tmp"
	defer func() { _ = os.Remove(tmp) }() // Not there after the rename.
	if err := compile(ctx, src, mod, tmp, w); err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return path, nil
}

// sourceDir finds test/cluster next to this file. If -trimpath has removed the file's directory
// from the binary, it looks below the current directory, then next to the module of the current
// directory.
func sourceDir(ctx context.Context) (string, error) {
	dir := filepath.Join("test", "cluster")
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		dir = filepath.Join(filepath.Dir(filepath.Dir(file)), "cluster")
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return filepath.Abs(dir)
	}
	root, err := goOutput(ctx, "", "list", "-m", "-f", "{{.Dir}}", testModule)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "cluster"), nil
}

// modFile returns the file with the modules of a version, below test/cluster. The sources are the
// same for all versions.
func modFile(version string) string {
	if version == "" {
		return "go.mod"
	}
	return filepath.Join("versions", "v"+version+".mod")
}

// sumFile returns the file with the checksums of a modFile.
func sumFile(mod string) string { return strings.TrimSuffix(mod, ".mod") + ".sum" }

// hashSources hashes the versions and the sources, so that a binary of other sources is not reused.
func hashSources(dir, mod string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, file := range append(files, filepath.Join(dir, mod), filepath.Join(dir, sumFile(mod))) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, filepath.Base(file), len(text))
		sum.Write(text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

// lock takes an advisory lock on the file, which the kernel releases when its holder ends for any
// reason. The file is kept: after its removal, one process could lock the old file and another one
// a new file of the same name.
func lock(ctx context.Context, path string, w io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	start, tick := time.Now(), time.NewTicker(250*time.Millisecond)
	defer tick.Stop()
	var said time.Time
	for {
		// Polled, because a blocked flock ignores ctx.
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			fmt.Fprintf(w, "controlplane: another process builds the control plane, waiting (%s)\n", elapsed(start))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, context.Cause(ctx)), f.Close())
		case <-tick.C:
		}
	}
}

func compile(ctx context.Context, src, mod, out string, w io.Writer) error {
	start := time.Now()
	modules := "-modfile=" + mod
	version, err := goOutput(ctx, src, "list", modules, "-m", "-f", "{{.Version}}", kubernetesModule)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "controlplane: building etcd, kube-apiserver and kube-controller-manager %s\n", version)
	fmt.Fprintln(w, "controlplane: this compiles Kubernetes from source: about 5 minutes on 2 cores, once")
	deps, err := goOutput(ctx, src, "list", modules, "-deps", ".") // Also downloads the modules, if they are not there.
	if err != nil {
		return err
	}
	total := strings.Count(deps, "\n") + 1

	// Without the version, /version of the API server says v0.0.0-master.
	const versionPackage = "k8s.io/component-base/version"
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	ldflags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		versionPackage, version, major, minor)

	// -v prints each package on stderr when it is compiled, but not those in the build cache.
	// -trimpath is also set for the agent, so that common packages are compiled only once.
	cmd := goCommand(ctx, src, "build", modules, "-v", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out,
		".")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var compiled atomic.Int64
	var failure []string // The lines that are not names of packages. Written by one goroutine, read after Wait.
	ended := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if line := lines.Text(); strings.ContainsAny(line, " \t") {
				failure = append(failure, line)
			} else {
				compiled.Add(1)
			}
		}
		return lines.Err()
	})
	g.Go(func() error {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return nil
			case <-tick.C:
				fmt.Fprintf(w, "controlplane: %s, compiled %d packages (of at most %d)\n", elapsed(start),
					compiled.Load(), total)
			}
		}
	})
	// The pipe has to be read to its end before Wait, which closes it.
	err = g.Wait()
	if err := errors.Join(cmd.Wait(), err); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(failure, "\n"))
	}
	fmt.Fprintf(w, "controlplane: built in %s: %s\n", elapsed(start), strings.TrimSuffix(out, ".tmp"))
	return nil
}

func elapsed(start time.Time) time.Duration { return time.Since(start).Round(time.Second) }

func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := goCommand(ctx, dir, args...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// goCommand ignores the caller's workspace and flags, and lets go end its compilers when ctx ends.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
