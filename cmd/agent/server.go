package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubecdc/kubecdc/internal/informers"
)

// probe is what /readyz asks. A nil error: ready.
type probe struct {
	name  string
	ready func() error
	aside bool // it is shown, and the agent is ready without it
}

// newServer serves /metrics, /healthz and /readyz, and takes orders at /snapshot from its own machine.
func newServer(reg *prometheus.Registry, set *informers.Set, probes ...probe) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		code := http.StatusOK
		for _, p := range probes {
			if err := p.ready(); err != nil {
				if !p.aside {
					code = http.StatusServiceUnavailable
				}
				fmt.Fprintf(&b, "[-] %s: %v\n", p.name, err)
			} else {
				fmt.Fprintf(&b, "[+] %s: ok\n", p.name)
			}
		}
		for _, s := range set.Status() {
			fmt.Fprintf(&b, "    %s: %s", s.Scope, s.Phase)
			if s.Error != "" {
				fmt.Fprintf(&b, ": %s", s.Error)
			}
			b.WriteByte('\n')
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprint(w, b.String())
	})
	mux.Handle("POST /snapshot", fromHere(takeSnapshot(set)))
	return &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
}

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

// serve serves on l until ctx ends.
func serve(ctx context.Context, s *http.Server, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // what is being answered is cut off
	defer stop()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics and probes: %w", err)
	}
	return nil
}
