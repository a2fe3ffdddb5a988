package admin

import (
	"os"
	"path/filepath"
	"syscall"
)

// socketDirectory returns the default directory of sockets, below the user's own directory for
// temporary files.
func socketDirectory(func(string) string) (string, error) {
	dir := filepath.Join(os.TempDir(), "kubecdc")
	return dir, os.MkdirAll(dir, 0o700)
}

// private does nothing: the directory controls access.
func private(_, _ string, _ syscall.RawConn) error { return nil }
