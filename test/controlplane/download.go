package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// envtestVersion is the Kubernetes of the archives that Download takes.
	envtestVersion = "1.37.0"

	setupEnvtest = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"

	// downloadLimit is how long a download may make no progress, and toolLimit how long the
	// compiler of setup-envtest may print nothing.
	downloadLimit = 20 * time.Second
	toolLimit     = 60 * time.Second
)

// envtestSums are the SHA-512 of the archives of envtestVersion, as controller-tools publishes them
// (envtest-releases.yaml). They are here because that file is the head of a branch.
var envtestSums = map[string]string{
	"linux-amd64":  "1d1c453633b72c161a5d5a886cde7ac850be1a2ac796a9e1d4ffacacc64868295bdd2d57aa66cd0c158f5ce510f5dfe3fbc61ac21bd3dcfb875bd70658aa663a",
	"linux-arm64":  "ae6a670502988200b0131c943758cfd3d3a58cf4e6247ef7f0e6a6467f1cd9a333c802e86101f0446b1b92a0e327387224e1e44fe1a4693da0929c6e529cfe9a",
	"darwin-amd64": "19a2a5376a8aa57a7b25ec5198834db29bf2ba0d6ff572d7f45ba683b13fb14c3ebec8069e92db66c39f1c7a9cff1bc2be879e2aacdc9fa8b8a7e861959bdf7b",
	"darwin-arm64": "fb38cfacdd71b5e97a4d4cceac861af5f55069cf783f0e49cf181bfc32eb3e557c2091a534dc5d38f1b92c5ba142bc1979f215a5385b3630ea6a661be6fa161b",
}

// errNoProgress ends a child that has written nothing for too long.
var errNoProgress = errors.New("no progress")

// Download returns etcd, kube-apiserver and kubectl of the user's cache directory. If they are not
// there, it downloads them with setup-envtest, which it compiles, and writes one line to w.
// setup-envtest compares the archive with the pinned sum. Download returns an error after 20 s
// without progress; nothing of a failed download remains.
func Download(ctx context.Context, w io.Writer) (*Binaries, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	name := "envtest-v" + envtestVersion + "-" + runtime.GOOS + "-" + runtime.GOARCH + ".tar.gz"
	d := &download{
		version: envtestVersion,
		sum:     envtestSums[runtime.GOOS+"-"+runtime.GOARCH],
		limit:   downloadLimit,
		link: "https://github.com/kubernetes-sigs/controller-tools/releases/download/envtest-v" + envtestVersion + "/" +
			name,
		dir:  filepath.Join(cache, "kubecdc"),
		tool: compileSetupEnvtest,
	}
	return d.binaries(ctx, w)
}

// download is one archive, and where its files are to be.
type download struct {
	version, sum, link string
	dir                string // of the cache
	limit              time.Duration
	// setup-envtest, compiled into dir
	tool func(ctx context.Context, dir string) (path string, err error)
}

func (d *download) platform() string { return runtime.GOOS + "-" + runtime.GOARCH }

func (d *download) binaries(ctx context.Context, w io.Writer) (found *Binaries, err error) {
	if d.sum == "" {
		return nil, fmt.Errorf("there is no archive for %s", d.platform())
	}
	final := filepath.Join(d.dir, "envtest-"+d.version+"-"+d.platform()+"-"+d.sum[:8])
	if _, err := os.Stat(final); err == nil { // renamed when it was complete
		return assets(final)
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, final+".lock", w)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil { // by the process that held the lock
		return assets(final)
	}
	fmt.Fprintf(w, "controlplane: downloading etcd and kube-apiserver %s from %s\n", d.version, hostOf(d.link))
	work, err := os.MkdirTemp(d.dir, "envtest-*.tmp")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeReadOnly(work)) }()
	path, err := d.fetch(ctx, work)
	if err != nil {
		return nil, err
	}
	// setup-envtest makes it read-only, and then it cannot be moved.
	if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // a directory of programs
		return nil, err
	}
	if err := os.Rename(path, final); err != nil {
		return nil, err
	}
	return assets(final)
}

