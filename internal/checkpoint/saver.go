package checkpoint

import "time"

// saver is the state of saving.
type saver struct {
	durable  map[string]Position // the stored positions; nil if unknown, because the outcome of the last attempt is
	logs     []Log               // stored with durable
	saves    uint64              // that have set durable, and one for the loaded positions
	base     version             // the last known version of the stored document
	attempts uint64
	last     time.Time     // of the last save, or the last check that found nothing to save
	accepted bool          // the store has accepted a save in this run
	failing  time.Time     // of the first failed attempt; zero while attempts succeed
	warned   time.Time     // when the failure was last logged
	written  time.Time     // the end of the last write
	took     time.Duration // the duration of the last write
}

// rest returns the delay before the next write that a caller waits for, so that writes take at most
// a fifth of the time. Each write contains all scopes: a thousand that start at once would
// otherwise cause a thousand writes in a row. Callers that arrive during the delay share the write.
func (s *saver) rest() time.Duration {
	const (
		times = 4 // as long as the last write took
		most  = time.Second
	)
	return max(0, time.Until(s.written.Add(min(times*s.took, most))))
}
