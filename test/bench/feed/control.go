package feed

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// start is a request to release updates.
type start struct {
	updates int
	rate    float64 // per second; 0: all at once
}

// Status is the answer to GET /status at the control address.
type Status struct {
	Released int   `json:"released"` // updates that have happened
	Planned  bool  `json:"planned"`  // some requested updates are still to happen
	Frames   int64 `json:"frames"`   // updates written to all watches together
	Watches  int64 `json:"watches"`  // open now
}

func (s *Server) controller() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, r *http.Request) {
		var order start
		var err error
		order.updates, err = strconv.Atoi(r.FormValue("updates"))
		if err != nil || order.updates < 1 {
			badRequest(w, fmt.Errorf("updates %q", r.FormValue("updates")))
			return
		}
		if text := r.FormValue("rate"); text != "" {
			order.rate, err = strconv.ParseFloat(text, 64)
			if err != nil || order.rate < 0 {
				badRequest(w, fmt.Errorf("rate %q", text))
				return
			}
		}
		s.history.plan(order.updates)
		select {
		case s.starts <- order:
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		released, all, _ := s.history.Released()
		reply(w, http.StatusOK, Status{
			Released: released,
			Planned:  !all,
			Frames:   s.frames.Load(),
			Watches:  s.watches.Load(),
		})
	})
	return mux
}

// release releases updates as requested, one request after the other.
func (s *Server) release(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case order := <-s.starts:
			if order.rate == 0 {
				s.history.release(order.updates)
				continue
			}
			s.releaseAt(ctx, order)
		}
	}
}

func (s *Server) releaseAt(ctx context.Context, order start) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / order.rate))
	defer tick.Stop()
	begun := time.Now()
	for done := 0; done < order.updates; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Based on the clock, so that a late tick does not lower the rate.
		if due := min(order.updates, int(time.Since(begun).Seconds()*order.rate)); due > done {
			s.history.release(due - done)
			done = due
		}
	}
}
