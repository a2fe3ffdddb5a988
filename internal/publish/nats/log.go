package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// noteAck records the sequence of a record. The stream assigns ascending sequences. If an acknowledgement is no duplicate and is below
// those acknowledged when the record was first sent, the stream is a different one, or has lost records.
func (b *Bus) noteAck(m publish.Mark, o *outcome) {
	if o.duplicate { // the sequence belongs to the first copy
		b.metrics.Duplicates.Inc()
		return
	}
	if o.sequence > 0 && !b.tail.Acked(m, o.sequence-1, o.sequence) {
		b.logs.WentBack(b.cfg.Stream.Name, 0, m)
		b.wake.Raise()
	}
}

// noteLog records the state of the stream. It reports whether another look is needed soon. The leader of the stream answers, and all
// replicas have the same creation time.
func (b *Bus) noteLog(seen publish.Look, info *jetstream.StreamInfo) (again bool) {
	b.logs.Failed(nil)
	return b.logs.Found(seen, "", created(info), []uint64{info.State.LastSeq})
}

// lookAtLog reads the identity of the stream, in addition to the checks after a loss of the connection or the stream. It reports whether
// another look is needed soon.
func (b *Bus) lookAtLog(ctx context.Context, js jetstream.JetStream) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	seen := b.logs.Look(b.cfg.Stream.Name)
	s, err := js.Stream(ctx, b.cfg.Stream.Name)
	switch {
	case err == nil:
		return b.noteLog(seen, s.CachedInfo())
	case errors.Is(err, jetstream.ErrStreamNotFound):
		b.wake.Raise()
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		b.logs.Failed(fmt.Errorf("look up stream %s: %w", b.cfg.Stream.Name, err))
	}
	return false
}

// created returns the id of a stream, as in package consume.
func created(info *jetstream.StreamInfo) string { return info.Created.UTC().Format(time.RFC3339Nano) }
