package e2e_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	extensionNamespace = "annex"
	apiServices        = "/apis/apiregistration.k8s.io/v1/apiservices"
)

// extension is an aggregated API server. It serves one resource, notes, in one namespace, and keeps
// the history of all notes. It has resourceVersions of its own. It is stopped and restarted, and
// its history is the truth.
type extension struct {
	plane *world.Plane
	group string
	// exact makes it answer lists at any resourceVersion. Otherwise it ignores resourceVersions and
	// selectors, as simple servers do.
	exact bool
	port  int
	cert  tls.Certificate

	server   *http.Server
	serving  sync.WaitGroup
	rng      *mathrand.Rand
	versions map[oracle.ObjectKey][]*oracle.Version

	mu      sync.Mutex
	rv      uint64
	changes []extensionChange // Ascending.
	objects map[string]obj    // Those that exist.
	floor   uint64            // The oldest resourceVersion that a watch can start at.
	moved   chan struct{}     // Closed and replaced with each change.
}

// extensionChange is a change as a watch sends it.
type extensionChange struct {
	rv        uint64
	typ, name string
	object    json.RawMessage
}

// newExtension returns a server that does not serve yet. Its first object gets the resourceVersion
// after rv.
func newExtension(t testing.TB, p *world.Plane, group string, exact bool, rv uint64) *extension {
	t.Helper()
	ca, caKey, _, err := world.Issue("authority", nil, nil, x509.ExtKeyUsageAny)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, _, err := world.Issue("annex", ca, caKey, x509.ExtKeyUsageServerAuth)
	if err != nil {
		t.Fatal(err)
	}
	e := &extension{
		plane:    p,
		group:    group,
		exact:    exact,
		port:     world.FreePort(t),
		rv:       rv,
		floor:    rv,
		rng:      mathrand.New(mathrand.NewPCG(rv, 42)),
		cert:     tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key},
		versions: map[oracle.ObjectKey][]*oracle.Version{},
		objects:  map[string]obj{},
		moved:    make(chan struct{}),
	}
	t.Cleanup(e.stop)
	return e
}

func (e *extension) resource() string { return "notes." + e.group }

// start serves until stop.
func (e *extension) start(t testing.TB) {
	t.Helper()
	var listener net.Listener
	wait.Eventually(t, time.Minute, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", e.port))
		return err
	})
	e.server = &http.Server{
		Handler: e, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{
			e.cert,
		}, NextProtos: []string{"h2", "http/1.1"}},
	}
	server := e.server
	e.serving.Go(func() { _ = server.ServeTLS(listener, "", "") }) // Ends with stop.
}

// stop ends the server with all its connections, as a crash does.
func (e *extension) stop() {
	if e.server != nil {
		_ = e.server.Close()
	}
	e.serving.Wait()
}

// forget makes watches begin at the current state, as after a restart: a watch from an older
// resourceVersion gets a 410.
func (e *extension) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.floor = e.rv
}

// churn makes n changes to a few objects. The first change is to an object that is never deleted.
func (e *extension) churn(t testing.TB, n int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.put(t, "kept")
	for range n - 1 {
		name := fmt.Sprint("note-", e.rng.IntN(6))
		switch there := e.objects[name] != nil; {
		case there && e.rng.IntN(4) == 0:
			e.remove(t, name)
		case there && e.rng.IntN(5) == 0: // Replaced by another object of the same name.
			e.remove(t, name)
			e.put(t, name)
		default:
			e.put(t, name)
		}
	}
}

// put creates or changes an object. It must be called with mu held.
func (e *extension) put(t testing.TB, name string) {
	t.Helper()
	typ, uid := "MODIFIED", ""
	if was := e.objects[name]; was != nil {
		uid = was["metadata"].(obj)["uid"].(string)
	} else {
		typ, uid = "ADDED", rand.Text()
	}
	e.rv++
	o := obj{
		"apiVersion": e.group + "/v1", "kind": "Note",
		"metadata": obj{
			"name":            name,
			"namespace":       extensionNamespace,
			"uid":             uid,
			"resourceVersion": oracle.FormatRev(e.rv),
			"labels":          obj{"n": fmt.Sprint(e.rv)},
			"managedFields": []obj{{
				"manager":   "annex",
				"operation": "Update",
				"time":      time.Now().UTC().Format(time.RFC3339),
			}},
		},
		"spec": obj{"text": fmt.Sprintf("%d \"quoted\" é", e.rng.IntN(1000))},
	}
	e.objects[name] = o
	raw := e.send(t, typ, name, o)
	v, err := oracle.ReadVersion(e.resource(), 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	e.versions[v.Key] = append(e.versions[v.Key], v)
}

// remove deletes an object. It must be called with mu held.
func (e *extension) remove(t testing.TB, name string) {
	t.Helper()
	e.rv++
	o := maps.Clone(e.objects[name])
	meta := maps.Clone(o["metadata"].(obj))
	meta["resourceVersion"] = oracle.FormatRev(e.rv)
	o["metadata"] = meta
	delete(e.objects, name)
	e.send(t, "DELETED", name, o)
	key := oracle.ObjectKey{Resource: e.resource(), Namespace: extensionNamespace, Name: name}
	e.versions[key] = append(e.versions[key], &oracle.Version{
		Key:     key,
		Rev:     e.rv,
		Deleted: true,
		UID:     meta["uid"].(string),
	})
}

// send sends an event to the watches. It must be called with mu held.
func (e *extension) send(t testing.TB, typ, name string, o obj) []byte {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	e.changes = append(e.changes, extensionChange{rv: e.rv, typ: typ, name: name, object: raw})
	close(e.moved)
	e.moved = make(chan struct{})
	return raw
}

// now returns the last resourceVersion.
func (e *extension) now() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rv
}

