package discovery_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	services    = "/apis/apiregistration.k8s.io/v1/apiservices"
	namespaces  = "/api/v1/namespaces"
)

// server is an API server in memory. It returns the answers that a test has set, and 404 for other
// paths.
type server struct {
	mu      sync.Mutex
	rv      uint64
	answers map[string]answer           // by path, of lists and other requests
	watches map[string][]io.WriteCloser // open ones, by path
	counts  map[string]int              // requests by path, of watches by path and "?watch"
	from    map[string]string           // the resourceVersion of the last watch, by path
	refused map[string]int              // status codes of watches that are refused, by path; 0: they are not answered
	expires string                      // path whose lists never have a second page
	reviews func(body string) (code int, allowed bool)
}

// answer is a status code and a body, in which %d stands for the current resourceVersion. The code
// 0 is no answer.
type answer struct {
	code int
	body string
}

func newServer() *server {
	return &server{
		rv:      100,
		answers: map[string]answer{},
		watches: map[string][]io.WriteCloser{},
		counts:  map[string]int{},
		from:    map[string]string{},
		refused: map[string]int{},
	}
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	if r.URL.Query().Get("watch") != "" {
		return s.watch(r, path)
	}
	s.mu.Lock()
	if a, ok := s.answers[path]; ok && a.code == 0 {
		s.mu.Unlock()
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	defer s.mu.Unlock()
	s.counts[path]++
	if s.reviews != nil && r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		code, allowed := s.reviews(string(body))
		return response(code, io.NopCloser(strings.NewReader(fmt.Sprintf(`{"status":{"allowed":%t}}`, allowed)))), err
	}
	a, ok := s.answers[path]
	switch {
	case path == s.expires && r.URL.Query().Get("continue") != "":
		a = answer{http.StatusGone, status(http.StatusGone, "Expired")}
	case path == s.expires && r.URL.Query().Get("limit") != "":
		a = answer{http.StatusOK, `{"metadata":{"resourceVersion":"100","continue":"next"},"items":[]}`}
	case !ok:
		a = answer{http.StatusNotFound, status(http.StatusNotFound, "NotFound")}
	case strings.Contains(a.body, "%d"):
		a.body = fmt.Sprintf(a.body, s.rv)
	}
	return response(a.code, io.NopCloser(strings.NewReader(a.body))), nil
}

func (s *server) watch(r *http.Request, path string) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[path+"?watch"]++
	s.from[path] = r.URL.Query().Get("resourceVersion")
	switch code, is := s.refused[path]; {
	case is && code == 0:
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
		return nil, context.Cause(r.Context())
	case is:
		return response(code, io.NopCloser(strings.NewReader(status(code, http.StatusText(code))))), nil
	}
	body, w := io.Pipe()
	s.watches[path] = append(s.watches[path], w)
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(context.Cause(r.Context())) })
	return response(http.StatusOK, body), nil
}

func response(code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

func status(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, code, reason)
}

// at sets the resourceVersion.
func (s *server) at(rv uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv = rv
}

// list sets the objects of a resource.
func (s *server) list(path string, items ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer{
		http.StatusOK, `{"metadata":{"resourceVersion":"%d"},"items":[` + strings.Join(items, ",") + `]}`,
	}
}

// fail sets the error for a resource.
func (s *server) fail(path string, code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer{code, status(code, reason)}
}

// send sends an event at the next resourceVersion, which $ in the object stands for, on the open
// watches of a resource.
func (s *server) send(path, typ, item string) {
	s.mu.Lock()
	s.rv++
	frame := fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", typ, strings.ReplaceAll(item, "$", fmt.Sprint(s.rv)))
	open := s.watches[path]
	s.mu.Unlock()
	for _, w := range open {
		_, _ = io.WriteString(w, frame) // the watch may be closed
	}
	synctest.Wait()
}

// close ends the open watches of a resource.
func (s *server) close(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches[path] {
		_ = w.Close()
	}
	delete(s.watches, path)
}

// expire ends the open watches of a resource with 410.
func (s *server) expire(path string) {
	s.send(path, "ERROR", status(http.StatusGone, "Expired"))
	s.close(path)
	pass(time.Second) // it is listed again
}

// count returns the number of requests since its last call.
func (s *server) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[path]
	delete(s.counts, path)
	return n
}

func (s *server) client(t *testing.T) *apiserver.Client {
	t.Helper()
	c, err := apiserver.New(&rest.Config{Host: "http://api.test", Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pass advances the clock of the bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

// log holds what is logged at Warn or above.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "\n")
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// recorder records events.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) handle(_ context.Context, ev discovery.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, strings.TrimPrefix(fmt.Sprintf("%T%+v", ev, ev), "discovery."))
}

// want fails unless these are the events since it was called last.
func (r *recorder) want(t *testing.T, events ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(events, r.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	r.events = nil
}

// run runs f until the test ends.
func run(t *testing.T, f func(ctx context.Context, handle discovery.Handler)) *recorder {
	t.Helper()
	var r recorder
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx, r.handle)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return &r
}

// crd returns the definition of widgets.shop.test. extra is one of the constants below, with
// further metadata before it.
func crd(uid string, generation int, extra string) string {
	return fmt.Sprintf(`{"metadata":{"name":"widgets.shop.test","uid":%q,"resourceVersion":"$","generation":%d%s`, uid,
		generation, extra)
}

const (
	metadata    = `}}`
	notYet      = `},"spec":{"group":"shop.test","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1beta1","served":true},{"name":"v1","served":true,"storage":true}]}}`
	established = `},"spec":{"group":"shop.test","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1beta1","served":true},{"name":"v1","served":true,"storage":true}]},"status":{"conditions":[{"type":"Established","status":"True"}]}}`
	storedAsOld = `},"spec":{"group":"shop.test","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1beta1","served":true,"storage":true},{"name":"v1","served":true}]},"status":{"conditions":[{"type":"Established","status":"True"}]}}`
)

func widgets() *object.Resource {
	return &object.Resource{Group: "shop.test", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true}
}
