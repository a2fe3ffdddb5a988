package checkpoint

import "errors"

// What can be wrong with a checkpoint, for errors.Is. Each comes within an *Error, which says where and what to do.
var (
	// ErrDamaged: what is kept there is not what was written.
	ErrDamaged = errors.New("damaged")
	// ErrFormat: written in a format that this release does not know.
	ErrFormat = errors.New("unknown format")
	// ErrForeign: of another cluster, or of another bus.
	ErrForeign = errors.New("foreign")
	// ErrEpoch: a later leader has written it.
	ErrEpoch = errors.New("newer epoch")
	// ErrConflict: somebody else has written it since it was read.
	ErrConflict = errors.New("conflict")
	// ErrLocked: a running agent has it.
	ErrLocked = errors.New("locked")
	// ErrTooLarge: there is no room for it where it is kept.
	ErrTooLarge = errors.New("too large")
	// ErrRefused: whoever keeps it does not accept the request, and will not until somebody changes something there.
	ErrRefused = errors.New("refused")
	// ErrNoScope: nothing in it is of the resource that was named, or nothing is there at all.
	ErrNoScope = errors.New("no such scope")
)

// Error is what is wrong with a checkpoint, in words for people.
type Error struct {
	Kind   error  // one of those above
	Where  string // the Store's String
	What   string
	Remedy string // what to do
	Err    error  // the cause, nil: there is none beyond What
}

func (e *Error) Error() string {
	text := e.Where + ": " + e.What
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + ": " + e.Remedy
}

// Unwrap gives the kind, and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

const (
	startOver = "start over with 'kubecdc checkpoint reset', given the agent's flags"
	orElse    = "name another checkpoint in the configuration, or " + startOver
	oneAgent  = "see to it that one agent uses it, or name another checkpoint in the configuration"
)
