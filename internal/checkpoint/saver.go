package checkpoint

import "time"

// saver is what saving takes.
type saver struct {
	durable  map[string]Position // what is kept, nil: unknown, as the outcome of the last attempt is
	logs     []Log               // that are kept with durable
	base     version             // of what is kept, as far as is known
	attempts uint64              // to save
	last     time.Time           // when something was saved, or seen to need none
	accepted bool                // something was saved: what refuses now did accept before
	failing  time.Time           // since when attempts fail, zero: they do not
	warned   time.Time           // when that was logged
	written  time.Time           // when the last write ended
	took     time.Duration       // the last write
}

// rest is how long to wait before the next write that somebody waits for, so that writing takes a fifth of the time at most. Each
// write is of all scopes: a thousand that begin at once, and have it done one after the other, would write little else. Who comes
// meanwhile waits for the same write.
func (s *saver) rest() time.Duration {
	const (
		times = 4 // as long as the last write took
		most  = time.Second
	)
	return max(0, time.Until(s.written.Add(min(times*s.took, most))))
}
