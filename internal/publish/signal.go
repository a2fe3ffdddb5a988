package publish

// Signal wakes one receiver. It has an element if the receiver may have work. It is never closed.
type Signal chan struct{}

// NewSignal returns a signal that is not raised.
func NewSignal() Signal { return make(Signal, 1) }

// Raise never waits: one element is enough.
func (s Signal) Raise() {
	if len(s) > 0 {
		return // cheaper than the select
	}
	select {
	case s <- struct{}{}:
	default:
	}
}
