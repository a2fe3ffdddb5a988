package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
)

// httpServer is the HTTP server of an agent, or of a process that only relays.
type httpServer struct {
	*http.Server
	orders *http.Server // at the socket
	checks *checks
	pulse  *pulse
}

// serverOptions are what it shows.
type serverOptions struct {
	registry *prometheus.Registry
	log      *slog.Logger
	checks   *checks
	beat     func()             // see pulse
	set      *informers.Manager // nil: there are no informers
	stuck    func() stuckEvents // what the bus does not take; it returns nil while nothing is published. nil: there is no bus
	status   func() statuses    // nil: there is none
	pprof    bool
}

// Whoever does not read what was asked for, or asks nothing more, must not hold memory and a connection for ever.
const (
	readWithin = time.Minute // not at the socket: a profile takes minutes
	idleWithin = 2 * time.Minute
)

// newServer serves /metrics, /healthz, /readyz and /status, and at the socket /snapshot, /stuck, /dead-letter, /debug/pprof and /status.
func newServer(o serverOptions) *httpServer {
	s := &httpServer{checks: o.checks, pulse: newPulse(o.log, o.beat)}
	o.registry.MustRegister(o.checks, newBuildInfo())
	mux, orders := http.NewServeMux(), http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { readyz(w, r, o.checks, o.set) })
	mux.HandleFunc("/snapshot", notHere)
	mux.HandleFunc("/debug/pprof/", notHere)
	if o.set != nil {
		orders.Handle("POST /snapshot", takeSnapshot(o.set))
	}
	if o.stuck != nil {
		serveStuck(orders, o.stuck)
	}
	if o.status != nil {
		show := func(w http.ResponseWriter, r *http.Request) { showStatus(w, r, o.status) }
		mux.HandleFunc("GET /status", show)
		orders.HandleFunc("GET /status", show)
	}
	if o.pprof {
		serveProfiles(orders)
	}
	s.Server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: readWithin, IdleTimeout: idleWithin}
	s.orders = &http.Server{Handler: orders, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: idleWithin}
	return s
}

// newBuildInfo is the metric that tells which release runs.
func newBuildInfo() prometheus.Collector {
	v := buildVersions()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubecdc_build_info", Help: "1, with what the agent was built from.",
		ConstLabels: prometheus.Labels{"version": v.Version, "commit": v.Commit, "go_version": v.Go},
	})
	g.Set(1)
	return g
}

// healthz says if a restart would help.
func (s *httpServer) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := s.pulse.alive(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "ok")
}

// maxShown is how many scopes /readyz shows: those with a problem first, where there are more.
const maxShown = 100

// readyz says if the agent is ready, and why not.
func readyz(w http.ResponseWriter, r *http.Request, c *checks, set *informers.Manager) {
	now := time.Now()
	ready := c.look(now)
	code := http.StatusOK
	if !ready.Ready {
		code = http.StatusServiceUnavailable
	}
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = printJSON(w, &ready) // whoever is gone hears nothing
		return
	}
	b := []byte(ready.text(now))
	if set != nil && !ready.Standby {
		b = appendScopes(b, set.Status())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b)
}

// wantsJSON tells if a request asks for JSON, with ?o=json or by its Accept header.
func wantsJSON(r *http.Request) bool {
	if o := r.URL.Query().Get("o"); o != "" {
		return o == "json"
	}
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

func appendScopes(b []byte, all []scope.Status) []byte {
	more := len(all) - maxShown
	if more > 0 {
		slices.SortStableFunc(all, worseFirst)
		all = all[:maxShown]
	}
	for i := range all {
		st := &all[i]
		b = fmt.Appendf(b, "    %s: %s", st.Scope, st.Phase)
		if st.Health != scope.HealthOK {
			b = fmt.Appendf(b, ", %s", st.Health)
		}
		if st.Error != "" {
			b = fmt.Appendf(b, ": %s", st.Error)
		}
		b = append(b, '\n')
	}
	if more > 0 {
		b = fmt.Appendf(b, "    and %d more: /status has all\n", more)
	}
	return b
}

// serve serves on l, and orders at the socket unless that is nil, until ctx ends.
func serve(ctx context.Context, s *httpServer, l net.Listener, at *socket) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _, _ = s.Close(), s.orders.Close() }) // what is being answered is cut off
	defer stop()
	if at != nil {
		g.Go(func() error {
			if err := s.orders.Serve(at); err != nil && !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("take orders: %w", err)
			}
			return nil
		})
	}
	g.Go(func() error {
		s.checks.watch(ctx)
		return nil
	})
	if s.pulse.beat != nil {
		g.Go(func() error {
			s.pulse.watch(ctx)
			return nil
		})
	}
	g.Go(func() error {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics and probes: %w", err)
		}
		return nil
	})
	return g.Wait()
}
