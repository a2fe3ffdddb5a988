package encode

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Trace is the trace context of an event (W3C Trace Context, level 1). The zero value: the event is
// not traced.
//
// It is derived from the sha256 of source + "\n" + id, so that each copy of an event has the same
// trace, even after a restart or from another agent. ID is the beginning of that hash, as is
// JetStream's Nats-Msg-Id.
type Trace struct {
	ID   [16]byte
	Span [8]byte // the event's path from the API server to the bus; the parent of consumers' spans
}

// Sampled reports whether the event is traced.
func (t *Trace) Sampled() bool { return t.Span != [8]byte{} }

// AppendParent appends t as the value of the attribute traceparent: 55 characters (CloudEvents
// extension Distributed Tracing).
func (t *Trace) AppendParent(dst []byte) []byte {
	dst = append(dst, "00-"...)
	dst = hex.AppendEncode(dst, t.ID[:])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, t.Span[:])
	return append(dst, "-01"...) // sampled
}

// randomBits is the number of bits of a trace id that decide about sampling: its last 7 bytes (W3C
// Trace Context, level 2, and OpenTelemetry's consistent probability sampling). An agent at 10 %
// therefore traces every event that an agent at 1 % traces.
const randomBits = 56

// rejected returns how many of the 2^56 possible values are not sampled. ratio is between 0 and 1.
func rejected(ratio float64) uint64 {
	const all = 1 << randomBits
	return all - uint64(min(max(ratio, 0), 1)*all)
}

// setTrace sets ev.Trace, and the attribute, if the event is sampled.
func (e *Encoder) setTrace(ev *Event) {
	if e.o.SampleRatio <= 0 {
		return
	}
	n := len(ev.values)
	sum := append(ev.values, ev.Source...)
	sum = append(sum, '\n')
	sum = append(sum, ev.ID...)
	digest := sha256.Sum256(sum[n:])
	ev.values = sum[:n] // append may have reallocated it
	if binary.BigEndian.Uint64(digest[8:16])&(1<<randomBits-1) < e.rejected {
		return
	}
	copy(ev.Trace.ID[:], digest[:16])
	copy(ev.Trace.Span[:], digest[16:24])
	ev.put("traceparent", ev.Trace.AppendParent(ev.values))
}
