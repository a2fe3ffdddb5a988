package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// agentInTrouble returns a possible status of an agent, with scopes of every kind.
func agentInTrouble() admin.Status {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { t := now.Add(-d); return &t }
	s := admin.Status{
		Version: "v1.2.3", Mode: "cluster", Cluster: "prod", ClusterUID: "8d6f", APIServer: "https://10.0.0.1:443",
		Started: now.Add(-51 * time.Hour), Now: now,
		Checks: []admin.Check{
			{Name: "leader", OK: true, Since: now.Add(-51 * time.Hour)},
			{
				Name:   "informers",
				Detail: "the API server, or the path to it, has been silent for too long: nodes",
				Since:  now.Add(-200 * time.Second),
			},
			{Name: "bus", OK: true, Since: now.Add(-3 * time.Hour)},
			{Name: "queue", Detail: "full", Aside: true, Since: now.Add(-4 * time.Second)},
		},
		Leader: &admin.LeaderStatus{Leading: true, Holder: "kubecdc-0", Epoch: 4},
		Bus: admin.BusStatus{
			Name:      "NATS nats://nats:4222, stream KUBECDC",
			Connected: true,
			Since:     now.Add(-3 * time.Hour),
			Log:       &admin.LogStatus{Logs: 1, Unknown: 1, Problem: "look up stream KUBECDC: timeout"},
		},
		Queue: admin.QueueStatus{
			Events:        1234,
			MaxEvents:     100_000,
			Bytes:         5 << 20,
			MaxBytes:      64 << 20,
			InFlight:      256,
			Waiting:       2,
			OldestSeconds: 12.4,
		},
		Checkpoint: &admin.CheckpointStatus{Place: "ConfigMap kubecdc/kubecdc-checkpoint", Saved: ago(3 * time.Second)},
		Published:  admin.PublishedStatus{Events: 12_345_678, Bytes: 3 << 30, Retries: 3, DeadLetters: 1},
	}
	s.AddScopes([]informer.Status{
		{
			Scope:       "configmaps",
			Resource:    "configmaps",
			Phase:       informer.PhaseLive,
			Synced:      true,
			LastSeen:    *ago(time.Minute),
			Silence:     59 * time.Second,
			Lag:         250 * time.Millisecond,
			Objects:     4321,
			Held:        3 << 20,
			Pending:     17,
			Resumed:     true,
			NoBookmarks: true,
		},
		{
			Scope:    "nodes",
			Resource: "nodes",
			Phase:    informer.PhaseRelisting,
			Health:   informer.HealthStale,
			Since:    *ago(time.Hour),
			Synced:   true,
			LastSeen: *ago(time.Hour),
			Silence:  time.Hour,
			Objects:  12,
			Held:     2048,
		},
		{
			Scope:    "secrets",
			Resource: "secrets",
			Phase:    informer.PhaseWaiting,
			Health:   informer.HealthForbidden,
			Since:    *ago(time.Minute),
			Failures: 7,
			Reason:   "forbidden",
			Error:    `list: Get "https://10.0.0.1:443/api/v1/secrets?limit=500": secrets is forbidden` + "\x1b[2J",
		},
	})
	return s
}

