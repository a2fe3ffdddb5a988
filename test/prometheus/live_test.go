package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/test/prometheus"
	"github.com/kubecdc/kubecdc/test/wait"
)

// timeout limits each wait. The machine may be slow and busy.
const timeout = 3 * time.Minute

// TestMonitoring lets a real Prometheus scrape real agents. In normal operation nothing alerts and
// every panel has data. Each injected fault fires its alert.
func TestMonitoring(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a control plane, two agents and a Prometheus")
	}
	t.Parallel()
	w := newWorld(t)
	var g errgroup.Group
	loading, stop := context.WithCancel(t.Context())
	defer func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}()
	g.Go(func() error { return w.load(loading) })

	t.Run("panels", func(t *testing.T) { everyPanelHasData(t, w) })
	t.Run("metrics", func(t *testing.T) { everyMetricIsThere(t, w) })
	t.Run("rules", func(t *testing.T) { rulesAreEvaluated(t, w) })
	t.Run("quiet", func(t *testing.T) { nothingAlerts(t, w) })
	for _, trouble := range []struct {
		name string
		make func(*testing.T, *world)
	}{
		{"refused record", refuseARecord},
		{"full stream", fillTheStream},
		{"bus away", stopTheBus},
		{"history lost", loseHistory},
		{"no leader", leadElsewhere},
		{"forbidden", forbid},
	} {
		if !t.Run(trouble.name, func(t *testing.T) { trouble.make(t, w) }) {
			return // the next one must begin in normal operation
		}
	}
}

// refuseARecord lets the relay's receiver reject a record for good.
func refuseARecord(t *testing.T, w *world) {
	w.receiver.refuses.Store(true)
	alerts(t, w, "KubecdcRelaySkipped")
	w.receiver.refuses.Store(false)
}

