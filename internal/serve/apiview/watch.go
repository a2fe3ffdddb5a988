package apiview

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/object"
)

// bookmarkEvery is the time between two bookmarks of a watch.
const bookmarkEvery = time.Minute

// serveWatch answers with the objects of the moment if the client does not have them. name is that
// of the only object to watch, or "". The watch that it returns sends the changes of a replay, and
// bookmarks.
func (v *View) serveWatch(
	w http.ResponseWriter, r *http.Request, res *resource, namespace, name string,
) (*openWatch, error) {
	f, err := accepted(r, ofEvents)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	s, err := newSelector(res, namespace, name, query)
	if err != nil {
		return nil, err
	}
	l := v.list(res)
	next, initial, err := res.watchFrom(l, query)
	lacks := (*versionError)(nil)
	if err != nil && !errors.As(err, &lacks) {
		return nil, err
	}
	timeout, err := watchTimeout(query)
	if err != nil {
		return nil, err
	}
	a, err := v.newAnswer(f, res, query)
	if err != nil {
		return nil, err
	}
	if err := res.noteRedacted(w, r, s.placed(maps.Keys(res.redacted))); err != nil {
		return nil, err
	}
	to, err := openStream(w, r)
	if err != nil {
		return nil, err
	}
	if lacks != nil {
		to.fail(lacks)
		to.close()
		return nil, nil
	}
	v.noteWatch()
	out := &watchWriter{answer: a, w: to, version: l.version}
	o := &openWatch{stream: to, timeout: timeout}
	err = o.begin(out, l, s, initial, query)
	if err == nil && v.replay == nil {
		err = o.detach(out)
	}
	if err != nil {
		to.fail(err)
		to.close()
		return nil, nil //nolint:nilerr // the client has it, or has gone
	}
	if v.replay == nil {
		return o, nil
	}
	o.changes = func() (<-chan struct{}, error) {
		shown, moved := v.position(res)
		for ; next < shown; next++ {
			if err := out.writeChange(&res.log[next], s); err != nil {
				return nil, err
			}
		}
		return moved, nil
	}
	return o, nil
}

// fail writes an error that has a Status as kube-apiserver does after it has accepted a watch: as
// the last event.
func (s *stream) fail(err error) {
	if known := apierrors.APIStatus(nil); !errors.As(err, &known) {
		return
	}
	event, _ := json.Marshal(struct { // texts and numbers
		Type   string        `json:"type"`
		Object metav1.Status `json:"object"`
	}{"ERROR", statusOf(err)})
	_, _ = s.Write(append(event, '\n')) // the client has gone
}

// openWatch is a watch whose client has the objects that exist. That of a moment, which has no
// changes, must not refer to the View: a Server that has evicted it would otherwise hold as many as
// there are watches.
type openWatch struct {
	*stream

	timeout  <-chan time.Time // nil: none
	bookmark func() error     // nil: the client wants none
	// changes writes those that are not sent yet, and returns a channel that is closed when there
	// are more.
	changes func() (<-chan struct{}, error)
}

// begin sends the objects that exist if initial is set, and prepares the bookmarks that the client
// wants. The first bookmark follows these objects.
func (o *openWatch) begin(out *watchWriter, l *list, s *selector, initial bool, query url.Values) error {
	if initial {
		if err := out.writeObjects(l, s); err != nil {
			return err
		}
	}
	if !isTrue(query, "allowWatchBookmarks") {
		return nil
	}
	if isTrue(query, "sendInitialEvents") {
		if err := out.writeBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
			return err
		}
	}
	o.bookmark = func() error { return out.writeBookmark(nil) }
	return nil
}

// detach makes the watch independent of the View. Nothing will change.
func (o *openWatch) detach(out *watchWriter) error {
	o.changes = func() (<-chan struct{}, error) { return nil, nil }
	if o.bookmark == nil {
		return nil
	}
	mark, err := out.encodeEvent("BOOKMARK", out.version, out.newBookmark(nil))
	if err != nil {
		return err
	}
	mark = bytes.Clone(mark)
	to := o.stream
	o.bookmark = func() error {
		_, err := to.Write(mark)
		return err
	}
	return nil
}

// run sends changes and bookmarks until the watch ends.
func (o *openWatch) run() {
	defer o.close()
	ticker := time.NewTicker(bookmarkEvery)
	defer ticker.Stop()
	for {
		more, err := o.changes()
		if err != nil {
			o.fail(err)
			return // the client has it, or has gone
		}
		o.flush()
		select {
		case <-more:
		case <-o.ended:
			return
		case <-o.timeout:
			return
		case <-ticker.C:
			if o.bookmark != nil && o.bookmark() != nil {
				return
			}
		}
	}
}

