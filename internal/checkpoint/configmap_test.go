package checkpoint_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// object is a ConfigMap as in its JSON.
type object struct {
	Metadata   map[string]any    `json:"metadata"`
	Immutable  bool              `json:"immutable,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

// apiServer keeps the ConfigMap kubecdc/checkpoint, and injects the faults that a test asks for.
type apiServer struct {
	*httptest.Server

	mu    sync.Mutex
	now   *object // nil: none
	rv    int
	verbs []string
	// fault may answer instead of the server, and then returns true. after is called when a write
	// was carried out, and may hide that.
	fault func(w http.ResponseWriter, r *http.Request) bool
	after func(w http.ResponseWriter) bool
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{rv: 100}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) store(t *testing.T) checkpoint.Store {
	t.Helper()
	store, err := checkpoint.NewConfigMap(&rest.Config{Host: s.URL}, "kubecdc", "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  message,
		Details:  &metav1.StatusDetails{Causes: causes},
	})
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const all, one = "/api/v1/namespaces/kubecdc/configmaps", "/api/v1/namespaces/kubecdc/configmaps/checkpoint"
	s.verbs = append(s.verbs, r.Method)
	if s.fault != nil && s.fault(w, r) {
		return
	}
	var in object
	if r.Method != http.MethodGet {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil || in.Metadata["name"] != "checkpoint" || in.Metadata["namespace"] != "kubecdc" {
			status(w, 400, metav1.StatusReasonBadRequest, fmt.Sprintf("%v in %.200s", err, body))
			return
		}
	}
	switch r.Method + " " + r.URL.Path {
	case "GET " + one:
		if s.now == nil {
			status(w, 404, metav1.StatusReasonNotFound, `configmaps "checkpoint" not found`)
			return
		}
	case "POST " + all:
		if s.now != nil {
			status(w, 409, metav1.StatusReasonAlreadyExists, `configmaps "checkpoint" already exists`)
			return
		}
		s.put(&in)
	case "PUT " + one:
		if s.now == nil {
			status(w, 404, metav1.StatusReasonNotFound, `configmaps "checkpoint" not found`)
			return
		}
		if in.Metadata["resourceVersion"] != s.now.Metadata["resourceVersion"] {
			status(w, 409, metav1.StatusReasonConflict, "the object has been modified")
			return
		}
		if s.now.Immutable {
			status(w, 422, metav1.StatusReasonInvalid, "data: Forbidden: field is immutable when `immutable` is set")
			return
		}
		s.put(&in)
	default:
		status(w, 404, metav1.StatusReasonNotFound, "no such path: "+r.URL.Path)
		return
	}
	if r.Method != http.MethodGet && s.after != nil && s.after(w) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		*object
	}{"v1", "ConfigMap", s.now})
}

// put stores o as the next version. It must be called with mu held.
func (s *apiServer) put(o *object) {
	s.rv++
	o.Metadata["resourceVersion"] = strconv.Itoa(s.rv)
	s.now = o
}

func (s *apiServer) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// label sets a label, as another writer does.
func (s *apiServer) label(key, value string) {
	s.do(func() {
		o := *s.now
		o.Metadata = maps.Clone(o.Metadata)
		o.Metadata["labels"] = map[string]any{key: value}
		s.put(&o)
	})
}

// requests are the verbs since the last call.
func (s *apiServer) requests() (out string) {
	s.do(func() { out, s.verbs = strings.Join(s.verbs, " "), nil })
	return out
}

func TestConfigMap(t *testing.T) {
	server := newAPIServer(t)
	s := server.store(t)
	if got := load(t, s); got != "nothing" {
		t.Errorf("before the first save: %q", got)
	}
	save(t, s, "first")
	save(t, s, "second")
	if got := load(t, s); got != "second" {
		t.Errorf("loaded %q", got)
	}
	if got := server.requests(); got != "GET POST PUT GET" {
		t.Errorf("requests: %s", got)
	}
	if got := load(t, server.store(t)); got != "second" {
		t.Errorf("another loaded %q", got)
	}
	if err := s.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s); got != "nothing" {
		t.Errorf("after Delete: %q", got)
	}
	save(t, s, "third")
	if got := load(t, s); got != "third" {
		t.Errorf("loaded %q", got)
	}
}

// Fields that others set on the object stay, whoever created it.
func TestConfigMapOfOthers(t *testing.T) {
	server := newAPIServer(t)
	server.put(&object{
		Metadata: map[string]any{
			"name": "checkpoint", "namespace": "kubecdc", "labels": map[string]any{
				"helm": "yes",
			}, "annotations": map[string]any{"a": "b"},
			"finalizers": []any{"keep"}, "unheardOf": map[string]any{"deep": 1.0},
		},
		Data: map[string]string{"README": "of the chart"}, BinaryData: map[string][]byte{"logo": {0xff}},
	})
	want := server.now
	s := server.store(t)
	if got := load(t, s); got != "nothing" {
		t.Errorf("loaded %q", got)
	}
	for _, size := range []int{10, 300 << 10, 10} {
		data := strings.Repeat("x", size)
		save(t, s, data)
		if got := load(t, s); got != data {
			t.Errorf("loaded %d bytes, saved %d", len(got), size)
		}
	}
	if err := s.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(server.now.Metadata, "resourceVersion")
	delete(want.Metadata, "resourceVersion")
	if diff := cmp.Diff(want, server.now); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigMapSize(t *testing.T) {
	server := newAPIServer(t)
	s := server.store(t)
	load(t, s)
	for _, c := range []struct {
		size  int
		plain bool
	}{{256 << 10, true}, {256<<10 + 1, false}, {100, true}} {
		save(t, s, strings.Repeat("x", c.size))
		if n := len(server.now.Data["checkpoint.json"]); (n == c.size) != c.plain {
			t.Errorf("%d bytes: %d are plain", c.size, n)
		}
		if n := len(server.now.BinaryData["checkpoint.json.gz"]); (n > 0) == c.plain {
			t.Errorf("%d bytes: %d are compressed", c.size, n)
		}
	}

	random := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(random)
	server.requests()
	err := s.Save(t.Context(), random)
	if !errors.Is(err, checkpoint.ErrTooLarge) || !strings.Contains(err.Error(), "store the checkpoint in a file") {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	if got := server.requests(); got != "" {
		t.Errorf("requests: %s", got)
	}
}

// TestConfigMapHoldsManyScopes measures how much fits, for the comment at compressedMax.
func TestConfigMapHoldsManyScopes(t *testing.T) {
	d := document()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		s := d.Scopes["deployments.apps/shop*?labels=tier!=web,a<b"]
		ns := fmt.Sprintf("team-%d-%x", i, r.Uint32())
		s.Namespaces = []string{ns}
		s.LabelSelector = ""
		s.Snapshot = nil
		s.ResourceVersion = r.Uint64N(1e9)
		s.State = r.Uint64()
		s.Forms = r.Uint64()
		d.Scopes["deployments.apps/"+ns] = s
	}
	s := newAPIServer(t).store(t)
	load(t, s)
	data := encode(t, d)
	save(t, s, string(data))
	if got := load(t, s); got != string(data) {
		t.Error("not what was saved")
	}
}

func TestConfigMapDamaged(t *testing.T) {
	server := newAPIServer(t)
	s := server.store(t)
	load(t, s)
	save(t, s, strings.Repeat("x", 300<<10))
	compressed := server.now.BinaryData["checkpoint.json.gz"]
	for _, broken := range [][]byte{{}, compressed[:20], append([]byte{1}, compressed...)} {
		server.do(func() { server.now.BinaryData["checkpoint.json.gz"] = broken })
		_, err := s.Load(t.Context())
		if !errors.Is(err, checkpoint.ErrDamaged) ||
			!strings.HasPrefix(err.Error(), "checkpoint ConfigMap kubecdc/checkpoint: it is damaged: ") {
			t.Errorf("%d bytes: %v, want ErrDamaged", len(broken), err)
		}
	}
	if _, err := checkpoint.Reset(t.Context(), s, ""); err != nil {
		t.Error(err)
	}
	if got := load(t, s); got != "nothing" {
		t.Errorf("after Reset: %q", got)
	}
}

func TestConfigMapConflict(t *testing.T) {
	for _, c := range []struct {
		what   string
		meddle func(*apiServer)
	}{
		{"written", func(s *apiServer) { s.label("a", "b") }},
		{"removed", func(s *apiServer) { s.do(func() { s.now = nil }) }},
	} {
		server := newAPIServer(t)
		s := server.store(t)
		load(t, s)
		save(t, s, "first")
		c.meddle(server)
		if err := s.Save(t.Context(), []byte("second")); !errors.Is(err, checkpoint.ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", c.what, err)
		}
	}
	server := newAPIServer(t)
	a, b := server.store(t), server.store(t)
	load(t, a)
	load(t, b)
	save(t, a, "first")
	if err := b.Save(t.Context(), []byte("second")); !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("both create it: %v, want ErrConflict", err)
	}
}

func TestConfigMapRefused(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		fault  func(w http.ResponseWriter)
		kind   error
		want   []string
	}{
		"no namespace": {
			"POST",
			func(w http.ResponseWriter) {
				status(w, 404, metav1.StatusReasonNotFound, `namespaces "kubecdc" not found`)
			},
			checkpoint.ErrRefused,
			[]string{"namespace kubecdc does not exist", "kubectl create namespace kubecdc"},
		},
		"namespace ends": {
			"POST",
			func(w http.ResponseWriter) {
				status(w, 403, metav1.StatusReasonForbidden, "because it is being terminated", metav1.StatusCause{
					Type: "NamespaceTerminating",
				})
			},
			checkpoint.ErrRefused,
			[]string{"namespace kubecdc is being deleted"},
		},
		"get": {
			"GET",
			func(w http.ResponseWriter) { status(w, 403, metav1.StatusReasonForbidden, `User "x" cannot get`) },
			checkpoint.ErrRefused,
			[]string{"not permitted to get configmaps in namespace kubecdc", `User "x" cannot get`, "'kubecdc rbac'"},
		},
		"create": {
			"POST",
			func(w http.ResponseWriter) { status(w, 403, metav1.StatusReasonForbidden, `User "x" cannot create`) },
			checkpoint.ErrRefused,
			[]string{"not permitted to create configmaps in namespace kubecdc", "'kubecdc rbac'"},
		},
		"credentials": {
			"GET",
			func(w http.ResponseWriter) { status(w, 401, metav1.StatusReasonUnauthorized, "Unauthorized") },
			checkpoint.ErrRefused,
			[]string{"rejects the credentials"},
		},
		"admission": {
			"POST",
			func(w http.ResponseWriter) { status(w, 422, metav1.StatusReasonInvalid, "no") },
			checkpoint.ErrRefused,
			[]string{"the API server rejects it"},
		},
		"too large": {
			"POST",
			func(w http.ResponseWriter) {
				status(w, 413, metav1.StatusReasonRequestEntityTooLarge, "Request entity too large: limit is 3145728")
			},
			checkpoint.ErrTooLarge,
			[]string{"store the checkpoint in a file"},
		},
		"may pass: busy": {
			"POST", func(w http.ResponseWriter) {
				status(w, 429, metav1.StatusReasonTooManyRequests, "busy")
			}, nil, []string{"create"},
		},
		"may pass: not ready": {
			"GET", func(w http.ResponseWriter) { w.WriteHeader(503) }, nil, []string{"get"},
		},
		"may pass: something else answers": {
			"GET", func(w http.ResponseWriter) {
				_, _ = io.WriteString(w, "<html>")
			}, nil, []string{"the response is not a ConfigMap"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != c.method {
					return false
				}
				c.fault(w)
				return true
			}
			s := server.store(t)
			_, err := s.Load(t.Context())
			if err == nil {
				err = s.Save(t.Context(), []byte("data"))
			}
			if err == nil {
				t.Fatal("no error")
			}
			if e := new(checkpoint.Error); c.kind == nil && errors.As(err, &e) ||
				c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%v, want %v", err, c.kind)
			}
			for _, want := range append(c.want, "checkpoint ConfigMap kubecdc/checkpoint: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestConfigMapImmutable(t *testing.T) {
	server := newAPIServer(t)
	s := server.store(t)
	load(t, s)
	save(t, s, "first")
	server.do(func() { server.now.Immutable = true })
	err := s.Save(t.Context(), []byte("second"))
	if !errors.Is(err, checkpoint.ErrRefused) || !strings.Contains(err.Error(), "if it is immutable, delete it") {
		t.Errorf("%v, want ErrRefused", err)
	}
}

func TestConfigMapAddress(t *testing.T) {
	_, err := checkpoint.NewConfigMap(&rest.Config{Host: "https://user:secret@[::1"}, "kubecdc", "checkpoint")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want an error without the password", err)
	}
}

// The checkpoint in a ConfigMap is found whether it is compressed or not.
func TestCheckpointOfAConfigMap(t *testing.T) {
	for name, scopes := range map[string]int{"plain": 1, "compressed": 3000} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			d := checkpoint.Document{FormatVersion: checkpoint.FormatVersion, Scopes: map[string]checkpoint.Scope{}}
			for i := range scopes {
				d.Scopes[strconv.Itoa(i)] = checkpoint.Scope{Resource: "configmaps", Ignored: []string{
					"kubecdc/checkpoint",
				}}
			}
			text, err := d.Encode()
			if err == nil {
				err = s.store(t).Save(t.Context(), text)
			}
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(s.now)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&d, checkpoint.OfConfigMap(raw)); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, raw := range []string{
		``, `{}`, `{"data":{"checkpoint.json":"{}"}}`, `{"binaryData":{"checkpoint.json.gz":"AAAA"}}`,
		`{"data":{"checkpoint.json":7}}`,
	} {
		if d := checkpoint.OfConfigMap([]byte(raw)); d != nil {
			t.Errorf("%s: %+v", raw, d)
		}
	}
}
