package nats

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TakeCursor takes the cursor of a relay that begins at the beginning of a stream.
func TakeCursor(ctx context.Context, js jetstream.JetStream, name, stream string) error {
	kv, err := js.KeyValue(ctx, CursorBucket)
	if err == nil {
		_, err = takeCursor(ctx, kv, name, position{Stream: stream, Created: time.Now().UTC().Format(time.RFC3339Nano)})
	}
	return err
}

// Queued returns how many events are to be handed to nats.go.
func (b *Bus) Queued() (n int) {
	b.table.mu.Lock()
	defer b.table.mu.Unlock()
	return len(b.table.queue) - b.table.head
}

// Debug describes the state of the bus.
func (b *Bus) Debug() string {
	b.table.mu.Lock()
	defer b.table.mu.Unlock()
	s := fmt.Sprintf("up %v lost %d epoch %d queue %d/%d conn %v", b.link.up.Load(), b.link.lost(), b.table.epoch,
		b.table.head, len(b.table.queue), b.conn.Load().Status())
	for _, f := range b.table.flights {
		if f.event != nil {
			s += fmt.Sprintf("\n%d: phase %d attempt %d timeouts %d cuts %d alone %v deadline %v", f.slot, f.phase,
				f.attempt, f.timeouts, f.cuts, f.event.Alone, time.Until(f.deadline))
		}
	}
	return s
}

// FirstSince returns the first record of a subject at or after a time.
var FirstSince = firstSince