// watchFrom returns with which change of the log a watch begins, and whether the objects that exist
// come first.
func (r *resource) watchFrom(l *list, query url.Values) (next int, initial bool, err error) {
	text := query.Get("resourceVersion")
	if query.Has("sendInitialEvents") {
		if query.Get("resourceVersionMatch") != "NotOlderThan" {
			return 0, false,
				invalidMatch("Forbidden", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
		}
		if isTrue(query, "sendInitialEvents") {
			return l.shown, true, l.checkVersion(r, query)
		}
	} else if query.Get("resourceVersionMatch") != "" {
		return 0, false,
			invalidMatch("Forbidden",
				"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	}
	if text == "" || text == "0" {
		return l.shown, !query.Has("sendInitialEvents"), nil
	}
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, badRequest("invalid resource version: resourceVersion: Invalid value: %q: %v", text, err)
	}
	next, ok := r.countUpTo(rv, l.shown)
	if !ok {
		return 0, false, &versionError{errOtherVersion("too old resource version: %d (%d)", rv, r.first.version)}
	}
	if next > 1 && r.log[next-1].version == rv && r.log[next-2].version == rv {
		// the client may have seen a part of them
		next = sort.Search(next, func(i int) bool { return r.log[i].version >= rv })
	}
	return next, false, nil
}

// watchTimeout returns a channel that ends the watch when the client wants it, nil if it does not
// say.
func watchTimeout(query url.Values) (<-chan time.Time, error) {
	text := query.Get("timeoutSeconds")
	if text == "" {
		return nil, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	if seconds <= 0 || seconds > int64(24*time.Hour/time.Second) {
		return nil, nil
	}
	return time.After(time.Duration(seconds) * time.Second), nil
}

// watchWriter writes watch events.
type watchWriter struct {
	answer  *answer
	w       io.Writer
	b       bytes.Buffer
	version uint64 // up to which the client has everything
}

// writeObjects writes the objects that exist as ADDED.
func (w *watchWriter) writeObjects(l *list, s *selector) error {
	var body []byte
	for _, existing := range l.objects {
		if !s.isPlaced(existing) {
			continue
		}
		var err error
		body, err = existing.AppendJSON(body[:0])
		if err != nil {
			return err
		}
		if !s.takes(existing, body) {
			continue
		}
		if err := w.writeEvent("ADDED", existing.ResourceVersion, body); err != nil {
			return err
		}
	}
	return nil
}

// writeChange writes a change, as far as the objects before and after it are selected.
func (w *watchWriter) writeChange(c *change, s *selector) error {
	w.version = c.version
	was, before, err := selected(c.before, s)
	if err != nil {
		return err
	}
	is, body, err := selected(c.object, s)
	switch {
	case err != nil:
		return err
	case is && was:
		return w.writeEvent("MODIFIED", c.version, body)
	case is:
		return w.writeEvent("ADDED", c.version, body)
	case was: // the last content that was selected, as kube-apiserver sends it
		return w.writeEvent("DELETED", c.version, withVersion(before, c.version))
	}
	return nil
}

// selected reports whether an object exists and is selected, and returns its JSON.
func selected(o *object.Object, s *selector) (bool, []byte, error) {
	if o == nil || !s.isPlaced(o) {
		return false, nil, nil
	}
	body, err := o.AppendJSON(nil)
	return err == nil && s.takes(o, body), body, err
}

// writeEvent writes one event.
func (w *watchWriter) writeEvent(kind string, rv uint64, body []byte) error {
	raw, err := w.encodeEvent(kind, rv, body)
	if err != nil {
		return err
	}
	_, err = w.w.Write(raw)
	return err
}

// encodeEvent returns an event. It is valid until the next call.
func (w *watchWriter) encodeEvent(kind string, rv uint64, body []byte) ([]byte, error) {
	w.b.Reset()
	w.b.WriteString(`{"type":"` + kind + `","object":`)
	var err error
	if t := w.answer.table; t != nil {
		t.writeHead(&w.b, &metav1.ListMeta{ResourceVersion: object.FormatVersion(rv)})
		err = t.writeRow(&w.b, body)
		t.writeEnd(&w.b)
	} else {
		err = w.answer.append(&w.b, body)
	}
	w.b.WriteString("}\n")
	return w.b.Bytes(), err
}

// writeBookmark writes up to which resourceVersion the client has everything.
func (w *watchWriter) writeBookmark(annotations map[string]string) error {
	return w.writeEvent("BOOKMARK", w.version, w.newBookmark(annotations))
}

// newBookmark returns the object of a bookmark.
func (w *watchWriter) newBookmark(annotations map[string]string) []byte {
	res := w.answer.resource
	mark := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: res.kind.name, APIVersion: res.groupVersion()}}
	mark.ResourceVersion, mark.Annotations = object.FormatVersion(w.version), annotations
	body, _ := json.Marshal(mark) // texts
	return body
}
