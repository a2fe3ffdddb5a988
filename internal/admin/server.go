package admin

import (
	"context"
	"encoding/json"
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

	"github.com/kubecdc/kubecdc/internal/connlimit"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// Server is the HTTP server and the command socket of an agent, or of a process that runs only
// relays.
type Server struct {
	http     *http.Server
	socket   *http.Server
	checks   *Checks
	watchdog *watchdog
}

// Options of a Server.
type Options struct {
	Registry *prometheus.Registry
	Log      *slog.Logger
	Build    Build
	Checks   *Checks

	// acquires and releases the locks that all stages need; nil disables this check of /healthz
	AcquireLocks func()
	Informers    Informers          // nil without informers
	Stuck        func() StuckEvents // returns nil while the agent does not publish; nil without a bus
	Status       func() Status      // nil disables /status
	Profiles     bool               // serve /debug/pprof/ at the socket
}

// Build identifies the binary.
type Build struct{ Version, Commit, Go string }

// Informers provides the state of the informers, and starts snapshots.
type Informers interface {
	Status() []informer.Status
	Ready() error
	// Snapshot starts snapshots of a resource in a namespace, "" for all namespaces. It returns the
	// started ones, and an error for each scope that could not start.
	Snapshot(ctx context.Context, resource, namespace string) ([]store.Started, error)
}

// Anybody in the cluster may reach the port. The agent needs little memory and answers the probes
// of the kubelet, whatever such a client sends or leaves unread.
const (
	maxConnections = 256
	maxHeader      = 16 << 10 // bytes of a request's header
	readTimeout    = 10 * time.Second
	writeTimeout   = time.Minute // not for the socket: a profile takes minutes
	idleTimeout    = 2 * time.Minute
	costlyAtOnce   = 2                // answers that take memory: /metrics, /status
	scrapeTimeout  = 10 * time.Second // to read an answer of them
	readyAtOnce    = 4
)

// New returns a server that serves /metrics, /healthz, /readyz and /status over HTTP, and at the
// socket /snapshot, /stuck, /dead-letter, /debug/pprof and /status.
func New(o Options) *Server {
	s := &Server{checks: o.Checks, watchdog: &watchdog{log: o.Log, acquire: o.AcquireLocks}}
	o.Registry.MustRegister(o.Checks, NewBuildInfo(o.Build))
	public, commands := http.NewServeMux(), http.NewServeMux()
	public.Handle("GET /metrics", costly(promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{})))
	public.HandleFunc("GET /healthz", s.healthz)
	public.Handle("GET /readyz", inTurn(func(w http.ResponseWriter, r *http.Request) {
		readyz(w, r, o.Checks, o.Informers)
	}))
	public.HandleFunc("/snapshot", socketOnly)
	public.HandleFunc("/debug/pprof/", socketOnly)
	if o.Informers != nil {
		commands.Handle("POST /snapshot", takeSnapshot(o.Informers))
	}
	if o.Stuck != nil {
		serveStuck(commands, o.Stuck)
	}
	if o.Status != nil {
		show := func(w http.ResponseWriter, r *http.Request) { showStatus(w, r, o.Status) }
		public.Handle("GET /status", costly(http.HandlerFunc(show)))
		commands.HandleFunc("GET /status", show)
	}
	if o.Profiles {
		serveProfiles(commands)
	}
	s.http = &http.Server{
		Handler:           public,
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
	}
	s.socket = &http.Server{Handler: commands, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: idleTimeout}
	return s
}

// Handler returns the handler of the HTTP server.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// SocketHandler returns the handler of the socket.
func (s *Server) SocketHandler() http.Handler { return s.socket.Handler }

// Run serves HTTP on l, and commands at the socket unless at is nil, until ctx ends. Then it closes
// all connections.
func (s *Server) Run(ctx context.Context, l net.Listener, at *Socket) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _, _ = s.http.Close(), s.socket.Close() })
	defer stop()
	if at != nil {
		g.Go(func() error {
			if err := s.socket.Serve(at); err != nil && !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve commands: %w", err)
			}
			return nil
		})
	}
	g.Go(func() error {
		s.checks.run(ctx)
		return nil
	})
	if s.watchdog.acquire != nil {
		g.Go(func() error {
			s.watchdog.run(ctx)
			return nil
		})
	}
	g.Go(func() error {
		if connlimit.IsLoopback(l.Addr().String()) {
			s.http.Handler = localOnly(s.http.Handler)
		}
		err := s.http.Serve(connlimit.Listen(l, maxConnections))
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics and probes: %w", err)
		}
		return nil
	})
	return g.Wait()
}

// costly limits the requests to h at once, and refuses others. It ends the connection after the
// answer, which the client must read soon.
func costly(h http.Handler) http.Handler {
	turns := make(chan struct{}, costlyAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			// A test without a connection does not support the deadline.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout))
			h.ServeHTTP(w, r)
		default:
			text := fmt.Sprintf("the agent answers %d such requests at once: try again", costlyAtOnce)
			http.Error(w, text, http.StatusServiceUnavailable)
		}
	})
}

// inTurn limits the requests to h at once. Others wait.
func inTurn(h http.HandlerFunc) http.Handler {
	turns := make(chan struct{}, readyAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			h(w, r)
		case <-r.Context().Done():
		}
	})
}

// localOnly refuses requests to another name than this machine's. A web page of an attacker can
// make a browser on this machine send requests here, under the page's own name (DNS rebinding).
func localOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !connlimit.IsLoopback(r.Host) {
			http.Error(w, "the agent listens on loopback: use localhost or 127.0.0.1", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// NewBuildInfo returns the metric of the build.
func NewBuildInfo(b Build) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kubecdc_build_info",
		Help:        "1, labelled with the version and the commit of the agent, and the version of Go.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go_version": b.Go},
	})
	g.Set(1)
	return g
}

// healthz reports whether a restart would help.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := s.watchdog.checkAlive(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "ok")
}

// respond writes v as JSON. It ignores connection errors: the client has disconnected.
func respond(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}

// maxShown limits the scopes in /readyz. If there are more, those with a problem come first.
const maxShown = 100

// readyz reports whether the agent is ready, and why not.
func readyz(w http.ResponseWriter, r *http.Request, c *Checks, informers Informers) {
	now := time.Now()
	ready := c.Look(now)
	code := http.StatusOK
	if !ready.Ready {
		code = http.StatusServiceUnavailable
	}
	if wantsJSON(r) {
		respond(w, code, &ready)
		return
	}
	b := []byte(ready.Text(now))
	if informers != nil && !ready.Standby {
		b = appendScopes(b, informers.Status())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b)
}

// wantsJSON reports whether a request asks for JSON, with ?o=json or in its Accept header.
func wantsJSON(r *http.Request) bool {
	if o := r.URL.Query().Get("o"); o != "" {
		return o == "json"
	}
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

func appendScopes(b []byte, all []informer.Status) []byte {
	more := len(all) - maxShown
	if more > 0 {
		slices.SortStableFunc(all, worseFirst)
		all = all[:maxShown]
	}
	for i := range all {
		st := &all[i]
		b = fmt.Appendf(b, "    %s: %s", st.Scope, st.Phase)
		if st.Health != informer.HealthOK {
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
