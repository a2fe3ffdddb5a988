package informers_test

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// version is one revision of the fake API server's history.
type version struct {
	rv        uint64
	namespace string
	name      string
	uid       string
	labels    map[string]string
	value     string
	deleted   bool
	before    *version // nil: the name was free
	written   string   // the time in managedFields; "": derived from rv and restores
	restores  int      // of etcd, when it was written
	bookmark  bool     // a bookmark instead of an object
	shown     uint64   // the resourceVersion in the frames of watches; 0: rv
}

func (v *version) key() string { return v.namespace + "/" + v.name }

// frameRV returns the resourceVersion in the frames of watches.
func (v *version) frameRV() uint64 { return cmp.Or(v.shown, v.rv) }

// JSON returns the object as an API server encodes it. In a list, it has no kind and apiVersion.
func (v *version) JSON(inList bool, rv uint64) string {
	head := `"kind":"ConfigMap","apiVersion":"v1",`
	if v.namespace == "" {
		head = `"kind":"Node","apiVersion":"v1",`
	}
	if inList {
		head = ""
	}
	l, _ := json.Marshal(v.labels)
	name, _ := json.Marshal(v.name)
	written := v.written
	if written == "" {
		written = fmt.Sprintf("2026-11-20T%02d:%02d:%02dZ", (15+v.restores)%24, v.rv/60%60, v.rv%60)
	}
	return fmt.Sprintf(`{%s"metadata":{"name":%s,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":%s,`+
		`"managedFields":[{"manager":"m-%s","operation":"Update","apiVersion":"v1","time":%q,"fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]},`+
		`"data":{"value":%q}}`, head, name, v.namespace, v.uid, rv, l, v.value, written, v.value)
}

// apiServer serves configmaps from a complete history, with the faults that a test configures.
type apiServer struct {
	*httptest.Server

	mu        sync.Mutex
	changed   *sync.Cond
	history   []*version
	now       map[string]*version
	compacted uint64 // versions below are gone
	rv        uint64
	uids      int
	restores  int // of etcd; each changes the times in managedFields

	// fault may answer a request instead of the server, and reports whether it did. frames limits
	// the frames of a watch: it writes after instead of the next one, and ends. 0: no limit.
	fault  func(w http.ResponseWriter, r *http.Request) bool
	frames int
	after  string

	delay func() time.Duration // before an answer, and before a frame of a watch; nil: none

	form    string // served with each object, at any version; "": none
	release string // of the API server; "": it does not say it

	// a DELETED frame has the version of the deleted object, which an API server other than
	// kube-apiserver may send
	ownVersions bool

	lists, watches, ended int
	metadata              int  // lists of the metadata of all objects
	nodes                 bool // objects without a namespace are served too, as Nodes

	// initial: watches may begin with the existing objects. Otherwise the server refuses these,
	// also instead of fault, like one without the feature gate WatchList. Before the bookmark that
	// ends them it calls meanwhile, and sends the changes since.
	initial   bool
	meanwhile func()
	streamed  int // watches that have sent the bookmark

	seamless bool // watches survive a restore of etcd, and show the changes after it
	copied   int  // the length of history after the last restore

	lines  *lines
	client *rest.Config
}

// newAPIServer returns an HTTP/1.1 server with in-memory connections to its clients. It runs in a
// bubble of testing/synctest.
func newAPIServer(t *testing.T) *apiServer { return newServer(t, false) }

func newServer(t *testing.T, http2 bool) *apiServer {
	s := &apiServer{now: map[string]*version{}, rv: 100, lines: newLines()}
	s.changed = sync.NewCond(&s.mu)
	s.Server = &httptest.Server{Listener: s.lines, Config: &http.Server{
		Handler: http.HandlerFunc(s.serve),
	}, EnableHTTP2: http2}
	s.client = &rest.Config{Dial: s.lines.dial}
	if http2 {
		s.StartTLS()
		s.client.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	} else {
		s.Start()
	}
	s.client.Host = s.URL
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) config() *rest.Config { return rest.CopyConfig(s.client) }

// put creates or updates an object and returns its version.
func (s *apiServer) put(name, value string, l map[string]string) *version {
	return s.putIn("shop", name, value, l)
}

