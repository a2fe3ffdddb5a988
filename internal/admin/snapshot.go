package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// SnapshotRequest is the body of POST /snapshot.
type SnapshotRequest struct {
	Resource  string `json:"resource"`  // "deployments.apps"; "" for all
	Namespace string `json:"namespace"` // "" for all
}

// SnapshotAnswer is the response to POST /snapshot.
type SnapshotAnswer struct {
	Snapshots []StartedSnapshot `json:"snapshots"`
	// of scopes that could not start, or why no snapshot has started
	Errors []string `json:"errors,omitempty"`
}

// StartedSnapshot is a snapshot that has started.
type StartedSnapshot struct {
	Scope    string `json:"scope"`
	Snapshot string `json:"snapshot"` // its id, as in its events
	Objects  int    `json:"objects"`
	Running  bool   `json:"running"` // it was already in progress
}

// takeSnapshot starts snapshots. It responds after they have started or failed: 503 if none could
// start.
func takeSnapshot(set Informers) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request SnapshotRequest
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
		body.DisallowUnknownFields()
		if err := body.Decode(&request); err != nil {
			respond(w, http.StatusBadRequest, &SnapshotAnswer{Errors: []string{
				fmt.Sprintf("the request cannot be read: %v", err),
			}})
			return
		}
		started, err := set.Snapshot(r.Context(), request.Resource, request.Namespace)
		a := &SnapshotAnswer{Snapshots: make([]StartedSnapshot, len(started))}
		for i, s := range started {
			a.Snapshots[i] = StartedSnapshot(s)
		}
		code := http.StatusOK
		if err != nil {
			a.Errors = strings.Split(err.Error(), "\n") // one line for each scope
			loading := set.Ready()
			switch {
			case len(started) > 0:
			case errors.Is(err, store.ErrNotBegun):
				code = http.StatusServiceUnavailable
			case loading != nil:
				a.Errors = []string{fmt.Sprintf("it is still loading: %v", loading)}
				code = http.StatusServiceUnavailable
			default:
				code = http.StatusNotFound
			}
		}
		respond(w, code, a)
	})
}

// socketOnly rejects a command that was sent over HTTP, because anyone who can reach the port could
// send one.
func socketOnly(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusForbidden, &SnapshotAnswer{Errors: []string{
		"commands and profiles are not accepted over HTTP, only at a Unix socket on the agent's machine: in its pod, run 'kubectl exec POD -- /kubecdc snapshot' " +
			"or 'kubectl exec POD -- /kubecdc profile' of the agent's release",
	}})
}
