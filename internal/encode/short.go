package encode

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// Short defines which members an event omits to fit into the bus, where the whole event is, and why
// it is a dead letter.
type Short struct {
	// Without has the members of data to omit: of "before", "after" and "patch". A null member
	// stays, since it means that there is no object. Omitting after also omits the patch. Omitting
	// all three also omits a large changedBy, so that the event is small (MaxShort) for any object.
	Without []string
	DataRef string // URI of the whole event, "" if there is none
	Reason  string // why it is a dead letter, "" if it is not one
}

// MaxShort is the maximum Event.Size of an object event without before, after and patch, in bytes.
const MaxShort = 64 << 10

const (
	maxChangedBy = 16 << 10 // in an event without all three members
	maxReason    = 1 << 10
	maxDataRef   = 4 << 10

	// maxName is the maximum length of a name in attributes, in bytes. Kubernetes allows 253 for
	// most names, and any length for names of roles.
	maxName  = 1 << 10
	nameHead = 128
)

// shortening is the encoder's form of a Short. nil: the event is whole.
type shortening struct {
	before, after, patch bool // omitted
	dataRef, reason      string
}

// EncodeShort makes ev the event of d without the members of data that s names. data.truncated and
// ev.Truncated list the omitted members that the event would have had. data.dataref and the
// attribute of that name (CloudEvents extension Dataref) give the location of the whole event. The
// id is that of the whole event. Omitted objects are not read: if all are omitted, a damaged object
// is not an error. A stream event has no such members.
func (e *Encoder) EncodeShort(ev *Event, d *object.Delta, s Short) error {
	o := shortening{
		before:  slices.Contains(s.Without, "before"),
		after:   slices.Contains(s.Without, "after"),
		patch:   slices.Contains(s.Without, "patch"),
		dataRef: s.DataRef,
		reason:  s.Reason,
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
	return e.encodeInMode(ev, d, e.o.Mode, &o)
}

// EncodeWhole makes ev the event of d in structured mode, regardless of the mode of e: the target
// of a dataref.
func (e *Encoder) EncodeWhole(ev *Event, d *object.Delta) error {
	return e.encodeInMode(ev, d, Structured, nil)
}

// isWithoutObjects reports whether all objects are omitted.
func (s *shortening) isWithoutObjects() bool { return s != nil && s.before && s.after }

// omit reports whether an existing member must be omitted, and records it.
func (s *shortening) omit(ev *Event, name string, out bool) bool {
	if !out {
		return false
	}
	ev.Truncated = append(ev.Truncated, name)
	return true
}

// putAttributes adds the attributes of a shortened event and of a dead letter.
func (s *shortening) putAttributes(ev *Event) {
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

// appendData appends the members of data that describe what was omitted.
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
		dst = jsonscan.AppendString(dst, name)
		if i == len(ev.Truncated)-1 {
			dst = append(dst, ']')
		}
	}
	if s.dataRef != "" {
		dst = append(dst, `,"dataref":`...)
		dst = jsonscan.AppendString(dst, s.dataRef)
	}
	return dst
}

// shortName returns a name for attributes: a name that is too long for a key or a header is
// replaced by its beginning, "~" and its sha256. The object in the data has the complete name.
func shortName(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:nameHead], "") + "~" + hex.EncodeToString(sum[:])
}