func TestStatusIsShown(t *testing.T) {
	const scopes = `SCOPE        PHASE       HEALTH      WATCH     LAG   OBJECTS      KEPT   PENDING   PROBLEM
nodes        relisting   stale        1h0m       -        12   2.0 KiB         0
secrets      waiting     forbidden       -       -         0       0 B         0   list: secrets is forbidden\x1b[2J
configmaps   live        ok            59s   250ms     4,321   3.0 MiB        17
`
	const head = `kubecdc v1.2.3, cluster prod (8d6f), https://10.0.0.1:443, up 2d3h: not ready
! informers: the API server, or the path to it, has been silent for too long: nodes (for 3m20s)
! queue: full (for 4s)
leader      this agent, epoch 4
bus         NATS nats://nats:4222, stream KUBECDC: connected for 3h0m; the identity of 1 of 1 logs is unknown: look up stream KUBECDC: timeout
queue       1,234 of 100,000 events, 5.0 MiB of 64 MiB; 256 in flight, the oldest is 12s old; 2 informers wait for room
checkpoint  ConfigMap kubecdc/kubecdc-checkpoint, saved 3s ago
published   12,345,678 events, 3.0 GiB; 3 retries; 1 dead letters
watching    3 scopes: 1 live, 1 relisting, 1 waiting; 1 forbidden, 1 stale; 4,333 objects kept in 3.0 MiB; 17 pending; no bookmarks of configmaps

`
	var asked []string
	agent := admin.New(
		admin.Options{
			Registry: prometheus.NewRegistry(),
			Checks:   admin.NewChecks(nil),
			Status:   agentInTrouble,
		}).Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		agent.ServeHTTP(w, r)
	}))
	defer s.Close()
	show := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"status", "--agent", s.URL}, args...), &stdout, &stderr)
		if code != exitOK || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, %s", args, code, &stderr)
		}
		return stdout.String()
	}
	if diff := cmp.Diff(head+scopes, trimLines(show())); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if got := show("-o", "wide"); !strings.Contains(got, "LAST EVENT   RESUMED   FAILURES   PROBLEM\n") ||
		!regexp.MustCompile(`configmaps .* 1m0s ago   yes +0\n`).MatchString(trimLines(got)) {
		t.Error(got)
	}
	var got admin.Status
	if err := json.Unmarshal([]byte(show("-o", "json")), &got); err != nil || len(got.Scopes) != 3 ||
		got.Scopes[0].Scope != "nodes" || got.Scopes[0].Phase != "relisting" || got.Scopes[0].Health != "stale" ||
		got.Scopes[0].Since == nil || got.Informers.Health["forbidden"] != 1 ||
		!cmp.Equal(got.Informers.NoBookmarks, []string{"configmaps"}) || !got.Scopes[2].NoBookmarks ||
		got.Leader.Epoch != 4 {
		t.Errorf("%v: %+v", err, got)
	}
	if want := []string{
		"/status?scopes=100", "/status?scopes=100000", "/status?scopes=100000",
	}; !cmp.Equal(want, asked) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	// A standby reports the leader, and omits the parts that only a leader has.
	standby := agentInTrouble()
	standby.Ready = true
	standby.Standby = true
	standby.Leader = &admin.LeaderStatus{Holder: "kubecdc-1", Epoch: 5}
	standby.Checks = nil
	const wantStandby = "kubecdc v1.2.3, cluster prod (8d6f), https://10.0.0.1:443, up 2d3h: standing by\n" +
		"leader      kubecdc-1, epoch 5; this agent is a standby\n"
	if got := textOf(standby.Lines(false, nil)); got != wantStandby {
		t.Error(got)
	}
	// Rates are computed between two looks.
	before, after := agentInTrouble(), agentInTrouble()
	after.Now, after.Published.Events = before.Now.Add(2*time.Second), before.Published.Events+3000
	if got := textOf(after.Lines(false, &before)); !strings.Contains(got, "; 1,500/s now;") {
		t.Error(got)
	}
}

