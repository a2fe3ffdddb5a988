package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// StuckEvents provides the events that the bus has not accepted and that are retried.
type StuckEvents interface {
	Stuck() []publish.Stuck
	DeadLetter(id string) error
}

// StuckEvent is one of them, in the response to GET /stuck.
type StuckEvent struct {
	ID        string    `json:"id"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"` // for a stream event, its scope
	Since     time.Time `json:"since"`
	Attempts  int       `json:"attempts"`
	Isolated  bool      `json:"isolated"` // sent alone, on a separate connection
	Error     string    `json:"error"`    // of the last attempt
}

// deadLetterRequest is the body of POST /dead-letter.
type deadLetterRequest struct {
	ID string `json:"id"`
}

// deadLetterAnswer is its response; Error is empty if the event will become a dead letter.
type deadLetterAnswer struct {
	Error string `json:"error,omitempty"`
}

// serveStuck serves the list of events that the bus has not accepted, and moves one of them to the
// dead letters. events returns nil while the agent does not publish.
func serveStuck(mux *http.ServeMux, events func() StuckEvents) {
	mux.HandleFunc("GET /stuck", func(w http.ResponseWriter, _ *http.Request) {
		list := []StuckEvent{}
		if e := events(); e != nil {
			for _, s := range e.Stuck() {
				list = append(list, StuckEvent{
					s.ID, s.Resource, s.Namespace, s.Name, s.Since, s.Failures, s.Alone, s.Err,
				})
			}
		}
		respond(w, http.StatusOK, list)
	})
	mux.HandleFunc("POST /dead-letter", func(w http.ResponseWriter, r *http.Request) {
		var (
			request deadLetterRequest
			a       deadLetterAnswer
		)
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<10))
		body.DisallowUnknownFields()
		code, err := http.StatusOK, body.Decode(&request)
		switch e := events(); {
		case err != nil:
			code = http.StatusBadRequest
		case e == nil:
			code = http.StatusServiceUnavailable
			err = errors.New("this agent does not publish: another one leads, or it is still starting")
		default:
			if err = e.DeadLetter(request.ID); err != nil {
				code = http.StatusConflict
			}
		}
		if err != nil {
			a.Error = err.Error()
		}
		respond(w, code, a)
	})
}
