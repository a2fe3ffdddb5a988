package driver

import "github.com/kubecdc/kubecdc/pkg/consume"

// Noter is a Subscription that keeps a note of its relay with the cursor. Save saves the note that
// was set last.
//
// Note returns the note that was saved, after Open. It returns false if a relay of this name may
// have set one that the subscription does not know.
type Noter interface {
	Note() (note []byte, known bool)
	SetNote(note []byte)
}

// Partial is a Subscription that may have only some of the events of its bus. HasAll reports
// whether it has all events of objects, and about their scopes.
type Partial interface {
	HasAll(o *consume.Objects) bool
}

// Splitter is the Config of a target whose logs may be for one namespace each.
type Splitter interface {
	SplitsNamespaces() bool
}
