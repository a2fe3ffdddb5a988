package informers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// settlesWithin is how long it may take after the last fault until everything is live again. An etcd that was restored, and in which nothing
// happens, is found after 10 minutes at the latest.
const settlesWithin = 12 * time.Minute

// TestMachine gives a set random commands while its API server and its bus answer at random, and compares what is on the bus with
// history. Without -rapid.checks, the number of cases of each half, or -rapid.seed these are the same 20 cases each time.
func TestMachine(t *testing.T) {
	for half := range 2 {
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				var failure any // rapid works by panics, which have to leave the bubble by hand, see TestModel of package queue
				synctest.Test(t, func(t *testing.T) {
					k := newMachine(t, rt)
					defer k.close()
					defer func() { failure = recover() }()
					k.play()
				})
				switch f := failure.(type) {
				case nil:
				case wrong:
					rt.Fatal(string(f))
				default:
					panic(f)
				}
			})
		})
	}
}

// wrong is what a case has found.
type wrong string

// machine is one case: a set with all that it depends on, and what the model knows.
type machine struct {
	*customs
	t      *testing.T
	rt     *rapid.T
	memory *memory
	bus    *broker
	log    replaceable
	life   *life
	asked  context.Context // of commands that are under way
	cancel context.CancelFunc
	under  sync.WaitGroup // commands that are under way

	taken    choice
	rewound  bool // since everything was live the last time
	crashed  bool // likewise
	vague    bool // a scope ended after a crash: what the crashed run sent of it after the checkpoint lives on (guarantees.md)
	segment  *segment
	made     map[*version]*segment
	born     map[*version]int
	branches [][]*version
	restored uint64
	floor    uint64 // etcd is not restored to what was before
	logs     []int  // how much was on record when the log was replaced
	values   int

	late    func() time.Duration // before an answer about objects
	faultMu sync.Mutex
	sick    *sickness
	gone    uint64 // watches from below are refused with 410

	notesMu sync.Mutex
	notes   strings.Builder
}

// segment is a part of history. It ends when everything is live and on the bus.
type segment struct{ choices []choice }

// choice is a selection. widgets are taken only if they are defined.
type choice struct{ configmaps, widgets string }

// The ways in which a resource can be selected.
var (
	ofConfigMaps = map[string]func(*selection.Rule){
		"all": nil, "in": selected("in=1", ""), "redacted": redacted("metadata.labels"), "shop": inNamespaces("shop"),
		"in, redacted": func(r *selection.Rule) { r.LabelSelector, r.Redact = "in=1", []string{"metadata.labels"} },
	}
	ofWidgets = map[string]func(*selection.Rule){"all": nil, "in": selected("in=1", ""), "redacted": redacted("metadata.labels")}
)

func (c choice) spec() selection.Spec {
	var rules []selection.Rule
	if c.configmaps != "none" {
		rules = append(rules, rule(ofConfigMaps[c.configmaps]))
	}
	if c.widgets != "none" && c.widgets != "undefined" {
		rules = append(rules, widgets(ofWidgets[c.widgets]))
	}
	return specOf(rules...)
}

// takes returns what tells the versions of a resource that are selected.
func (c choice) takes(resource string) func(*version) bool {
	way := c.configmaps
	if resource != "configmaps" {
		way = c.widgets
	}
	return func(v *version) bool {
		switch {
		case way == "none", way == "undefined", v.bookmark, resource != "configmaps" && v.namespace != "other", way == "shop" && v.namespace != "shop":
			return false
		default:
			return !strings.HasPrefix(way, "in") || v.labels["in"] == "1"
		}
	}
}

