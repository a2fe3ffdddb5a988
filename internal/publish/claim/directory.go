package claim

import (
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
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Directory is a claim store in files. It never removes a file.
type Directory struct {
	path  string
	retry *Retry
	fence *publish.Fencing
}

// NewDirectory checks that path is absolute. If necessary, Put creates the directory, for the agent's user and group. The fence is
// checked before each file; nil permits everything.
func NewDirectory(path string, fence publish.Fence, log *slog.Logger, m *publish.Metrics) (*Directory, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("claim directory %q: must be an absolute path", path)
	}
	path = filepath.Clean(path)
	return &Directory{path: path, retry: NewRetry("directory "+path, log, m), fence: publish.NewFencing(fence)}, nil
}

// Put implements publish.ClaimStore. It replaces <name>.json whole or not at all. ref is its file URL.
func (d *Directory) Put(ctx context.Context, name, _ string, body []byte) (string, error) {
	file := filepath.Join(d.path, name+".json")
	err := d.retry.Do(ctx, name, func(ctx context.Context) error {
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
