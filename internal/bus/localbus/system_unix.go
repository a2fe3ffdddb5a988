//go:build unix

package localbus

import "golang.org/x/sys/unix"

// available returns the bytes that this process may use on dir's file system.
func available(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:unconvert // their types differ between systems
}