func newMachine(t *testing.T, rt *rapid.T) *machine {
	k := &machine{
		customs: newCustoms(t), t: t, rt: rt, memory: newMemory(), restored: math.MaxUint64,
		made: map[*version]*segment{}, born: map[*version]int{},
	}
	seed := rapid.Uint64().Draw(rt, "seed")
	k.bus = newBroker(seed)
	late, lateMu := rand.New(rand.NewPCG(seed, 3)), sync.Mutex{}
	k.late = func() time.Duration { // time passes only while all goroutines wait: no fault would meet a request that is under way
		lateMu.Lock()
		defer lateMu.Unlock()
		return time.Duration(late.Int64N(int64(600 * time.Microsecond)))
	}
	k.fault = k.answers
	k.asked, k.cancel = context.WithCancel(t.Context())
	k.under.Go(func() { k.bus.run(k.asked) })
	return k
}

// close ends everything.
func (k *machine) close() {
	k.heal()
	if k.life != nil {
		k.life.end()
	}
	k.cancel()
	k.under.Wait()
}

func (k *machine) fail(format string, args ...any) {
	k.notesMu.Lock()
	defer k.notesMu.Unlock()
	panic(wrong(fmt.Sprintf(format, args...) + "\n" + k.notes.String()))
}

func (k *machine) note(format string, args ...any) {
	k.notesMu.Lock()
	defer k.notesMu.Unlock()
	fmt.Fprintf(&k.notes, format+"\n", args...)
}

// play is a case.
func (k *machine) play() {
	k.do(func() { k.rv++ })
	if rapid.Bool().Draw(k.rt, "defined") {
		k.define(true)
	}
	k.taken = k.drawChoice()
	k.begins()
	k.write(8)
	k.floor = k.now1()
	k.start()
	k.rt.Repeat(map[string]func(*rapid.T){
		"":              func(*rapid.T) {},
		"write":         func(*rapid.T) { k.write(8) },
		"fault":         k.step(k.falls),
		"heal":          k.step(func() { k.heal() }),
		"break":         k.step(k.breaks),
		"expire":        k.step(k.expires),
		"compact":       k.step(k.compacts),
		"restore":       k.step(k.restoresVisibly),
		"restore again": k.step(k.restoresVisibly),
		"reload":        k.step(k.reloads),
		"snapshot":      k.step(k.snapshots),
		"define":        k.step(k.defines),
		"rebase":        k.step(k.rebases),
		"crash":         k.step(func() { k.restarts(true) }),
		"restart":       k.step(func() { k.restarts(false) }),
		"save":          k.step(func() { _ = k.memory.Flush(k.t.Context()) }),
		"bookmark":      k.step(func() { k.bookmark() }),
		"hold":          k.step(k.holds),
		"settle":        k.step(k.settles),
	})
	k.settles()
	k.judge()
}

// step makes a command of f: changes come before it, and time passes behind it.
func (k *machine) step(f func()) func(*rapid.T) {
	return func(*rapid.T) {
		k.write(3)
		f()
		k.passes()
	}
}

func (k *machine) passes() {
	d := rapid.SampledFrom([]time.Duration{0, 300 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 30 * time.Second, 200 * time.Second}).Draw(k.rt, "pass")
	k.note("%v pass", d)
	wait(k.t.Context(), d)
}

// write makes up to n changes.
func (k *machine) write(n int) {
	for range rapid.IntRange(0, n).Draw(k.rt, "changes") {
		what := rapid.IntRange(0, 79).Draw(k.rt, "change")
		namespace, name := "shop", fmt.Sprint("o", what%4)
		if what = what / 4; what%2 == 1 && k.defined {
			namespace = "other"
		}
		if what /= 2; what < 2 {
			k.added(k.deleteIn(namespace, name))
		} else {
			k.values++
			k.added(k.putIn(namespace, name, fmt.Sprint(k.values), map[string]string{"in": fmt.Sprint(min(1, what%3))}))
		}
	}
}

// added tells the model of a version, nil: none was made.
func (k *machine) added(v *version) {
	if v != nil {
		k.made[v], k.born[v] = k.segment, k.bus.count()
	}
}

// begins begins a segment of history.
func (k *machine) begins() {
	k.segment = &segment{}
	k.chosen()
}

