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
	Resource  string `json:"resource"`  // "deployments.apps"; "": every one
	Namespace string `json:"namespace"` // "": every one
}

// SnapshotAnswer is the answer to POST /snapshot.
type SnapshotAnswer struct {
	Snapshots []StartedSnapshot `json:"snapshots"`
	Errors    []string          `json:"errors,omitempty"` // of scopes that could not begin, or why there is none
}

// StartedSnapshot is a snapshot that has begun.
type StartedSnapshot struct {
	Scope    string `json:"scope"`
	Snapshot string `json:"snapshot"` // its id, which its events carry
	Objects  int    `json:"objects"`
	Running  bool   `json:"running"` // it was in progress already
}

// takeSnapshot begins snapshots. It answers when they have begun or are given up: 503 if none could begin.
func takeSnapshot(set Informers) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request SnapshotRequest
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
		body.DisallowUnknownFields()
		if err := body.Decode(&request); err != nil {
			respond(w, http.StatusBadRequest, &SnapshotAnswer{Errors: []string{fmt.Sprintf("the request cannot be read: %v", err)}})
			return
		}
		started, err := set.Snapshot(r.Context(), request.Resource, request.Namespace)
		a := &SnapshotAnswer{Snapshots: make([]StartedSnapshot, len(started))}
		for i, s := range started {
			a.Snapshots[i] = StartedSnapshot(s)
		}
		code := http.StatusOK
		if err != nil {
			a.Errors = strings.Split(err.Error(), "\n") // a line for each scope
			loading := set.Ready()
			switch {
			case len(started) > 0:
			case errors.Is(err, store.ErrNotBegun):
				code = http.StatusServiceUnavailable
			case loading != nil:
				a.Errors, code = []string{fmt.Sprintf("it is still loading: %v", loading)}, http.StatusServiceUnavailable
			default:
				code = http.StatusNotFound
			}
		}
		respond(w, code, a)
	})
}

// socketOnly rejects a command that was sent over HTTP: anyone who reaches the port could send one.
func socketOnly(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusForbidden, &SnapshotAnswer{Errors: []string{
		"orders and profiles are not taken over HTTP, but at a Unix socket on the agent's machine: in its pod, 'kubectl exec POD -- /kubecdc snapshot' " +
			"or 'kubectl exec POD -- /kubecdc profile' of the agent's release",
	}})
}
