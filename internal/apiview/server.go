package apiview

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubecdc/kubecdc/internal/timeline"
)

// Server is a read-only Kubernetes API. It is an http.Handler, safe for concurrent use.
type Server struct {
	// Token is what a client has to send: "Authorization: Bearer <token>". Without one, every request is 401.
	Token string
	// Root is the View without a moment in the path; nil: there is none.
	Root *View
	// Open returns the View of a moment for /at/<moment>/…; nil: there are no such paths. It is called once at a time. Its error is shown to the
	// client: as it is if it has a Status of the Kubernetes API, otherwise as 503, to be tried again.
	Open func(context.Context, timeline.Moment) (*View, error)
	// MaxMoments is how many Views of /at/ are kept, those that were used last. 0: one.
	MaxMoments int

	opening sync.Mutex // held while a View is opened: one at a time is read into memory

	mu     sync.Mutex
	recent []*View // of /at/, the one that was used last first
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		writeError(w, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || s.Token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.Token)) != 1 {
		return failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	}
	v, path := s.Root, r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/at/"); ok && s.Open != nil {
		at, below, err := momentOf(rest, time.Now())
		if err != nil {
			return badRequest("%v", err)
		}
		if v, err = s.view(r.Context(), at); err != nil {
			return err
		}
		path = below
	}
	if v == nil {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, "name a moment in the path: /at/2026-11-20T14:05:00Z or /at/rv:48211")
	}
	return v.serve(w, r, strings.Split(strings.Trim(path, "/"), "/"))
}

// momentOf reads the moment at the beginning of a path, and returns the rest. The number of a restore is a part of its own: rv:48211/h1/….
func momentOf(path string, now time.Time) (timeline.Moment, string, error) {
	text, rest, _ := strings.Cut(path, "/")
	if next, after, _ := strings.Cut(rest, "/"); strings.HasPrefix(text, "rv:") && regexp.MustCompile(`^h[0-9]+$`).MatchString(next) {
		text, rest = text+"/"+next, after
	}
	if !strings.HasPrefix(text, "rv:") {
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			return timeline.Moment{}, "", badRequest("moment %q: a path has a time like 2026-11-20T14:05:00Z, or a resourceVersion like rv:48211", text)
		}
	}
	at, err := timeline.ParseMoment(text, now)
	return at, rest, err
}

// view returns the View of a moment.
func (s *Server) view(ctx context.Context, at timeline.Moment) (*View, error) {
	if v := s.used(at); v != nil {
		return v, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if v := s.used(at); v != nil { // another request has opened it
		return v, nil
	}
	v, err := s.Open(ctx, at)
	if known := apierrors.APIStatus(nil); err != nil && !errors.As(err, &known) {
		return nil, errUnavailable(err)
	} else if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := max(s.MaxMoments, 1); len(s.recent) >= n {
		clear(s.recent[n-1:])
		s.recent = s.recent[:n-1]
	}
	s.recent = slices.Insert(s.recent, 0, v)
	return v, nil
}

// used returns the View of a moment that is kept, nil if it is not.
func (s *Server) used(at timeline.Moment) *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range s.recent {
		if v.moment.String() == at.String() {
			copy(s.recent[1:i+1], s.recent[:i])
			s.recent[0] = v
			return v
		}
	}
	return nil
}

// serve answers a request for a path below that of the view.
func (v *View) serve(w http.ResponseWriter, r *http.Request, path []string) error {
	if r.Method == http.MethodPost {
		if done, err := v.review(w, r, path); done {
			return err
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the past cannot be changed: this API shows the record at %s and is read-only", v.moment)
	}
	switch path[0] {
	case "":
		writeJSON(w, http.StatusOK, metav1.RootPaths{Paths: []string{"/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"}})
		return nil
	case "healthz", "livez", "readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
		return nil
	case "version":
		writeJSON(w, http.StatusOK, serverVersion())
		return nil
	case "api", "apis":
	default:
		return errNoResource()
	}
	if path[0] == "api" && len(path) <= 2 || len(path) <= 3 && path[0] == "apis" {
		return v.discover(w, r, path)
	}
	group, rest := "", path[1:]
	if path[0] == "apis" {
		group, rest = path[1], path[2:]
	}
	return v.serveResource(w, r, group, rest[0], rest[1:])
}

// serveResource answers a request for objects: [namespaces <namespace>] <plural> [<name> [<subresource>]].
func (v *View) serveResource(w http.ResponseWriter, r *http.Request, group, version string, path []string) error {
	namespace := ""
	if len(path) > 2 && path[0] == "namespaces" && !(len(path) == 3 && (path[2] == "status" || path[2] == "finalize")) {
		namespace, path = path[1], path[2:]
	}
	res := v.resource(group, version, path[0])
	if res == nil || namespace != "" && !res.namespaced || len(path) > 3 {
		return errNoResource()
	}
	for _, text := range res.warnings {
		if header, err := utilnet.NewWarningHeader(299, "kubecdc", text); err == nil {
			w.Header().Add("Warning", header)
		}
	}
	if len(path) == 1 {
		if isTrue(r.URL.Query(), "watch") {
			return v.serveWatch(w, r, res, namespace)
		}
		return v.serveList(w, r, res, namespace)
	}
	if len(path) == 3 && path[2] != "status" {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the record has no %s of %s", path[2], res)
	}
	if res.namespaced && namespace == "" {
		return errNoResource()
	}
	return v.get(w, r, res, namespace, path[1])
}
