package main

import (
	"context"
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
}

// newServer serves /metrics, /healthz and /readyz.
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
				code = http.StatusServiceUnavailable
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
	return &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
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