// fillTheStream fills the stream, so that it rejects further records.
func fillTheStream(t *testing.T, w *world) {
	conn, err := nats.Connect(w.bus.url())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(bytes int64) {
		t.Helper()
		stream, err := js.Stream(t.Context(), "KUBECDC")
		if err != nil {
			t.Fatal(err)
		}
		config := stream.CachedInfo().Config
		config.MaxBytes = bytes
		if bytes == 0 {
			config.MaxBytes = int64(stream.CachedInfo().State.Bytes) + 64<<10
		}
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	limit(0)
	alerts(t, w, "KubecdcRefused")
	limit(-1)
}

// stopTheBus stops the bus until the alerts fire.
func stopTheBus(t *testing.T, w *world) {
	w.bus.stop()
	want := []string{"KubecdcBusUnreachable", "KubecdcNotReady", "KubecdcOldestUnacknowledged"}
	alerts(t, w, want...)
	w.bus.start(t)
	passes(t, w, want...)
}

// loseHistory compacts etcd while no agent runs.
func loseHistory(t *testing.T, w *world) {
	w.stopAgents(t)
	known, err := w.cluster.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alerts(t, w, "KubecdcAbsent", "KubecdcDown")
	var now int64
	wait.Eventually(t, timeout, func() error { // the load continues: there is something to lose
		now, err = w.cluster.Revision(t.Context())
		if err != nil {
			return err
		}
		if now < known+20 {
			return fmt.Errorf("etcd is at revision %d, the agents ended at %d", now, known)
		}
		return nil
	})
	// The API server's cache still has all revisions, and agents that resume from there miss
	// nothing: it must be cleared, too.
	if err := w.cluster.Compact(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.RestartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.startAgents(t)
	alerts(t, w, "KubecdcGap")
	passes(t, w, "KubecdcAbsent", "KubecdcDown", "KubecdcNoLeader")
}

// leadElsewhere lets an idle holder keep the Lease.
func leadElsewhere(t *testing.T, w *world) {
	w.stopAgents(t)
	lease, err := w.leases().Get(t.Context(), "kubecdc", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Object["spec"] = map[string]any{"holderIdentity": "nobody", "leaseDurationSeconds": int64(3600)}
	if _, err := w.leases().Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.startAgents(t)
	alerts(t, w, "KubecdcNoLeader")
	if err := w.leases().Delete(t.Context(), "kubecdc", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	passes(t, w, "KubecdcNoLeader", "KubecdcAbsent")
}

// forbid restricts the agents to the core group of Kubernetes.
func forbid(t *testing.T, w *world) {
	w.stopAgents(t)
	w.permit(t, "")
	w.startAgents(t)
	alerts(t, w, "KubecdcForbidden")
	w.permit(t, "*")
	passes(t, w, "KubecdcForbidden")
}

// everyPanelHasData runs each query of the dashboard as Grafana would.
func everyPanelHasData(t *testing.T, w *world) {
	d := readDashboard(t)
	chosen := map[string]string{}
	wait.Eventually(t, time.Minute, func() error {
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			values, err := valuesOf(t.Context(), w.Server, v, chosen)
			if err != nil {
				return err
			}
			chosen[v.Name] = strings.Join(values, "|")
		}
		if n := len(strings.Split(chosen["instance"], "|")); n != len(w.agents) {
			return fmt.Errorf("%d agents to choose from, want %d", n, len(w.agents))
		}
		return nil
	})
	// Values of panels in normal operation. An empty panel would be ambiguous: no data, or nothing
	// wrong.
	well := map[string]float64{
		"Agents": 2, "Not ready": 0, "Not captured": 0, "Gaps, 24 h": 0, "Dead letters, 24 h": 0,
		"Dead letters": 0, "Too large": 0, "Gaps": 0, "Missed": 0, "Up": 1, "Not captured, by reason": 0,
		"Configuration reloads": 0,
	}
	queries := 0
	wait.Eventually(t, timeout, func() error {
		var wrong []error
		queries = 0
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				queries++
				expr, err := substitute(target.Expr, chosen)
				if err != nil {
					t.Fatal(err)
				}
				samples, err := w.Query(t.Context(), expr)
				if err != nil {
					t.Fatalf("panel %q: %v", p.Title, err)
				}
				if len(samples) == 0 {
					wrong = append(wrong, fmt.Errorf("panel %q: no data: %s", p.Title, expr))
				}
				for _, s := range samples {
					if want, ok := well[p.Title]; ok && s.Value != want {
						wrong = append(wrong,
							fmt.Errorf("panel %q: %v is %v, want %v: %s", p.Title, s.Metric, s.Value, want, expr))
					}
					if !s.Finite() {
						wrong = append(wrong, fmt.Errorf("panel %q: %v is %v: %s", p.Title, s.Metric, s.Value, expr))
					}
					for _, m := range shownLabel.FindAllStringSubmatch(target.Legend, -1) {
						if _, ok := s.Metric[m[1]]; !ok && len(s.Metric) > 0 {
							wrong = append(wrong,
								fmt.Errorf("panel %q: its legend shows %s, which is not in %v", p.Title, m[1],
									s.Metric))
						}
					}
				}
			}
		}
		return errors.Join(wrong...)
	})
	for title := range well {
		if !slices.ContainsFunc(d.Panels, func(p panel) bool { return p.Title == title }) {
			t.Errorf("there is no panel %q", title)
		}
	}
	if queries < 40 {
		t.Errorf("only %d queries in the dashboard", queries)
	}
	t.Logf("%d queries of %d panels and rows have data", queries, len(d.Panels))
}

// shownLabel is a label in a legend.
var shownLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// valuesOf returns the values to choose from.
func valuesOf(ctx context.Context, s *prometheus.Server, v variable, chosen map[string]string) ([]string, error) {
	m := labelValues.FindStringSubmatch(v.Definition)
	if m == nil {
		return nil, fmt.Errorf("variable %s: %q is not label_values(metric, label)", v.Name, v.Definition)
	}
	expr, err := substitute(m[1], chosen)
	if err != nil {
		return nil, err
	}
	samples, err := s.Query(ctx, fmt.Sprintf("count by (%s) (%s)", m[2], expr))
	if err != nil {
		return nil, err
	}
	var values []string
	for _, sample := range samples {
		if value := sample.Metric[m[2]]; value != "" {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("variable %s: nothing to choose from: %s", v.Name, v.Definition)
	}
	return values, nil
}

var (
	// metricName is the name of a metric in an expression.
	metricName = regexp.MustCompile(`\b(?:kubecdc|process|go)_\w+`)
	// selector is a metric with its label matchers.
	selector = regexp.MustCompile(`\b(kubecdc_\w+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=|=~|!=|!~)\s*"([^"]*)"`)
)

// everyMetricIsThere checks that the agents export each metric, and each value of a label, that
// rules and dashboard name. A query for a missing metric has no data, and an alert on it never
// fires.
func everyMetricIsThere(t *testing.T, w *world) {
	exprs := map[string]string{}
	for name, r := range allRules(t) {
		exprs["alert "+name] = r.Expr
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			exprs["panel "+p.Title+" "+target.RefID] = target.Expr
		}
	}
	documented, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	// These metrics appear only after the first failure.
	failures := []string{
		"kubecdc_informer_errors_total", "kubecdc_informer_expired_retries_total", "kubecdc_informer_gaps_total",
	}
	names := 0
	for where, expr := range exprs {
		for _, name := range metricName.FindAllString(expr, -1) {
			names++
			family := strings.TrimSuffix(name, "_bucket")
			if strings.HasPrefix(name, "kubecdc_") && !regexp.MustCompile(`\b`+family+`\b`).Match(documented) {
				t.Errorf("%s: docs/reference/metrics.md knows no metric %s", where, family)
			}
			if slices.Contains(failures, name) {
				continue
			}
			if samples, err := w.Query(t.Context(), "count("+name+")"); err != nil || len(samples) == 0 {
				t.Errorf("%s: no agent has a metric %s (%v)", where, name, err)
			}
		}
		for _, s := range selector.FindAllStringSubmatch(expr, -1) {
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				if strings.Contains(m[3], "$") || m[1] == "scope" || m[1] == "job" {
					continue // selected at the top; scopes and jobs depend on the configuration
				}
				for value := range strings.SplitSeq(m[3], "|") {
					if slices.Contains(failures, s[1]) {
						row := regexp.MustCompile(`(?m)^\| .` + s[1] + `.*\b` + regexp.QuoteMeta(value) + `\b`)
						if !row.Match(documented) {
							t.Errorf("%s: docs/reference/metrics.md has no %s of %s=%q", where, s[1], m[1], value)
						}
						continue
					}
					query := fmt.Sprintf("count(%s{%s=%q})", s[1], m[1], value)
					if samples, err := w.Query(t.Context(), query); err != nil || len(samples) == 0 {
						t.Errorf("%s: nothing is ever selected by %s{%s=%q} (%v)", where, s[1], m[1], value, err)
					}
				}
			}
		}
	}
	if names < 60 {
		t.Errorf("only %d metrics found in rules and dashboard", names)
	}
}

