package object

import (
	"slices"
	"sync/atomic"
	"time"
)

// Uses records which redacted paths have matched a value. Safe for concurrent use; nil records
// nothing.
type Uses struct {
	paths []*pathUse
	read  *atomic.Bool // an object has been read
}

// pathUse is the record of one path since a time.
type pathUse struct {
	path    string
	since   time.Time
	matched atomic.Bool
}

// UnmatchedPath is a redacted path that has matched no value since a time.
type UnmatchedPath struct {
	Path  string
	Since time.Time
}

// NewUses returns a record of the uses of paths that begins now.
func NewUses(paths []string, now time.Time) *Uses {
	u := &Uses{read: &atomic.Bool{}}
	for _, path := range paths {
		if u.find(path) == nil {
			u.paths = append(u.paths, &pathUse{path: path, since: now})
		}
	}
	return u
}

// Continue continues the records that was has of the same paths: cutters that record for was then
// record for u too. No Cutter may record for u yet.
func (u *Uses) Continue(was *Uses) {
	for i, p := range u.paths {
		if before := was.find(p.path); before != nil {
			u.paths[i], u.read = before, was.read
		}
	}
}

// Unmatched returns the paths that have matched no value for a time, although objects have been
// read.
func (u *Uses) Unmatched(now time.Time, after time.Duration) (paths []UnmatchedPath) {
	if u == nil || !u.read.Load() {
		return nil
	}
	for _, p := range u.paths {
		if !p.matched.Load() && now.Sub(p.since) >= after {
			paths = append(paths, UnmatchedPath{p.path, p.since})
		}
	}
	return paths
}

func (u *Uses) find(path string) *pathUse {
	if u == nil {
		return nil
	}
	if i := slices.IndexFunc(u.paths, func(p *pathUse) bool { return p.path == path }); i >= 0 {
		return u.paths[i]
	}
	return nil
}

// of returns the mark of a path, nil if it is not recorded.
func (u *Uses) of(path string) *atomic.Bool {
	if p := u.find(path); p != nil {
		return &p.matched
	}
	return nil
}

// noteRead records that an object has been read.
func (u *Uses) noteRead() {
	if u != nil {
		set(u.read)
	}
}

// set sets a mark. It writes only the first time: many goroutines set it for each object.
func set(mark *atomic.Bool) {
	if !mark.Load() {
		mark.Store(true)
	}
}

// WithUses returns a Cutter that marks the uses of paths. c is unchanged, and may be nil.
func (c *Cutter) WithUses(uses *Uses) (*Cutter, error) {
	d := Cutter{}
	if c != nil {
		d = *c
	}
	d.uses = uses
	return &d, d.compile()
}
