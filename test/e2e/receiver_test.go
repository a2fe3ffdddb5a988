package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cloudhttp "github.com/cloudevents/sdk-go/v2/protocol/http"
)

// conduct is how a receiver treats one request.
type conduct int

const (
	accept      conduct = iota
	tooMany             // 429 with Retry-After
	unavailable         // 503 with Retry-After
	broken              // 500
	hangBefore          // Nothing is taken, and no answer comes.
	hangAfter           // All is taken, and no answer comes.
	cutBefore           // Nothing is taken, and the connection ends.
	cutAfter            // All is taken, and the connection ends.
)

func (c conduct) String() string {
	return [...]string{"accept", "429", "503", "500", "hang before", "hang after", "cut before", "cut after"}[c]
}

// receiver is an HTTP server that takes CloudEvents in all modes, as the CloudEvents SDK reads them, and keeps them in the
// order in which they came.
type receiver struct {
	URL   string // As the agent is told.
	more  string // More of bus.http, YAML as in a flow mapping.
	limit int    // Larger bodies get a 413; 0: none.

	mu       sync.Mutex
	conduct  func() conduct // Nil: accept.
	messages []message
	added    chan struct{}   // Closed with the next message.
	cut      map[string]bool // The ids of the events whose connection was cut.
	modes    map[string]int  // Requests by content type.
	conducts map[conduct]int
	largest  int // Most events of one request.
	problems []string
}

// startReceiver serves until the test ends. With a TLS configuration it serves HTTPS.
func startReceiver(t testing.TB, secure *tls.Config) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &receiver{
		URL: "http://" + l.Addr().String(), added: make(chan struct{}),
		cut: make(map[string]bool), modes: make(map[string]int), conducts: make(map[conduct]int),
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: time.Minute, TLSConfig: secure,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // What is done to it is no news.
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if secure != nil {
			_ = server.ServeTLS(l, "", "") // Ends with the server.
		} else {
			_ = server.Serve(l)
		}
	})
	if secure != nil {
		h.URL = "https://" + l.Addr().String()
	}
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
		for _, p := range h.problems {
			t.Errorf("receiver: %s", p)
		}
	})
	return h
}

func (h *receiver) config() string {
	more := ""
	if h.more != "" {
		more = ", " + h.more
	}
	return fmt.Sprintf("http: {url: %q%s}", h.URL, more)
}

// behave decides from now on how each request is treated.
func (h *receiver) behave(decide func() conduct) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conduct = decide
}

func (h *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if h.limit > 0 && req.ContentLength > int64(h.limit) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // The client has gone.
	}
	events, err := parse(req, body)
	if err != nil {
		h.mu.Lock()
		h.problems = append(h.problems, fmt.Sprintf("%s: %v", req.Header.Get("Content-Type"), err))
		h.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	how := h.decide(req, events)
	switch how {
	case tooMany, unavailable:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(map[conduct]int{tooMany: http.StatusTooManyRequests, unavailable: http.StatusServiceUnavailable}[how])
		return
	case broken:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case hangBefore:
		<-req.Context().Done()
		return
	case cutBefore:
		panic(http.ErrAbortHandler)
	default:
	}
	if err := h.keep(req, events); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	switch how {
	case hangAfter:
		<-req.Context().Done()
	case cutAfter:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// parse reads the events of a request.
func parse(req *http.Request, body []byte) ([]event.Event, error) {
	req.Body = io.NopCloser(bytes.NewReader(body))
	msg := cloudhttp.NewMessageFromHttpRequest(req)
	if msg.ReadEncoding() == binding.EncodingBatch {
		return binding.ToEvents(req.Context(), msg, msg.BodyReader)
	}
	e, err := binding.ToEvent(req.Context(), msg)
	if err != nil {
		return nil, err
	}
	return []event.Event{*e}, nil
}

// decide is how this request is treated. The connection of one event is cut once at most: twice would mean that the
// receiver refuses it.
func (h *receiver) decide(req *http.Request, events []event.Event) conduct {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.modes[req.Header.Get("Content-Type")]++
	h.largest = max(h.largest, len(events))
	how := accept
	if h.conduct != nil {
		how = h.conduct()
	}
	if how == cutBefore || how == cutAfter {
		for i := range events {
			if h.cut[events[i].ID()] {
				how = unavailable
			}
		}
	}
	if how == cutBefore || how == cutAfter {
		for i := range events {
			h.cut[events[i].ID()] = true
		}
	}
	h.conducts[how]++
	return how
}

// keep keeps the events of a request.
func (h *receiver) keep(req *http.Request, events []event.Event) error {
	var list []message
	for i := range events {
		text, err := json.Marshal(events[i])
		if err != nil {
			return err
		}
		// No time: a second copy means that an answer was lost, and for that there is no window.
		list = append(list, message{Header: req.Header, Body: text})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range list {
		m.Position = uint64(len(h.messages)) + 1
		h.messages = append(h.messages, m)
	}
	close(h.added)
	h.added = make(chan struct{})
	return nil
}

// count is how many requests were treated in each way.
func (h *receiver) count() map[conduct]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.conducts)
}

// seen is the content types that requests had, and the most events that one had.
func (h *receiver) seen() (contentTypes []string, largest int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.modes)), h.largest
}

func (h *receiver) read(t testing.TB, r *reader) *stream {
	t.Helper()
	s := newStream()
	s.body = func(_ context.Context, _ int, position uint64) ([]byte, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.messages[position-1].Body, nil
	}
	s.run(t, func(ctx context.Context) error {
		return h.each(ctx, func(m message) { s.add(r.read(m), len(m.Body)) })
	})
	return s
}

// each hands over what there is and what comes, until ctx ends.
func (h *receiver) each(ctx context.Context, take func(message)) error {
	for n := 0; ; {
		h.mu.Lock()
		fresh, added := h.messages[n:], h.added
		h.mu.Unlock()
		for _, m := range fresh {
			take(m)
		}
		if n += len(fresh); len(fresh) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-added:
		}
	}
}
