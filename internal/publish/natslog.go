package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Logs compares the stream with what is remembered of it.
func (n *NATS) Logs() *Logs { return n.logs }

// noteAck notes where the stream has a record. An acknowledgement that is no duplicate and lies below what was acknowledged when the
// record was first sent comes from another stream, or from one that has lost records: the stream assigns sequences in ascending order.
func (n *NATS) noteAck(m Mark, o *outcome) {
	if o.duplicate { // the sequence is that of the first copy
		n.metrics.Duplicates.Inc()
		return
	}
	if o.sequence > 0 && !n.tail.Acked(m, o.sequence-1, o.sequence) {
		n.logs.WentBack(n.cfg.Stream.Name, 0, m)
		n.requestCheck()
	}
}

// noteLog takes the stream as a look has shown it. It reports whether another look is needed soon. The leader of a stream answers
// for it, and the time of its creation is the same on all replicas.
func (n *NATS) noteLog(seen Look, info *jetstream.StreamInfo) (again bool) {
	n.logs.Failed(nil)
	return n.logs.Found(seen, "", info.Created.UTC().Format(time.RFC3339Nano), []uint64{info.State.LastSeq})
}

// lookAtLog reads the identity of the stream, beside the checks that are made when the connection or the stream was lost. It reports
// whether another look is needed soon.
func (n *NATS) lookAtLog(ctx context.Context, js jetstream.JetStream) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	seen := n.logs.Look(n.cfg.Stream.Name)
	s, err := js.Stream(ctx, n.cfg.Stream.Name)
	switch {
	case err == nil:
		return n.noteLog(seen, s.CachedInfo())
	case errors.Is(err, jetstream.ErrStreamNotFound):
		n.requestCheck()
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		n.logs.Failed(fmt.Errorf("look up stream %s: %w", n.cfg.Stream.Name, err))
	}
	return false
}
