package informers

// A log of the bus (a stream, a topic) may be replaced by another one, or lose records that it had acknowledged. What it had is
// lost for consumers, and neither history nor the last-known objects are: so a scope goes on from where it is. It is told anew on the
// new log: by a gap from the beginning up to the last change that may have gone to the old log, followed by a snapshot, whose sweep
// also removes what was deleted meanwhile.
//
// Each replacement has a number. A scope owes the gap while the number of its log is higher than the one it has announced. The
// checkpoint gets the number once the snapshot has begun, with the position that has the snapshot: a crash before repeats the gap.

// Rebase has each scope whose log was replaced told anew. It does not wait.
func (s *Manager) Rebase() {
	for _, i := range s.observing() {
		i.Rebase()
	}
}
