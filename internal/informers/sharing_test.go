package informers_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// etcdWorld is an API server with ConfigMaps and Nodes. Something is written each half minute.
type etcdWorld struct {
	*apiServer
	version atomic.Pointer[string] // of the API server
	apart   atomic.Int64           // what lists of Nodes add to the version: they are in another etcd
	lists   atomic.Int64           // of one object
}

func newEtcdWorld(t *testing.T) *etcdWorld {
	w := &etcdWorld{apiServer: newAPIServer(t)}
	w.setVersion("v1.37.1")
	w.nodes = true
	w.putIn("", "node", "1", nil)
	w.put("a", "1", nil)
	w.marks(t)
	w.fault = func(rw http.ResponseWriter, r *http.Request) bool {
		isQuestion := r.URL.Query().Get("limit") == "1"
		if isQuestion {
			w.lists.Add(1)
		}
		switch {
		case r.URL.Path == "/version":
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"major":"1","gitVersion":%q}`, *w.version.Load())
			return true
		case r.URL.Path == "/api/v1/nodes" && isQuestion && w.apart.Load() != 0:
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"metadata":{"resourceVersion":"%d"},"items":[]}`, w.now1()+uint64(w.apart.Load()))
			return true
		}
		return false
	}
	return w
}

func (w *etcdWorld) setVersion(v string) { w.version.Store(&v) }

func (w *etcdWorld) observe(t *testing.T, m *memory) *life {
	t.Helper()
	return live(t, w.apiServer, m, takes(rule(nil), nodeRule(nil)))
}

// wantEtcds compares what the progress of each minute says of etcds and of the API server. It
// leaves out what one of the ten minutes before says too.
func (l *life) wantEtcds(t *testing.T, from int, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := []string{}
	for k := from; k < len(l.told); k++ {
		said := map[string]bool{}
		for _, d := range l.told[max(0, k-10):k] {
			for text := range strings.SplitSeq(etcdsIn(d.Report), ", ") {
				said[text] = true
			}
		}
		news := slices.DeleteFunc(strings.Split(etcdsIn(l.told[k].Report), ", "), func(text string) bool {
			return said[text]
		})
		got = append(got, strings.Join(news, ", "))
	}
	if diff := gocmp.Diff(append([]string{}, want...), got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("the progress says of etcds (-want +got):\n%s", diff)
	}
	for k, text := range got[min(len(want), len(got)):] {
		if text != "" {
			t.Errorf("the progress %d says %q, and nothing has changed", from+len(want)+k, text)
		}
	}
}

func etcdsIn(r *object.Report) string {
	all := []string{}
	if r.APIServerVersion != "" {
		all = append(all, r.APIServerVersion)
	}
	for _, s := range r.Scopes {
		if etcd := cmp.Or(s.Etcd, r.Etcd); etcd != "" {
			all = append(all, s.Resource.String()+" in "+etcd)
		}
	}
	return strings.Join(all, ", ")
}

// The first progress of a run says which etcds are known, and that the others are not. Once it is
// known that two resources share one, progress says so. The next run knows it at its start.
func TestProgressSaysWhichResourcesShareAnEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := newEtcdWorld(t), newMemory()
		l := w.observe(t, m)
		pass(10 * time.Minute)
		l.wantEtcds(t, 0, "v1.37.1, configmaps in 1, nodes in unknown", "", "nodes in 1")
		w.lists.Store(0)
		pass(45 * time.Minute)
		if n := w.lists.Load(); n > 45 { // the probes of watches that have ended are among them
			t.Errorf("%d lists of one object, although all is known", n)
		}
		l.wantEtcds(t, 3)
		pass(10 * time.Minute)
		told := len(l.told)
		l.wantEtcds(t, told-10, l.hourly(told-10)...)
		_ = m.Flush(t.Context())
		if c, _ := m.saved("nodes"); c.Etcd != 1 {
			t.Errorf("the checkpoint has the etcd %d", c.Etcd)
		}
		l.end()
		again := w.observe(t, m)
		pass(5 * time.Minute)
		again.wantEtcds(t, 0, "v1.37.1, configmaps in 1, nodes in 1")
		w.setVersion("v1.38.0")
		w.apart.Store(5000) // the upgrade moves Nodes to another etcd
		pass(2 * time.Minute)
		again.wantEtcds(t, 5, "", "v1.38.0, nodes in 2") // it is asked for each minute
	})
}

// What is said of etcds is repeated for ten minutes: a reader may lack an event.
func TestEtcdsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEtcdWorld(t)
		l := w.observe(t, newMemory())
		pass(30 * time.Minute)
		said := 0
		var from time.Time
		for _, d := range l.told {
			isKnown := strings.Contains(etcdsIn(d.Report), "nodes in 1")
			if isKnown && said == 0 {
				from = time.Unix(0, d.Observed)
			}
			if isKnown {
				said++
			}
			if !isKnown && !from.IsZero() && !d.Report.Since.After(from.Add(-time.Minute)) {
				t.Errorf("an event since %v does not say what was said at %v", d.Report.Since, from)
			}
		}
		if said < 10 || said > 12 {
			t.Errorf("it is said %d times, want about ten", said)
		}
	})
}

