// Package consume has the events of kubecdc, and the rules that a correct consumer follows. It
// imports no client of a bus: packages beside it read the events from JetStream (fromnats), Kafka
// (fromkafka) and files (fromfile), and convert them for the CloudEvents SDK (cloudevents).
//
// # Reading
//
// A Source is a bus or a file: a fromnats.JetStream, a fromkafka.Kafka, a fromfile.File. A Query
// says which objects and events to read, where to begin, and whether to stop at the end. A Reader
// returns the events, each log in its order, across lost connections and restarts of servers:
//
//	bus := &fromnats.JetStream{URL: "nats://127.0.0.1:4222"}
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
// Event.Position is the position after an event, and Reader.Positions returns those of all logs.
// After continues there, also in another process. A position has the identity of its log: if a
// stream or topic was created again, the reader returns a *MissedError once and reads the log from
// its beginning.
//
// On Kafka, the members of a consumer group share the partitions, and the brokers store the group's
// positions: see fromkafka.Kafka and its Group. The program examples/go/kafka shows it, and the
// project's tests run it with a broker.
//
// fromnats.Run is for services on JetStream: the server stores their position, and delivers events
// again that the handler did not accept. fromfile.NewLines reads JSON lines. Parse and FromMessage
// read one record. cloudevents.From converts an event of the CloudEvents SDK, so that a receiver
// built on the SDK can feed a Tracker.
//
// # Events
//
// An event is about an object (Event.Data is set), about the stream of a scope (Event.Stream is
// set), or the progress of an agent (Event.Progress is set). Before and After are the object's JSON
// as the API server wrote it. null means that the object does not exist, nil that the state is
// unknown:
//
//	op       Before      After     it
//	Created  null        object    was created
//	Updated  object      object    was changed; Patch has the changes, ChangedBy who made them
//	Deleted  last state  null      was deleted
//	Read     nil         object    existed when a snapshot was taken
//	Entered  maybe nil   object    began to match the selectors of a rule
//	Left     last state  nil       no longer matches them, and still exists
//
// The agent's configuration decides whether events have before and patch. If an event is too large
// for the bus, it is shortened: Data.Truncated names the missing members, and Reader.Whole fetches
// the complete event if Event.DataRef is set. If the bus rejects an event, a gap of
// ReasonDeadLetter replaces it, and the event is stored as a dead letter, with NATS on another
// subject of the same stream. Skip events that have a DeadLetterReason, as Tracker does.
//
// Unknown types of events, attributes and members are not errors: later agents may add them. An
// event of an unknown type has none of Data, Stream and Progress. Neither has the progress of a
// former release (Event.IsFormerProgress), which may be skipped.
//
// # Rules
//
// Every change is on the bus at least once, and in order per object. The consumer has three things
// to do, and Tracker does them:
//
//		var t consume.Tracker
//		…
//		v := t.Apply(e)
//		for _, o := range v.Gone {
//			// delete o: a snapshot shows that it no longer exists
//		}
//		if !v.News {
//			continue // a duplicate, or late
//		}
//
//	  - Duplicates and late copies: ignore an event of an object whose Sequence is not above the highest one seen.
//	  - Restores of etcd: sequences start over at a lower number, and Event.History is higher. Compare History before Sequence.
//	  - Deletions that the agent could not see, because history was lost: when TypeSnapshotCompleted arrives, delete every object of its scope that
//	    was neither read nor changed since TypeSnapshotStarted. A change that is not above the version of the snapshot came late, and does not count.
//
// A running agent sends an event of TypeProgress each minute, for all of its scopes.
// Tracker.Reached returns what these events say about one scope: when its agent last worked, and
// the time and the resourceVersion up to which the stream is complete. The rules for Progress
// itself are in the reference of the events, docs/reference/events.md.
//
// To resume after a restart, save Reader.Positions and the Tracker (both are JSON) together with
// the effect of the events, and continue with After. Or save nothing, and begin with an empty
// Tracker at Beginning: the stream has a snapshot as long as the agent takes them more often than
// the stream's maxAge.
//
// # Errors
//
// A *RecordError reports a record that cannot be read. A *MissedError reports that records were
// removed before they were read, or that the log was created again: a consumer that keeps state
// then starts over. After both, the next call continues. ErrNoStream reports a stream that does not
// exist, ErrNotKubecdc a record that is not an event of kubecdc. While a server is away, Next waits
// and calls Query.OnRetry and Query.OnResume.
//
// # Goroutines
//
// A Reader and a Tracker belong to one goroutine each. The package starts none, and logs nothing.
// The packages of the sources say what theirs do.
package consume
