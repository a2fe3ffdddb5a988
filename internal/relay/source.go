package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// ErrElsewhere is wrapped by the error of a relay whose cursor somebody else has taken over: a relay of this name was started
// after it.
var ErrElsewhere = errors.New("the relay is run elsewhere")

// Start says where a relay begins that has no cursor yet.
type Start string

// The starts.
const (
	Live      Start = "live"      // with the first record after its first start
	Beginning Start = "beginning" // with the oldest record that the bus holds
)

// Record is what a source hands out.
type Record struct {
	consume.Log
	Position uint64 // the sequence in the stream, the offset in the partition; it grows
	Topic    bool   // it is an offset

	// Event is what the record says; nil: Err says why it cannot be read.
	Event *consume.Event
	Err   error

	// Copies are how many partitions have a copy of an event about the stream: 1 on JetStream.
	Copies int
	// Sparse reports that there may be fewer: the cursor does not wait for the others.
	Sparse bool
	// LeftOut is how many records the bus has left out before this one, because they were not asked for. With NoRecord they are all up to
	// Position, and there is nothing else.
	LeftOut  uint64
	NoRecord bool
	// Number counts the records that the relay has read: what is lower came earlier.
	Number uint64
}

// Where names the record: "stream KUBECDC, record 48211".
func (r *Record) Where() string {
	if r.Topic {
		return fmt.Sprintf("topic %s, partition %d, offset %d", r.Name, r.Partition, r.Position)
	}
	return fmt.Sprintf("stream %s, record %d", r.Name, r.Position)
}

// Mark is how far a log has been delivered: all up to Position.
type Mark struct {
	consume.Log
	Position uint64
}

// Source is where records come from, with the cursor that remembers how far they have been delivered.
//
// Open connects and takes the cursor, and tries until that is done or ctx ends; another error is for good. Next returns the
// next record; its error is a *consume.MissedError where records are gone, and the next call goes on behind them; io.EOF where
// there are no more; another one is for good. A record that was returned before may come again, with those behind it. Save stores marks, those that have
// moved; with and without any, its error wraps ErrElsewhere where the cursor is somebody else's now, other errors pass. Behind
// is how many records lie behind the marks.
//
// Next and Close belong to one goroutine, the others may be called beside it.
type Source interface {
	Open(ctx context.Context) error
	Next(ctx context.Context) (*Record, error)
	Save(ctx context.Context, marks []Mark) error
	Behind(ctx context.Context, marks []Mark) (uint64, error)
	Ready() error
	Close() error
}

// Position is where the cursor of a relay stands, as Status of a source tells.
type Position struct {
	Place   string    `json:"place"`             // "KUBECDC", "kubecdc.prod/3"
	At      uint64    `json:"position"`          // all up to here is delivered
	Behind  uint64    `json:"behind"`            // records that the bus has beyond it
	Updated time.Time `json:"updated,omitzero"`  // when it was saved; zero on Kafka
	Holder  string    `json:"holder,omitempty"`  // the host of the relay that has saved it
	Problem string    `json:"problem,omitempty"` // what a start of the relay would have to say
}
