package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/filelock"
	"github.com/kubecdc/kubecdc/test/process"
)

const (
	// HelmVersion is the version that the chart is tested with.
	HelmVersion = "v4.3.1"

	helmPackage = "helm.sh/helm/v4/cmd/helm"

	progressEvery = 15 * time.Second
)

// Helm is the path of the helm binary: KUBECDC_HELM, or the one in the repository's .cache/bin, which is built from its Go
// module if it is not there yet. That is said to w, every 15 seconds, for it takes some minutes.
func Helm(ctx context.Context, w io.Writer) (string, error) {
	if path := os.Getenv("KUBECDC_HELM"); path != "" {
		return filepath.Abs(path)
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "bin")
	path := filepath.Join(dir, "helm-"+HelmVersion)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("directory for tools: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock: %w", err)
	}
	defer lock.Close()
	for {
		err := filelock.Wait(ctx, lock)
		if err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, filelock.ErrLocked) {
			return "", errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), context.Cause(ctx))
		}
		fmt.Fprintln(w, "helm: another process builds it, waiting")
	}
	if _, err := os.Stat(path); err == nil { // Whoever had the lock has done it.
		return path, nil
	}
	if err := buildHelm(ctx, w, path); err != nil {
		return "", fmt.Errorf("build helm %s: %w", HelmVersion, err)
	}
	return path, nil
}

// buildHelm leaves the binary at path, whole or not at all.
func buildHelm(ctx context.Context, w io.Writer, path string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "helm-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	begin := time.Now()
	fmt.Fprintf(w, "helm: building %s from %s, takes some minutes, once\n", HelmVersion, helmPackage)
	child, err := process.Start(process.Spec{
		Name: "go install", Argv: []string{"go", "install", helmPackage + "@" + HelmVersion},
		Env: []string{"GOBIN=" + tmp, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0"}, Log: filepath.Join(tmp, "log"),
	})
	if err != nil {
		return err
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-child.Done():
			done = true
		case <-ctx.Done():
			child.Kill()
			return context.Cause(ctx)
		case <-tick.C:
			fmt.Fprintf(w, "helm: still building (%s)\n", time.Since(begin).Round(time.Second))
		}
	}
	if err := child.Stop(time.Second); err != nil { // how it ended
		return err
	}
	if err := os.Rename(filepath.Join(tmp, "helm"), path); err != nil {
		return err
	}
	fmt.Fprintf(w, "helm: built in %s: %s\n", time.Since(begin).Round(time.Second), path)
	return nil
}

// repository is its root directory, by the chart in it.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "charts", "kubecdc")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not in the repository: no charts/kubecdc here or above")
		}
		dir = filepath.Dir(dir)
	}
}

// Dir is the chart's directory.
func Dir() (string, error) {
	root, err := repository()
	return filepath.Join(root, "charts", "kubecdc"), err
}

// Lint runs helm lint over the chart and returns what it says. Warnings are errors.
func Lint(ctx context.Context, helm string, args ...string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, helm, append([]string{"lint", "--strict", dir}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm lint: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
