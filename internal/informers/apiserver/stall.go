package apiserver

import "time"

// The API server may be unable to send a version, for example because it cannot decode an object in
// etcd's history. Each HTTP watch from before that version then ends with the same error. Only a
// list leads past it.

const (
	// SoundAfter is how long an open HTTP watch must last until it counts as sound without a frame.
	SoundAfter = time.Minute
	// stallEnds is how many HTTP watches must end at one version, and stallFor the least time from
	// the first of these ends to the last.
	stallEnds = 3
	stallFor  = time.Minute
)

// IsBroken reports whether an HTTP watch, opened for lasted, ended with an error that the next one
// may meet again. It is not an error of the network, or of a server that is busy or restarts.
func IsBroken(lasted time.Duration, err error) bool {
	return err != nil && lasted < SoundAfter && !IsTemporary(err)
}

// Stall counts HTTP watches that end broken at one version. The zero value is ready for use.
type Stall struct {
	rv    uint64
	ends  int
	since time.Time
}

// Add counts an open HTTP watch at rv that has ended broken. It reports whether the next one is
// likely to end in the same way.
func (s *Stall) Add(rv uint64) bool {
	if s.ends == 0 || s.rv != rv {
		*s = Stall{rv: rv, since: time.Now()}
	}
	s.ends++
	return s.ends >= stallEnds && time.Since(s.since) >= stallFor
}
