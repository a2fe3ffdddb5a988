package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/agent/reload"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/trace"
)

const metricsFile = "../../docs/reference/metrics.md"

// metric is what there is to say of one.
type metric struct {
	name, kind, help string
	labels           []string
}

// collected takes what the packages register.
type collected struct {
	t   *testing.T
	all map[string]metric
}

func (c *collected) Register(m prometheus.Collector) error {
	c.t.Helper()
	kinds := map[string]string{}
	reg := prometheus.NewRegistry()
	if err := reg.Register(m); err != nil {
		return err
	}
	families, err := reg.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc, 100)
	m.Describe(descs)
	close(descs)
	for d := range descs {
		parts := regexp.MustCompile(
			`^Desc\{fqName: "([^"]*)", help: (".*"), constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}`).
			FindStringSubmatch(d.String())
		if parts == nil {
			c.t.Fatalf("no description: %s", d)
		}
		one := metric{name: parts[1], kind: kinds[parts[1]]}
		if _, err := fmt.Sscanf(parts[2], "%q", &one.help); err != nil {
			c.t.Fatal(err)
		}
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(parts[3], -1) {
			one.labels = append(one.labels, l[1])
		}
		if parts[4] != "" {
			one.labels = append(one.labels, strings.Split(parts[4], ",")...)
		}
		if one.kind == "" { // it has no sample yet
			switch m.(type) {
			case *prometheus.CounterVec:
				one.kind = "counter"
			case *prometheus.HistogramVec:
				one.kind = "histogram"
			default: // vectors, and collectors of our own
				one.kind = "gauge"
			}
		}
		if _, twice := c.all[one.name]; twice {
			c.t.Errorf("%s is registered twice", one.name)
		}
		c.all[one.name] = one
	}
	return nil
}

