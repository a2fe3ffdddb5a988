package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

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

// takeSnapshot begins snapshots. It answers once they have begun.
func takeSnapshot(set *informers.Set) http.Handler {
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
			if loading := set.Ready(); len(started) == 0 && loading != nil {
				a.Errors, code = []string{fmt.Sprintf("it is still loading: %v", loading)}, http.StatusServiceUnavailable
			} else if len(started) == 0 {
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

// fromHere lets pass what comes from this machine: kubectl exec and kubectl port-forward do. A browser on it is not to be
// used by a page of somebody else: not from another origin (http.CrossOriginProtection), and not by a name of that page's
// own which leads here (DNS rebinding).
func fromHere(h http.Handler) http.Handler {
	var origin http.CrossOriginProtection
	h = origin.Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.RemoteAddr) || !isLoopback(r.Host) {
			answer(w, http.StatusForbidden, &snapshotAnswer{Errors: []string{"only asked from the agent's own machine: use kubectl exec or kubectl port-forward"}})
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a profile takes minutes; a test's recorder has none
		h.ServeHTTP(w, r)
	})
}

// isLoopback tells if an address, with or without a port, is one of this machine alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