// chosen tells the model what may be in force from here on.
func (k *machine) chosen() {
	c := k.taken
	if !k.defined {
		c.widgets = "undefined"
	}
	if n := len(k.segment.choices); n > 0 {
		last := k.segment.choices[n-1]
		if last.widgets == "undefined" {
			last.widgets = c.widgets
		}
		k.vague = k.vague || k.crashed && last != c
	}
	k.segment.choices = append(k.segment.choices, c)
}

func (k *machine) drawChoice() choice {
	if len(k.branches) > 0 {
		return k.taken // another selection of an etcd that was restored is the matter of TestReloadAfterRestore
	}
	c := choice{
		configmaps: rapid.SampledFrom([]string{"all", "in", "redacted", "shop", "in, redacted", "none"}).Draw(k.rt, "configmaps"),
		widgets:    rapid.SampledFrom([]string{"all", "in", "redacted", "none"}).Draw(k.rt, "widgets"),
	}
	if c.configmaps == "none" && c.widgets == "none" {
		c.configmaps = "all"
	}
	k.note("selected: %+v", c)
	return c
}

func (k *machine) start() {
	k.bus.revive()
	k.life = live(k.t, k.apiServer, k.memory, func(o *informers.Options, r *recorder) {
		k.log.use(o, r)
		o.Spec = k.taken.spec()
		o.Lane = func(string) store.Lane { return k.bus }
		o.Heard = func(_ context.Context, of *object.Resource) (scope.LastEvent, bool, error) { return k.heard(of) }
		o.Log = slog.New(slog.NewTextHandler(noted(k.note), nil))
	})
}

// onLog returns what is on record, and how much of it is not on the present log.
func (k *machine) onLog() (record []*object.Delta, before int) {
	record, _ = k.bus.all()
	k.faultMu.Lock()
	defer k.faultMu.Unlock()
	if len(k.logs) > 0 {
		before = k.logs[len(k.logs)-1]
	}
	return record, before
}

// heard is the last stream event of a resource on the present log.
func (k *machine) heard(of *object.Resource) (scope.LastEvent, bool, error) {
	record, before := k.onLog()
	return (&recorder{deltas: record[before:]}).heard(of)
}

// A sickness is how an API server answers requests of some kind.
type sickness struct {
	kind, requests, resource string
	over                     chan struct{}
}

