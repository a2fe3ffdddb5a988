package informers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/object"
)

// A sickness is a fault of an API server for some requests.
type sickness struct {
	kind, requests, resource string
	over                     chan struct{}
}

func (k *machine) falls() {
	if k.isRewound() {
		return
	}
	k.heal()
	f := &sickness{
		kind: rapid.SampledFrom(
			[]string{
				"410", "403", "404", "500", "503", "504", "hang", "mute", "close", "garbage", "nonsense", "truncated",
			}).Draw(k.rt, "fault"),
		requests: rapid.SampledFrom([]string{"list", "watch", "list, watch"}).Draw(k.rt, "of"),
		resource: rapid.SampledFrom([]string{"configmaps", "widgets", "s"}).Draw(k.rt, "resource"),
		over:     make(chan struct{}),
	}
	k.note("fault: %s of %s of *%s", f.kind, f.requests, f.resource)
	if f.kind == "403" {
		// if lists of all namespaces are forbidden, each namespace is observed separately, which is
		// not tested here
		f.requests = "watch"
	}
	k.faultMu.Lock()
	k.sick = f
	k.faultMu.Unlock()
	if rapid.Bool().Draw(k.rt, "at once") {
		k.CloseClientConnections()
	}
}

// heal ends faults of the API server.
func (k *machine) heal() {
	k.faultMu.Lock()
	defer k.faultMu.Unlock()
	if k.sick != nil {
		k.note("%s is over", k.sick.kind)
		close(k.sick.over)
		k.sick = nil
	}
}

// answers may answer a request instead of the API server, and reports whether it did.
func (k *machine) answers(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w,
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
		return true
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	r.URL.Path = strings.Replace(r.URL.Path, "v1/namespaces/other/widgets", "v1/widgets", 1)
	if k.customs.answer(w, r) {
		return true
	}
	if name == "widgets" && strings.HasSuffix(r.URL.Path, "/configmaps") {
		r.URL.Path = "/api/v1/namespaces/other/configmaps"
	}
	if !strings.HasSuffix(r.URL.Path, "/configmaps") {
		return false
	}
	wait(r.Context(), k.late())
	k.faultMu.Lock()
	f, gone := k.sick, k.gone
	k.faultMu.Unlock()
	q, request := r.URL.Query(), "list"
	if q.Get("watch") != "" {
		request = "watch"
		if from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64); from < gone && !isInitial(r) {
			fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", status(http.StatusGone, metav1.StatusReasonExpired))
			return true
		}
	}
	if f == nil || !strings.Contains(f.requests, request) || !strings.HasSuffix(name, f.resource) {
		return false
	}
	return f.answers(k.apiServer, w, r, request == "watch")
}

