// Package replay sends the record between two moments again, to another bus, a file or a stream of
// bytes.
//
//	record ──Prepare──▶ state at From ──▶ snapshot ─┐
//	   └────────────Run─────────────────▶ events ───┴─▶ relay ──▶ target
//
// The snapshot comes first: for each scope that was observed at From its snapshot.started, a read
// of each object, and snapshot.completed. Then come the events after From and up to To, with their
// ids, times and contents, by a relay: at least once, and in order per object.
//
// # The snapshot
//
// Its ids follow from the moment and the selection, so a second run sends the same ones. Its
// resourceVersion is that of the last snapshot that the record had completed at From. A higher one
// would have consumers drop events that were published late, after From. If a snapshot was under
// way at From, the new one has no resourceVersion: that snapshot may read objects that are older
// than the previous one.
//
// # What is not sent as it is
//
//   - A copy, in the span, of an event from before From whose object no longer existed at From. A
//     consumer without history would take it for news.
//   - A snapshot that was under way at From sweeps nothing at a consumer, which has not seen its
//     start. The objects that it sweeps in the record are deleted by events of their own: inferred,
//     with the ids of deletions.
//   - snapshot.completed, if events of its resource precede it in the record that are later than
//     To. A consumer would sweep their objects. Deletions take its place, too.
//   - The end of a scope, if not all its objects are sent: it would say that those that are sent
//     were all.
//
// A scope that is inside a gap at From has no snapshot.completed. Its objects may be wrong, so a
// reader knows it from its next snapshot on.
//
// # Partitions
//
// Events about the stream are in each partition of a topic, and partitions are read at different
// speeds. The start of a snapshot and a gap are sent at their first copy, completed and progress at
// the last one. The objects that a snapshot sweeps are deleted by events.
//
// # Resuming
//
// With a position file, a replay that was killed continues: it reads the record from the same place
// once more, and sends what follows the position. The file holds the moments, so that "2h" is not
// another moment at the second start.
//
// # Goroutines
//
// Run: those of a relay, one that gives up if the target takes nothing at the start, and one that
// shows the progress. All have ended when it returns.
package replay