func (k *machine) falls() {
	if k.rewound {
		return // changes go on if nobody answers whether etcd was restored
	}
	k.heal()
	f := &sickness{
		kind:     rapid.SampledFrom([]string{"410", "403", "404", "500", "503", "504", "hang", "mute", "close", "garbage", "nonsense", "truncated"}).Draw(k.rt, "fault"),
		requests: rapid.SampledFrom([]string{"list", "watch", "list, watch"}).Draw(k.rt, "of"),
		resource: rapid.SampledFrom([]string{"configmaps", "widgets", "s"}).Draw(k.rt, "resource"),
		over:     make(chan struct{}),
	}
	k.note("fault: %s of %s of *%s", f.kind, f.requests, f.resource)
	if f.kind == "403" {
		f.requests = "watch" // what may not be listed as a whole is observed in each namespace by itself, which is another matter
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

// answers answers a request in the place of the API server; false: it did not.
func (k *machine) answers(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
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
		if from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64); from < gone {
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
			return false // what there is now is never gone
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

// breaks breaks all connections, but not while scopes ask whether etcd was restored: changes go on if nobody answers.
func (k *machine) breaks() {
	if !k.rewound {
		k.CloseClientConnections()
	}
}

// expires has watches from before now refused, as by an API server that was restarted.
func (k *machine) expires() {
	k.faultMu.Lock()
	k.gone = k.now1()
	k.faultMu.Unlock()
	k.note("watches from before %d expire", k.gone)
	k.breaks()
}

// compacts compacts etcd. It does not if etcd was restored and a scope has not asked since: that scope could not find the restore any more.
func (k *machine) compacts() {
	if k.rewound {
		return
	}
	k.note("compact at %d", k.now1())
	k.CloseClientConnections()
	k.write(4)
	k.compact()
}

// restoresVisibly has etcd restored once each scope has seen a version that is lost. One that has not, and knows no more than how far
// history had come, cannot tell when the new history has come as far.
func (k *machine) restoresVisibly() {
	if k.sick != nil || !k.bus.isFree() {
		return
	}
	marks := k.marks()
	for range 10 {
		if k.isLive(marks) == nil {
			_ = k.memory.Flush(k.t.Context()) // a start cannot find that what was sent after the checkpoint is lost
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

// restores has etcd restored.
func (k *machine) restores() {
	lowest, highest := max(k.floor, k.compacted), k.now1()-2 // without the marks
	if highest <= lowest {
		return
	}
	to := rapid.Uint64Range(lowest, highest).Draw(k.rt, "to")
	k.note("etcd is restored from %d to %d", k.now1(), to)
	k.do(func() { k.branches = append(k.branches, slices.Clone(k.history)) })
	k.restored, k.rewound = min(k.restored, to), true
	k.CloseClientConnections() // none lasts over a restore
	k.restore(to)
	k.faultMu.Lock()
	k.gone = min(k.gone, to)
	k.faultMu.Unlock()
	for _, namespace := range []string{"shop", "other"} { // the fingerprint of a scope knows names and resourceVersions, and no contents
		if namespace == "shop" || k.defined {
			k.added(k.putIn(namespace, fmt.Sprint("again", len(k.branches)), "", map[string]string{"in": "1"}))
		}
	}
	k.CloseClientConnections()
	k.write(4)
}

func (k *machine) reloads() {
	k.taken = k.drawChoice()
	k.chosen()
	k.reload()
}

// reload has the set take the selection. It waits for that: the order of two that are made at the same time is nobody's.
func (k *machine) reload() {
	began := time.Now()
	if err := k.life.set.Reload(k.asked, k.taken.spec()); err != nil {
		k.fail("reload: %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		k.fail("reload took %v", took)
	}
}

func (k *machine) snapshots() {
	namespace := rapid.SampledFrom([]string{"", "", "shop", "other"}).Draw(k.rt, "namespace")
	within := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(k.rt, "within")
	k.note("a snapshot of namespace %q", namespace)
	l := k.life
	k.under.Go(func() {
		ctx, cancel := context.WithTimeout(k.asked, within)
		defer cancel()
		if _, err := l.set.Snapshot(ctx, "", namespace); err != nil {
			k.note("snapshot: %v", err)
		}
	})
}

// defines has widgets defined, or their definition deleted, which deletes them first.
func (k *machine) defines() {
	if len(k.branches) > 0 {
		return // what is defined anew has not the history number of what was gone, nor is it told that etcd was restored
	}
	if k.defined {
		for _, name := range []string{"o0", "o1", "o2", "o3", "last"} { // definitions do not change once etcd was restored
			k.added(k.deleteIn("other", name))
		}
	}
	k.note("widgets are defined: %t", !k.defined)
	k.define(!k.defined)
	k.floor = k.now1()
	k.chosen()
	if !k.defined {
		k.CloseClientConnections()
	}
}

// replaces has another log take the place of the present one.
func (k *machine) replaces() {
	k.note("the log is replaced")
	k.faultMu.Lock()
	defer k.faultMu.Unlock()
	k.logs = append(k.logs, k.bus.count())
	k.log.number.Add(1)
}

func (k *machine) rebases() {
	k.replaces()
	k.life.set.Rebase()
}

// restarts ends the set and starts it again. crash: what was not acknowledged is lost, and what was not saved.
func (k *machine) restarts(crash bool) {
	if !crash && !k.bus.isFree() {
		return
	}
	k.note("restart, crash: %t", crash)
	k.crashed = k.crashed || crash
	if len(k.segment.choices) > 1 {
		k.vague = k.vague || crash
		// A tombstone's gap ends before its successor begins. After a crash in the middle of the tombstone, changes in between are neither
		// sent nor announced.
		k.segment.choices = append(k.segment.choices, choice{"none", "none"})
	}
	if crash {
		k.bus.crash()
	}
	k.ends()
	if !crash {
		if err := k.bus.drained(k.t.Context(), time.Minute); err != nil {
			k.fail("the bus does not get everything: %v", err)
		}
		_ = k.memory.Flush(k.t.Context())
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
	wait(k.t.Context(), time.Millisecond) // no process starts within the millisecond in which the one before began a snapshot, which names it
	k.start()
}

// ends ends the set.
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
	how := rapid.SampledFrom([]string{"free", "full", "nothing", "stream", "objects", "configmaps", "widgets", "o1", "late"}).Draw(k.rt, "the bus acknowledges")
	k.note("the bus: %s", how)
	k.bus.holds(how)
}

// settles ends all faults, and waits until everything is live and on the bus.
func (k *machine) settles() {
	k.note("all faults end")
	k.heal()
	k.bus.holds("free")
	marks, began := k.marks(), time.Now()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		wait(k.t.Context(), pause)
		var why error
		if why = k.isLive(marks); why == nil && (k.defined || time.Since(began) > time.Minute) { // discovery finds what nobody observes
			break
		}
		if pause == time.Second {
			k.bookmark() // a farewell waits until something is later than all that was told
		}
		if time.Since(began) > settlesWithin {
			k.fail("not live %v after the last fault: %v", settlesWithin, why)
		}
	}
	k.note("all is live after %v", time.Since(began))
	if len(k.segment.choices) > 1 {
		// What has left, or was swept, at a resourceVersion behind that of its last change, comes back for consumers with its next one.
		k.touches()
		k.sweeps()
	}
	k.judge()
	k.begins()
	k.floor, k.rewound, k.crashed = k.now1(), false, false
}

// touches changes all objects.
func (k *machine) touches() {
	k.mu.Lock()
	all := slices.Collect(maps.Values(k.now))
	k.mu.Unlock()
	for _, v := range all {
		k.values++
		k.added(k.putIn(v.namespace, v.name, fmt.Sprint(k.values), v.labels))
	}
}

// sweeps has all objects read once more.
func (k *machine) sweeps() {
	if _, err := k.life.set.Snapshot(k.t.Context(), "", ""); err != nil && !strings.Contains(err.Error(), "is not captured") &&
		!strings.Contains(err.Error(), "is not loaded") {
		k.fail("snapshot: %v", err)
	}
	for began := time.Now(); k.life.set.Owes(); wait(k.t.Context(), 10*time.Millisecond) {
		if time.Since(began) > time.Minute {
			k.fail("a snapshot is not complete after a minute")
		}
	}
	if err := k.bus.drained(k.t.Context(), time.Minute); err != nil {
		k.fail("the snapshot is not on the bus: %v", err)
	}
}

// marks makes changes that each scope tells of.
func (k *machine) marks() (marks []*version) {
	k.values++
	for _, namespace := range []string{"shop", "other"} {
		if namespace == "shop" || k.defined {
			v := k.putIn(namespace, "last", fmt.Sprint(k.values), map[string]string{"in": "1"})
			k.added(v)
			marks = append(marks, v)
		}
	}
	return marks
}

// isLive returns what is not live, or not on the bus.
func (k *machine) isLive(marks []*version) error {
	if k.life.set.Owes() {
		return errors.New("a snapshot is not complete")
	}
	seen := map[string]bool{}
	for _, st := range k.life.set.Status() {
		switch {
		case st.Health == scope.HealthNotServed && !st.Synced && !k.defined && st.Resource == "widgets.shop.test":
		case !k.defined && st.Resource == "widgets.shop.test":
			return errors.New("widgets are observed, and not defined any more")
		case st.Phase != scope.PhaseLive || st.Health != scope.HealthOK || st.Pending > 0 || !st.Captured:
			return fmt.Errorf("%+v", st)
		default:
			seen[st.Resource] = true
		}
	}
	if err := k.bus.drained(k.t.Context(), 0); err != nil {
		return err
	}
	for _, resource := range []string{"configmaps", "widgets.shop.test"} {
		takes := k.taken.takes(resource)
		for _, v := range marks {
			if (resource == "configmaps" || k.defined) && takes(v) && (!seen[resource] || !k.bus.has(resource, v)) {
				return fmt.Errorf("%s/%s of %s at %d is not on the bus", v.namespace, v.name, resource, v.rv)
			}
		}
	}
	return nil
}

// judge compares what is on the bus with history.
func (k *machine) judge() {
	k.mu.Lock()
	history, now := slices.Clone(k.history), k.now
	k.mu.Unlock()
	of := truth{branches: append(slices.Clone(k.branches), history), restored: k.restored, born: k.born, logs: k.logs}
	of.record, of.crashes = k.bus.all()
	_, log := k.onLog()
	var problems []string
	for _, resource := range []string{"configmaps", "widgets.shop.test"} {
		of.selections = func(v *version) (all []func(*version) bool) {
			for _, c := range k.made[v].choices {
				all = append(all, c.takes(resource))
			}
			return all
		}
		problems = append(problems, of.problems(resource)...)
		if k.vague {
			continue
		}
		problems = append(problems, stateProblems(of.record[log:], resource, now, k.taken.takes(resource))...)
	}
	if k.t.Failed() {
		problems = append(problems, "the test has failed")
	}
	k.notesMu.Lock()
	for line := range strings.Lines(k.notes.String()) {
		if strings.Contains(line, "level=ERROR") && strings.Contains(line, "illegal") {
			problems = append(problems, line)
		}
	}
	k.notesMu.Unlock()
	if len(problems) == 0 {
		return
	}
	k.note("history:")
	for _, v := range history {
		k.note("  %d %s %s %s deleted=%t in=%s", v.rv, v.key(), v.uid, v.value, v.deleted, v.labels["in"])
	}
	k.note("on record:")
	for n, d := range of.record {
		if d.Stream != nil {
			k.note("  %d %s %s h%d %d %d-%d %s recovered=%t", n, short(d), d.Stream.Scope, d.Stream.History, d.Stream.ResourceVersion, d.Stream.From, d.Stream.To, d.Stream.Snapshot, d.Stream.Recovered)
		} else {
			k.note("  %d %s rv=%d h%d of %s", n, short(d), d.ResourceVersion, d.History, d.Scope)
		}
	}
	k.fail("%s", strings.Join(problems, "\n"))
}

// broker is a queue and a bus in one. Of a key, one delta at a time is on its way; what is on record is acknowledged later, in any order.
type broker struct {
	mu      sync.Mutex
	change  chan struct{} // closed and replaced at each change
	rng     *rand.Rand
	lanes   map[string][]*object.Delta // by key
	flying  map[string]bool            // the first of the lane is on record
	waiting int
	how     string
	crashed bool
	record  []*object.Delta
	crashes []int
}

func newBroker(seed uint64) *broker {
	return &broker{change: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 2)), lanes: map[string][]*object.Delta{}, flying: map[string]bool{}, how: "free"}
}

func (b *broker) touchLocked() {
	close(b.change)
	b.change = make(chan struct{})
}

// await waits until cond holds, which runs under the lock.
func (b *broker) await(ctx context.Context, cond func() bool) error {
	for {
		b.mu.Lock()
		if cond() {
			b.mu.Unlock()
			return nil
		}
		change := b.change
		b.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *broker) putLocked(key string, room int, d *object.Delta) bool {
	if b.waiting >= room || b.crashed || b.how == "full" {
		return false
	}
	b.lanes[key] = append(b.lanes[key], d)
	b.waiting++
	b.touchLocked()
	return true
}

func (b *broker) Put(ctx context.Context, key string, _ int, d *object.Delta) error {
	return b.await(ctx, func() bool { return b.putLocked(key, 20, d) })
}

func (b *broker) TryPut(key string, _ int, d *object.Delta) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.putLocked(key, 10, d)
}

func (b *broker) Room() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting < 10 && !b.crashed && b.how != "full" {
		now := make(chan struct{})
		close(now)
		return now
	}
	return b.change
}

// keepsLocked reports whether the bus does not acknowledge a delta now.
func (b *broker) keepsLocked(d *object.Delta) bool {
	switch b.how {
	case "nothing":
		return true
	case "stream", "objects":
		return (d.Stream != nil) == (b.how == "stream")
	case "configmaps", "widgets":
		if d.Stream != nil {
			return d.Stream.Resource.Name == b.how
		}
		return d.Ref.Resource.Name == b.how
	case "o1":
		return d.Stream == nil && d.Ref.Name() == "o1"
	default:
		return false
	}
}

// run publishes and acknowledges until ctx ends.
func (b *broker) run(ctx context.Context) {
	var keys []string
	for b.await(ctx, func() bool {
		keys = keys[:0]
		for key, lane := range b.lanes {
			if !b.crashed && (!b.flying[key] || !b.keepsLocked(lane[0])) {
				keys = append(keys, key)
			}
		}
		return len(keys) > 0
	}) == nil {
		b.mu.Lock()
		pace := 400 * time.Microsecond
		if b.how == "late" {
			pace = 40 * time.Millisecond
		}
		pace = time.Duration(b.rng.Int64N(int64(pace)))
		b.mu.Unlock()
		if wait(ctx, pace); ctx.Err() != nil {
			return
		}
		slices.Sort(keys)
		b.step(keys)
	}
}

// step publishes or acknowledges the first delta of one of the keys.
func (b *broker) step(keys []string) {
	b.mu.Lock()
	key := keys[b.rng.IntN(len(keys))]
	lane := b.lanes[key]
	if len(lane) == 0 || b.crashed || b.flying[key] && b.keepsLocked(lane[0]) {
		b.mu.Unlock()
		return
	}
	d := lane[0]
	defer b.touch()
	if !b.flying[key] {
		b.flying[key] = true
		b.record = append(b.record, d)
		b.mu.Unlock()
		return
	}
	delete(b.flying, key)
	if b.lanes[key] = lane[1:]; len(lane) == 1 {
		delete(b.lanes, key)
	}
	b.waiting--
	b.mu.Unlock()
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
}

func (b *broker) touch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touchLocked()
}

// holds has the bus keep back what how says.
func (b *broker) holds(how string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.how = how
	b.touchLocked()
}

func (b *broker) isFree() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.how == "free" || b.how == "late"
}

// crash loses what waits.
func (b *broker) crash() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashed, b.waiting = true, 0
	clear(b.lanes)
	clear(b.flying)
	b.crashes = append(b.crashes, len(b.record))
	b.touchLocked()
}

func (b *broker) revive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashed = false
	b.touchLocked()
}

// count returns how much is on record.
func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.record)
}

// drained waits until everything is acknowledged.
func (b *broker) drained(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return b.await(ctx, func() bool { return b.waiting == 0 })
}

func (b *broker) all() (record []*object.Delta, crashes []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.record), slices.Clone(b.crashes)
}

// has reports whether a version is on record, as it was made or read.
func (b *broker) has(resource string, v *version) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.record, func(d *object.Delta) bool {
		return d.Stream == nil && d.Ref.Resource.String() == resource && d.Ref.UID == v.uid && d.ResourceVersion == v.rv && valueOf(d.After) == v.value
	})
}