func textOf(lines []terminal.Line) string {
	var b strings.Builder
	for _, l := range lines {
		for _, s := range l {
			b.WriteString(s.Text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// trimLines returns text without the spaces at the ends of its lines.
func trimLines(text string) string { return regexp.MustCompile(`(?m) +$`).ReplaceAllString(text, "") }

func TestStatusOfWhatIsNoAgent(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"another server": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an old agent":   http.NotFound,
	} {
		s := httptest.NewServer(handler)
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{"status", "--agent", s.URL}, io.Discard, &stderr); code != exitFailed ||
			!strings.Contains(stderr.String(), "it is not an agent, or its release has no status") {
			t.Errorf("%s: exit code %d, %s", name, code, &stderr)
		}
		s.Close()
	}
}

// Every metric of a running agent is documented and named well. Its status is complete and contains
// no secret.
func TestWhatARunningAgentServes(t *testing.T) {
	nats := startServer(t, t.TempDir(), -1)
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "kubecdc.yaml"), fmt.Sprintf(`apiVersion: kubecdc.dev/v1
cluster: c
bus: {nats: {url: %q}}
checkpoint: {file: {path: %q}}
server: {address: "127.0.0.1:0", pprof: true}
relays:
  - {name: hook, to: {http: {url: "http://127.0.0.1:1/h00k-s3cret"}}}
`, nats.ClientURL(), filepath.Join(dir, "checkpoint.json")))
	agent := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL), "--config", file)
	url := "http://" + agent.says(t, `"server_address":"([^"]+)"`)[1]
	agent.says(t, "connected to bus")
	get := func(path string) string {
		t.Helper()
		r, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), "s3cret") {
			t.Errorf("%s tells a secret:\n%s", path, body)
		}
		return string(body)
	}
	waitUntil(t, func() bool { return strings.Contains(get("/readyz?o=json"), `"ready": true`) })
	// relays start concurrently with the agent
	waitUntil(t, func() bool { return strings.Contains(get("/metrics"), `kubecdc_relay_up{relay="hook"}`) })

	metrics := get("/metrics")
	problems, err := promlint.New(strings.NewReader(metrics)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "kubecdc_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	documented, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^# TYPE (kubecdc_\S+)`).FindAllStringSubmatch(metrics, -1)
	if len(names) < 25 {
		t.Errorf("%d metrics", len(names))
	}
	for _, n := range names {
		if !strings.Contains(string(documented), "| `"+n[1]+"` |") {
			t.Errorf("%s is not in docs/reference/metrics.md", n[1])
		}
	}
	for _, want := range []string{
		"kubecdc_agent_ready 1\n", `kubecdc_agent_check_ok{check="bus"} 1`,
		`kubecdc_agent_check_ok{check="relay hook"}`, "kubecdc_queue_oldest_seconds 0\n",
		`kubecdc_checkpoint_saves_total{result="conflict"} 0`, `kubecdc_publish_dead_letters_total{reason="refused"} 0`,
		`kubecdc_publish_retries_total{reason="stream_full"} 0`, `kubecdc_relay_missed_total{relay="hook"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("there is no %s", want)
		}
	}

	var s admin.Status
	if err := json.Unmarshal([]byte(get("/status")), &s); err != nil {
		t.Fatal(err)
	}
	if !s.Ready || s.Standby || s.Leader != nil || s.Cluster != "c" || s.ClusterUID != uidA || !s.Bus.Connected ||
		s.Checkpoint == nil || !strings.HasSuffix(s.Checkpoint.Place, "checkpoint.json") || s.Queue.MaxEvents == 0 {
		t.Errorf("%+v", s)
	}
	if got := get("/healthz"); got != "ok\n" {
		t.Errorf("/healthz: %s", got)
	}
	profile := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		run(t.Context(), append([]string{"profile", "--agent", url}, args...), &stdout, &stderr)
		return stdout.String() + stderr.String()
	}
	if got := profile("goroutine", "--debug", "1"); !strings.HasPrefix(got, "goroutine profile:") {
		t.Errorf("goroutines: %.200s", got)
	}
	if got := profile("profile", "--seconds", "0.1"); !strings.HasPrefix(got, "\x1f\x8b") {
		t.Errorf("no profile: %.200q", got)
	}
	if got := profile("profile", "--seconds", "3601"); !strings.Contains(got,
		": seconds: must be above 0 and at most 300") {
		t.Errorf("got %.200q", got)
	}
	if got := profile("nonsense"); !strings.Contains(got, "no such profile") {
		t.Errorf("got %.200q", got)
	}
	if got := get("/debug/pprof/heap"); !strings.Contains(got, "not accepted over HTTP") {
		t.Errorf("a profile over HTTP: %.200q", got)
	}
	if code := agent.stop(); code != exitOK {
		t.Errorf("exit code %d:\n%s", code, agent.stderr)
	}
	if strings.Contains(agent.stderr.String(), "s3cret") {
		t.Errorf("a secret is in the log:\n%s", agent.stderr)
	}
}
