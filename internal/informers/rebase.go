package informers

// A log of the bus (a stream, a topic) may be replaced by another one, or lose records that it had acknowledged. Consumers lose these
// records. History and the last-known objects are not lost, so a scope continues at its position. It sends on the new log a gap from the
// beginning up to the last change that may be on the old log. A snapshot follows, whose sweep also removes objects that were deleted
// meanwhile.
//
// Each replacement has a number. A gap is pending while the number of a scope's log is higher than the one that the scope has announced. The
// checkpoint gets the number once the snapshot has begun, with the position that has the snapshot: a crash before repeats the gap.

// Rebase makes each scope whose log was replaced send a gap and a snapshot on the new one. It does not wait.
func (s *Manager) Rebase() {
	for _, i := range s.observing() {
		i.Rebase()
	}
}
