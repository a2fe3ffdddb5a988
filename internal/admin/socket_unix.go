//go:build unix

package admin

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// socketDirectory returns the default directory of sockets, which only this user can write to. It
// creates the directory if it does not exist.
func socketDirectory(getenv func(string) string) (string, error) {
	dir := filepath.Join(os.TempDir(), "kubecdc-"+strconv.Itoa(os.Getuid()))
	if runtime := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) {
		// the specification says to ignore relative paths
		dir = filepath.Join(runtime, "kubecdc")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir) // in a shared directory, it may belong to another user
	if err != nil {
		return "", err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || info.Mode().Perm() != 0o700 ||
		s.Uid != uint32(os.Getuid()) { //nolint:gosec // a uid fits
		return "",
			fmt.Errorf("%s: must be a directory of user %d with mode 0700, and is %v: %w", dir, os.Getuid(),
				info.Mode(), fs.ErrPermission)
	}
	return dir, nil
}

// private sets mode 0600 on a socket before it is bound. If the system ignores this, the mode is
// set after it is bound.
func private(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
}