func (s *apiServer) putIn(namespace, name, value string, l map[string]string) *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &version{namespace: namespace, name: name, labels: l, value: value}
	if was := s.now[v.key()]; was != nil {
		v.uid, v.before = was.uid, was
	} else {
		s.uids++
		v.uid = fmt.Sprintf("uid-%d", s.uids)
	}
	s.now[v.key()] = v
	return s.add(v)
}

func (s *apiServer) delete(name string) *version { return s.deleteIn("shop", name) }

func (s *apiServer) deleteIn(namespace, name string) *version {
	return s.deleteShown(namespace, name, func(*version) uint64 { return 0 })
}

// deleteShown deletes an object. Watches show the deletion at the resourceVersion that shown
// returns for the last version; 0: at its own.
func (s *apiServer) deleteShown(namespace, name string, shown func(last *version) uint64) *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.now[namespace+"/"+name]
	if was == nil {
		return nil
	}
	v := *was
	v.deleted = true
	v.before = was
	v.shown = shown(was)
	delete(s.now, v.key())
	return s.add(&v)
}

func (s *apiServer) add(v *version) *version {
	s.rv++
	v.rv, v.restores = s.rv, s.restores
	s.history = append(s.history, v)
	s.changed.Broadcast()
	return v
}

// compact discards the history so far and ends every watch.
func (s *apiServer) compact() {
	s.mu.Lock()
	s.rv++
	s.compacted = s.rv
	s.mu.Unlock()
	s.CloseClientConnections()
}

func (s *apiServer) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *apiServer) counts() (lists, watches, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches, s.ended
}

func status(code int, reason metav1.StatusReason) string {
	b, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason),
	})
	return string(b)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprint(w, status(code, reason))
}

