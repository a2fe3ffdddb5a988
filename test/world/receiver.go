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

// What a receiver can do with a request.
const (
	Accept      Conduct = iota
	TooMany             // 429 with Retry-After
	Unavailable         // 503 with Retry-After
	Broken              // 500
	HangBefore          // Nothing is taken, and no answer comes.
	HangAfter           // All is taken, and no answer comes.
	CutBefore           // Nothing is taken, and the connection ends.
	CutAfter            // All is taken, and the connection ends.
)

func (c Conduct) String() string {
	return [...]string{"accept", "429", "503", "500", "hang before", "hang after", "cut before", "cut after"}[c]
}

// Receiver is an HTTP server that takes CloudEvents in all modes, as the CloudEvents SDK reads them, and keeps them in the
// order in which they came.
type Receiver struct {
	URL   string // As the agent is told.
	More  string // More of bus.http, YAML as in a flow mapping.
	Limit int    // Larger bodies get a 413; 0: none.

	mu       sync.Mutex
	conduct  func() Conduct // Nil: accept.
	messages []oracle.Message
	added    chan struct{}   // Closed with the next message.
	cut      map[string]bool // The ids of the events whose connection was cut.
	modes    map[string]int  // Requests by content type.
	conducts map[Conduct]int
	largest  int // Most events of one request.
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
		URL: "http://" + l.Addr().String(), added: make(chan struct{}),
		cut: make(map[string]bool), modes: make(map[string]int), conducts: make(map[Conduct]int),
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

// Config is that of an agent that sends to the receiver.
func (h *Receiver) Config() string {
	more := ""
	if h.More != "" {
		more = ", " + h.More
	}
	return fmt.Sprintf("http: {url: %q%s}", h.URL, more)
}

// behave decides from now on how each request is treated.
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
	case TooMany, Unavailable:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(map[Conduct]int{TooMany: http.StatusTooManyRequests, Unavailable: http.StatusServiceUnavailable}[how])
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

// decide is how this request is treated. The connection of one event is cut once at most: twice would mean that the
// receiver refuses it.
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
		// No time: a second copy means that an answer was lost, and for that there is no window.
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

// Count is how many requests were treated in each way.
func (h *Receiver) Count() map[Conduct]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.conducts)
}

// Seen is the content types that requests had, and the most events that one had.
func (h *Receiver) Seen() (contentTypes []string, largest int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.modes)), h.largest
}

// Read reads what the receiver has kept.
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

// Each hands over what there is and what comes, until ctx ends.
func (h *Receiver) Each(ctx context.Context, take func(oracle.Message)) error {
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

// Misbehave is for a while well, then does one bad thing to many requests, the next one, then a bit of everything; until ctx
// ends.
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
			_ = wait.For(ctx, 10*time.Second, func() error { // Whoever has to retry waits before it does.
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
