package checkpoint

import "errors"

// The kinds of errors, for errors.Is. Each is wrapped in an *Error, which names the place and the
// fix.
var (
	// ErrDamaged: the checksum or the syntax of the content is wrong.
	ErrDamaged = errors.New("damaged")
	// ErrFormat: this release does not know the format.
	ErrFormat = errors.New("unknown format")
	// ErrForeign: the checkpoint belongs to another cluster or bus.
	ErrForeign = errors.New("foreign")
	// ErrEpoch: a later leader has written the checkpoint.
	ErrEpoch = errors.New("newer epoch")
	// ErrConflict: another client has written the checkpoint since it was read.
	ErrConflict = errors.New("conflict")
	// ErrLocked: a running agent holds the lock.
	ErrLocked = errors.New("locked")
	// ErrTooLarge: the store has no room for the checkpoint.
	ErrTooLarge = errors.New("too large")
	// ErrRefused: the store rejects the request until an operator changes something there.
	ErrRefused = errors.New("refused")
	// ErrNoScope: the checkpoint has no scope of the named resource, or does not exist.
	ErrNoScope = errors.New("no such scope")
)

// Error describes an unusable checkpoint to an operator.
type Error struct {
	Kind   error  // one of those above
	Where  string // the Store's String
	What   string
	Remedy string // the fix
	Err    error  // the cause; nil if What says it all
}

func (e *Error) Error() string {
	text := e.Where + ": " + e.What
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + ": " + e.Remedy
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

const (
	startOver = "start over with 'kubecdc checkpoint reset', given the agent's flags"
	orElse    = "name another checkpoint in the configuration, or " + startOver
	oneAgent  = "make sure that only one agent uses it, or name another checkpoint in the configuration"
)
