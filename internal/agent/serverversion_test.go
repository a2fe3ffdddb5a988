package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// An agent says at its start that the API server is older than all tested versions, and says
// nothing about the others.
func TestAnOlderAPIServerIsLogged(t *testing.T) {
	for version, want := range map[string]string{
		"v1.28.15":           "is meant to work with",
		"v1.32.9":            "that the tests run with",
		"v1.32.9-eks-abcdef": "that the tests run with",
		"v1.33.0":            "",
		"v1.37.1":            "",
		"v1.99.0":            "",
		"v0.0.0-master":      "",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/version" {
				t.Errorf("request of %s", r.URL.Path)
			}
			fmt.Fprintf(w, `{"major":"1","minor":"x","gitVersion":%q}`, version)
		}))
		var text bytes.Buffer
		(&Cluster{REST: &rest.Config{Host: s.URL}}).NoteVersion(t.Context(), slog.New(slog.NewTextHandler(&text, nil)))
		s.Close()
		got := text.String()
		switch {
		case want == "" && got != "":
			t.Errorf("%s: logged %s", version, got)
		case want == "":
		case strings.Count(got, "\n") != 1 || !strings.Contains(got, want) || !strings.Contains(got, version) ||
			!strings.Contains(got, `tested="1.33 to 1.37"`):
			t.Errorf("%s: logged %q", version, got)
		case strings.Contains(got, "level=ERROR"):
			t.Errorf("%s: an error: %s", version, got)
		}
	}
}

// The version is asked for again while the API server does not answer, and the wait ends with the
// agent.
func TestVersionOfAnAPIServerThatDoesNotAnswer(t *testing.T) {
	var asked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		cancel()
	}))
	defer s.Close()
	var text bytes.Buffer
	(&Cluster{REST: &rest.Config{Host: s.URL}}).NoteVersion(ctx, slog.New(slog.NewTextHandler(&text, nil)))
	if asked.Load() == 0 || text.Len() > 0 {
		t.Errorf("asked %d times, logged %q", asked.Load(), text.String())
	}
}
