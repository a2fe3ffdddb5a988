package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/internal/atomicfile"
	"github.com/kubecdc/kubecdc/internal/filelock"
)

// file stores a checkpoint in a file. A lock on a second file beside it keeps other agents away.
// The lock file is never removed: otherwise two agents could lock two files of that name.
type file struct {
	path string
}

// OpenFile returns a store for the file at path. It changes nothing: Lock creates missing
// directories, the first Save creates the file.
func OpenFile(path string) Store { return &file{path: path} }

// String implements Store.
func (f *file) String() string { return "checkpoint file " + f.path }

// Lock implements Store. It waits a second for another agent, which may be about to exit.
func (f *file) Lock(ctx context.Context) (unlock func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return nil, f.unusable(err)
	}
	lock, err := os.OpenFile(f.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, f.unusable(err)
	}
	err = filelock.Wait(ctx, lock)
	switch {
	case errors.Is(err, filelock.ErrLocked):
		who := "another kubecdc"
		// On some systems a locked file cannot be read.
		if data, err := os.ReadFile(lock.Name()); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
				who = fmt.Sprintf("another kubecdc (pid %d)", pid)
			}
		}
		err = &Error{
			Kind:   ErrLocked,
			Where:  f.String(),
			What:   "in use by " + who,
			Remedy: "stop that one, or name another file in the configuration",
		}
	case err != nil:
		err = f.unusable(fmt.Errorf("lock: %w", err))
	default:
		// The pid is only shown to people.
		if lock.Truncate(0) == nil {
			_, _ = fmt.Fprintln(lock, os.Getpid())
		}
		return lock.Close, nil
	}
	return nil, errors.Join(err, lock.Close())
}

// Load implements Store.
func (f *file) Load(context.Context) ([]byte, error) {
	data, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, f.unusable(err)
	}
	return data, nil
}

// Save implements Store. Only the owner of the lock saves, so the temporary file has a fixed name:
// a leftover of a killed process is overwritten.
func (f *file) Save(_ context.Context, data []byte) error {
	next, err := os.OpenFile(f.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = atomicfile.Replace(f.path, next, data, nil)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	return nil
}

// Delete implements Store.
func (f *file) Delete(context.Context) error {
	err := os.Remove(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = atomicfile.SyncDirectory(filepath.Dir(f.path))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	return nil
}

// unusable returns the error of a file that the agent cannot use.
func (f *file) unusable(err error) error {
	if p := new(fs.PathError); errors.As(err, &p) && p.Path == f.path {
		err = p.Err
	}
	return &Error{
		Kind:   ErrRefused,
		Where:  f.String(),
		What:   "cannot be used",
		Err:    err,
		Remedy: "repair the file, or name another one in the configuration",
	}
}
