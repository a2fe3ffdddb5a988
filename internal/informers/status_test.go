package informers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// logbook records log lines at a level or above it.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// lines returns the log lines as "LEVEL message", followed by attribute=value for those of
// attributes that a line has.
func (l *logbook) lines(t *testing.T, attributes ...string) (out []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		s := fmt.Sprintf("%v %v", v[slog.LevelKey], v[slog.MessageKey])
		for _, a := range attributes {
			if v[a] != nil {
				s += fmt.Sprintf(" %s=%v", a, v[a])
			}
		}
		out = append(out, s)
	}
	return out
}

func captured(set *informers.Manager) bool {
	select {
	case <-set.Captured():
		return true
	default:
		return false
	}
}

// The status of a first snapshot: being read, being sent, waiting for the bus, complete.
func TestStatusOfAFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		for i := range 7 {
			s.put(fmt.Sprintf("cm-%d", i), "a", nil)
		}
		secondPage := make(chan struct{})
		s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("continue") != "" {
				select {
				case <-secondPage:
				case <-r.Context().Done():
				}
			}
			return false
		}
		var log logbook
		set, rec, _ := start(t, s, func(o *informers.Options) { o.Log = log.logger(slog.LevelInfo) })
		rec.setRoom(0)
		rec.mu.Lock()
		rec.held = true
		rec.mu.Unlock()
		shows := func(what string, want informer.Status) {
			t.Helper()
			want.Scope, want.Resource = "configmaps", "configmaps"
			var got []informer.Status
			defer func() {
				if t.Failed() {
					t.Log(cmp.Diff([]informer.Status{want}, got))
				}
			}()
			eventually(t, what, func() bool {
				got = set.Status()
				for i := range got {
					if got[i].Held == 0 && got[i].Objects > 0 {
						t.Errorf("%d objects take no room", got[i].Objects)
					}
					got[i].LastSeen = time.Time{}
					got[i].Silence = 0
					got[i].Lag = 0
					got[i].Held = 0
				}
				return cmp.Equal(got, []informer.Status{want})
			})
			if captured(set) != want.Captured {
				t.Errorf("%s: captured is %t", what, !want.Captured)
			}
		}
		shows("the first page", informer.Status{Phase: informer.PhaseListing, Objects: 3, Expected: 7})
		close(secondPage)
		shows("the list is read", informer.Status{
			Phase:   informer.PhaseAnnouncing,
			Synced:  true,
			Objects: 7,
			Pending: 7,
		})
		rec.setRoom(3) // snapshot.started, and two reads
		rec.wait(t, "snapshot.started 7", "r cm-0 uid-1 -→a", "r cm-1 uid-2 -→a")
		shows("two reads are queued, and not on the bus", informer.Status{
			Phase:   informer.PhaseLive,
			Synced:  true,
			Objects: 7,
			Pending: 7,
		})
		rec.acknowledge()
		shows("two reads are on the bus", informer.Status{
			Phase:   informer.PhaseLive,
			Synced:  true,
			Objects: 7,
			Pending: 5,
		})
		if got := log.lines(t); got != nil {
			t.Errorf("logged too early: %q", got)
		}
		rec.setRoom(unbounded)
		eventually(t, "the snapshot to be captured", func() bool { return captured(set) })
		shows("all is on the bus", informer.Status{Phase: informer.PhaseLive, Synced: true, Objects: 7, Captured: true})

		s.put("new", "x", nil)
		s.delete("cm-0")
		s.delete("cm-1")
		shows("live", informer.Status{Phase: informer.PhaseLive, Synced: true, Objects: 6, Captured: true})
		if diff := cmp.Diff([]string{"INFO first snapshot complete, waiting for changes resources=1 objects=7"},
			log.lines(t, "resources", "objects")); diff != "" {
			t.Error(diff)
		}
	})
}

// Without a snapshot, captured means loaded.
func TestCapturedWithoutASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("cm", "1", nil)
		var log logbook
		set, rec, _ := start(t, s, func(o *informers.Options) {
			o.Snapshot, o.Log = informer.SnapshotNever, log.logger(slog.LevelInfo)
		})
		eventually(t, "to be captured", func() bool { return captured(set) })
		if st := set.Status()[0]; !st.Captured || st.Objects != 1 || st.Pending != 0 {
			t.Errorf("%+v", st)
		}
		if diff := cmp.Diff([]string{"INFO all resources are loaded, waiting for changes resources=1 objects=1"},
			log.lines(t, "resources", "objects")); diff != "" {
			t.Error(diff)
		}
		s.put("cm", "2", nil)
		rec.wait(t, "u cm uid-1 1→2")
	})
}

// A relist's inferred deltas are pending until they are in the queue. Captured does not change.
func TestStatusWhileCatchingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		set, rec, _ := start(t, s, nil)
		eventually(t, "to be captured", func() bool { return captured(set) })
		s.do(func() { // no watch receives the next changes
			s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
				fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				return true
			}
		})
		s.CloseClientConnections()
		s.put("a", "2", nil)
		s.delete("b")
		s.put("c", "1", nil)
		s.compact()
		rec.setRoom(2) // the gap, and one inferred delta
		s.do(func() { s.fault = nil })
		eventually(t, "two inferred deltas to be left", func() bool { return set.Status()[0].Pending == 2 })
		if st := set.Status()[0]; !st.Captured {
			t.Errorf("not captured any more: %+v", st)
		}
		rec.setRoom(unbounded)
		eventually(t, "nothing to be left", func() bool {
			st := set.Status()[0]
			return st.Pending == 0 && st.Objects == 2
		})
	})
}

