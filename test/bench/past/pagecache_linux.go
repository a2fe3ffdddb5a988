package past

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DropPages writes the files of a directory to the disk, and removes them from the page cache. No
// process may have mapped them.
func DropPages(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		fd := int(f.Fd()) //nolint:gosec // a small number
		return errors.Join(unix.Fdatasync(fd), unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED), f.Close())
	})
}
