package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kubecdc/kubecdc/internal/atomicfile"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Retry repeats the attempts to store a claim. Each claim store has one.
type Retry struct {
	where   string
	Log     *slog.Logger
	metrics *publish.Metrics
	window  publish.Window
}

// NewRetry returns a Retry for the claim store at where, which is logged and must not contain a
// secret.
func NewRetry(where string, log *slog.Logger, m *publish.Metrics) *Retry {
	return &Retry{where: where, Log: log, metrics: cmp.Or(m, publish.NewMetrics(nil))}
}

// Do calls attempt until it returns nil, an error that wraps publish.ErrRefused, publish.ErrClosed
// or publish.ErrFenced, or ctx ends.
func (r *Retry) Do(
	ctx context.Context, name string, retried func(reason string), attempt func(ctx context.Context) error,
) error {
	for failures := 1; ; failures++ {
		err := attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, publish.ErrRefused), errors.Is(err, publish.ErrClosed), errors.Is(err, publish.ErrFenced):
			return fmt.Errorf("put %s into %s: %w", name, r.where, err)
		case errors.Is(err, publish.ErrShut):
			continue // the attempt waits at the fence
		}
		r.metrics.Retries.WithLabelValues(publish.ReasonClaim).Inc()
		if retried != nil {
			retried(publish.ReasonClaim)
		}
		if suppressed, ok := r.window.First("claim"); ok {
			r.Log.Error(
				"the claim store rejects an event that is too large for the bus: later changes of its object wait",
				"store", r.where,
				"object", name, "attempt", failures, "err", err, "suppressed", suppressed)
		}
		if err := pause.For(ctx, publish.BusyBackoff().Delay(failures)); err != nil {
			return err
		}
	}
}

// Directory is a claim store in files. It never removes a file.
type Directory struct {
	path  string
	retry *Retry
	fence *publish.Fencing
}

// NewDirectory checks that path is absolute. If necessary, Put creates the directory, for the
// agent's user and group. The fence is checked before each file; nil permits everything.
func NewDirectory(path string, fence publish.Fence, log *slog.Logger, m *publish.Metrics) (*Directory, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("claim directory %q: must be an absolute path", path)
	}
	path = filepath.Clean(path)
	return &Directory{path: path, retry: NewRetry("directory "+path, log, m), fence: publish.NewFencing(fence)}, nil
}

// Put implements publish.ClaimStore. It replaces <name>.json whole or not at all. ref is its file
// URL.
func (d *Directory) Put(ctx context.Context, name, _ string, body []byte, retried func(reason string)) (string, error) {
	file := filepath.Join(d.path, name+".json")
	err := d.retry.Do(ctx, name, retried, func(ctx context.Context) error {
		if err := d.fence.Pass(ctx); err != nil {
			return err
		}
		err := d.write(file, body)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: %w: make it writable for the agent", publish.ErrRefused, err)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	slashed := filepath.ToSlash(file)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // Windows: begins with a drive letter
	}
	return (&url.URL{Scheme: "file", Path: slashed}).String(), nil
}

// write replaces the file, unless the fence is shut right before the rename.
func (d *Directory) write(file string, body []byte) error {
	if err := os.MkdirAll(d.path, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.path, ".claim-*")
	if err != nil {
		return err
	}
	if err := f.Chmod(0o640); err != nil { // consumers may belong to the group
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return atomicfile.Replace(file, f, body, func() error {
		if d.fence.Shut() {
			return publish.ErrShut
		}
		return nil
	})
}
