// Package consume reads the events of kubecdc from JetStream, Kafka and files. It has typed events, and the rules that a correct consumer
// follows.
//
// # Reading
//
// A Source is a bus or a file: a JetStream, a Kafka, a File. A Query says which objects and events to read, where to begin, and whether to stop at the
// end. A Reader returns the events, each log in its order, across lost connections and restarts of servers:
//
//	bus := &consume.JetStream{URL: "nats://127.0.0.1:4222"}
//	r, err := bus.Read(ctx, consume.Query{Start: consume.Beginning()})
//	if err != nil {
//		return err
//	}
//	defer r.Close()
//	for {
//		e, err := r.Next(ctx)
//		if err != nil {
//			return err
//		}
//		…
//	}
//
// Event.Position is the place after an event, Reader.Positions are those of all logs. After continues there, also in another process. Positions know
// which log they belong to: if a stream or topic was created again, the reader returns a *MissedError once and reads it from its beginning.
//
// Run is for services on JetStream: the server remembers how far they are, and what the handler does not accept comes again.
// NewLines reads JSON lines, Parse and FromMessage read one record. FromCloudEvent takes what a program built on the CloudEvents SDK has received, so
// that any receiver of the SDK can feed a Tracker.
//
// # Events
//
// An event tells of an object (Event.Data is set) or of the stream (Event.Stream is). Before and After are the object's
// JSON as the API server wrote it; null means that it does not exist, nil that it is not known:
//
//	op       Before      After     it
//	Created  null        object    was created
//	Updated  object      object    was changed; Patch says where, ChangedBy by whom
//	Deleted  last state  null      was deleted
//	Read     nil         object    was there when a snapshot was taken
//	Entered  maybe nil   object    began to match the selectors of a rule
//	Left     last state  nil       ceased to match them, and lives on
//
// An agent may send before and patch or not, as it is configured. What an event that is too large for the bus leaves out
// Data.Truncated names; where Event.DataRef is set, Whole fetches all of it. An event that the bus does not take at all is in
// its place a gap of ReasonDeadLetter; the event itself is among the dead letters, in NATS on another subject of the same
// stream: pass over what has a DeadLetterReason, Tracker does.
//
// Types of events, attributes and members that a later agent adds are no error: an event of an unknown type has neither Data
// nor Stream.
//
// # Rules
//
// Every change is on the bus at least once, and in order per object. So three things are left to the consumer, and Tracker
// does them:
//
//	var t consume.Tracker
//	…
//	v := t.Apply(e)
//	for _, o := range v.Gone {
//		// o is gone, although no event says so: a snapshot has shown it
//	}
//	if !v.News {
//		continue // a copy, or late
//	}
//
// Per object, what is not above the highest Sequence seen is a copy or late, and is ignored: that is why a copy never does
// harm. When etcd is restored, sequences begin again below: then Event.History is higher, and goes before Sequence. Where the
// agent could not see a deletion (history was lost), the next snapshot shows that the object is gone: what of the
// snapshot's scope was neither read nor changed between TypeSnapshotStarted and TypeSnapshotCompleted does not exist.
//
// An agent that lives says so each minute, in an event of TypeProgress. Tracker.Progress tells when it did last, and up to
// which resourceVersion the stream is complete.
//
// To survive a restart, save Reader.Positions and the Tracker (both are JSON) together with what you have made of the
// events, and continue with After. Or save nothing, and begin with an empty Tracker at Beginning: the stream holds a
// snapshot as long as the agent takes them more often than the stream's maxAge.
//
// # Errors
//
// A *RecordError reports a record that cannot be read, a *MissedError that records were removed before they were read, or that the log was
// created again. A consumer that keeps state then starts over. After both, the next call continues. A stream that does not exist is ErrNoStream, a
// record that is no event of kubecdc ErrNotKubecdc. While a server is away, Next waits: Query.OnRetry and Query.OnResume say so.
//
// # Goroutines
//
// A Reader and a Tracker belong to one goroutine each. Run calls its handler from the one that called it. A reader fetches
// some megabytes ahead, and no more. The package logs nothing.
package consume
