package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// Replace writes data to temp, a new file in the directory of path, makes it durable, closes it and
// renames it to path. Before the rename it calls commit, unless that is nil: an error keeps the old
// content. After an error temp does not exist.
func Replace(path string, temp *os.File, data []byte, commit func() error) (err error) {
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if commit != nil {
		if err := commit(); err != nil {
			return err
		}
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return SyncDirectory(filepath.Dir(path))
}

// SyncDirectory makes the names in a directory durable. On Windows it does nothing: directories
// cannot be synced there.
func SyncDirectory(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
