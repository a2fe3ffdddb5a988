package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// agentAnswering is what listens where an agent should, and answers to POST /snapshot.
func agentAnswering(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /snapshot", answer)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestSnapshotsAreTold(t *testing.T) {
	var asked string
	agent := agentAnswering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		answer(w, http.StatusOK, &snapshotAnswer{
			Snapshots: []startedSnapshot{
				{Scope: "deployments.apps/shop", Snapshot: "48211-1763737200", Objects: 12},
				{Scope: "pods", Snapshot: "48190-1763737100", Objects: 3000, Running: true},
			},
			Errors: []string{"services: its first list is not loaded yet", "secrets: it is still catching up"},
		})
	})
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"snapshot", "deploy", "-n", "shop", "--agent", strings.TrimPrefix(agent, "http://")}, &stdout, &stderr)
	if want := `{"resource":"deployments.apps","namespace":"shop"}`; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	const want = `SCOPE                   SNAPSHOT           OBJECTS   STATUS
deployments.apps/shop   48211-1763737200   12        begun
pods                    48190-1763737100   3000      in progress already
`
	if diff := cmp.Diff(want, stdout.String()); diff != "" {
		t.Error(diff)
	}
	if want := "kubecdc: the agent at " + agent + ": services: its first list is not loaded yet\n  secrets: it is still catching up\n"; code != exitFailed || stderr.String() != want {
		t.Errorf("exit code %d, %q, want %q", code, &stderr, want)
	}

	stdout.Reset()
	if code := run(t.Context(), []string{"snapshot", "--agent", agent, "-o", "json"}, &stdout, io.Discard); code != exitFailed || !strings.Contains(stdout.String(), `"running": true`) {
		t.Errorf("exit code %d, %s", code, &stdout)
	}
	if want := `{"resource":"","namespace":""}`; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
}

func TestWhatIsNoAgentIsSaidToBeNone(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"another server": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an old agent":   http.NotFound,
		"other JSON":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) },
	} {
		agent := agentAnswering(t, handler)
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"snapshot", "--agent", agent}, io.Discard, &stderr)
		if code != exitFailed || !strings.Contains(stderr.String(), "what listens at "+agent+" answers ") || !strings.Contains(stderr.String(), "it is no agent, or one of a release without") {
			t.Errorf("%s: exit code %d, %s", name, code, &stderr)
		}
	}
}

// Orders come from the agent's own machine, and there from no page in a browser.
func TestOrdersComeFromHere(t *testing.T) {
	h := fromHere(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for _, c := range []struct {
		peer, host, origin, site string
		want                     int
	}{
		{"127.0.0.1:5000", "127.0.0.1:8080", "", "", http.StatusOK},
		{"[::1]:5000", "[::1]:8080", "", "", http.StatusOK},
		{"127.0.0.1:5000", "localhost:18080", "", "", http.StatusOK},
		{"127.0.0.1:5000", "localhost", "", "", http.StatusOK},
		{"127.0.0.1:5000", "localhost:8080", "http://localhost:8080", "", http.StatusOK},
		{"10.0.0.7:5000", "127.0.0.1:8080", "", "", http.StatusForbidden},
		{"[2001:db8::1]:5000", "localhost:8080", "", "", http.StatusForbidden},
		{"127.0.0.6:5000", "kubecdc.kubecdc.svc:8080", "", "", http.StatusForbidden}, // by way of a service mesh's sidecar
		{"127.0.0.1:5000", "evil.example:8080", "", "", http.StatusForbidden},        // DNS rebinding
		{"127.0.0.1:5000", "127.0.0.1.evil.example", "", "", http.StatusForbidden},
		{"127.0.0.1:5000", "localhost:8080", "http://evil.example", "", http.StatusForbidden},
		{"127.0.0.1:5000", "localhost:8080", "", "cross-site", http.StatusForbidden},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/snapshot", strings.NewReader("{}"))
		r.RemoteAddr, r.Host = c.peer, c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v: got %d", c, w.Code)
		}
	}
}

// The agent of this machine is found, whichever port it has got; of several, one has to be named.
func TestTheAgentOfThisMachineIsFound(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	if agent, err := findAgent(""); agent != defaultAgent || err != nil {
		t.Errorf("got %s, %v", agent, err)
	}
	first := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL))
	address := first.says(t, `"server_address":"([^"]+)"`)[1]
	first.says(t, "connected to bus")
	if agent, err := findAgent(""); agent != "http://"+address || err != nil {
		t.Errorf("got %s, %v, want %s", agent, err, address)
	}
	// Until it has discovered what there is, it is loading.
	var answer string
	waitUntil(t, func() bool {
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"snapshot", "pods"}, io.Discard, &stderr)
		answer = stderr.String()
		return code == exitFailed && !strings.Contains(answer, "still loading")
	})
	if !regexp.MustCompile(`the agent at ` + regexp.QuoteMeta("http://"+address) + `: pods is not captured`).MatchString(answer) {
		t.Error(answer)
	}

	second := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidB, nil).URL))
	second.says(t, "connected to bus")
	if _, err := findAgent(""); err == nil || !strings.Contains(err.Error(), "2 agents run here; name one with --agent:\n") || !strings.Contains(err.Error(), "http://"+address+" of ") {
		t.Errorf("got %v", err)
	}
}

// In a pod of the chart the environment has the agent's port; what is named on the command line counts more.
func TestTheAgentOfThePodIsFound(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("KUBECDC_AGENT", "127.0.0.1:9090")
	for named, want := range map[string]string{"": "http://127.0.0.1:9090", "http://127.0.0.1:1": "http://127.0.0.1:1"} {
		if agent, err := findAgent(named); agent != want || err != nil {
			t.Errorf("named %q: got %s, %v, want %s", named, agent, err, want)
		}
	}
	t.Setenv("KUBECDC_AGENT", "ftp://nowhere")
	if _, err := findAgent(""); err == nil || !strings.HasPrefix(err.Error(), "KUBECDC_AGENT: must be http://host:port") {
		t.Errorf("got %v", err)
	}
}

// An agent that cannot reach its API server has nothing to read yet.
func TestAnAgentThatIsLoading(t *testing.T) {
	api := fakeAPI(t, "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, api.URL), "--data-dir", t.TempDir())
	agent := "http://" + c.says(t, `"server_address":"([^"]+)"`)[1]
	a, err := askSnapshot(t.Context(), agent, snapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.Errors, "\n"); !strings.Contains(got, "it is still loading: resources are not discovered yet") {
		t.Errorf("got %q", got)
	}
}