func (f *sickness) answers(s *apiServer, w http.ResponseWriter, r *http.Request, watch bool) bool {
	switch f.kind {
	case "410":
		q := r.URL.Query()
		if !watch && q.Get("continue") == "" && q.Get("resourceVersionMatch") == "" {
			return false // the current state is never gone
		}
		fail(w, http.StatusGone, metav1.StatusReasonExpired)
	case "403":
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case "404":
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case "500":
		fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case "503":
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case "504":
		fail(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	case "hang", "mute":
		if f.kind == "mute" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
		}
		select {
		case <-f.over:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case "close":
		w.WriteHeader(http.StatusOK)
	case "garbage":
		fmt.Fprint(w, "%&\x00{\n")
	case "nonsense":
		fmt.Fprint(w, `{"type":"ODD","object":{"kind":"Riddle"}}`+"\n"+`{"type":"ADDED","object":[]}`+"\n")
	case "truncated":
		whole := `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"o1"`
		if !watch {
			answer := httptest.NewRecorder()
			s.list(answer, r)
			whole = answer.Body.String()
		}
		fmt.Fprint(w, whole[:len(whole)*2/3])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return true
}

// expires refuses watches from before now, like a restarted API server.
func (k *machine) expires() {
	k.faultMu.Lock()
	k.gone = k.now1()
	k.faultMu.Unlock()
	k.note("watches from before %d expire", k.gone)
	k.CloseClientConnections()
}

// compacts compacts etcd.
func (k *machine) compacts() {
	if k.isRewound() {
		return
	}
	k.note("compact at %d", k.now1())
	k.CloseClientConnections()
	k.write(4)
	k.compact()
}

// restoresVisibly restores etcd after each scope has received a version that is lost. A scope that
// has only the last resourceVersion cannot detect the restore once the new history has reached it.
func (k *machine) restoresVisibly() {
	if k.sick != nil || !k.bus.isFree() {
		return
	}
	marks := k.marks()
	for range 10 {
		if k.isLive(marks) == nil {
			_ = k.memory.Flush(k.t.Context()) // a start cannot detect that versions sent after the checkpoint are lost
			if len(k.memory.histories()) == 0 {
				return // no scope observes etcd: one that begins later has nothing to compare (guarantees.md)
			}
			down := rapid.Bool().Draw(k.rt, "down")
			if down {
				k.note("the set ends")
				k.ends()
			}
			k.restores()
			if down {
				k.start()
			}
			return
		}
		wait(k.t.Context(), 100*time.Millisecond)
	}
}

// restores restores etcd.
func (k *machine) restores() {
	lowest, highest := max(k.floor, k.compacted), k.now1()-2 // without the marks
	if highest <= lowest {
		return
	}
	k.restoreTo(rapid.Uint64Range(lowest, highest).Draw(k.rt, "to"))
	for _, namespace := range []string{"shop", "other"} {
		// the fingerprint of a scope has names and resourceVersions, but no contents
		if namespace == "shop" || k.defined {
			k.added(k.putIn(namespace, fmt.Sprint("again", len(k.branches)), "", map[string]string{"in": "1"}))
		}
	}
	k.CloseClientConnections()
	k.write(4)
}

// restoreTo resets the API server to resourceVersion to.
func (k *machine) restoreTo(to uint64) {
	k.note("etcd is restored from %d to %d", k.now1(), to)
	k.do(func() { k.branches = append(k.branches, slices.Clone(k.history)) })
	k.restored, k.rewound = min(k.restored, to), k.memory.histories()
	if !k.seamless {
		k.CloseClientConnections()
	}
	k.restore(to)
	k.faultMu.Lock()
	k.gone = min(k.gone, to)
	k.faultMu.Unlock()
}

// replaces replaces the current log with another one.
func (k *machine) replaces() {
	k.note("the log is replaced")
	record, _ := k.bus.all()
	k.faultMu.Lock()
	defer k.faultMu.Unlock()
	k.logs = append(k.logs, len(record))
	if known := k.memory.lastHistory(k.life != nil); slices.ContainsFunc(record,
		func(d *object.Delta) bool { return d.History > known }) {
		// the scopes with that number are gone, and nothing stores it any more (guarantees.md)
		k.blank = append(k.blank, len(record))
	}
	k.log.number.Add(1)
}

func (k *machine) rebases() {
	k.replaces()
	k.life.set.Rebase()
}

// restarts ends the manager and starts it again. A crash loses everything that was not acknowledged
// or not saved.
func (k *machine) restarts(crash bool) {
	if !crash && !k.bus.isFree() {
		return
	}
	k.note("restart, crash: %t", crash)
	k.crashed = k.crashed || crash
	if len(k.segment.choices) > 1 {
		k.vague = k.vague || crash
		// A tombstone's gap ends before its successor begins. After a crash in the middle of the
		// tombstone, changes in between are neither sent nor announced.
		k.segment.choices = append(k.segment.choices, choice{"none", "none"})
	}
	if crash {
		k.bus.crash()
	}
	set := k.life.set
	k.ends()
	if !crash {
		if err := k.bus.drained(k.t.Context(), time.Minute); err != nil {
			k.fail("the bus does not get everything: %v", err)
		}
		_ = k.memory.Flush(k.t.Context())
		k.stops = append(k.stops, stop{k.bus.count(), k.memory.unfinished(), k.memory.behind(set.Status())})
	}
	k.write(6)
	if rapid.IntRange(0, 3).Draw(k.rt, "something happens meanwhile") == 0 {
		switch rapid.SampledFrom([]string{"compact", "define", "select", "rebase"}).Draw(k.rt, "meanwhile") {
		case "compact":
			k.compacts()
		case "define":
			k.defines()
		case "select":
			k.taken = k.drawChoice()
			k.chosen()
		case "rebase":
			k.replaces()
		}
		k.write(6)
	}
	wait(k.t.Context(), time.Millisecond) // no two processes begin a snapshot in the same millisecond, which names it
	k.start()
}

// ends ends the manager.
func (k *machine) ends() {
	ended := make(chan struct{})
	l := k.life
	k.life = nil
	go func() {
		defer close(ended)
		l.end()
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		k.t.Log(k.notes.String()) // the bubble ends with a panic
		k.fail("the set has not ended a minute after its context")
	}
}

func (k *machine) holds() {
	how := rapid.SampledFrom(
		[]string{"free", "full", "nothing", "stream", "objects", "configmaps", "widgets", "o1", "late"}).
		Draw(k.rt, "the bus acknowledges")
	k.note("the bus: %s", how)
	k.bus.holds(how)
}