func (c *collected) MustRegister(all ...prometheus.Collector) {
	for _, m := range all {
		if err := c.Register(m); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *collected) Unregister(prometheus.Collector) bool { return false }

// everyMetric is what an agent can have.
func everyMetric(t *testing.T) map[string]metric {
	t.Helper()
	reg := &collected{t: t, all: map[string]metric{}}
	log := slog.New(slog.DiscardHandler)
	rc := &rest.Config{Host: "http://127.0.0.1:1"}
	reg.MustRegister(admin.NewChecks(nil), admin.NewBuildInfo(build()))
	reload.New(reload.Options{First: new(reload.Loaded), Unapplied: func() (string, time.Time) {
		return "", time.Time{}
	}, Registerer: reg})
	if _, err := agent.NewInformers(&reload.Loaded{Config: config.Default()},
		informers.Options{Config: rc, Log: log, Registerer: reg}, filter.NewMetrics(reg)); err != nil {
		t.Fatal(err)
	}
	queue.New[*object.Delta](queue.Options{Events: 1, Bytes: 1}, reg)
	publish.NewMetrics(reg)
	checkpoint.NewKeeper(checkpoint.OpenFile("none"), checkpoint.Identity{}, log, reg)
	if _, err := leader.New(leader.Options{
		Config:        rc,
		Namespace:     "n",
		Name:          "l",
		Identity:      "i",
		LeaseDuration: 3 * time.Second,
		RenewDeadline: 2 * time.Second,
		RetryPeriod:   time.Second,
		Log:           log,
		Registerer:    reg,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := trace.New(trace.Config{Endpoint: "http://127.0.0.1:1"}, log, reg); err != nil {
		t.Fatal(err)
	}
	relay.NewMetrics(reg)
	agent.NewOffset(agent.NewClock(log, reg, nil), log, reg)
	return reg.all
}

// docs/reference/metrics.md says what the packages register, and what GET /status answers.
func TestReferenceMetricsAreCurrent(t *testing.T) {
	all := everyMetric(t)
	got := metricsReference(t, all)
	for name := range advice() {
		if _, ok := all[name]; !ok {
			t.Errorf("advice about %s, which is no metric", name)
		}
	}
	if *update {
		if err := os.WriteFile(metricsFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf(
			"docs/reference/metrics.md is not what the agent has; write it anew with 'go test ./cmd/agent -run Reference -update' (-file +agent):\n%s",
			diff)
	}
}

// advice is the use of a metric, if its name and its help do not show it.
func advice() map[string]string {
	return map[string]string{
		"kubecdc_agent_ready":                   "Alert if it is 0 for some minutes; `kubecdc status` says why.",
		"kubecdc_agent_check_ok":                "`queue` is 0 while the queue is full, and `checkpoint` while it cannot be saved. The agent stays ready with a full queue, and for the first minute in which the checkpoint cannot be saved. `config` is 0 while a changed file is rejected or not in force; the agent is not ready if it could not be put in force for a minute.",
		"kubecdc_config_last_reload_successful": "Alert if it is 0 for minutes: the file differs from the configuration in force, and a restart would fail, or change more than a reload may. `kubecdc status` says why.",
		"kubecdc_config_reload_pending_seconds": "Alert above 60: `kubecdc status` shows whether the previous configuration still sends what the changed one redacts.",
		"kubecdc_config_info":                   "`count(count by (sha256) (…)) > 1`: agents that should have the same configuration do not.",
		"kubecdc_clock_ahead_seconds":           "Events of minutes can have one time while it is above 60: synchronize the clock, and wait.",
		"kubecdc_clock_offset_seconds":          "Alert beyond 2: moments by time are those of the agent's clock.",
		"kubecdc_build_info":                    "Join it to see the release of a graph.",
		"kubecdc_informer_silence_seconds":      "Below 70 if the API server sends bookmarks (for nearly all resources). Above 180 such a scope is stale, and consumers' state may be out of date. A scope whose list is not answered is stale too: alert on the health, `kubecdc_informer_scopes{health=\"stale\"} > 0`.",
		"kubecdc_informer_lag_seconds":          "The delay that the agent and the bus add for consumers of a resource. It grows while the bus is unreachable, or while it does not accept the events of one object.",
		"kubecdc_informer_unmatched_redaction":  "Alert on any series: the path may be misspelled, and its values are on the bus. Objects were read meanwhile.",
		"kubecdc_informer_scopes":               "`sum(…{health=\"forbidden\"}) > 0`: a permission is missing, `kubecdc rbac` prints the role.",
		"kubecdc_informer_gaps_total":           "Alert on any increase with `recovered=\"false\"`: consumers that need every version have to note a missing span.",
		"kubecdc_informer_lists_total":          "`expired` follows a restart of the API server or a changed CRD. Many of them show that the agent or the bus is too slow.",
		"kubecdc_informer_watches_total":        "`closed` is normal: API servers end a watch after 5 to 10 minutes. `blocked` is backpressure. `held_back` again and again: a proxy buffers watches.",
		"kubecdc_informer_held_bytes":           "Together with the queue's bytes, most of the agent's memory; see performance.md.",
		"kubecdc_informer_pending_deltas":       "It falls to 0 while a snapshot is sent.",
		"kubecdc_queue_oldest_seconds":          "The age of the oldest unacknowledged event. Alert at a fraction of etcd's compaction interval (5 min by default): after a restart, older changes are lost in a gap.",
		"kubecdc_queue_blocked_seconds_total":   "Its rate is the average number of informers that wait.",
		"kubecdc_queue_events":                  "Divide by kubecdc_queue_capacity_events, and bytes by capacity_bytes: whichever is nearer to 1 is full first.",
		"kubecdc_queue_inflight_bytes":          "Divide by kubecdc_queue_capacity_inflight_bytes: near 1 while the bus is slow or away, the size of events limits how many are in flight.",
		"kubecdc_publish_lag_seconds":           "The whole time in the agent, including the wait in the queue.",
		"kubecdc_publish_duration_seconds":      "The bus alone.",
		"kubecdc_publish_connected":             "It is 0 for good with standard output, which is no connection; kubecdc_agent_check_ok{check=\"bus\"} holds for every bus.",
		"kubecdc_publish_duplicates_total":      "Duplicates after a crash or a lost response; consumers do not see those that it counts.",
		"kubecdc_checkpoint_age_seconds":        "Below 5 in a quiet cluster and 65 at most. Alert above 180: a restart goes back that far.",
		"kubecdc_checkpoint_bytes":              "A ConfigMap holds 1 MiB, compressed.",
		"kubecdc_checkpoint_saves_total":        "`conflict` ends the agent: two of them write one checkpoint.",
		"kubecdc_leader":                        "Exactly one agent has 1. Alert where the sum is 0 for longer than 15 s.",
		"kubecdc_relay_behind_records":          "Alert where it grows for an hour.",
		"kubecdc_relay_missed_total":            "Let the bus keep records for longer than a receiver may be unavailable.",
	}
}

// metricGroups are the sections, by the word behind kubecdc_.
func metricGroups() [][2]string {
	return [][2]string{
		{"agent", "The agent"},
		{"build", ""},
		{"clock", "The times of events"},
		{"config", "The configuration file, if there is one"},
		{"informer", "Informers: reading from the API server"},
		{"filter", "Filters: changes that are withheld on purpose"},
		{"queue", "The queue"},
		{"publish", "Publishing: writing to the bus"},
		{"checkpoint", "The checkpoint"},
		{"leader", "Leader election"},
		{"trace", "Tracing"},
		{"relay", "Relays"},
	}
}

func metricsReference(t *testing.T, all map[string]metric) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(
		`<!-- Written by go test ./cmd/agent -run Reference -update from the metrics that the agent registers. -->

# Metrics, probes and status

This reference is for platform engineers who monitor the agent.

The agent serves, at ` + "`server.address`" + `:

| path | what |
|---|---|
| ` + "`/metrics`" + ` | the metrics below, as text |
| ` + "`/healthz`" +
			` | 200, unless the agent could not acquire its own locks for a minute, so that a restart would help. An unreachable bus or API server is no reason. For a livenessProbe, and for a startupProbe: it answers as soon as the agent runs |
| ` + "`/readyz`" +
			` | 200 once all resources that can be listed are, the bus is connected, the checkpoint can be saved (503 after a minute without a save) and a changed configuration can be put in force (503 after a minute). Otherwise 503 with the reasons. A line for each check with its duration, and a line for each scope (at most 100, those with a problem first). ` +
			"`?o=json`" + `, or ` + "`Accept: application/json`" + `, for programs. A standby is ready |
| ` + "`/status`" + ` | JSON with everything, [below](#status). ` + "`kubecdc status`" + ` shows it. ` + "`?scopes=N`" +
			` for more scopes than 1,000, or fewer |

The agent takes commands (` + "`kubecdc snapshot`, `kubecdc profile`" +
			`) over a [Unix socket](../guides/operate.md#the-control-socket), and not over HTTP.

None of these contains a Secret's value, a password, or any part of an object, except resource, namespace and name in an error.

The labels ` + "`scope`" + ` (a resource, perhaps with namespaces and selectors) and ` + "`resource`" +
			` have as many values as the agent watches. Few metrics have
them: /status has the rest of each scope. All other labels have
the few values that are listed. Counters that may stay 0 for long exist from the beginning, so that the first increase is
visible. There are also those of the process (` + "`process_*`" + `) and of Go (` + "`go_*`" + `; ` +
			"`go_gc_gomemlimit_bytes`" + ` is GOMEMLIMIT).
`)
	done := 0
	for _, group := range metricGroups() {
		if group[1] != "" {
			fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | |\n|---|---|---|---|\n", group[1])
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if name != "kubecdc_"+group[0] && !strings.HasPrefix(name, "kubecdc_"+group[0]+"_") {
				continue
			}
			m := all[name]
			done++
			labels := make([]string, len(m.labels))
			for i, l := range m.labels {
				labels[i] = "`" + l + "`"
			}
			text := m.help
			if a := advice()[name]; a != "" {
				text += " *" + a + "*"
			}
			fmt.Fprintf(&b, "| `%s` | %s%s | %s | %s |\n", name, m.kind, unitOf(name), strings.Join(labels, ", "),
				strings.ReplaceAll(text, "|", "\\|"))
		}
	}
	if done != len(all) {
		t.Errorf("%d of %d metrics have a section", done, len(all))
	}
	b.WriteString(
		"\n## Status\n\n`GET /status` answers with these fields. Times are in RFC 3339, durations in seconds, sizes in bytes.\n\n| field | type | |\n|---|---|---|\n")
	writeFields(t, &b, "", reflect.TypeFor[admin.Status](), structComments(t))
	return b.String()
}

// unitOf is the unit of a metric, as its name has it.
func unitOf(name string) string {
	name = strings.TrimSuffix(name, "_total")
	switch {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		return ", Unix time"
	case strings.HasSuffix(name, "_seconds"):
		return ", seconds"
	case strings.HasSuffix(name, "_bytes"):
		return ", bytes"
	}
	return ""
}

// writeFields describes the JSON of a type.
func writeFields(t *testing.T, b *strings.Builder, path string, of reflect.Type, comments map[string]string) {
	t.Helper()
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		typ := f.Type
		kind := ""
		below := reflect.Type(nil)
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		full := path + name
		switch {
		case typ == reflect.TypeFor[time.Time]():
			kind = "time"
		case typ.Kind() == reflect.Struct:
			kind, below = "object", typ
		case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.String:
			kind = "array of strings"
		case typ.Kind() == reflect.Slice:
			kind = "array"
			below = typ.Elem()
			full += "[]"
		case typ.Kind() == reflect.Map:
			kind = "object: numbers by name"
		case typ.Kind() == reflect.String:
			kind = "string"
		case typ.Kind() == reflect.Bool:
			kind = "boolean"
		default:
			kind = "number"
		}
		if options != "" {
			kind += ", may be missing"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", full, kind, comments[of.Name()+"."+f.Name])
		if below != nil {
			writeFields(t, b, full+".", below, comments)
		}
	}
}

// structComments returns the comments beside the fields of package admin's structs, by
// "type.field".
func structComments(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range []string{"../../internal/admin/status.go", "../../internal/admin/checks.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range st.Fields.List {
				for _, name := range field.Names {
					out[spec.Name.Name+"."+name.Name] = strings.TrimSpace(
						strings.ReplaceAll(cmp.Or(field.Comment.Text(), field.Doc.Text()), "\n", " "))
				}
			}
			return true
		})
	}
	return out
}