// late waits for the time that delay returns. It returns false if the client disconnects first.
func (s *apiServer) late(r *http.Request) bool {
	return s.delay == nil || wait(r.Context(), s.delay())
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	if !s.late(r) {
		return
	}
	s.mu.Lock()
	fault, refuses := s.fault, isInitial(r) && !s.initial
	s.mu.Unlock()
	if refuses {
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	}
	if fault != nil && fault(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	if strings.HasPrefix(path, "/api/v1/namespaces/") && strings.HasSuffix(path, "/configmaps") {
		path = "/api/v1/configmaps" // servedAt selects those of the namespace
	}
	switch path {
	case "/version":
		s.version(w)
	case "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case "/api/v1":
		nodes := ""
		if s.nodes {
			nodes = `{"name":"nodes","singularName":"","namespaced":false,"kind":"Node","verbs":["list","watch"]},`
		}
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[`+nodes+
			`{"name":"configmaps","singularName":"","namespaced":true,"kind":"ConfigMap","verbs":["list","watch"]},`+
			`{"name":"secrets","singularName":"","namespaced":true,"kind":"Secret","verbs":["list","watch"]},`+
			`{"name":"bindings","singularName":"","namespaced":true,"kind":"Binding","verbs":["create"]}]}`)
	case "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/configmaps":
		if r.URL.Query().Get("watch") != "" {
			s.watch(w, r)
		} else {
			s.list(w, r)
		}
	default:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

func (s *apiServer) version(w http.ResponseWriter) {
	s.mu.Lock()
	release := s.release
	s.mu.Unlock()
	if release == "" {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	fmt.Fprintf(w, `{"gitVersion":%q,"gitCommit":"c"}`, release)
}

// setForm makes the server serve all objects in another form.
func (s *apiServer) setForm(form string) { s.do(func() { s.form = form }) }

// encode returns an object in the form of the server. It must be called with mu held.
func (s *apiServer) encode(v *version, inList bool, rv uint64) string {
	text := v.JSON(inList, rv)
	if s.form != "" {
		text = strings.Replace(text, `"data":{`, fmt.Sprintf(`"data":{"form":%q,`, s.form), 1)
	}
	return text
}

// isList reports whether a request is a list of objects or a probe, not a watch or a list of
// metadata.
func isList(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/configmaps") && r.URL.Query().Get("watch") == "" && !isMetadata(r)
}

// withoutKind is a header of a request for objects that are no ConfigMaps: frames of watches have
// no kind and apiVersion then, and the client adds its own.
const withoutKind = "Without-Kind"

func hidesKind(r *http.Request) bool { return r.Header.Get(withoutKind) != "" }

// isInitial reports whether a request is a watch that begins with the existing objects.
func isInitial(r *http.Request) bool { return r.URL.Query().Get("sendInitialEvents") == "true" }

// isMetadata reports whether a request is a list of metadata.
func isMetadata(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "application/json;as=PartialObjectMetadataList")
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selector, _ := labels.Parse(q.Get("labelSelector"))
	selectedFields, err := fields.ParseSelector(q.Get("fieldSelector"))
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	_, question := selectedFields.RequiresExactMatch("metadata.name")
	question = question || q.Get("limit") == "1"
	// A write blocks until the client reads, so it must not hold the lock.
	if text, ok := s.page(q, r, selector, selectedFields, question); ok {
		fmt.Fprint(w, text)
	} else {
		fail(w, http.StatusGone, metav1.StatusReasonExpired)
	}
}

// page returns a page of a list, or false if its revision is compacted.
func (s *apiServer) page(
	q url.Values, r *http.Request, selector labels.Selector, selectedFields fields.Selector, question bool,
) (text string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case question:
	case !isMetadata(r):
		s.lists++
	case q.Get("continue") == "":
		s.metadata++
	}
	at, offset := s.rv, 0
	if c := q.Get("continue"); c != "" {
		_, _ = fmt.Sscanf(c, "%d-%d", &at, &offset)
	} else if q.Get("resourceVersionMatch") == "Exact" {
		at, _ = strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	}
	if at < s.compacted {
		return "", false
	}
	state := map[string]*version{}
	for _, v := range s.history {
		if v.rv > at {
			break
		}
		if v.bookmark {
			continue
		}
		state[v.key()] = v
	}
	var items []string
	for _, k := range slices.Sorted(maps.Keys(state)) {
		if v := state[k]; !v.deleted && v.servedAt(r) && selector.Matches(labels.Set(v.labels)) &&
			selectedFields.Matches(fields.Set{"metadata.name": v.name}) {
			items = append(items, s.encode(v, true, v.rv))
		}
	}
	next, remaining := "", ""
	items = items[min(offset, len(items)):]
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && len(items) > 3 {
		if selector.Empty() && selectedFields.Empty() { // with a selector, a server returns no count
			remaining = fmt.Sprintf(`,"remainingItemCount":%d`, len(items)-3)
		}
		items = items[:3] // smaller pages than asked for, as a server may send
		next = fmt.Sprintf("%d-%d", at, offset+3)
	}
	return fmt.Sprintf(
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q%s},"items":[%s]}`,
		at, next, remaining, strings.Join(items, ",")), true
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selector, _ := labels.Parse(q.Get("labelSelector"))
	selectedFields, _ := fields.ParseSelector(q.Get("fieldSelector"))
	rv, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	defer func() { s.ended++ }()
	// Wake Wait when the client is gone.
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-r.Context().Done():
			s.do(s.changed.Broadcast) // with mu held: otherwise it may come between the check and Wait
		case <-done:
		}
	}()
	flush := func() { w.(http.Flusher).Flush() }
	w.WriteHeader(http.StatusOK)
	flush()
	if isInitial(r) {
		var ok bool
		rv, ok = s.sendInitial(w, r, selector, selectedFields)
		if !ok {
			return
		}
	}
	if rv < s.compacted {
		fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", status(http.StatusGone, metav1.StatusReasonExpired))
		return
	}
	sent, restores := 0, s.restores
	for next := 0; r.Context().Err() == nil; {
		if s.seamless && restores != s.restores {
			restores = s.restores
			next = s.copied
			rv = 0
		}
		if next >= len(s.history) {
			s.changed.Wait()
			continue
		}
		v := s.history[next]
		next++
		typ := selectedType(v, selector)
		if v.bookmark && v.rv > rv && r.URL.Query().Get("allowWatchBookmarks") == "true" {
			s.mu.Unlock() // the client may not read
			fmt.Fprintf(w,
				`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+
					"\n",
				v.frameRV())
			flush()
			s.mu.Lock()
			continue
		}
		if v.rv <= rv || typ == "" || !v.servedAt(r) || !selectedFields.Matches(fields.Set{"metadata.name": v.name}) {
			continue
		}
		if s.frames > 0 && sent == s.frames {
			fmt.Fprint(w, s.after)
			return
		}
		sent++
		shown := v
		if typ == "DELETED" && !v.deleted {
			shown = v.before // the last version that matched, with the current resourceVersion
		}
		at := v.frameRV()
		if s.ownVersions && v.deleted {
			at = v.before.rv
		}
		frame := fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", typ, s.encode(shown, hidesKind(r), at))
		s.mu.Unlock()
		if !s.late(r) {
			s.mu.Lock()
			return
		}
		_, err := fmt.Fprint(w, frame)
		flush()
		s.mu.Lock()
		if err != nil {
			return
		}
	}
}

// sendInitial sends the existing objects in the order of their names, the changes that come
// meanwhile, and the bookmark that ends them. It returns the resourceVersion of that, or false if
// the watch has ended. It is called with mu held.
func (s *apiServer) sendInitial(
	w http.ResponseWriter, r *http.Request, selector labels.Selector, selectedFields fields.Selector,
) (rv uint64, ok bool) {
	isShown := func(v *version) bool {
		return !v.bookmark && v.servedAt(r) && selectedFields.Matches(fields.Set{"metadata.name": v.name})
	}
	var frames []string
	for _, key := range slices.Sorted(maps.Keys(s.now)) {
		if v := s.now[key]; isShown(v) && selector.Matches(labels.Set(v.labels)) {
			frames = append(frames, fmt.Sprintf(`{"type":"ADDED","object":%s}`, s.encode(v, hidesKind(r), v.rv)))
		}
	}
	from, meanwhile := s.rv, s.meanwhile
	s.mu.Unlock() // the client may not read
	write := func(frames []string) {
		for _, f := range frames {
			fmt.Fprintln(w, f)
		}
		w.(http.Flusher).Flush()
	}
	write(frames)
	ok = s.late(r)
	if meanwhile != nil {
		meanwhile()
	}
	s.mu.Lock()
	frames = nil
	for _, v := range s.history {
		typ := selectedType(v, selector)
		if v.rv <= from || typ == "" || !isShown(v) {
			continue
		}
		shown := v
		if typ == "DELETED" && !v.deleted {
			shown = v.before
		}
		frames = append(frames, fmt.Sprintf(`{"type":%q,"object":%s}`, typ, s.encode(shown, hidesKind(r), v.frameRV())))
	}
	rv = s.rv
	s.mu.Unlock()
	write(append(frames, initialEnd(rv)))
	s.mu.Lock()
	s.streamed++
	return rv, ok && r.Context().Err() == nil
}

// initialEnd returns the bookmark that ends the existing objects.
func initialEnd(rv uint64) string {
	return fmt.Sprintf(
		`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`, rv)
}

// servedAt reports whether the requested path serves the object. Objects without a namespace are
// served as Nodes and as Namespaces.
func (v *version) servedAt(r *http.Request) bool {
	if path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"); ok {
		return v.namespace == strings.TrimSuffix(path, "/configmaps")
	}
	return (v.namespace == "") == (r.URL.Path == "/api/v1/nodes" || r.URL.Path == "/api/v1/namespaces")
}

// bookmark sends a bookmark with the next resourceVersion on all watches.
func (s *apiServer) bookmark() { s.bookmarkShown(0) }

// bookmarkShown is bookmark with another resourceVersion; 0: the next one.
func (s *apiServer) bookmarkShown(rv uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(&version{bookmark: true, shown: rv})
}

// selectedType returns the type of the watch event that an API server sends for a change under a
// selector, or "" for none.
func selectedType(v *version, selector labels.Selector) string {
	matches := func(v *version) bool { return v != nil && !v.deleted && selector.Matches(labels.Set(v.labels)) }
	switch was, is := matches(v.before), matches(v); {
	case was && is:
		return "MODIFIED"
	case is:
		return "ADDED"
	case was:
		return "DELETED"
	default:
		return ""
	}
}

// uidOf returns the uid of an existing ConfigMap.
func (s *apiServer) uidOf(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now["shop/"+name].uid
}
