package encode

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/internal/object/patch"
)

// patchRoom is the space reserved for the patch of most changes and for member names, in bytes.
const patchRoom = 1 << 10

// appendObjectData appends the data of an object event. A null member means "does not exist"; an
// absent member means "not known", or not requested.
func (e *Encoder) appendObjectData(dst []byte, ev *Event, d *object.Delta, s *shortening) ([]byte, error) {
	if s == nil {
		s = &shortening{}
	}
	dst = appendChange(dst, d)
	before, after, diff := e.chooseParts(ev, d, s)
	// Reserve space for both objects at once: otherwise the array is copied for the second one, and
	// again for the patch.
	room := len(d.ChangedBy) + patchRoom
	if before {
		room += d.Before.Size()
	}
	if after {
		room += d.After.Size()
	}
	dst, err := appendObjects(slices.Grow(dst, room), ev, d, before, after, diff)
	if err != nil {
		return dst, err
	}
	if len(d.ChangedBy) > 0 && !s.omit(ev, "changedBy", s.isWithoutObjects() && len(d.ChangedBy) > maxChangedBy) {
		dst = append(dst, `,"changedBy":`...)
		dst = append(dst, d.ChangedBy...)
	}
	return append(s.appendData(dst, ev), '}'), nil
}

// appendChange appends the beginning of the data, up to the objects.
func appendChange(dst []byte, d *object.Delta) []byte {
	dst = append(dst, `{"op":"`...)
	dst = append(append(dst, d.Op...), '"')
	dst = appendVersion(dst, `,"resourceVersion":"`, d.ResourceVersion)
	dst = appendVersion(dst, `,"previousResourceVersion":"`, d.Previous)
	if d.Skipped > 0 {
		dst = append(dst, `,"skipped":`...)
		dst = strconv.AppendUint(dst, uint64(d.Skipped), 10)
	}
	if d.Inferred {
		dst = append(dst, `,"inferred":true`...)
	}
	dst = appendRedacted(dst, d)
	if d.Op == object.Read {
		dst = append(dst, `,"snapshot":`...)
		dst = jsonscan.AppendString(dst, d.Snapshot)
	}
	return dst
}

// appendRedacted appends whether values of the object after the change are redacted. It says no
// only of Secrets: one that never had a value looks like one whose values were removed.
func appendRedacted(dst []byte, d *object.Delta) []byte {
	if d.After == nil || d.Op == object.Deleted || d.Op == object.Left {
		return dst
	}
	isSecret := d.Ref.Resource.Group == "" && d.Ref.Resource.Name == "secrets"
	if !isSecret && !d.After.Redacted() {
		return dst
	}
	return strconv.AppendBool(append(dst, `,"redacted":`...), d.After.Redacted())
}

// chooseParts reports which objects are sent, and whether the patch is. It records the members that
// s omits, and whether an object is too deep. A patch is no deeper than the object after.
func (e *Encoder) chooseParts(ev *Event, d *object.Delta, s *shortening) (before, after, diff bool) {
	before = e.o.Before && d.Op != object.Created && d.Op != object.Read && d.Before != nil
	before = before && !s.omit(ev, "before", s.before)
	after = d.Op != object.Deleted && d.Op != object.Left
	after = after && !s.omit(ev, "after", s.after)
	diff = e.o.Patch && (d.Op == object.Updated || d.Op == object.Entered) && d.Before != nil
	diff = diff && !s.omit(ev, "patch", s.patch)
	ev.TooDeep = before && d.Before.Deep() || after && d.After.Deep()
	return before, after, diff
}

// appendObjects appends the objects that are sent, and the patch between them.
func appendObjects(dst []byte, ev *Event, d *object.Delta, sendBefore, sendAfter, sendPatch bool) ([]byte, error) {
	// The patch reads both objects in dst. Appending to dst does not change the bytes below its
	// length, and if append allocates a larger array, these slices keep the old one.
	var before, after []byte
	var err error
	switch {
	case d.Op == object.Created:
		dst = append(dst, `,"before":null`...)
	case sendBefore:
		dst, before, err = appendObject(dst, `,"before":`, d.Before)
		if err != nil {
			return dst, err
		}
	case sendPatch:
		ev.before, err = d.Before.AppendJSON(ev.before[:0])
		if err != nil {
			return dst, err
		}
		before = ev.before
	}
	switch {
	case d.Op == object.Deleted:
		dst = append(dst, `,"after":null`...)
	case sendAfter:
		dst, after, err = appendObject(dst, `,"after":`, d.After)
		if err != nil {
			return dst, err
		}
	}
	if !sendPatch {
		return dst, nil
	}
	out, err := ev.differ.Append(append(dst, `,"patch":`...), before, after)
	if errors.Is(err, patch.ErrCostly) {
		ev.Truncated = append(ev.Truncated, "patch")
		return dst, nil
	}
	return out, err
}

