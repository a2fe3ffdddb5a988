//go:build unix

package localbus

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errLocked says that somebody else holds the lock.
var errLocked = errors.New("locked")

// lockExclusive locks f without waiting. The lock ends with f, or with the process.
func lockExclusive(f *os.File) error { return flock(f, unix.LOCK_EX) }

// lockShared is lockExclusive for those who only want to know.
func lockShared(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// available is how many bytes dir's file system has for us.
func available(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:unconvert // their types differ between systems
}
