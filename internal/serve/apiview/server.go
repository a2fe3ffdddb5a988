package apiview

import (
	"bytes"
	"context"
	"crypto/subtle"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// Server is a read-only Kubernetes API. It is an http.Handler, safe for concurrent use.
type Server struct {
	// Token is what a client has to send: "Authorization: Bearer <token>", or in a subprotocol of a
	// WebSocket. Without one, every request is 401.
	Token string
	// Root is the View without a moment in the path; nil: there is none. If Options.Again is set,
	// Open reads it again.
	Root *View
	// Open returns the View of a moment for /at/<moment>/…; nil: there are no such paths. It is
	// called for several moments at once. Its context ends when no client waits any more. Its error
	// is shown to the clients: as it is if it has a Status of the Kubernetes API, otherwise as 503,
	// to be tried again.
	Open func(context.Context, timeline.Moment) (*View, error)
	// MaxMoments is how many Views of /at/ are kept, those that were used last, and one more is
	// read or used. A request for a further one waits until another is released, and is answered
	// 429 after 10 s in which all are used and none is read. A client that reads less than 32 KiB
	// of its answer in 30 s is disconnected. 0: one.
	MaxMoments int
	// MaxOpening is how many moments are opened at once; 0: as many as have a place.
	MaxOpening int

	moments moments
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		writeError(w, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	token := tokenOf(r)
	if s.Token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.Token)) != 1 {
		return failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	}
	watch, err := s.answer(w, r)
	if watch != nil {
		watch.run()
	}
	return err
}

// answer answers a request. It writes the objects of the moment also for a watch, and returns the
// rest of that. It uses a moment until it returns.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (*openWatch, error) {
	v, path := s.Root, r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/at/"); ok && s.Open != nil {
		at, below, err := momentOf(rest, time.Now())
		if err != nil {
			return nil, badRequest("%v", err)
		}
		return s.answerAt(w, r, at, below)
	}
	if v == nil {
		return nil,
			failure(http.StatusNotFound, metav1.StatusReasonNotFound,
				"name a moment in the path: /at/2026-11-20T14:05:00Z or /at/rv:48211")
	}
	if s.Open != nil && v.isOutdated(time.Now()) {
		return s.answerAt(w, r, v.moment, path)
	}
	return v.serve(w, r, strings.Split(strings.Trim(path, "/"), "/"))
}

// answerAt is answer for a moment, with the path below it.
func (s *Server) answerAt(w http.ResponseWriter, r *http.Request, at timeline.Moment, path string) (*openWatch, error) {
	if err := readBody(r); err != nil {
		return nil, err
	}
	l := limits{kept: max(s.MaxMoments, 1), opening: s.MaxOpening}
	used, err := s.moments.use(r.Context(), at, l, s.Open)
	if err != nil {
		return nil, err
	}
	defer s.moments.leave(used, l)
	return used.view.serve(steady{w}, r, strings.Split(strings.Trim(path, "/"), "/"))
}

// readBody reads the body of a request, before the request uses a moment: net/http would otherwise
// wait for it when the answer begins. The rest of a body that is too large for a review remains:
// the answer is an error, which uses no moment.
func readBody(r *http.Request) error {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxReview+1))
	if err != nil {
		return badRequest("read the body of the request: %v", err)
	}
	if len(raw) > maxReview && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"a %s request needs no body", r.Method)
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(raw), r.Body)) // net/http closes it
	return nil
}

// momentOf reads the moment at the beginning of a path, and returns the rest. The number of a
// restore is a part of its own: rv:48211/h1/….
func momentOf(path string, now time.Time) (timeline.Moment, string, error) {
	text, rest, _ := strings.Cut(path, "/")
	if next, after, _ := strings.Cut(rest, "/"); strings.HasPrefix(text, "rv:") &&
		regexp.MustCompile(`^h[0-9]+$`).MatchString(next) {
		text, rest = text+"/"+next, after
	}
	if !strings.HasPrefix(text, "rv:") {
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			return timeline.Moment{}, "",
				badRequest("moment %q: a path has a time like 2026-11-20T14:05:00Z, or a resourceVersion like rv:48211",
					text)
		}
	}
	at, err := timeline.ParseMoment(text, now)
	return at, rest, err
}

// serve answers a request for a path below that of the view. It returns a watch that is to be run.
func (v *View) serve(w http.ResponseWriter, r *http.Request, path []string) (*openWatch, error) {
	if r.Method == http.MethodPost {
		if done, err := v.serveReview(w, r, path); done {
			return nil, err
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the past cannot be changed: this API shows the record at %s and is read-only", v.moment)
	}
	switch path[0] {
	case "":
		writeJSON(w, http.StatusOK, metav1.RootPaths{Paths: []string{
			"/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version",
		}})
		return nil, nil
	case "healthz", "livez", "readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
		return nil, nil
	case "version":
		writeJSON(w, http.StatusOK, v.serverVersion())
		return nil, nil
	case "openapi":
		return nil, v.serveSchemas(w, r, path[1:])
	case "api", "apis":
	default:
		return nil, errNoResource()
	}
	if path[0] == "api" && len(path) <= 2 || len(path) <= 3 && path[0] == "apis" {
		return nil, v.serveDiscovery(w, r, path)
	}
	group, rest := "", path[1:]
	if path[0] == "apis" {
		group, rest = path[1], path[2:]
	}
	return v.serveResource(w, r, group, rest[0], rest[1:])
}

// serveResource answers a request for objects:
//
//	[watch] [namespaces <namespace>] <plural> [<name> [<subresource>]]
func (v *View) serveResource(
	w http.ResponseWriter, r *http.Request, group, version string, path []string,
) (*openWatch, error) {
	isWatch := len(path) > 1 && path[0] == "watch"
	if isWatch {
		path = path[1:]
	}
	namespace := ""
	if len(path) > 2 && path[0] == "namespaces" && !(len(path) == 3 && (path[2] == "status" || path[2] == "finalize")) {
		namespace, path = path[1], path[2:]
	}
	res := v.resource(group, version, path[0])
	if res == nil || namespace != "" && !res.namespaced || len(path) > 3 || isWatch && len(path) > 2 {
		return nil, errNoResource()
	}
	for _, text := range res.warnings {
		warn(w, text)
	}
	if len(path) == 1 {
		if isWatch || isTrue(r.URL.Query(), "watch") {
			return v.serveWatch(w, r, res, namespace, "")
		}
		return nil, v.serveList(w, r, res, namespace)
	}
	if len(path) == 3 && path[2] != "status" {
		return nil,
			failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the record has no %s of %s", path[2], res)
	}
	if res.namespaced && namespace == "" {
		return nil, errNoResource()
	}
	if isWatch {
		return v.serveWatch(w, r, res, namespace, path[1])
	}
	return nil, v.serveObject(w, r, res, namespace, path[1])
}