// fetch returns the directory below work into which setup-envtest has unpacked the archive.
func (d *download) fetch(ctx context.Context, work string) (string, error) {
	tool, err := d.tool(ctx, work)
	if err != nil {
		return "", fmt.Errorf("compile setup-envtest: %w", err)
	}
	index, closeIndex, err := d.serveIndex(ctx)
	if err != nil {
		return "", err
	}
	defer closeIndex()
	temp := filepath.Join(work, "tmp")
	if err := os.Mkdir(temp, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command(tool, "use", d.version, //nolint:noctx // watch ends it
		"--bin-dir", filepath.Join(work, "store"), "--index", index, "--print", "path",
		"--use-env=false", "--installed-only=false")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := watch(ctx, cmd, d.limit, func() int64 { return size(work) }); err != nil {
		return "", fmt.Errorf("setup-envtest: %w\n%s", err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// serveIndex serves an index that has the pinned archive alone, for setup-envtest.
func (d *download) serveIndex(ctx context.Context) (url string, closeIndex func(), err error) {
	type archive struct {
		Hash     string `json:"hash"`
		SelfLink string `json:"selfLink"`
	}
	index, err := json.Marshal(map[string]any{"releases": map[string]map[string]archive{
		"v" + d.version: {"envtest-v" + d.version + "-" + d.platform() + ".tar.gz": {d.sum, d.link}},
	}})
	if err != nil {
		return "", nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(index) }),
		ReadHeaderTimeout: 10 * time.Second,
	}
	var g errgroup.Group
	g.Go(func() error { return s.Serve(l) })
	return "http://" + l.Addr().String() + "/index.yaml", func() { _, _ = s.Close(), g.Wait() }, nil
}

// compileSetupEnvtest compiles into dir. The command prints each package.
func compileSetupEnvtest(ctx context.Context, dir string) (string, error) {
	lines := &lineCounter{}
	cmd := exec.Command("go", "install", "-v", "-trimpath", setupEnvtest) //nolint:noctx // watch ends it
	cmd.Dir, cmd.Stderr = dir, lines
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOBIN="+dir)
	if err := watch(ctx, cmd, toolLimit, lines.n.Load); err != nil {
		return "", fmt.Errorf("%w\n%s", err, lines.last.Bytes())
	}
	return filepath.Join(dir, "setup-envtest"), nil
}

// watch runs a child. It interrupts it, and kills it 2 s later, if ctx ends, or if progress returns
// the same for longer than limit.
func watch(ctx context.Context, cmd *exec.Cmd, limit time.Duration, progress func() int64) error {
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error {
		defer close(ended)
		return cmd.Wait()
	})
	stop := func(cause error) error {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(cmd.WaitDelay):
			_ = cmd.Process.Kill()
			<-ended
		}
		_ = g.Wait() // it ends because of cause
		return cause
	}
	tick := time.NewTicker(max(limit/80, time.Millisecond))
	defer tick.Stop()
	at, last := time.Now(), progress()
	for {
		select {
		case <-ended:
			return g.Wait()
		case <-ctx.Done():
			return stop(context.Cause(ctx))
		case <-tick.C:
			now := progress()
			if now != last {
				at, last = time.Now(), now
			}
			if time.Since(at) > limit {
				return stop(fmt.Errorf("%w for %s", errNoProgress, limit))
			}
		}
	}
}

// size returns the bytes of all files below dir.
func size(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // Files come and go.
		}
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// removeReadOnly removes dir with its directories that may not be written.
func removeReadOnly(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(path, 0o755) //nolint:gosec // It is removed.
		}
		return nil
	})
	return os.RemoveAll(dir)
}

func hostOf(link string) string {
	_, rest, _ := strings.Cut(link, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// lineCounter counts the lines of a command, and keeps those of the last write.
type lineCounter struct {
	n    atomic.Int64
	last bytes.Buffer
}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.n.Add(int64(bytes.Count(p, []byte("\n"))))
	if c.last.Len() > 1<<16 {
		c.last.Reset()
	}
	return c.last.Write(p)
}
