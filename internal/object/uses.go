package object

import (
	"slices"
	"sync/atomic"
)

// Uses records which redacted paths have matched a value. Safe for concurrent use; nil records nothing.
type Uses struct {
	paths   []string
	matched []atomic.Bool // of the path with the same index
	read    atomic.Bool   // an object has been read
}

// NewUses returns a record of the uses of paths.
func NewUses(paths []string) *Uses {
	u := &Uses{matched: make([]atomic.Bool, len(paths))}
	for _, path := range paths {
		if !slices.Contains(u.paths, path) {
			u.paths = append(u.paths, path)
		}
	}
	return u
}

// Unmatched returns the paths that have matched no value, although objects have been read.
func (u *Uses) Unmatched() (paths []string) {
	if u == nil || !u.read.Load() {
		return nil
	}
	for i, path := range u.paths {
		if !u.matched[i].Load() {
			paths = append(paths, path)
		}
	}
	return paths
}

// of returns the mark of a path, nil if it is not recorded.
func (u *Uses) of(path string) *atomic.Bool {
	if u == nil {
		return nil
	}
	if i := slices.Index(u.paths, path); i >= 0 {
		return &u.matched[i]
	}
	return nil
}

// noteRead records that an object has been read.
func (u *Uses) noteRead() {
	if u != nil {
		set(&u.read)
	}
}

// set sets a mark. It writes only the first time: many goroutines set it for each object.
func set(mark *atomic.Bool) {
	if !mark.Load() {
		mark.Store(true)
	}
}

// Record returns a Cutter that records the uses of paths. c is unchanged, and may be nil.
func (c *Cutter) Record(uses *Uses) (*Cutter, error) {
	d := Cutter{}
	if c != nil {
		d = *c
	}
	d.uses = uses
	return &d, d.compile()
}
