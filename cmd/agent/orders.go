package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/kubecdc/kubecdc/internal/informers"
)

// snapshotRequest is what POST /snapshot takes.
type snapshotRequest struct {
	Resource  string `json:"resource"`  // "deployments.apps"; "": every one
	Namespace string `json:"namespace"` // "": every one
}

// snapshotAnswer is what it answers.
type snapshotAnswer struct {
	Snapshots []startedSnapshot `json:"snapshots"`
	Errors    []string          `json:"errors,omitempty"` // of scopes that could not begin, or why there is none
}

type startedSnapshot struct {
	Scope    string `json:"scope"`
	Snapshot string `json:"snapshot"` // its id, which its events carry
	Objects  int    `json:"objects"`
	Running  bool   `json:"running"` // it was in progress already
}

// takeSnapshot begins snapshots. It answers once they have begun, or are given up: 503 if none could begin.
func takeSnapshot(set *informers.Manager) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request snapshotRequest
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
		body.DisallowUnknownFields()
		if err := body.Decode(&request); err != nil {
			answer(w, http.StatusBadRequest, &snapshotAnswer{Errors: []string{fmt.Sprintf("the request cannot be read: %v", err)}})
			return
		}
		started, err := set.Snapshot(r.Context(), request.Resource, request.Namespace)
		a := &snapshotAnswer{Snapshots: make([]startedSnapshot, len(started))}
		for i, s := range started {
			a.Snapshots[i] = startedSnapshot(s)
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
		answer(w, code, a)
	})
}

func answer(w http.ResponseWriter, code int, a *snapshotAnswer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = printJSON(w, a) // whoever is gone hears nothing
}

// notHere answers who gives an order over HTTP: anyone who reaches the port could.
func notHere(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusForbidden, &snapshotAnswer{Errors: []string{
		"orders and profiles are not taken over HTTP, but at a Unix socket on the agent's machine: in its pod, 'kubectl exec POD -- /kubecdc snapshot' " +
			"or 'kubectl exec POD -- /kubecdc profile' of the agent's release",
	}})
}