// rulesAreEvaluated checks that Prometheus accepts each rule.
func rulesAreEvaluated(t *testing.T, w *world) {
	wait.Eventually(t, time.Minute, func() error {
		rules, err := w.Rules(t.Context())
		if err != nil {
			return err
		}
		if want := len(allRules(t)); len(rules) != want {
			return fmt.Errorf("%d rules, want %d", len(rules), want)
		}
		for _, r := range rules {
			if r.Health != "ok" {
				return fmt.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
		return nil
	})
}

// nothingAlerts fails the test if an alert fires, and waits until no alert has been pending for
// five evaluations of the rules. On a busy machine the agent may be late once, which keeps an alert
// pending for as long as its range.
func nothingAlerts(t *testing.T, w *world) {
	const quiet = 5 * time.Second
	since := time.Now() // no alert has been pending since
	wait.Eventually(t, 4*time.Minute, func() error {
		all, err := w.Alerts(t.Context())
		if err != nil {
			return err
		}
		for _, a := range all {
			since = time.Now()
			if a.State == "firing" {
				t.Fatalf("%s fires: %v: %s", a.Labels["alertname"], a.Labels, a.Annotations["description"])
			}
		}
		if calm := time.Since(since); calm < quiet {
			return fmt.Errorf("no alert was pending for %s only; pending now: %v", calm, all)
		}
		return nil
	})
}

// names returns the alerts that are pending or firing.
func names(t *testing.T, w *world) []string {
	t.Helper()
	all, err := w.Alerts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range all {
		out = append(out, a.Labels["alertname"])
		if strings.Contains(a.Annotations["description"], "<no value>") ||
			strings.Contains(a.Annotations["description"], "{{") {
			t.Errorf("%s: %s", a.Labels["alertname"], a.Annotations["description"])
		}
	}
	return out
}

// alerts waits until the alerts are pending or firing. The rule unit tests check for how long each
// is pending.
func alerts(t *testing.T, w *world, want ...string) {
	t.Helper()
	wait.Eventually(t, timeout, func() error {
		got := names(t, w)
		for _, name := range want {
			if !slices.Contains(got, name) {
				return fmt.Errorf("no %s, but %v", name, got)
			}
		}
		return nil
	})
}

// passes waits until none of the alerts is pending or firing.
func passes(t *testing.T, w *world, alerts ...string) {
	t.Helper()
	wait.Eventually(t, timeout, func() error {
		got := names(t, w)
		for _, name := range alerts {
			if slices.Contains(got, name) {
				return fmt.Errorf("still %s", name)
			}
		}
		return nil
	})
}
