// Command webhook receives events by HTTP, one or a batch per request, and handles each at least
// once: it answers after it has handled them.
//
//	go run ./examples/go/webhook [-listen 127.0.0.1:8080]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/kubecdc/kubecdc/pkg/consume/cloudevents"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "listening on", "http://"+l.Addr().String())
	s := &http.Server{Handler: http.HandlerFunc(receive), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// receive answers 204 after all events of the request are handled. The agent repeats the request
// after a 5xx or without an answer. A 400 would be final: the agent would write the event to its
// dead letters.
func receive(w http.ResponseWriter, r *http.Request) {
	events, err := eventsOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for i := range events {
		e, err := cloudevents.From(&events[i])
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// Write the effect under e.Source and e.ID, which identify the event. Then a second copy
		// changes nothing.
		if _, err := fmt.Fprintln(os.Stdout, e.Time.Format("15:04:05"), e.Source, e.ID); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

func eventsOf(r *http.Request) ([]event.Event, error) {
	if cehttp.IsHTTPBatch(r.Header) {
		return cehttp.NewEventsFromHTTPRequest(r)
	}
	e, err := cehttp.NewEventFromHTTPRequest(r)
	if err != nil {
		return nil, err
	}
	return []event.Event{*e}, nil
}
