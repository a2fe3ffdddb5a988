package feed

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options of a Server.
type Options struct {
	Pods int
	// Padding is the number of additional bytes of each pod, text that compresses to almost
	// nothing.
	Padding int
	TLS     bool // HTTPS, which offers HTTP/2; else plain HTTP/1.1
}

// Server is the stand-in API server and, on an address of its own, its control server.
type Server struct {
	history *History
	url     string
	ca      []byte // PEM; nil without TLS
	token   string

	api, control net.Listener
	certificate  *tls.Certificate
	starts       chan start // one at a time: a second one waits until the first has begun
	frames       atomic.Int64
	watches      atomic.Int64
	state        state
}

// New binds two ports of 127.0.0.1 and creates the certificates. Nothing is served before Run,
// which also closes the ports.
func New(o Options) (*Server, error) {
	h, err := newHistory(o.Pods, o.Padding)
	if err != nil {
		return nil, err
	}
	s := &Server{history: h, starts: make(chan start), state: state{objects: map[string]map[string]any{}}}
	scheme := "http"
	if o.TLS {
		scheme = "https"
		s.ca, s.certificate, s.token, err = credentials()
		if err != nil {
			return nil, err
		}
	}
	s.api, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.control, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.api.Close())
	}
	s.url = scheme + "://" + s.api.Addr().String()
	return s, nil
}

// Run serves until ctx ends, then cuts the connections and returns nil.
func (s *Server) Run(ctx context.Context) error {
	api := &http.Server{Handler: s.authenticated(s.handler()), ReadHeaderTimeout: time.Minute}
	control := &http.Server{Handler: s.controller(), ReadHeaderTimeout: time.Minute}
	g, ctx := errgroup.WithContext(ctx)
	// A watch has to end with the server: Close cuts the connection, and with it the request's
	// context.
	context.AfterFunc(ctx, func() { _, _ = api.Close(), control.Close() })
	g.Go(func() error {
		if s.certificate == nil {
			return closed(api.Serve(s.api))
		}
		api.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*s.certificate}, MinVersion: tls.VersionTLS12}
		return closed(api.ServeTLS(s.api, "", ""))
	})
	g.Go(func() error { return closed(control.Serve(s.control)) })
	g.Go(func() error { return s.release(ctx) })
	return g.Wait()
}

func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api", discovery(coreGroups, legacyVersions))
	mux.HandleFunc("GET /apis", discovery(namedGroups, legacyGroups))
	mux.HandleFunc("GET /api/v1", resources(coreGroups))
	mux.HandleFunc("GET /apis/coordination.k8s.io/v1", resources(namedGroups))
	mux.HandleFunc("GET /api/v1/pods", s.pods)
	mux.HandleFunc("GET /api/v1/namespaces/{name}", namespace)
	mux.HandleFunc("GET /version", version)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	}
	for _, resource := range []string{
		"/api/v1/namespaces/{namespace}/configmaps", "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
	} {
		mux.HandleFunc("POST "+resource, s.state.create)
		mux.HandleFunc("GET "+resource+"/{name}", s.state.read)
		mux.HandleFunc("PUT "+resource+"/{name}", s.state.update)
		mux.HandleFunc("DELETE "+resource+"/{name}", s.state.remove)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find "+r.URL.Path)
	})
	return mux
}

// authenticated requires the bearer token, as an API server does, except over plain HTTP, where
// clients send none.
func (s *Server) authenticated(next http.Handler) http.Handler {
	if s.token == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); token != s.token {
			fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func namespace(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	reply(w, http.StatusOK, map[string]any{
		"kind": "Namespace", "apiVersion": "v1",
		"metadata": map[string]any{
			"name": name, "uid": "11e0b3a4-5c6d-4e7f-8a9b-0c1d2e3f4a5b", "resourceVersion": "17",
			"creationTimestamp": started.Format(time.RFC3339),
			"labels":            map[string]any{"kubernetes.io/metadata.name": name},
		},
		"spec":   map[string]any{"finalizers": []string{"kubernetes"}},
		"status": map[string]any{"phase": "Active"},
	})
}

func version(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{
		"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64",
	})
}

func reply(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // a client that has gone needs no answer
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	reply(w, code, failure(code, reason, message))
}

func failure(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  message,
	}
}

func badRequest(w http.ResponseWriter, err error) {
	fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("bad request: %v", err))
}
