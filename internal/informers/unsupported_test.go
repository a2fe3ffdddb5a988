package informers_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// A rule with a wildcard also takes a resource whose list has no resourceVersion. It can never be
// captured: the log and the status say how to exclude it, nothing waits for it, and the API server
// gets few requests for it.
func TestResourceWhoseListHasNoResourceVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("cm", "1", nil)
		var lists atomic.Int32
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/secrets") {
				return false
			}
			lists.Add(1)
			fmt.Fprint(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}`)
			return true
		}
		var log logbook
		set, _, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Resources = append(o.Rules[0].Resources[:0], pattern("*"))
			o.Log = log.logger(slog.LevelInfo)
		})
		eventually(t, "to be captured", func() bool { return captured(set) })
		if err := set.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		const why = `cannot be captured: its list has the resourceVersion "", which is not a number: ` +
			"add secrets to except of the rule that names it with a wildcard, or remove it from resources"
		want := []string{
			"INFO first snapshot complete, waiting for changes resources=1 not_captured=1",
			"WARN cannot capture a resource, checking again scope=secrets err=" + why,
		}
		eventually(t, "the log to say so", func() bool {
			return cmp.Diff(want, sorted(log.lines(t, "scope", "err", "resources", "not_captured"))) == ""
		})
		<-time.After(time.Hour)
		if n := lists.Load(); n > 20 {
			t.Errorf("%d lists in an hour, want at most 20", n)
		}
		for _, st := range set.Status() {
			if st.Scope == "secrets" &&
				(st.Health != informer.HealthFailing || st.Reason != "refused" || st.Error != why) {
				t.Errorf("status %s %s: %s", st.Health, st.Reason, st.Error)
			}
		}
	})
}

// A resource that a rule names is served, but cannot be watched. It is not "not served", and
// discovery does not look for it every few seconds.
func TestNamedResourceThatCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("cm", "1", nil)
		var discoveries atomic.Int32
		s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/api/v1" {
				discoveries.Add(1)
			}
			return false
		}
		var log logbook
		set, _, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Resources = append(o.Rules[0].Resources, pattern("bindings"))
			o.Log = log.logger(slog.LevelInfo)
		})
		eventually(t, "to be captured", func() bool { return captured(set) })
		const why = "cannot be captured: it is served without list and watch (its verbs: create): remove it from resources"
		want := []string{
			"INFO first snapshot complete, waiting for changes resources=1 not_captured=1",
			"WARN cannot capture a resource, checking again resource=bindings err=" + why,
		}
		if diff := cmp.Diff(want, sorted(log.lines(t, "resource", "err", "resources", "not_captured"))); diff != "" {
			t.Error(diff)
		}
		if err := set.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		for _, st := range set.Status() {
			if st.Scope == "bindings" &&
				(st.Health != informer.HealthFailing || st.Reason != "refused" || st.Error != why) {
				t.Errorf("status %s %s: %s", st.Health, st.Reason, st.Error)
			}
		}
		plan, err := set.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		uncapturable := []selection.Uncapturable{{
			Pattern: "bindings",
			Why:     "it is served without list and watch (its verbs: create)",
		}}
		if diff := cmp.Diff(uncapturable, plan.Uncapturable); diff != "" || plan.Unserved != nil {
			t.Errorf("unserved %v, uncapturable (-want +got):\n%s", plan.Unserved, diff)
		}
		<-time.After(time.Hour)
		if n := discoveries.Load(); n > 130 {
			t.Errorf("%d discoveries in an hour, want at most 130", n)
		}
	})
}

func sorted(lines []string) []string {
	out := append([]string{}, lines...)
	slices.Sort(out)
	return out
}