// Resources that cannot be read hold nothing back. They are logged once, with a remedy.
func TestCapturedBesideForbiddenResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("cm", "1", nil)
		asked := 0
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/secrets") {
				return false
			}
			s.do(func() { asked++ })
			fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
			return true
		}
		var log logbook
		set, _, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Resources = []selection.Pattern{pattern("configmaps"), pattern("widgets")}
			secrets := o.Rules[0]
			secrets.Resources = []selection.Pattern{pattern("secrets")}
			for c := range 12 {
				secrets.Names = append(secrets.Names, fmt.Sprintf("ns-%c", 'a'+c))
			}
			o.Rules, o.Log = append(o.Rules, secrets), log.logger(slog.LevelInfo)
		})
		eventually(t, "to be captured", func() bool { return captured(set) })
		eventually(t, "secrets to be asked for again", func() bool {
			n := 0
			s.do(func() { n = asked })
			return n > 12
		})
		eventually(t, "the denials to be logged", func() bool {
			return strings.Contains(strings.Join(log.lines(t), "\n"), "not permitted")
		})
		denied := 0
		var rest []string
		for _, l := range log.lines(t, "verb", "count", "resource", "resources", "not_captured") {
			n := 0
			if _, err := fmt.Sscanf(l,
				"WARN not permitted to read resources, retrying: 'kubecdc rbac', with the same --config, "+
					"prints the role that is needed verb=list count=%d", &n); err != nil {
				rest = append(rest, l)
			}
			denied += n
		}
		slices.Sort(rest)
		want := []string{
			"INFO first snapshot complete, waiting for changes resources=1 not_captured=13",
			"WARN a selected resource is not served, checking again resource=widgets",
		}
		if diff := cmp.Diff(want, rest); diff != "" || denied != 12 {
			t.Errorf("%d denials are logged, want 12; other lines:\n%s", denied, diff)
		}
		scopes := "secrets/ns-a, secrets/ns-b, secrets/ns-c, secrets/ns-d, secrets/ns-e, secrets/ns-f, secrets/ns-g, secrets/ns-h, secrets/ns-i, secrets/ns-j and 2 more"
		if lines := log.lines(t, "scopes"); len(lines) == 3 &&
			!slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, "scopes="+scopes) }) {
			// a slow machine may need more than one
			t.Errorf("no line ends in %q:\n%s", scopes, strings.Join(lines, "\n"))
		}
	})
}

// The loss of the API server is logged once, not once for each informer. So is its return.
func TestOutageIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		var log logbook
		set, _, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Names = []string{"shop", "other"}
			o.Log = log.logger(slog.LevelInfo)
		})
		all := func(health informer.Health, reason string) func() bool {
			return func() bool {
				for _, st := range set.Status() {
					if st.Phase != informer.PhaseLive || st.Health != health || st.Reason != reason {
						return false
					}
				}
				return len(set.Status()) == 2
			}
		}
		eventually(t, "to be captured", func() bool { return captured(set) })
		s.do(func() {
			s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
				c, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					c.Close()
				}
				return true
			}
		})
		s.CloseClientConnections()
		eventually(t, "both to fail", all(informer.HealthFailing, "network"))
		s.do(func() { s.fault = nil })
		eventually(t, "both to watch again", all(informer.HealthOK, ""))
		want := []string{
			"INFO first snapshot complete, waiting for changes",
			"WARN cannot reach the API server, retrying api_server=" + s.URL,
			"INFO the API server responds again",
		}
		eventually(t, "its return to be logged", func() bool { return len(log.lines(t)) >= len(want) })
		if diff := cmp.Diff(want, log.lines(t, "api_server")); diff != "" {
			t.Error(diff)
		}
	})
}

// A resource whose list fails again and again, e.g. because its conversion webhook is gone, is not
// waited for forever.
func TestCapturedBesideAResourceThatAlwaysFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("cm", "1", nil)
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/secrets") {
				fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
				return true
			}
			return false
		}
		var log logbook
		set, _, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Resources = append(o.Rules[0].Resources, pattern("secrets"))
			o.Log = log.logger(slog.LevelInfo)
		})
		eventually(t, "the one that can be to be loaded", func() bool {
			return slices.ContainsFunc(set.Status(), func(st informer.Status) bool { return st.Captured })
		})
		if captured(set) {
			t.Error("given up at once")
		}
		eventually(t, "to be captured", func() bool { return captured(set) })
		want := []string{
			"WARN cannot read from the API server, retrying scope=secrets",
			"INFO first snapshot complete, waiting for changes resources=1 not_captured=1",
		}
		if diff := cmp.Diff(want, log.lines(t, "scope", "resources", "not_captured")); diff != "" {
			t.Error(diff)
		}
	})
}

// The lag of a change counts from its observation until the bus has acknowledged it, whatever else
// is acknowledged.
func TestLagIsOfTheOldestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		set, rec, _ := start(t, s, nil)
		eventually(t, "to be captured", func() bool { return captured(set) })
		if lag := set.Status()[0].Lag; lag != 0 {
			t.Errorf("nothing waits, and the lag is %v", lag)
		}
		rec.mu.Lock()
		rec.held = true
		rec.mu.Unlock()
		s.put("a", "1", nil)
		eventually(t, "a change to wait", func() bool { return set.Status()[0].Lag > 20*time.Millisecond })
		was := set.Status()[0].Lag
		s.put("b", "1", nil)
		eventually(t, "the lag to grow", func() bool { return set.Status()[0].Lag > was })
		rec.acknowledge()
		eventually(t, "the lag to be gone", func() bool { return set.Status()[0].Lag == 0 })
	})
}
