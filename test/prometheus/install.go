package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/filelock"
	"github.com/kubecdc/kubecdc/test/process"
)

// Env says what to do with tests that need Prometheus: "require" fails them if it is not available,
// "skip" always skips them. Any other value skips them if it is not available.
const Env = "KUBECDC_PROMETHEUS"

const (
	pkg           = "prometheus" // Debian's
	progressEvery = 15 * time.Second
)

// Tools are the paths of two programs.
type Tools struct {
	Prometheus string
	Promtool   string
}

// Require skips or fails the test if Prometheus is not available, see Env.
func Require(t testing.TB) Tools {
	t.Helper()
	wish := os.Getenv(Env)
	if wish == "skip" {
		t.Skip("no test with a real Prometheus: " + Env + "=skip")
	}
	tools, err := Install(t.Context(), os.Stderr)
	switch {
	case err == nil:
	case wish == "require":
		t.Fatalf("no Prometheus can be had here, and %s=require: %v", Env, err)
	default:
		t.Skipf("no Prometheus can be had here: %v", err)
	}
	return tools
}

// Install downloads the programs unless they are there. It writes its progress to w, and nothing if
// there is nothing to do. Several processes may call it at once: one works, the others wait.
func Install(ctx context.Context, w io.Writer) (Tools, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Tools{}, fmt.Errorf("cache directory: %w", err)
	}
	cache = filepath.Join(cache, "kubecdc")
	if tools, ok := installed(cache); ok {
		return tools, nil
	}
	tools, err := download(ctx, cache, w)
	if err == nil {
		return tools, nil
	}
	if onPath, ok := lookPath(); ok {
		return onPath, nil
	}
	return Tools{}, err
}

// installed finds the installation of an earlier call, the newest by name.
func installed(cache string) (Tools, bool) {
	found, err := filepath.Glob(filepath.Join(cache, pkg+"-*", "installed"))
	if err != nil || len(found) == 0 {
		return Tools{}, false
	}
	return toolsIn(filepath.Dir(slices.Max(found))), true
}

func toolsIn(dir string) Tools {
	bin := filepath.Join(dir, "usr", "bin")
	return Tools{Prometheus: filepath.Join(bin, "prometheus"), Promtool: filepath.Join(bin, "promtool")}
}

func lookPath() (Tools, bool) {
	server, errServer := exec.LookPath("prometheus")
	tool, errTool := exec.LookPath("promtool")
	return Tools{Prometheus: server, Promtool: tool}, errServer == nil && errTool == nil
}

// uri is a line of apt-get's --print-uris: 'http://…/prometheus_2.42.0%2bds-5_amd64.deb'
// prometheus_2.42.0+ds-5_amd64.deb 19257088 SHA256:…
var uri = regexp.MustCompile(`(?m)^'[^']*' (prometheus_([^_/\s]+)_[^_/\s]+\.deb) \d+`)

// candidate returns the package that apt would download.
func candidate(ctx context.Context) (file, version string, err error) {
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", "", fmt.Errorf("no %s, and no prometheus and promtool on PATH", program)
		}
	}
	out, err := exec.CommandContext(ctx, "apt-get",
		append(aptOptions(), "download", "--print-uris", pkg)...).CombinedOutput()
	if err != nil {
		return "", "",
			fmt.Errorf("apt-get knows no package %s (apt-get update may help), and it is not on PATH: %w: %.500s", pkg,
				err, out)
	}
	m := uri.FindSubmatch(out)
	if m == nil {
		return "", "", fmt.Errorf("apt-get download --print-uris says %.500q", out)
	}
	return string(m[1]), string(m[2]), nil
}

// aptOptions keep apt from writing caches of its own, and from dropping root's rights, without
// which it could not write to our directory.
func aptOptions() []string {
	return []string{
		"-q", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Sandbox::User=root",
	}
}

func download(ctx context.Context, cache string, w io.Writer) (Tools, error) {
	file, version, err := candidate(ctx)
	if err != nil {
		return Tools{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Tools{}, fmt.Errorf("cache directory: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(cache, pkg+".lock"), w)
	if err != nil {
		return Tools{}, err
	}
	defer unlock()
	if tools, ok := installed(cache); ok { // Installed by the process that held the lock.
		return tools, nil
	}
	begin, dir := time.Now(), filepath.Join(cache, pkg+"-"+version)
	if err := fill(ctx, dir, file, w); err != nil {
		return Tools{}, fmt.Errorf("install Prometheus: %w", err)
	}
	fmt.Fprintf(w, "prometheus: installed in %s: %s\n", time.Since(begin).Round(time.Second), dir)
	return toolsIn(dir), nil
}

// lock waits while another process installs.
func lock(ctx context.Context, path string, w io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	start, said := time.Now(), time.Time{}
	for {
		err := filelock.Wait(ctx, f)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if ctx.Err() != nil || !errors.Is(err, filelock.ErrLocked) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), context.Cause(ctx), f.Close())
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			fmt.Fprintf(w, "prometheus: another process installs it, waiting (%s)\n",
				time.Since(start).Round(time.Second))
		}
	}
}

// fill creates the files; the last one marks the directory as complete.
func fill(ctx context.Context, dir, file string, w io.Writer) error {
	if err := os.RemoveAll(dir); err != nil { // Left by an interrupted run.
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := run(ctx, dir, w, append(append([]string{"apt-get"}, aptOptions()...), "download", pkg)...); err != nil {
		return err
	}
	if err := run(ctx, dir, w, "dpkg-deb", "-x", file, "."); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, file)); err != nil {
		return err
	}
	// The programs must run here: they need the right architecture and their libraries.
	tools := toolsIn(dir)
	for _, program := range []string{tools.Prometheus, tools.Promtool} {
		if err := run(ctx, dir, w, program, "--version"); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "installed"), nil, 0o644)
}

// run runs a program in dir. It reports that it is still running after a second, and then every 15
// seconds.
func run(ctx context.Context, dir string, w io.Writer, argv ...string) error {
	name := filepath.Base(argv[0])
	child, err := process.Start(process.Spec{
		Name: name,
		Argv: argv,
		Dir:  dir,
		Log:  filepath.Join(dir, name+".log"),
	})
	if err != nil {
		return err
	}
	begin, next := time.Now(), time.NewTimer(time.Second)
	defer next.Stop()
	for {
		select {
		case <-child.Done():
			return child.Stop(time.Second) // The result.
		case <-ctx.Done():
			child.Kill()
			return fmt.Errorf("%s: %w", name, context.Cause(ctx))
		case <-next.C:
			next.Reset(progressEvery)
			fmt.Fprintf(w, "prometheus: installing, once: %s (%s)\n", name, time.Since(begin).Round(time.Second))
		}
	}
}