// hourly returns what is said from an event on, if one of them repeats all.
func (l *life) hourly(from int) (want []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.told[from:] {
		if etcdsIn(d.Report) != "" {
			return append(want, "v1.37.1, configmaps in 1, nodes in 1")
		}
		want = append(want, "")
	}
	return append(want, "an event that repeats all")
}

// Nodes are in another etcd, which one list shows.
func TestProgressSaysThatAResourceHasAnEtcdOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := newEtcdWorld(t), newMemory()
		w.apart.Store(700)
		l := w.observe(t, m)
		pass(5 * time.Minute)
		l.wantEtcds(t, 0, "v1.37.1, configmaps in 1, nodes in 2")
	})
}

// An etcd is restored while the agent runs: what was known is void, and found out again.
func TestRestoreMakesEtcdsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := newEtcdWorld(t), newMemory()
		for range 10 {
			w.put("b", "1", nil)
		}
		l := w.observe(t, m)
		pass(5 * time.Minute)
		l.wantEtcds(t, 0, "v1.37.1, configmaps in 1, nodes in unknown", "", "nodes in 1")
		w.restore(10)
		pass(6 * time.Minute)
		all := ""
		l.mu.Lock()
		for _, d := range l.told[5:] {
			if text := etcdsIn(d.Report); text != "" {
				all += text + "; "
			}
		}
		l.mu.Unlock()
		_ = m.Flush(t.Context())
		a, _ := m.saved("configmaps")
		b, _ := m.saved("nodes")
		if !strings.Contains(all, "unknown") || a.Etcd < 2 || a.Etcd != b.Etcd {
			t.Errorf("after a restore, the progress says %q, and the checkpoint has the etcds %d and %d", all, a.Etcd,
				b.Etcd)
		}
	})
}

// The names in the checkpoint are void if an etcd was restored since.
func TestRestoreBetweenTwoRunsMakesEtcdsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := newEtcdWorld(t), newMemory()
		for range 10 {
			w.put("b", "1", nil)
		}
		l := w.observe(t, m)
		pass(5 * time.Minute)
		_ = m.Flush(t.Context())
		l.end()
		w.restore(10)
		again := w.observe(t, m)
		pass(30 * time.Second)
		pass(30 * time.Second)
		if d := etcdsIn(again.lastTold(t).Report); !strings.Contains(d, "nodes in unknown") {
			t.Errorf("after a restore, the first progress says %q", d)
		}
	})
}

// newCustomWorld is an etcdWorld that also serves two custom resources, from the history of its
// ConfigMaps. asked counts the lists of one object of each.
func newCustomWorld(t *testing.T) (w *etcdWorld, asked map[string]*atomic.Int64) {
	w = newEtcdWorld(t)
	asked = map[string]*atomic.Int64{"gadgets": new(atomic.Int64), "widgets": new(atomic.Int64)}
	first := w.fault
	w.fault = func(rw http.ResponseWriter, r *http.Request) bool {
		rw.Header().Set("Content-Type", "application/json")
		name := strings.TrimPrefix(r.URL.Path, "/apis/shop.test/v1/")
		switch {
		case r.URL.Path == "/apis":
			fmt.Fprint(rw, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"shop.test",`+
				`"versions":[{"groupVersion":"shop.test/v1","version":"v1"}],"preferredVersion":{"groupVersion":"shop.test/v1","version":"v1"}}]}`)
		case r.URL.Path == "/apis/shop.test/v1":
			fmt.Fprint(rw, `{"kind":"APIResourceList","groupVersion":"shop.test/v1","resources":[`+
				`{"name":"gadgets","singularName":"gadget","namespaced":true,"kind":"Gadget","verbs":["list","watch"]},`+
				`{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["list","watch"]}]}`)
		case r.URL.Path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" &&
			r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
		case r.URL.Path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions":
			fmt.Fprint(rw, `{"metadata":{"resourceVersion":"1"},"items":[`+
				`{"metadata":{"name":"gadgets.shop.test","uid":"crd-1","resourceVersion":"1","generation":1}},`+
				`{"metadata":{"name":"widgets.shop.test","uid":"crd-2","resourceVersion":"1","generation":1}}]}`)
		case asked[name] != nil:
			if r.URL.Query().Get("limit") == "1" {
				asked[name].Add(1)
			}
			r.URL.Path = "/api/v1/configmaps"
			return first(rw, r)
		default:
			return first(rw, r)
		}
		return true
	}
	return w, asked
}

// An API server keeps all custom resources in one etcd. So one of them is compared for all.
func TestCustomResourcesAreComparedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, asked := newCustomWorld(t)
		all := rule(func(r *selection.Rule) {
			r.Resources = append(r.Resources, written{text: "gadgets.shop.test"}, written{text: "widgets.shop.test"})
		})
		l := live(t, w.apiServer, newMemory(), takes(all))
		pass(4 * time.Minute)
		l.wantEtcds(t, 0, "v1.37.1, configmaps in 1, gadgets.shop.test in unknown, widgets.shop.test in unknown", "",
			"gadgets.shop.test in 1, widgets.shop.test in 1")
		gadgets, widgets := asked["gadgets"].Load(), asked["widgets"].Load()
		if gadgets < 3 || widgets > 1 { // a question about its watch may be among them
			t.Errorf("%d lists of gadgets, which stand for widgets, and %d of widgets", gadgets, widgets)
		}
	})
}
