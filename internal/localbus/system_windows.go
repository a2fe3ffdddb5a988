package localbus

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// errLocked says that somebody else holds the lock.
var errLocked = errors.New("locked")

// lockExclusive locks f without waiting. The lock ends with f, or with the process.
func lockExclusive(f *os.File) error { return lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// lockShared is lockExclusive for those who only want to know.
func lockShared(f *os.File) error { return lock(f, 0) }

func lock(f *os.File, how uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

// available is how many bytes dir's file system has for us.
func available(dir string) (uint64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var room uint64
	err = windows.GetDiskFreeSpaceEx(path, &room, nil, nil)
	return room, err
}
