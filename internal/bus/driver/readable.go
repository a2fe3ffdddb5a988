package driver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Readable is the Config of a bus that keeps records.
//
// SetAccess overrides settings with command-line flags. Its error names a flag that does not apply
// to the bus, or a wrong value.
type Readable interface {
	Config
	SetAccess(a *Access) error
}

// Reader is the Opener of a Readable.
//
// Source returns the bus as a source of package consume. explain adds advice to an error of its
// Read.
//
// Logs returns the existing logs of the bus; none if the bus does not answer: another call reports
// that error.
//
// Subscribe returns the subscription of a relay to the bus. It connects to nothing.
type Reader interface {
	Source(r *Reading) (source consume.Source, explain func(error) error, err error)
	Logs(ctx context.Context, r *Reading) ([]consume.Log, error)
	Subscribe(r *Relaying) (RelaySubscription, error)
}

// Confined is a consume.Source that has only some of the events of a bus.
//
// Reads reports whether it may have some of the events of objects, and whether it has all of them.
// For events of both kinds, some is that of the events of objects. cluster is the only one of the
// events; "": any. Read returns an error if it has none.
//
// Only says in words what it has. Both may be known only after the first Read: until then, it has
// all.
type Confined interface {
	consume.Source
	Reads(objects []consume.Objects, events consume.Events, cluster string) (some, all bool)
	Only() string
}

// Partitioned is the Opener of a bus with several logs. CopiesOf returns how many of the logs have
// a copy of an event about the stream.
type Partitioned interface {
	CopiesOf(logs []consume.Position, e *consume.Event) int
}

// Access is what a command line says about reading a bus. All of it is optional.
type Access struct {
	CAFile string            // file with certificates of authorities
	Flags  map[string]string // values of flags of the drivers that are given, by name
	// Token returns the token for the next connection, "" for none, unless other credentials are
	// given; nil: none is needed.
	Token func() string
}

// Flag is a flag of the commands that read a bus.
type Flag struct {
	Name string // "stream"
	Help string // with the name of its value in backquotes
	Log  bool   // its value is the name of a log
}

// Given returns the name of a flag that is given; "": none is.
func (a *Access) Given() string {
	if len(a.Flags) == 0 {
		return ""
	}
	return slices.Min(slices.Collect(maps.Keys(a.Flags)))
}

// Reading is the input of a reader beside the settings.
type Reading struct {
	Key        string // of the settings, for errors; "": not from a file
	ConfigFile string // "": there is none
	Cluster    string // "": any
	DeadLetter string // as in Env; "": the default
}

// WithClusterAdvice adds advice to the error of a template that needs the unknown name of the
// cluster.
func WithClusterAdvice(err error, cluster string) error {
	if err == nil || cluster != "" {
		return err
	}
	return fmt.Errorf(
		"%w: set cluster in the file, or --cluster (the agent's default is the uid of namespace kube-system)", err)
}

// Start is the start of a relay without a cursor.
type Start string

// The starts.
const (
	Live      Start = "live"      // at the first record after its first start
	Beginning Start = "beginning" // at the oldest record on the bus
)

// Relaying is the input of a relay beside the settings.
type Relaying struct {
	Name       string // of the relay
	Cluster    string // "": any
	DeadLetter string // as in Env; not relayed
	Start      Start  // "": Live
	Objects    []consume.Objects
	Events     consume.Events
	Log        *slog.Logger
}

// Record is a record from a Subscription.
type Record struct {
	consume.Log
	Position uint64 // the sequence in the stream, or the offset in the partition; it increases
	Topic    bool   // Position is an offset in a topic

	// Event is the content of the record; nil: Err is the reason why it cannot be read.
	Event *consume.Event
	Err   error

	Copies int  // number of partitions with a copy of a stream event: 1 on JetStream
	Sparse bool // there may be fewer copies: the cursor does not wait for the others
	// LeftOut is the number of records before this one that the bus filtered out. With NoRecord
	// these are all records up to Position, and there is nothing else.
	LeftOut  uint64
	NoRecord bool
	Number   uint64 // number of records that the relay has read
}

// Where returns the location of the record: "stream KUBECDC, record 48211".
func (r *Record) Where() string {
	if r.Topic {
		return fmt.Sprintf("topic %s, partition %d, offset %d", r.Name, r.Partition, r.Position)
	}
	return fmt.Sprintf("stream %s, record %d", r.Name, r.Position)
}

// Mark is the delivered part of a log: all records up to Position.
type Mark struct {
	consume.Log
	Position uint64
}

// Subscription is the records of a bus or a file, and the position of one reader of them: its
// cursor.
//
// Open connects and takes the cursor. It is called again after a TransientError; another error is
// final.
//
// Next returns the next record. Its error is a *consume.MissedError if records are gone, and the
// next call continues after them; io.EOF at the end; another one is final. An earlier record may
// come again, followed by its successors.
//
// Save stores the marks that have moved. Its error, with or without marks, wraps
// subscription.ErrElsewhere if another relay has taken the cursor. After any other error, the
// caller calls Save again. Behind returns the number of records after the marks.
//
// Next belongs to one goroutine, and after Open another one may call Save and Behind. Ready is safe
// for concurrent use. Close is the last call.
type Subscription interface {
	Open(ctx context.Context) error
	Next(ctx context.Context) (*Record, error)
	Save(ctx context.Context, marks []Mark) error
	Behind(ctx context.Context, marks []Mark) (uint64, error)
	Ready() error
	Close() error
}

// TransientError is an error of Open after which a retry may succeed: the bus is away, or has no
// stream or topic yet.
type TransientError struct{ error }

// Transient returns err as a TransientError.
func Transient(err error) error { return TransientError{err} }

// Unwrap returns the cause.
func (e TransientError) Unwrap() error { return e.error }

// RelaySubscription is a Subscription that can report its cursor. Status is used in place of Open.
type RelaySubscription interface {
	Subscription
	Status(ctx context.Context) ([]CursorStatus, error)
}

// CursorStatus is the position of a relay in one log.
type CursorStatus struct {
	Place   string    `json:"place"`             // "KUBECDC", "kubecdc.prod/3"
	At      uint64    `json:"position"`          // all records up to here are delivered
	Behind  uint64    `json:"behind"`            // number of records on the bus after it
	Updated time.Time `json:"updated,omitzero"`  // when it was saved; zero on Kafka
	Holder  string    `json:"holder,omitempty"`  // the host of the relay that saved it
	Problem string    `json:"problem,omitempty"` // the problem that a start of the relay would report
}
