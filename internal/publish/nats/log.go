package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// noteAck notes where the stream has a record. An acknowledgement that is no duplicate and lies below what was acknowledged when the
// record was first sent comes from another stream, or from one that has lost records: the stream assigns sequences in ascending order.
func (b *Bus) noteAck(m publish.Mark, o *outcome) {
	if o.duplicate { // the sequence is that of the first copy
		b.metrics.Duplicates.Inc()
		return
	}
	if o.sequence > 0 && !b.tail.Acked(m, o.sequence-1, o.sequence) {
		b.logs.WentBack(b.cfg.Stream.Name, 0, m)
		b.requestCheck()
	}
}

// noteLog takes the stream as a look has shown it. It reports whether another look is needed soon. The leader of a stream answers
// for it, and the time of its creation is the same on all replicas.
func (b *Bus) noteLog(seen publish.Look, info *jetstream.StreamInfo) (again bool) {
	b.logs.Failed(nil)
	return b.logs.Found(seen, "", info.Created.UTC().Format(time.RFC3339Nano), []uint64{info.State.LastSeq})
}

// lookAtLog reads the identity of the stream, beside the checks that are made when the connection or the stream was lost. It reports
// whether another look is needed soon.
func (b *Bus) lookAtLog(ctx context.Context, js jetstream.JetStream) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	seen := b.logs.Look(b.cfg.Stream.Name)
	s, err := js.Stream(ctx, b.cfg.Stream.Name)
	switch {
	case err == nil:
		return b.noteLog(seen, s.CachedInfo())
	case errors.Is(err, jetstream.ErrStreamNotFound):
		b.requestCheck()
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		b.logs.Failed(fmt.Errorf("look up stream %s: %w", b.cfg.Stream.Name, err))
	}
	return false
}
