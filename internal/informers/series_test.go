package informers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubecdc/kubecdc/internal/informers"
)

const (
	// manyScopes is the number of scopes of an agent in a large cluster.
	manyScopes = 1000
	// mostBytes limits the text of the informers' metrics then, although each scope has had a gap.
	// That of the whole agent is to have 500,000 at most: the bus adds 60 for each resource.
	mostBytes = 440_000
)

// The metrics of an agent with a thousand scopes are a few hundred kilobytes, also after each scope
// has failed and lost history. Only the metrics by which somebody acts on one scope have a series
// for each.
func TestMetricsOfManyScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.initial = true
		var names []string
		for n := range manyScopes {
			names = append(names, fmt.Sprintf("a-namespace-with-a-name-of-usual-length-%04d", n))
		}
		for _, name := range names[:10] {
			s.putIn(name, "a", "1", nil)
		}
		reg := prometheus.NewPedanticRegistry()
		l := live(t, s, newMemory(), func(o *informers.Options, r *recorder) {
			takes(rule(inNamespaces(names...)))(o, r)
			o.Registerer = reg
		})
		l.awaitCaptured(t)
		s.compact()
		pass(time.Minute)
		if n := metric(t, reg, "kubecdc_informer_gaps_total"); n != manyScopes {
			t.Errorf("%v gaps, want one of each scope", n)
		}
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).
			ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		text := answer.Body.String()
		if len(text) > mostBytes {
			t.Errorf("%d bytes, want at most %d", len(text), mostBytes)
		}
		byScope := map[string]int{}
		for line := range strings.Lines(text) {
			name, labels, _ := strings.Cut(line, "{")
			if strings.Contains(labels, "scope=") {
				byScope[name]++
			}
		}
		want := map[string]int{}
		for _, name := range []string{"gaps_total", "lag_seconds", "objects", "silence_seconds"} {
			want["kubecdc_informer_"+name] = manyScopes
		}
		if diff := cmp.Diff(want, byScope); diff != "" {
			t.Errorf("series by scope (-want +got):\n%s", diff)
		}
		if n := metric(t, reg, "kubecdc_informer_errors_total"); n < 1 {
			t.Error("no failure is counted")
		}
	})
}
