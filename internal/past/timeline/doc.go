// Package timeline answers questions about the past from a record: which objects existed at a
// moment, which versions an object had, and what differs between two moments. It finds who set each
// line of an object. Each answer says how certain it is.
//
//	events ──Fold──▶ versions ──State──▶ objects of a moment ──Diff──▶ differences
//	                     │
//	                     └──Blame──▶ lines, each with the version that set it
//
// A Moment is a time, a resourceVersion, or now; ParseMoment reads the forms that people type.
//
// A Fold takes the events of a record in the order in which they are read. It returns the versions
// that they bring, as far as its moment includes them. In each log, a consume.Tracker decides about
// copies, late events and sweeps of objects; a Fold adds what several logs and progress need. It
// keeps the identity of each object, and no JSON, so it serves three kinds of callers. A State
// keeps the last version of each object. A history or a replay passes versions on. A view keeps
// objects in its own form.
//
//	at, err := timeline.ParseMoment("yesterday 14:05", time.Now())
//	…
//	s := timeline.NewState(at, timeline.Options{})
//	for !s.Done() {
//		e, err := r.Next(ctx) // from before the last snapshot that was completed at the moment
//		if errors.Is(err, io.EOF) {
//			break
//		}
//		…
//		s.Add(e)
//	}
//	for _, o := range s.Objects() { … }
//	for _, scope := range s.Scopes() { … } // what is not certain
//
// What each command uses:
//
//   - get: a State.
//   - history: a Fold up to now, or to the end of the span. The caller picks the versions of one
//     name. Objects that had the name one after the other differ in their UID.
//   - diff: two States, filled by one pass (States.Add), and Diff.
//   - blame: Blame.Add for each version of a history, then Blame.Lines.
//   - replay between two moments: a State at the first one, as a snapshot. Then the versions of a
//     Fold up to the second one that the first one does not include (Moment.Includes), or the
//     events themselves.
//   - a view that lists at a moment and watches from there: the same. Fold.Complete says up to
//     which resourceVersion all versions of a resource have been returned, so that a view can sort
//     them before it shows them.
//
// A caller may leave out the events of objects that it does not ask for. It must not leave out
// stream events of their resource.
//
// # Certainty
//
// State.Scopes and Fold.Scopes say for each scope how certain the state is at the moment, and what
// lowers it: see package certainty.
//
// The progress of agents decides. A progress claims that the log has everything up to a time. By
// time, exact needs a claim of the moment, and no interruption around it. An interruption counts
// also if no progress reports it: progress is missing, or no agent was running. Times are those at
// which the agent observed a change. By resourceVersion, exact needs that the record is complete up
// to it; only scopes of the same etcd can be asked. If several agents observe a scope, the best of
// them decides. A scope that has ended is exact from its end on.
//
// A progress speaks of all scopes of a resource that its run has started. A Fold finds them by
// their scope.started. Inside, a Fold has a logFold for each log, which has scopes, which have an
// observation for each writer. Add notes facts (note…, observe), and Scopes judges them (judge…). A
// moment is final after MaxLag, if the agent runs.
//
// A Scope also counts the versions that filters withheld, the objects that are redacted, and those
// that left the selection.
//
// # Invariants
//
//   - The package knows no bus and no HTTP. It reads no clock, starts no goroutine, logs nothing
//     and does no I/O.
//   - A State is the last version of each object, of those that the moment includes, in the order
//     of the record; less what a sweep shows to be gone by then. Reading on after Done does not
//     change it, except that a later snapshot may show a version that was withheld or is among the
//     dead letters.
//   - Events of several logs (partitions of a Kafka topic) may come interleaved: each log has its
//     own Tracker.
//   - A State holds one copy of each object's JSON, which States share, and about 1 KB more for
//     each object.
//
// None of the types is safe for concurrent use.
package timeline
