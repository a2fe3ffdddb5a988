package consume

import (
	"context"
	"time"
)

// Source is a bus, or a file, that holds events.
//
// Read begins to read. ctx bounds how long that takes, not the reading. A Source starts nothing before Read, and may be
// read several times, also at the same time.
type Source interface {
	Read(ctx context.Context, q Query) (Reader, error)
}

// Reader returns the events that a Query asks for: each log in its order, across lost connections and restarts of servers.
// It belongs to one goroutine.
//
// Next waits for the next event. Its error is io.EOF after the last event if Query.StopAtEnd is set, the cause of ctx if ctx
// has ended, a *RecordError if a record cannot be read, and a *MissedError if records are gone or a log was created again: the
// next call continues after them. Any other error is final, or nearly: see the Source.
//
// Positions returns where reading continues, of each log; After continues there. Records that are not asked for may be
// passed without an event.
//
// CaughtUp reports whether Next has returned all events that the logs held when the bus last told. It says so after an open,
// too. While the bus is away, it may be out of date.
//
// Whole returns the event as it was before it was shortened to fit on the bus, see the function Whole.
type Reader interface {
	Next(ctx context.Context) (*Event, error)
	Positions() []Position
	CaughtUp() bool
	Whole(ctx context.Context, e *Event) (*Event, error)
	Close() error
}

// Query says which events to read. The zero value asks for all events from now on.
//
// A Source leaves out what the bus can leave out, and no more. A caller that wants exactly the objects named here compares the
// events itself.
type Query struct {
	Objects   []Objects // objects that match any of them; nil: all
	Events    Events
	Start     Start
	StopAtEnd bool // Next returns io.EOF after the last record that was there when Read was called

	// OnRetry is called when reading is interrupted, and again when an attempt to continue fails; OnResume when it continues.
	// Next calls them. Either may be nil.
	OnRetry  func(error)
	OnResume func()
}

// Objects matches the objects that agree with each field that is set. The stream events of their resources belong to them.
type Objects struct {
	Groups    []string // API groups, "" is the core group; nil: every group
	Resource  string   // plural, "pods"; "": every resource
	Namespace string   // "": every namespace, and objects without one; NoNamespace: only these
	Name      string   // "": every name
}

// NoNamespace stands for the namespace of objects that have none: Nodes, Namespaces.
const NoNamespace = "_"

// Events are kinds of events.
type Events int

// The kinds of events.
const (
	AllEvents    Events = iota
	ObjectEvents        // without events about the stream
	StreamEvents        // only events about the stream: snapshots, gaps, progress
)

// Log is one ordered sequence of records: a stream of JetStream, a partition of a Kafka topic, a file.
type Log struct {
	Name      string `json:"name"` // of the stream, of the topic
	Partition int    `json:"partition,omitempty"`
	// ID differs between a log and another one of the same name that was created later: the time at which the stream was
	// created, the ids of the Kafka cluster and of the topic. "": not known.
	ID string `json:"id,omitempty"`
}

// Position is a place in a log. All records below Next have been read, or were not asked for.
type Position struct {
	Log
	Next uint64 `json:"next"` // a sequence of the stream, an offset of the partition, a line of the file
}

// Start says where reading begins. The zero value is Live.
type Start struct {
	kind  startKind
	at    time.Time
	after []Position
}

type startKind int

const (
	startLive startKind = iota
	startBeginning
	startSince
	startAfter
)

// Live begins with the first record that is published after Read was called.
func Live() Start { return Start{} }

// Beginning begins with the oldest records.
func Beginning() Start { return Start{kind: startBeginning} }

// Since begins with the first record of each log that was stored at t or later.
func Since(t time.Time) Start { return Start{kind: startSince, at: t} }

// After continues at positions. A log without a position is read from its beginning; so is, after a *MissedError, a log that was
// created again.
func After(positions ...Position) Start { return Start{kind: startAfter, after: positions} }
