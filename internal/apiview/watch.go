package apiview

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/object"
)

// bookmarkEvery is the time between two bookmarks of a watch.
const bookmarkEvery = time.Minute

// watch answers with the objects of the moment if the client does not have them, and then with bookmarks: nothing changes any more.
func (v *View) watch(w http.ResponseWriter, r *http.Request, res *resource, namespace string) error {
	f, err := accepted(r, ofObjects)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	s, err := newSelector(&res.kind, namespace, "", query)
	if err != nil {
		return err
	}
	initial, err := res.initial(query)
	if err != nil {
		return err
	}
	timeout, err := watchTimeout(query)
	if err != nil {
		return err
	}
	a, err := v.newAnswer(f, res, query)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	out := &watchWriter{answer: a, w: w}
	if initial {
		if err := out.objects(s); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
	}
	bookmarks := isTrue(query, "allowWatchBookmarks")
	if bookmarks && isTrue(query, "sendInitialEvents") {
		if out.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}) != nil {
			return nil
		}
	}
	_ = flush.Flush() // the client has gone
	ticker := time.NewTicker(bookmarkEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-timeout:
			return nil
		case <-ticker.C:
			if bookmarks && out.bookmark(nil) != nil {
				return nil
			}
			_ = flush.Flush() // the client has gone
		}
	}
}

// initial reports whether a watch begins with the objects that exist.
func (r *resource) initial(query url.Values) (bool, error) {
	text := query.Get("resourceVersion")
	if query.Has("sendInitialEvents") {
		if query.Get("resourceVersionMatch") != "NotOlderThan" {
			return false, invalidMatch("Forbidden", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
		}
		if isTrue(query, "sendInitialEvents") {
			return true, r.checkVersion(query)
		}
	} else if query.Get("resourceVersionMatch") != "" {
		return false, invalidMatch("Forbidden", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	}
	if text == "" || text == "0" {
		return !query.Has("sendInitialEvents"), nil
	}
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return false, badRequest("invalid resource version: resourceVersion: Invalid value: %q: %v", text, err)
	}
	if rv < r.version {
		return false, errOtherVersion("too old resource version: %d (%d)", rv, r.version)
	}
	return false, nil
}

// watchTimeout returns a channel that ends the watch when the client wants it, nil if it does not say.
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
	answer *answer
	w      http.ResponseWriter
	b      bytes.Buffer
}

// objects writes the objects of the moment as ADDED.
func (o *watchWriter) objects(s *selector) error {
	var body []byte
	for _, existing := range o.answer.resource.objects {
		if !s.places(existing) {
			continue
		}
		var err error
		if body, err = existing.AppendJSON(body[:0]); err != nil {
			return err
		}
		if !s.takes(existing, body) {
			continue
		}
		if err := o.event("ADDED", existing.ResourceVersion, body); err != nil {
			return err
		}
	}
	return nil
}

// event writes one event.
func (o *watchWriter) event(kind string, rv uint64, body []byte) error {
	o.b.Reset()
	o.b.WriteString(`{"type":"` + kind + `","object":`)
	var err error
	if t := o.answer.table; t != nil {
		t.begin(&o.b, &metav1.ListMeta{ResourceVersion: object.FormatVersion(rv)})
		err = t.row(&o.b, body)
		t.end(&o.b)
	} else {
		err = o.answer.append(&o.b, body)
	}
	if err != nil {
		return err
	}
	o.b.WriteString("}\n")
	_, err = o.w.Write(o.b.Bytes())
	return err
}

// bookmark writes that the client has everything up to the resourceVersion of the view.
func (o *watchWriter) bookmark(annotations map[string]string) error {
	res := o.answer.resource
	mark := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: res.name, APIVersion: res.groupVersion()}}
	mark.ResourceVersion, mark.Annotations = object.FormatVersion(res.version), annotations
	body, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	return o.event("BOOKMARK", res.version, body)
}
