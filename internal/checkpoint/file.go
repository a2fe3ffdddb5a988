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

// file is a checkpoint in a file: one agent has it, by the lock on a file beside it. That one stays: removed, two agents
// could lock two files of that name.
type file struct {
	path string
}

// OpenFile returns the store of a checkpoint in the file at path. It touches nothing yet: Lock makes the directories that
// are missing, the first save makes the file.
func OpenFile(path string) Store { return &file{path: path} }

// String implements Store.
func (f *file) String() string { return "checkpoint file " + f.path }

// Lock implements Store. An agent that runs is waited for a second: it may be on its way out.
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
		// On some systems what is locked cannot be read.
		if data, err := os.ReadFile(lock.Name()); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
				who = fmt.Sprintf("another kubecdc (pid %d)", pid)
			}
		}
		err = &Error{Kind: ErrLocked, Where: f.String(), What: "in use by " + who, Remedy: "end that one, or name another file in the configuration"}
	case err != nil:
		err = f.unusable(fmt.Errorf("lock: %w", err))
	default:
		// Who has it is for people only.
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

// Save implements Store. Only the owner of the lock saves, so the temporary file has a fixed name: one that a killed process left
// behind is overwritten.
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

// unusable is what keeps an agent from starting with the file.
func (f *file) unusable(err error) error {
	if p := new(fs.PathError); errors.As(err, &p) && p.Path == f.path {
		err = p.Err
	}
	return &Error{Kind: ErrRefused, Where: f.String(), What: "it cannot be used", Err: err, Remedy: "see to it, or name another file in the configuration"}
}
