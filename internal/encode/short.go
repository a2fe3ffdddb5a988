package encode

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Short says what an event leaves out so that the bus takes it, where the whole of it is, and why it is a dead letter.
type Short struct {
	// Without are members of data that are left out: of "before", "after" and "patch". A member that is null stays, since
	// it says that there is no object. A patch goes with after. With all three, changedBy goes too where it is large, so that
	// the event is small (MaxShort) whatever the object is.
	Without []string
	DataRef string // URI of the whole event, "": there is none
	Reason  string // why it is a dead letter, "": it is none
}

// MaxShort is the largest event of an object without before, after and patch, in bytes as Event.Size has it.
const MaxShort = 64 << 10

const (
	maxChangedBy = 16 << 10 // of an event without all else
	maxReason    = 1 << 10
	maxDataRef   = 4 << 10

	// maxName is how long a name may be in attributes, in bytes. Kubernetes allows 253 for most, and any for those of roles.
	maxName  = 1 << 10
	nameHead = 128
)

// shortening is a Short as the encoder needs it. nil: the event is whole.
type shortening struct {
	before, after, patch bool // left out
	dataRef, reason      string
}

// EncodeShort makes ev the event of d with what s names left out of data: data.truncated and ev.Truncated list what the event
// would have had, data.dataref and the attribute of that name (CloudEvents extension Dataref) say where the whole is. The
// id is that of the whole event. Objects that are not sent are not read: with everything left out, what is wrong with them is
// no error. A stream event has nothing to leave out.
func (e *Encoder) EncodeShort(ev *Event, d *object.Delta, s Short) error {
	o := shortening{
		before: slices.Contains(s.Without, "before"), after: slices.Contains(s.Without, "after"), patch: slices.Contains(s.Without, "patch"),
		dataRef: s.DataRef, reason: s.Reason,
	}
	for _, name := range s.Without {
		if name != "before" && name != "after" && name != "patch" {
			return fmt.Errorf("leave out %q: want before, after or patch", name)
		}
	}
	o.patch = o.patch || o.after
	if len(s.DataRef) > maxDataRef {
		return fmt.Errorf("a dataref of %d bytes: want at most %d", len(s.DataRef), maxDataRef)
	}
	return e.into(ev, d, e.o.Mode, &o)
}

// EncodeWhole makes ev the event of d in structured mode, whatever the mode of e is: what a dataref leads to.
func (e *Encoder) EncodeWhole(ev *Event, d *object.Delta) error {
	return e.into(ev, d, Structured, nil)
}

// all tells that no object is sent.
func (s *shortening) all() bool { return s != nil && s.before && s.after }

// leave tells whether an event that has this member must go without it, and notes it.
func (s *shortening) leave(ev *Event, name string, out bool) bool {
	if !out {
		return false
	}
	ev.Truncated = append(ev.Truncated, name)
	return true
}

// attributes adds those of a shortened event and of a dead letter.
func (s *shortening) attributes(ev *Event) {
	if s == nil {
		return
	}
	ev.putText("dataref", s.dataRef)
	reason := s.reason
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	ev.putText("deadletterreason", reason)
}

// appendData appends the members of data that tell what has been left out.
func (s *shortening) appendData(dst []byte, ev *Event) []byte {
	if s == nil {
		return dst
	}
	for i, name := range ev.Truncated {
		if i == 0 {
			dst = append(dst, `,"truncated":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendQuoted(dst, name)
		if i == len(ev.Truncated)-1 {
			dst = append(dst, ']')
		}
	}
	if s.dataRef != "" {
		dst = append(dst, `,"dataref":`...)
		dst = appendQuoted(dst, s.dataRef)
	}
	return dst
}

// shortName is a name as attributes have it: one that is too long for a key or a header becomes its beginning, "~" and its
// sha256. The object in the data has the true name.
func shortName(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:nameHead], "") + "~" + hex.EncodeToString(sum[:])
}
