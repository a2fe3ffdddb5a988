// Package tool builds command-line tools for tests from their Go modules, each in one pinned
// version, and keeps them in the repository's .cache/bin. Several processes may ask for a tool at
// once: one builds it, and the others wait.
package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kubecdc/kubecdc/internal/filelock"
	"github.com/kubecdc/kubecdc/test/process"
)

const progressEvery = 15 * time.Second

// Tool is a command of a Go module.
type Tool struct {
	Name    string // of its file in .cache/bin, followed by the version
	Package string // the package of its command
	Binary  string // the name that go install gives it
	Version string
}

// The tools that pages name beside kubecdc and kubectl.
var (
	Helm = Tool{
		Name:    "helm",
		Package: "helm.sh/helm/v4/cmd/helm",
		Binary:  "helm",
		Version: "v4.3.1",
	}
	JQ = Tool{
		Name:    "jq",
		Package: "github.com/itchyny/gojq/cmd/gojq",
		Binary:  "gojq",
		Version: "v0.12.17",
	}
	YQ = Tool{
		Name:    "yq",
		Package: "github.com/mikefarah/yq/v4",
		Binary:  "yq",
		Version: "v4.54.3",
	}
)

// Path returns the path of the tool, and builds it if it is not there yet. It reports that to w,
// every 15 seconds, because it may take minutes. root is the repository.
func (t Tool) Path(ctx context.Context, root string, w io.Writer) (string, error) {
	dir, err := filepath.Abs(filepath.Join(root, ".cache", "bin"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, t.Name+"-"+t.Version)
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
		fmt.Fprintf(w, "%s: another process builds it, waiting\n", t.Name)
	}
	if _, err := os.Stat(path); err == nil { // The previous owner of the lock has built it.
		return path, nil
	}
	if err := t.build(ctx, w, path); err != nil {
		return "", fmt.Errorf("build %s %s: %w", t.Name, t.Version, err)
	}
	return path, nil
}

// build leaves the binary at path, whole or not at all.
func (t Tool) build(ctx context.Context, w io.Writer, path string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(path), t.Name+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	begin := time.Now()
	fmt.Fprintf(w, "%s: building %s from %s, may take minutes, once\n", t.Name, t.Version, t.Package)
	child, err := process.Start(process.Spec{
		Name: "go install",
		Argv: []string{"go", "install", t.Package + "@" + t.Version},
		Env:  []string{"GOBIN=" + tmp, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0"},
		Log:  filepath.Join(tmp, "log"),
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
			fmt.Fprintf(w, "%s: still building (%s)\n", t.Name, time.Since(begin).Round(time.Second))
		}
	}
	if err := child.Stop(time.Second); err != nil { // how it ended
		return err
	}
	if err := os.Rename(filepath.Join(tmp, t.Binary), path); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: built in %s: %s\n", t.Name, time.Since(begin).Round(time.Second), path)
	return nil
}
