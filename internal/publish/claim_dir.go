package publish

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
)

// ClaimDirectory is a claim store of files, one that consumers can read too, say. Nothing in it is ever removed.
type ClaimDirectory struct {
	path  string
	retry *ClaimRetry
	fence *Fencing
}

// Behind has f asked before each file. It returns c, and is called before Put.
func (c *ClaimDirectory) Behind(f Fence) *ClaimDirectory {
	c.fence = NewFencing(f)
	return c
}

// NewClaimDirectory checks that path is absolute. The directory is made, for its user and group alone, when the first file
// goes there.
func NewClaimDirectory(path string, log *slog.Logger, m *Metrics) (*ClaimDirectory, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("claim directory %q: want an absolute path", path)
	}
	path = filepath.Clean(path)
	return &ClaimDirectory{path: path, retry: NewClaimRetry("directory "+path, log, m)}, nil
}

// Put implements ClaimStore: the file <name>.json is there with all of body, or as it was before. ref is its file URL.
func (c *ClaimDirectory) Put(ctx context.Context, name, _ string, body []byte) (string, error) {
	file := filepath.Join(c.path, name+".json")
	err := c.retry.Do(ctx, name, func(ctx context.Context) error {
		if err := c.fence.Pass(ctx); err != nil {
			return err
		}
		err := c.write(file, body)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: %w: see that the agent may write to it", ErrRefused, err)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	slashed := filepath.ToSlash(file)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive
	}
	return (&url.URL{Scheme: "file", Path: slashed}).String(), nil
}

// write makes the whole file durable under another name before it takes its own.
func (c *ClaimDirectory) write(file string, body []byte) (err error) {
	if err := os.MkdirAll(c.path, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.path, ".claim-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(body)
	if err == nil {
		err = f.Chmod(0o640) // consumers may be of the group
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if c.fence.Shut() {
		return ErrShut
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	return syncDirectory(c.path)
}

// syncDirectory makes a rename durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}
