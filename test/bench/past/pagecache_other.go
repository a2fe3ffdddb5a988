//go:build !linux

package past

import "errors"

// DropPages returns an error: only Linux can remove files from the page cache.
func DropPages(string) error { return errors.ErrUnsupported }
