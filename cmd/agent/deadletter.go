package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// stuckEvents are the events that the bus does not take.
type stuckEvents interface {
	Stuck() []publish.Stuck
	DeadLetter(id string) error
}

// stuckEvent is one of them in the answer to GET /stuck.
type stuckEvent struct {
	ID        string    `json:"id"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"` // of a stream event: its scope
	Since     time.Time `json:"since"`
	Attempts  int       `json:"attempts"`
	Isolated  bool      `json:"isolated"` // sent alone, on a connection of its own
	Error     string    `json:"error"`    // of the last attempt
}

// deadLetterRequest is what POST /dead-letter takes.
type deadLetterRequest struct {
	ID string `json:"id"`
}

// deadLetterAnswer is what it answers; Error is empty if the event is on its way to the dead letters.
type deadLetterAnswer struct {
	Error string `json:"error,omitempty"`
}

// serveStuck lists the events that the bus does not take, and puts one of them among the dead letters. events returns nil while the agent does not publish.
func serveStuck(mux *http.ServeMux, events func() stuckEvents) {
	mux.HandleFunc("GET /stuck", func(w http.ResponseWriter, _ *http.Request) {
		list := []stuckEvent{}
		if e := events(); e != nil {
			for _, s := range e.Stuck() {
				list = append(list, stuckEvent{s.ID, s.Resource, s.Namespace, s.Name, s.Since, s.Failures, s.Alone, s.Err})
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, list) // the client may be gone
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
			code, err = http.StatusServiceUnavailable, errors.New("this agent does not publish: another one leads, or it is still starting")
		default:
			if err = e.DeadLetter(request.ID); err != nil {
				code = http.StatusConflict
			}
		}
		if err != nil {
			a.Error = err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = printJSON(w, a) // the client may be gone
	})
}

func newDeadLetterCommand(stdout io.Writer) *cobra.Command {
	var agent, output string
	cmd := &cobra.Command{
		Use:   "dead-letter [EVENT-ID]",
		Short: "List the events that are retried alone, or give one up",
		Long: `List the events that the bus has not accepted and that the running agent retries, with the error of the last attempt.
An isolated event is sent alone, on a connection of its own: the bus denies it alone, or connections broke while it was
in flight. It delays later changes of its own object, and nothing else.

With EVENT-ID, put that event among the dead letters (deadLetter in the configuration) instead of retrying it. The
bus then gets a gap in its place, which names the dead letter, and the later changes of its object follow.

` + aboutSocket,
		Example: `  kubecdc dead-letter                               # what is being retried
  kubecdc dead-letter pods/6e2c…/48211              # give this one up
  kubectl exec -n kubecdc deploy/kubecdc -- /kubecdc dead-letter`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{errors.New("dead-letter: name one event by its id, or none to list them")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("--output: must be table or json, got %q", output)}
			}
			at, err := findSocket(cmd.Context(), agent)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return putAmongDeadLetters(cmd.Context(), at, args[0], stdout)
			}
			return listStuck(cmd.Context(), at, output, stdout)
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", agentOfOrders)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`format` of the list: table or json")
	completeWords(cmd, "output", "table", "json")
	return cmd
}

func listStuck(ctx context.Context, socket, output string, stdout io.Writer) error {
	var list []stuckEvent
	if err := askSocket(ctx, socket, http.MethodGet, "/stuck", nil, &list); err != nil {
		return err
	}
	if output == "json" {
		return printJSON(stdout, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(stdout, "The bus takes all events.")
		return nil
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "EVENT\tOBJECT\tAGE\tATTEMPTS\tISOLATED\tERROR")
	for _, s := range list {
		object := s.Resource + " " + s.Name
		if s.Namespace != "" {
			object = s.Resource + " " + s.Namespace + "/" + s.Name
		}
		fmt.Fprintf(table, "%s\t%s\t%v\t%d\t%s\t%s\n", s.ID, object, time.Since(s.Since).Round(time.Second), s.Attempts, strconv.FormatBool(s.Isolated), s.Error)
	}
	return table.Flush()
}

func putAmongDeadLetters(ctx context.Context, socket, id string, stdout io.Writer) error {
	body, err := json.Marshal(deadLetterRequest{ID: id})
	if err != nil {
		return err
	}
	var a deadLetterAnswer
	if err := askSocket(ctx, socket, http.MethodPost, "/dead-letter", body, &a); err != nil {
		return err
	}
	if a.Error != "" {
		return fmt.Errorf("the agent at %s: %s: 'kubecdc dead-letter' lists what is being retried", socket, a.Error)
	}
	fmt.Fprintf(stdout, "%s goes to the dead letters, and a gap to the bus\n", id)
	return nil
}

// askSocket makes one request to the agent at a socket, and decodes the answer into answer.
func askSocket(ctx context.Context, socket, method, path string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, orderHost+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := socketClient(socket).Do(r)
	if err != nil {
		return noSocket(socket, err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(answer); err != nil || response.Header.Get("Content-Type") != "application/json" {
		return notThat(socket, response.Status, "stuck events")
	}
	return nil
}