// appendObject appends a member with the given name. value is the JSON of o inside dst.
func appendObject(dst []byte, name string, o *object.Object) (_, value []byte, err error) {
	dst = append(dst, name...)
	from := len(dst)
	dst, err = o.AppendJSON(dst)
	return dst, dst[from:], err
}

// appendStreamData appends the data of a stream event.
func (e *Encoder) appendStreamData(dst []byte, _ *Event, d *object.Delta, _ *shortening) ([]byte, error) {
	s := d.Stream
	start := len(dst)
	switch s.Kind {
	case object.SnapshotStarted, object.SnapshotCompleted:
		dst = append(dst, `,"snapshot":`...)
		dst = jsonscan.AppendString(dst, s.Snapshot)
		dst = appendVersion(dst, `,"resourceVersion":"`, s.ResourceVersion)
		dst = append(dst, `,"objects":`...)
		dst = strconv.AppendInt(dst, int64(s.Objects), 10)
		dst = e.appendObservation(dst, s)
	case object.ScopeStarted:
		dst = appendVersion(dst, `,"resourceVersion":"`, s.ResourceVersion)
		dst = e.appendObservation(dst, s)
	case object.ScopeEnded:
		dst = appendVersion(dst, `,"resourceVersion":"`, s.ResourceVersion)
		dst = append(dst, `,"end":`...)
		dst = jsonscan.AppendString(dst, string(s.End))
		dst = appendList(dst, `,"successors":[`, s.Successors)
		dst = e.appendWriter(dst)
	case object.Gap:
		dst = appendGap(dst, s)
	}
	dst[start] = '{' // replaces the first comma
	return append(dst, '}'), nil
}

// appendObservation appends how a scope or a snapshot begins, and who observes the scope.
func (e *Encoder) appendObservation(dst []byte, s *object.StreamEvent) []byte {
	if s.Initial {
		dst = append(dst, `,"initial":true`...)
	}
	if s.Continued {
		dst = append(dst, `,"continued":true`...)
	}
	o := s.Observation
	if o == nil {
		return dst
	}
	if !o.Since.IsZero() {
		dst = append(dst, `,"observedSince":"`...)
		dst = append(o.Since.UTC().AppendFormat(dst, time.RFC3339Nano), '"')
	}
	if o.Rules != nil {
		dst = append(append(dst, `,"rules":`...), o.Rules...)
	}
	return e.appendWriter(dst)
}

// appendWriter appends who observes a scope.
func (e *Encoder) appendWriter(dst []byte) []byte {
	if e.o.Writer == "" {
		return dst
	}
	dst = jsonscan.AppendString(append(dst, `,"writer":`...), e.o.Writer)
	return jsonscan.AppendString(append(dst, `,"run":`...), e.o.Run)
}

// appendList appends a member with the given name and opening bracket, unless it has no elements.
func appendList(dst []byte, member string, all []string) []byte {
	if len(all) == 0 {
		return dst
	}
	dst = append(dst, member...)
	for n, text := range all {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendString(dst, text)
	}
	return append(dst, ']')
}

func appendGap(dst []byte, s *object.StreamEvent) []byte {
	dst = appendVersion(dst, `,"fromResourceVersion":"`, s.From)
	dst = appendVersion(dst, `,"toResourceVersion":"`, s.To)
	if !s.Since.IsZero() {
		dst = append(dst, `,"since":"`...)
		dst = append(s.Since.UTC().AppendFormat(dst, time.RFC3339), '"')
	}
	if s.Reason != "" {
		dst = append(dst, `,"reason":`...)
		dst = jsonscan.AppendString(dst, string(s.Reason))
	}
	if s.Letter != "" {
		dst = append(dst, `,"deadLetter":`...)
		dst = jsonscan.AppendString(dst, s.Letter)
	}
	dst = append(dst, `,"recovered":`...)
	return strconv.AppendBool(dst, s.Recovered)
}

// appendVersion appends a member with the given name and opening quote, unless the version is not
// known.
func appendVersion(dst []byte, member string, rv uint64) []byte {
	if rv == 0 {
		return dst
	}
	dst = append(dst, member...)
	return append(strconv.AppendUint(dst, rv, 10), '"')
}
