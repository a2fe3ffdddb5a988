package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// The number of scopes in an answer is limited, and those with a problem come first.
func TestStatusIsBounded(t *testing.T) {
	all := make([]informer.Status, 20_000)
	for i := range all {
		all[i] = informer.Status{Scope: fmt.Sprintf("pods/ns-%05d", i), Resource: "pods", Phase: informer.PhaseLive}
	}
	all[19_000].Health = informer.HealthFailing
	look := func() (s Status) {
		s.AddScopes(append([]informer.Status(nil), all...))
		return s
	}
	for query, want := range map[string]int{
		"":               defaultScopes,
		"?scopes=0":      0,
		"?scopes=7":      7,
		"?scopes=100000": 20_000,
	} {
		w := httptest.NewRecorder()
		showStatus(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status"+query, http.NoBody), look)
		var got Status
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Scopes) != want || got.Omitted != len(all)-want || got.Informers.Scopes != len(all) ||
			got.Informers.Problems != 1 || want > 0 && got.Scopes[0].Scope != "pods/ns-19000" {
			t.Errorf("%q: %d scopes, %d omitted, %+v", query, len(got.Scopes), got.Omitted, got.Informers)
		}
	}
	for _, query := range []string{"?scopes=-1", "?scopes=x", "?scopes=100001"} {
		w := httptest.NewRecorder()
		showStatus(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status"+query, http.NoBody),
			look)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", query, w.Code)
		}
	}
	lines := strings.Split(string(appendScopes(nil, append([]informer.Status(nil), all...))), "\n")
	if len(lines) != maxShown+2 || lines[0] != "    pods/ns-19000: live, failing" ||
		lines[maxShown] != "    and 19900 more: /status has all" {
		t.Errorf("%d lines: %s … %s", len(lines), lines[0], lines[len(lines)-2])
	}
}

// A misspelled redaction is shown to people and to programs.
func TestUnmatchedRedactionIsShown(t *testing.T) {
	now := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	s := Status{Now: now, Unmatched: []UnmatchedPath{{
		Rule:  "watch[1]",
		Path:  "spec.tokn",
		Since: now.Add(-26 * time.Hour),
	}}}
	shown := ""
	for _, line := range s.Lines(false, nil) {
		for _, span := range line {
			shown += span.Text
		}
		shown += "\n"
	}
	const wantLine = "! watch[1].redact: spec.tokn has matched nothing for 26h0m: is it misspelled?\n"
	if !strings.Contains(shown, wantLine) {
		t.Errorf("shows:\n%s", shown)
	}
	text, err := json.Marshal(&s)
	const want = `"unmatchedRedaction":[{"rule":"watch[1]","path":"spec.tokn","since":"2026-11-19T13:00:00Z"}]`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v: %s", err, text)
	}
}
