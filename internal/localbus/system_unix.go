//go:build unix

package localbus

import "golang.org/x/sys/unix"

// available is how many bytes dir's file system has for us.
func available(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:unconvert // their types differ between systems
}
