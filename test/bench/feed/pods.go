package feed

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// batch is the size of a write: a larger one saves little, and a small one would measure system
	// calls.
	batch = 64 << 10
	// bookmarkEvery is the interval of an API server.
	bookmarkEvery = time.Minute
)

func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("labelSelector") != "" || q.Get("fieldSelector") != "" {
		badRequest(w, errors.New("the feed has no selectors"))
		return
	}
	if watch, _ := strconv.ParseBool(q.Get("watch")); watch {
		s.watch(w, r)
		return
	}
	s.list(w, r)
}

// list answers a LIST. Like an API server, it ignores limit if resourceVersion is "0".
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q, h := r.URL.Query(), s.history
	asOf := h.current()
	from := 0
	limit := 0
	if text := q.Get("limit"); text != "" && q.Get("resourceVersion") != "0" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			badRequest(w, fmt.Errorf("limit %q", text))
			return
		}
		limit = n
	}
	switch token, wanted := q.Get("continue"), q.Get("resourceVersion"); {
	case token != "":
		var err error
		asOf, from, err = parseContinue(token)
		if err != nil || asOf < beginning || from > h.pods {
			badRequest(w, errors.New("continue key is not valid"))
			return
		}
	case wanted != "" && wanted != "0":
		v, err := strconv.ParseUint(wanted, 10, 64)
		switch {
		case err != nil:
			badRequest(w, fmt.Errorf("resourceVersion: %w", err))
			return
		case v > asOf:
			fail(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
				fmt.Sprintf("Too large resource version: %d, current: %d", v, asOf))
			return
		case q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact):
			if v < beginning {
				expired(w, v)
				return
			}
			asOf = v
		}
	}
	to := h.pods
	if limit > 0 {
		to = min(h.pods, from+limit)
	}
	w.Header().Set("Content-Type", "application/json")
	b := make([]byte, 0, batch+16<<10)
	b = append(b, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"`...)
	b = strconv.AppendUint(b, asOf, 10)
	b = append(b, '"')
	if to < h.pods {
		b = append(b, `,"continue":"`+formatContinue(asOf, to)+`","remainingItemCount":`...)
		b = strconv.AppendInt(b, int64(h.pods-to), 10)
	}
	b = append(b, `},"items":[`...)
	for pod := from; pod < to; pod++ {
		if pod > from {
			b = append(b, ',')
		}
		b = h.appendItem(b, pod, h.At(pod, asOf))
		if len(b) >= batch {
			if _, err := w.Write(b); err != nil {
				return // the client has gone
			}
			b = b[:0]
		}
	}
	_, _ = w.Write(append(b, "]}\n"...))
}

func formatContinue(asOf uint64, from int) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d/%d", asOf, from))
}

func parseContinue(token string) (asOf uint64, from int, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(string(text), "%d/%d", &asOf, &from)
	return asOf, from, err
}

func expired(w http.ResponseWriter, version uint64) {
	fail(w, http.StatusGone, metav1.StatusReasonExpired, fmt.Sprintf("too old resource version: %d", version))
}

// watch sends every update after the given resourceVersion and a bookmark when it has caught up
// with the last one. It sends further bookmarks each minute.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	q, h := r.URL.Query(), s.history
	bookmarks, _ := strconv.ParseBool(q.Get("allowWatchBookmarks"))
	initialEvents, _ := strconv.ParseBool(q.Get("sendInitialEvents"))
	timeout := time.Hour
	if seconds, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	out := &frames{w: w, flush: http.NewResponseController(w).Flush, count: &s.frames}
	w.Header().Set("Content-Type", "application/json")
	s.watches.Add(1)
	defer s.watches.Add(-1)

	next := 0 // the update to send next
	switch wanted := q.Get("resourceVersion"); {
	case initialEvents, wanted == "", wanted == "0":
		asOf := h.current()
		for pod := range h.pods {
			if out.add(h.appendAdded(out.buf, pod, h.At(pod, asOf))) != nil {
				return
			}
		}
		if initialEvents {
			out.buf = appendBookmark(out.buf, asOf, true)
		}
		next = int(asOf - beginning)
	default:
		v, err := strconv.ParseUint(wanted, 10, 64)
		if err != nil {
			badRequest(w, fmt.Errorf("resourceVersion: %w", err))
			return
		}
		if v < beginning {
			// An expired watch is a stream that begins with its error.
			status, _ := json.Marshal(failure(http.StatusGone, metav1.StatusReasonExpired,
				fmt.Sprintf("too old resource version: %d", v)))
			_, _ = w.Write(append(append([]byte(`{"type":"ERROR","object":`), status...), "}\n"...))
			return
		}
		next = int(v - beginning)
	}
	if out.send() != nil {
		return
	}

	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	due := time.NewTicker(bookmarkEvery)
	defer due.Stop()
	for {
		released, all, more := h.Released()
		sent := next < released
		for ; next < released; next++ {
			if out.add(h.appendUpdate(out.buf, next)) != nil {
				return
			}
			out.updates++
		}
		if sent && all && bookmarks {
			out.buf = appendBookmark(out.buf, h.Version(next)-1, false)
		}
		if out.send() != nil {
			return
		}
		select {
		case <-more:
		case <-due.C:
			if bookmarks && next == released {
				out.buf = appendBookmark(out.buf, h.Version(next)-1, false)
			}
		case <-deadline.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}
