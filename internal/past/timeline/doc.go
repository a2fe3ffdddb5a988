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
// A Fold takes the events of a record in the order in which they are read. It returns their
// versions, up to its moment. In each log, a consume.Tracker decides about copies, late events and
// sweeps of objects. A Fold adds what follows from several logs and from progress. It keeps the
// identity of each object, and no JSON, so it serves three kinds of callers. A State keeps the last
// version of each object. A history or a replay passes versions on. A view keeps objects in its own
// form.
//
//	at, err := timeline.ParseMoment("yesterday 14:05", time.Now())
//	…
//	s := timeline.NewState(at, timeline.Options{})
//	for !s.Done() {
//		e, err := r.Next(ctx) // it begins before the last snapshot that was completed at the moment
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
//   - replay between two moments: a State at the first one, as a snapshot. Then the versions, or
//     the events, of a Fold up to the second one, without those that the first one includes
//     (Moment.Includes).
//   - a view that lists at a moment and watches from there: the same. A view sorts versions before
//     it shows them. Fold.Complete says up to which resourceVersion it has all of them.
//
// A caller may leave out the events of objects that it does not ask for. It must not leave out
// stream events of their resource.
//
// # Certainty
//
// State.Scopes and Fold.Scopes say for each scope how certain the state is at the moment, and what
// lowers the certainty: see package certainty.
//
// The progress of agents decides. A progress claims that the log has everything up to a time. What
// is exact depends on the kind of the moment:
//
//   - By time, exact needs a claim of the moment, and no interruption around it. An interruption
//     counts even if no progress reports it: progress is missing, or no agent was running. The time
//     of a change is that at which the agent observed it.
//   - By resourceVersion, exact needs a record that is complete up to it. It says something only
//     about scopes of the same etcd.
//
// If several agents observe a scope, the best of them decides. A scope that has ended is exact from
// its end on. An answer about a moment is final after MaxLag, if the agent runs.
//
// A Fold has a logFold for each log, a logFold has a scope for each scope, and a scope has an
// observation for each writer. Add notes facts in them (note…), and Scopes judges the facts
// (judge…). The words of the facts:
//
//   - gap: a span of history that an agent could not read.
//   - interruption: a span in which a writer did not observe a scope.
//   - hidden span: a span in which filters withheld the last version of an object. "Withheld" is
//     what filters do to a version, "hidden" is the span.
//   - unreported: progress that should have reported a span is missing.
//   - claim: the position up to which a progress says that the log has everything.
//   - absence: an interruption or a hidden span of one writer, for late spans (Fold.Late).
//
// A Scope also counts the versions that filters withheld, the objects that are redacted, and those
// that left the selection.
//
// # Invariants
//
//   - The package knows no bus and no HTTP. It reads no clock, starts no goroutine, logs nothing
//     and does no I/O.
//   - A State has the last version of each object, in the order of the record, of those that the
//     moment includes. It does not have objects that a sweep shows to be gone by then. Reading on
//     after Done does not change it, with one exception: a later snapshot may show a version that
//     was withheld or is among the dead letters.
//   - Events of several logs (partitions of a Kafka topic) may come interleaved: each log has its
//     own Tracker.
//   - A State holds one copy of each object's JSON, which States share, and about 1 KB more for
//     each object.
//
// None of the types is safe for concurrent use.
package timeline
