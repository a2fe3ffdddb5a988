//go:build unix

package localbus

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// checkOwner returns an error if another user could replace the directory, or files in it. Then
// that user could have the agent write elsewhere, or lead its readers to a forged record.
//
// Each part of the path must belong to this user or to root, symbolic links included. Nobody else
// may write to it, except in directories above that have the sticky bit, such as /tmp. Root is the
// owner of "/": a user namespace shows it under another uid. A group that may write is trusted: in
// a Pod, fsGroup makes volumes writable for the group.
func checkOwner(dir string) error {
	root, err := os.Stat("/")
	if err != nil {
		return err
	}
	trusted := []uint32{uint32(os.Geteuid()), 0, uid(root)} //nolint:gosec // a uid fits
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for _, leaf := range []string{resolved, dir} {
		if err := checkParts(leaf, trusted); err != nil {
			return err
		}
	}
	return nil
}

// checkParts checks a directory, and those above it.
func checkParts(leaf string, trusted []uint32) error {
	for part := leaf; ; part = filepath.Dir(part) {
		info, err := os.Lstat(part)
		if err != nil {
			return err
		}
		shared := info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o002 != 0
		sticky := part != leaf && info.Mode()&fs.ModeSticky != 0
		switch {
		case !slices.Contains(trusted, uid(info)):
			return fmt.Errorf("%s belongs to user %d, who could replace the records: %w", part, uid(info),
				fs.ErrPermission)
		case shared && !sticky:
			return fmt.Errorf("every user may write to %s, and could replace the records: %w", part, fs.ErrPermission)
		case part == filepath.Dir(part):
			return nil
		}
	}
}

// uid returns the owner of a file.
func uid(info fs.FileInfo) uint32 {
	return info.Sys().(*syscall.Stat_t).Uid //nolint:forcetypeassert // of a file of this system
}
