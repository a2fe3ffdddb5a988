package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// runner runs commands in the repository.
type runner struct {
	root           string
	stdout, stderr io.Writer
}

// step is a run of tests.
type step struct {
	name    string // in the output
	module  string // the directory of the module: "", "test"
	pkg     string // "./e2e"
	tests   string // -run
	timeout string // of go test
	env     []string
}

// run runs a step, and returns its output.
func (r *runner) run(ctx context.Context, s *step) ([]byte, error) {
	fmt.Fprintf(r.stdout, "=== %s\n", s.name)
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-timeout", s.timeout, "-run", s.tests, s.pkg)
	cmd.Dir, cmd.Env = filepath.Join(r.root, s.module), append(os.Environ(), s.env...)
	cmd.Stdout = io.MultiWriter(r.stdout, &output)
	cmd.Stderr = r.stderr
	// In a group of its own, so that Ctrl-C ends the tests too, and not the go command alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	err := cmd.Run()
	if err == nil && !bytes.Contains(output.Bytes(), []byte("\n--- PASS: ")) {
		err = errors.New("no test has run")
	}
	if err != nil {
		return output.Bytes(), fmt.Errorf("%s: %w", s.name, err)
	}
	return output.Bytes(), nil
}

// all runs all steps, also after one that fails.
func (r *runner) all(ctx context.Context, steps ...step) (err error) {
	for i := range steps {
		_, failure := r.run(ctx, &steps[i])
		err = errors.Join(err, failure)
	}
	return err
}

// buildControlPlane builds the control plane of a minor version of Kubernetes, unless the cache has
// it.
func (r *runner) buildControlPlane(ctx context.Context, minor string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "./controlplane/cmd/controlplane", "--build-only",
		"--version", minor)
	cmd.Dir, cmd.Env = filepath.Join(r.root, "test"), append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = r.stdout, r.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build Kubernetes %s: %w", minor, err)
	}
	return nil
}

// install returns the file of a command, which it builds once from the module proxy. cgo: it needs
// a C compiler.
func (r *runner) install(ctx context.Context, pkg, version string, cgo bool) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	name := filepath.Base(strings.TrimSuffix(pkg, "/v2"))
	dir := filepath.Join(cache, "kubecdc", fmt.Sprintf("%s-%s-%s", name, version, runtime.Version()))
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	fmt.Fprintf(r.stderr, "versions: building %s %s, once\n", name, version)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	// Built in another directory and then renamed, so that a file of the final name is always
	// complete.
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // empty by then, or of a build that has failed
	enabled := "CGO_ENABLED=0"
	if cgo {
		enabled = "CGO_ENABLED=1"
	}
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", pkg+"@v"+version)
	cmd.Dir, cmd.Stderr = tmp, r.stderr
	cmd.Env = append(os.Environ(), enabled, "GOWORK=off", "GOFLAGS=", "GOBIN="+tmp)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s %s: %w", name, version, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	if err := os.Rename(filepath.Join(tmp, name), file); err != nil {
		return "", fmt.Errorf("build %s %s: %w", name, version, err)
	}
	return file, nil
}
