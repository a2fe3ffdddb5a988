package world

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cloudhttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Conduct is how a receiver treats one request.
type Conduct int

// The ways in which a receiver can treat a request.
const (
	Accept      Conduct = iota
	TooMany             // 429 with Retry-After
	Unavailable         // 503 with Retry-After
	Broken              // 500
	HangBefore          // Keeps no event and does not answer.
	HangAfter           // Keeps all events and does not answer.
	CutBefore           // Keeps no event and closes the connection.
	CutAfter            // Keeps all events and closes the connection.
)

func (c Conduct) String() string {
	return [...]string{"accept", "429", "503", "500", "hang before", "hang after", "cut before", "cut after"}[c]
}

// Receiver is an HTTP server that reads CloudEvents in all modes with the CloudEvents SDK, and
// keeps them in the order in which they arrive.
type Receiver struct {
	URL   string // The URL in the agent's configuration.
	More  string // More of bus.http, YAML as in a flow mapping.
	Limit int    // Larger bodies get a 413; 0: none.

	mu       sync.Mutex
	conduct  func() Conduct // Nil: accept.
	messages []oracle.Message
	added    chan struct{}   // Closed with the next message.
	cut      map[string]bool // The ids of the events whose connection was cut.
	modes    map[string]int  // Requests by content type.
	conducts map[Conduct]int
	largest  int // The highest number of events in one request.
	problems []string
}

// StartReceiver serves until the test ends. With a TLS configuration it serves HTTPS.
func StartReceiver(t testing.TB, secure *tls.Config) *Receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &Receiver{
		URL:      "http://" + l.Addr().String(),
		added:    make(chan struct{}),
		cut:      make(map[string]bool),
		modes:    make(map[string]int),
		conducts: make(map[Conduct]int),
	}
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         secure,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // Errors are expected.
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
			oracle.Fail(t, "receiver: %s", p)
		}
	})
	return h
}

// Config returns the configuration of an agent that sends to the receiver.
func (h *Receiver) Config() string {
	more := ""
	if h.More != "" {
		more = ", " + h.More
	}
	return fmt.Sprintf("http: {url: %q%s}", h.URL, more)
}

// behave makes decide choose the treatment of each request from now on.
func (h *Receiver) behave(decide func() Conduct) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conduct = decide
}

func (h *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if h.Limit > 0 && req.ContentLength > int64(h.Limit) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // The client has closed the connection.
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
	case TooMany, Unavailable:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(
			map[Conduct]int{TooMany: http.StatusTooManyRequests, Unavailable: http.StatusServiceUnavailable}[how])
		return
	case Broken:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case HangBefore:
		<-req.Context().Done()
		return
	case CutBefore:
		panic(http.ErrAbortHandler)
	default:
	}
	if err := h.keep(req, events); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	switch how {
	case HangAfter:
		<-req.Context().Done()
	case CutAfter:
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

// decide returns the treatment of a request. It cuts the connection of an event at most once: the
// agent would treat a second time as a rejection.
func (h *Receiver) decide(req *http.Request, events []event.Event) Conduct {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.modes[req.Header.Get("Content-Type")]++
	h.largest = max(h.largest, len(events))
	how := Accept
	if h.conduct != nil {
		how = h.conduct()
	}
	if how == CutBefore || how == CutAfter {
		for i := range events {
			if h.cut[events[i].ID()] {
				how = Unavailable
			}
		}
	}
	if how == CutBefore || how == CutAfter {
		for i := range events {
			h.cut[events[i].ID()] = true
		}
	}
	h.conducts[how]++
	return how
}

// keep keeps the events of a request.
func (h *Receiver) keep(req *http.Request, events []event.Event) error {
	var list []oracle.Message
	for i := range events {
		text, err := json.Marshal(events[i])
		if err != nil {
			return err
		}
		// Stored is not set, because the bus has no duplicate window: a lost answer results in a
		// second copy at any time.
		list = append(list, oracle.Message{Header: req.Header, Body: text})
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

// Count returns the number of requests by treatment.
func (h *Receiver) Count() map[Conduct]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.conducts)
}

// Seen returns the content types of all requests, and the highest number of events in one request.
func (h *Receiver) Seen() (contentTypes []string, largest int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.modes)), h.largest
}

// Read reads the events that the receiver keeps.
func (h *Receiver) Read(t testing.TB, r *oracle.Reader) *Stream {
	t.Helper()
	s := newStream()
	s.Body = func(_ context.Context, _ int, position uint64) ([]byte, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.messages[position-1].Body, nil
	}
	s.Run(t, func(ctx context.Context) error {
		return h.Each(ctx, func(m oracle.Message) { s.add(r.Read(m), len(m.Body)) })
	})
	return s
}

// Each passes all messages to take, and further ones as they arrive, until ctx ends.
func (h *Receiver) Each(ctx context.Context, take func(oracle.Message)) error {
	for n := 0; ; {
		h.mu.Lock()
		fresh, added := h.messages[n:], h.added
		h.mu.Unlock()
		for _, m := range fresh {
			take(m)
		}
		n += len(fresh)
		if len(fresh) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-added:
		}
	}
}

// Misbehave accepts requests for a while, then goes through all other treatments, first one at a
// time and then at random. It repeats this until ctx ends.
func (h *Receiver) Misbehave(ctx context.Context) error {
	defer h.behave(nil)
	rng := rand.New(rand.NewPCG(7, 7)) // Used under the receiver's lock.
	mostly := func(how Conduct, percent int) func() Conduct {
		return func() Conduct {
			if rng.IntN(100) < percent {
				return how
			}
			return Accept
		}
	}
	for ctx.Err() == nil {
		for _, phase := range []struct {
			how     Conduct
			percent int
		}{
			{Accept, 100},
			{Unavailable, 100},
			{TooMany, 100},
			{Broken, 50},
			{CutBefore, 20},
			{CutAfter, 20},
			{HangBefore, 3},
			{HangAfter, 3},
		} {
			before := h.Count()[phase.how]
			h.behave(mostly(phase.how, phase.percent))
			Pass(ctx, 300*time.Millisecond)
			_ = wait.For(ctx, 10*time.Second, func() error { // The agent waits before a retry.
				if h.Count()[phase.how] == before {
					return errors.New("not yet done")
				}
				return nil
			})
		}
		h.behave(func() Conduct {
			if rng.IntN(4) == 0 {
				return Conduct(rng.IntN(int(CutAfter) + 1))
			}
			return Accept
		})
		Pass(ctx, time.Second)
	}
	return nil
}
