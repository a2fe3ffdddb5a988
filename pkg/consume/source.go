package consume

import (
	"context"
	"time"
)

// Source is a bus, or a file, that stores events.
//
// Read opens a Reader. ctx limits the time that opening takes, not the reading. A Source starts
// nothing before Read. It may be read several times, also at the same time.
//
// Traits says what Read can do. It does not change.
type Source interface {
	Read(ctx context.Context, q Query) (Reader, error)
	Traits() Traits
}

// Traits says what a Source can do. The zero value promises nothing: a caller must expect several
// logs, and events that the Query did not ask for.
type Traits struct {
	// Seeks: Read leaves out the events of other objects and kinds than a Query asks for.
	Seeks bool
	// OneLog: all events are in one log. Otherwise they are in several, each with a copy of every
	// event about the stream, and of progress.
	OneLog bool
	// Merges: Read returns the events of several logs in the order of their times, if Query.ByTime
	// asks for that.
	Merges bool
}

// Reader returns the events that a Query asks for: each log in its order, across lost connections
// and restarts of servers. It belongs to one goroutine.
//
// Next waits for the next event. It returns
//
//   - io.EOF after the last event if Query.StopAtEnd is set;
//   - the cause of ctx if ctx has ended;
//   - a *RecordError if a record cannot be read, and the next call continues after it;
//   - a *MissedError if records were removed or a log was created again, and the next call
//     continues after them;
//   - any other error if it is final: each Source documents the exceptions.
//
// Positions returns the position in each log at which After continues. It may be after records that
// the Query does not ask for.
//
// CaughtUp reports whether Next has returned all events that the logs had when the bus last
// reported their ends, which it also does at the start. While the bus is away, the result may be
// out of date.
//
// Whole returns the event as it was before it was shortened to fit on the bus: see the function
// Whole.
type Reader interface {
	Next(ctx context.Context) (*Event, error)
	Positions() []Position
	CaughtUp() bool
	Whole(ctx context.Context, e *Event) (*Event, error)
	Close() error
}

// Leaver is a Reader of several logs that can stop to read one of them.
//
// Leave ends the reading of a log: Next returns no more of its events. With Query.StopAtEnd, the
// log counts as read. It belongs to the goroutine of Next.
type Leaver interface {
	Leave(log Log)
}

// Query selects the events to read. The zero value selects all events from now on.
//
// A Source may return more events: it leaves out only those that the bus can leave out. A caller
// that wants exactly these objects compares the events itself.
type Query struct {
	Objects   []Objects // objects that match any of these; nil: all
	Events    Events
	Start     Start
	StopAtEnd bool // Next returns io.EOF after the last record that existed when Read was called

	// Cluster is the name of the only cluster whose objects are asked for; "": any. A Kafka then
	// reads one partition for a named object.
	Cluster string

	// LastOfEach asks for the last record of each subject alone. A JetStream with Subjects leaves
	// out the others, unless it is interrupted. Other sources return all records. Start must be
	// Beginning.
	LastOfEach bool

	// ProgressSince is a time before which no stored progress is needed; zero: all is. A JetStream
	// with Subjects leaves that out. Other sources return it.
	ProgressSince time.Time

	// OneCopy asks for one copy of each event about the stream, and of progress. A Kafka then reads
	// one partition of each topic. Other sources have one copy.
	OneCopy bool

	// ByTime asks for the events of all logs in the order of their times, as far as each log is in
	// that order. It needs StopAtEnd. A Kafka then returns an event when each partition has a
	// record in hand or has ended. Other sources have one log. See Traits.Merges.
	ByTime bool

	// OnRetry is called when reading is interrupted, and again when an attempt to continue fails;
	// OnResume when it continues. Next calls them. Either may be nil.
	OnRetry  func(error)
	OnResume func()
}

// Objects matches the objects that agree with each field that is set, the stream events of their
// resources, and the progress of all agents.
type Objects struct {
	Groups    []string // API groups, "" is the core group; nil: every group
	Resource  string   // plural, "pods"; "": every resource
	Namespace string   // "": every namespace, and objects without one; NoNamespace: only these
	Name      string   // "": every name
	// Scope matches the events about one scope, beside those of snapshots; "": every scope. It
	// matters to events of the kind ScopeEvents alone.
	Scope string
}

// NoNamespace matches cluster-scoped objects, such as Nodes and Namespaces.
const NoNamespace = "_"

// Events are kinds of events.
type Events int

// The kinds of events.
const (
	AllEvents      Events = iota
	ObjectEvents          // without events about the stream, and without progress
	StreamEvents          // only events about the stream: snapshots, gaps, scopes; and progress
	ProgressEvents        // only progress
	ScopeEvents           // only starts and ends of scopes, and gaps; and progress
)

// Log is one ordered sequence of records: a stream of JetStream, a partition of a Kafka topic, a
// file.
type Log struct {
	Name      string `json:"name"` // of the stream, of the topic
	Partition int    `json:"partition,omitempty"`
	// ID distinguishes logs of one name that were created one after another. It has the creation
	// time of a stream, or the ids of the Kafka cluster and the topic. "": unknown.
	ID string `json:"id,omitempty"`
}

// Position is a position in a log. All records before Next have been read, or were not asked for.
type Position struct {
	Log
	Next uint64 `json:"next"` // a sequence of the stream, an offset of the partition, a line of the file
}

// Start is where reading begins. The zero value is Live.
type Start struct {
	kind  StartKind
	at    time.Time
	after []Position
}

// StartKind says which function has returned a Start.
type StartKind int

// The kinds of starts.
const (
	StartLive      StartKind = iota // Live
	StartBeginning                  // Beginning
	StartSince                      // Since; Start.Time has the time
	StartAfter                      // After; Start.Positions has the positions
)

// Live begins with the first record that is published after Read was called.
func Live() Start { return Start{} }

// Beginning begins with the oldest records.
func Beginning() Start { return Start{kind: StartBeginning} }

// Since begins with the first record of each log that was stored at t or later.
func Since(t time.Time) Start { return Start{kind: StartSince, at: t} }

// After continues at positions. A log without a position is read from its beginning. So is a log
// that was created again, after a *MissedError.
func After(positions ...Position) Start { return Start{kind: StartAfter, after: positions} }

// Kind returns the kind of the Start.
func (s Start) Kind() StartKind { return s.kind }

// Time returns the t of a Start that Since returned; zero: it is another one.
func (s Start) Time() time.Time {
	if s.kind == StartSince {
		return s.at
	}
	return time.Time{}
}

// Positions returns the positions of a Start that After returned; nil: it is another one.
func (s Start) Positions() []Position { return s.after }
