package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Exclusive locks f without waiting.
func Exclusive(f *os.File) error { return lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// Shared is Exclusive for callers that only check the lock.
func Shared(f *os.File) error { return lock(f, 0) }

func lock(f *os.File, how uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}