// history returns all versions of all notes.
func (e *extension) history() map[oracle.ObjectKey][]*oracle.Version {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := maps.Clone(e.versions)
	for key := range out {
		out[key] = slices.Clone(out[key])
	}
	return out
}

// ServeHTTP implements http.Handler.
func (e *extension) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	root := "/apis/" + e.group + "/v1"
	switch req.URL.Path {
	case root:
		e.answer(w, http.StatusOK, obj{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": e.group + "/v1", "resources": []obj{{
				"name": "notes", "singularName": "note", "kind": "Note", "namespaced": true, "verbs": []string{
					"get", "list", "watch",
				},
			}},
		})
	case root + "/notes", root + "/namespaces/" + extensionNamespace + "/notes":
		e.read(w, req)
	default:
		e.refuse(w, http.StatusNotFound, "NotFound", "the server does not serve "+req.URL.Path)
	}
}

func (e *extension) answer(w http.ResponseWriter, code int, o obj) {
	w.Header().Set("Content-Type", world.MIMEJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o) // The client may be gone.
}

func (e *extension) refuse(w http.ResponseWriter, code int, reason, message string) {
	e.answer(w, code, e.status(code, reason, message))
}

func (e *extension) status(code int, reason, message string) obj {
	return obj{
		"kind":       "Status",
		"apiVersion": "v1",
		"status":     "Failure",
		"code":       code,
		"reason":     reason,
		"message":    message,
	}
}

// read answers a list or a watch.
func (e *extension) read(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	at, err := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	if q.Get("resourceVersion") != "" && err != nil {
		e.refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	if watch := q.Get("watch"); watch == "1" || watch == "true" {
		e.watch(w, req, at)
		return
	}
	e.mu.Lock()
	now, all := e.rv, e.changes
	e.mu.Unlock()
	name := ""
	if e.exact {
		name = strings.TrimPrefix(q.Get("fieldSelector"), "metadata.name=")
	}
	if e.exact && q.Get("resourceVersionMatch") == "Exact" {
		if at > now {
			e.refuse(w, http.StatusGatewayTimeout, "Timeout", "Too large resource version")
			return
		}
		now = at
	}
	items := map[string]json.RawMessage{}
	for _, c := range all {
		if c.rv > now || name != "" && c.name != name {
			continue
		}
		items[c.name] = c.object
		if c.typ == "DELETED" {
			delete(items, c.name)
		}
	}
	list := make([]json.RawMessage, 0, len(items))
	for _, name := range slices.Sorted(maps.Keys(items)) {
		list = append(list, items[name])
	}
	e.answer(w, http.StatusOK, obj{
		"kind": "NoteList", "apiVersion": e.group + "/v1", "metadata": obj{
			"resourceVersion": oracle.FormatRev(now),
		}, "items": list,
	})
}

// watch sends all changes after a resourceVersion, until the client leaves or its timeout expires.
func (e *extension) watch(w http.ResponseWriter, req *http.Request, from uint64) {
	ctx := req.Context()
	if seconds, err := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	e.mu.Lock()
	floor := e.floor
	e.mu.Unlock()
	if from < floor {
		e.refuse(w, http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d (%d)", from, floor))
		return
	}
	w.Header().Set("Content-Type", world.MIMEJSON)
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for {
		e.mu.Lock()
		all, moved := e.changes, e.moved
		e.mu.Unlock()
		for _, c := range all {
			if c.rv <= from {
				continue
			}
			if err := json.NewEncoder(w).Encode(obj{"type": c.typ, "object": c.object}); err != nil {
				return
			}
			from = c.rv
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (e *extension) service() string { return apiServices + "/v1." + e.group }

// register makes the cluster serve the extension's resource, and waits until the APIService is
// available.
func (e *extension) register(t testing.TB) {
	t.Helper()
	_, err := e.plane.API.Create(t.Context(), apiServices, obj{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": obj{"name": "v1." + e.group},
		"spec": obj{
			"group":                 e.group,
			"version":               "v1",
			"groupPriorityMinimum":  1000,
			"versionPriority":       15,
			"insecureSkipTLSVerify": true,
			"service":               obj{"name": "annex", "namespace": extensionNamespace, "port": e.port},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.available(t, "True")
}

// available waits until the APIService's Available condition has the wanted status.
func (e *extension) available(t testing.TB, want string) {
	t.Helper()
	var last time.Time
	wait.Eventually(t, 2*time.Minute, func() error {
		if time.Since(last) > 250*time.Millisecond {
			// A change makes the controller check at once; otherwise it checks every 30 s.
			last = time.Now()
			if _, err := e.plane.API.MergePatch(t.Context(), e.service(), obj{"metadata": obj{"annotations": obj{
				"look": last.String(),
			}}}); err != nil {
				return err
			}
		}
		raw, err := e.plane.API.Get(t.Context(), e.service())
		if err != nil {
			return err
		}
		var s struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		for _, c := range s.Status.Conditions {
			if c.Type == "Available" && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("APIService v1.%s: not yet Available=%s: %+v", e.group, want, s.Status.Conditions)
	})
}

// unregister deletes the APIService and waits until its resource is no longer served.
func (e *extension) unregister(t testing.TB) {
	t.Helper()
	if err := e.plane.API.Remove(t.Context(), e.service()); err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		if _, err := e.plane.API.Get(t.Context(), "/apis/"+e.group+"/v1/notes"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New(e.resource()+" is still known"), err)
		}
		return nil
	})
}
