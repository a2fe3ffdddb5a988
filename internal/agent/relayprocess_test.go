package agent

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/admin"
)

func TestRelayServerTellsOfEachRelay(t *testing.T) {
	ready := func() error { return nil }
	broken := func() error { return fmt.Errorf("not connected") }
	for _, c := range []struct {
		probes []admin.Probe
		code   int
		body   string
	}{
		{[]admin.Probe{{Name: "relay a", Ready: ready}}, http.StatusOK, "[+] relay a: ok\n"},
		{[]admin.Probe{{Name: "relay a", Ready: ready}, {
			Name:  "relay b",
			Ready: broken,
			Aside: true,
		}}, http.StatusServiceUnavailable, "[+] relay a: ok\n[-] relay b: not connected\n"},
	} {
		w := httptest.NewRecorder()
		newRelayServer(prometheus.NewRegistry(), slog.New(slog.DiscardHandler), admin.Build{}, c.probes).Handler().
			ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		if w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
}
