package checkpoint

import (
	"errors"
	"fmt"
	"os"
)

// MakeDirectory creates the directory of a checkpoint for the user alone. It also gives the user
// the files in it, which an agent under another user may have left. It follows no link, because a
// writer of dir must not gain files elsewhere.
func MakeDirectory(dir string, uid, gid int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // no file was written
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := root.Lchown(e.Name(), uid, gid); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(d.Chown(uid, gid), d.Chmod(0o700)); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
