package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/process"
)

const (
	// readyTimeout bounds the wait if the caller's context has no deadline. Observed: 0.3 s.
	readyTimeout = time.Minute

	// starts is how often the start is tried if another process takes the port before the server
	// binds it.
	starts = 3

	grace = 20 * time.Second
)

// Scrape is a job of the server.
type Scrape struct {
	Job     string            `json:"job_name"`
	Targets []string          `json:"-"` // as host:port
	Labels  map[string]string `json:"-"` // of all targets, as added by an operator's monitors
}

// Options has the targets and rules of a server.
type Options struct {
	Dir    string // data, configuration and log. No other process may use it
	Scrape []Scrape
	Rules  []string      // paths of files with rules
	Every  time.Duration // between scrapes, and between evaluations; 0: 1 s
}

// Server is a running Prometheus.
type Server struct {
	url    string
	child  *process.Child
	client *http.Client
}

// Start runs a server until the test ends. It skips or fails the test as [Require] does.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	tools := Require(t)
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := New(t.Context(), tools, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// New runs a server and returns when it answers. ctx bounds the start only; the server runs until
// Stop. An error includes the end of its log. Nothing is left running then.
func New(ctx context.Context, tools Tools, o Options) (*Server, error) {
	config := filepath.Join(o.Dir, "prometheus.json") // JSON is YAML
	text, err := json.Marshal(o.config())
	if err != nil {
		return nil, fmt.Errorf("configuration of Prometheus: %w", err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, fmt.Errorf("configuration of Prometheus: %w", err)
	}
	for try := 1; ; try++ {
		s, err := start(ctx, tools, o.Dir, config)
		if err == nil || try == starts || !strings.Contains(err.Error(), "address already in use") {
			return s, err
		}
	}
}

// config is the server's configuration.
func (o *Options) config() any {
	every := o.Every
	if every == 0 {
		every = time.Second
	}
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels,omitempty"`
	}
	type job struct {
		Scrape
		Static []group `json:"static_configs"`
	}
	jobs := make([]job, len(o.Scrape))
	for i, s := range o.Scrape {
		jobs[i] = job{Scrape: s, Static: []group{{s.Targets, s.Labels}}}
	}
	return map[string]any{
		"global": map[string]any{
			"scrape_interval":     every.String(),
			"evaluation_interval": every.String(),
			"scrape_timeout":      every.String(),
		},
		"rule_files":     o.Rules,
		"scrape_configs": jobs,
	}
}

func start(ctx context.Context, tools Tools, dir, config string) (_ *Server, err error) {
	port, err := process.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	child, err := process.Start(process.Spec{
		Name: "Prometheus",
		Log:  filepath.Join(dir, "prometheus.log"),
		Dir:  dir,
		Argv: []string{
			tools.Prometheus, "--config.file=" + config, "--web.listen-address=" + address,
			"--storage.tsdb.path=" + filepath.Join(dir, "data"), "--storage.tsdb.retention.time=1d", "--log.level=warn",
		},
	})
	if err != nil {
		return nil, err
	}
	s := &Server{
		url: "http://" + address, child: child,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, // no connection outlives a request
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-child.Done():
			return nil, child.Failed(errors.New("ended before it was ready"))
		case <-ctx.Done():
			child.Kill()
			return nil, child.Failed(fmt.Errorf("not ready: %w; last answer: %w", context.Cause(ctx), last))
		case <-tick.C:
		}
		_, err := s.get(ctx, "/-/ready", nil)
		if err == nil {
			return s, nil
		}
		if ctx.Err() == nil { // Otherwise the error is only that of the context.
			last = err
		}
	}
}

// URL returns the URL of the server, http://127.0.0.1:<port>.
func (s *Server) URL() string { return s.url }

// Stop ends the server, and kills it after 20 s. It returns when the process is gone.
func (s *Server) Stop() { _ = s.child.Stop(grace) }

// Sample is one series of an answer at one time.
type Sample struct {
	Metric map[string]string
	Value  float64
}

// Query evaluates an expression now. An answer without a series is not an error.
func (s *Server) Query(ctx context.Context, expr string) ([]Sample, error) {
	var answer struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	}
	if err := s.api(ctx, "/api/v1/query", url.Values{"query": {expr}}, &answer); err != nil {
		return nil, fmt.Errorf("query %s: %w", expr, err)
	}
	type point struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	var points []point
	switch answer.ResultType {
	case "vector":
		if err := json.Unmarshal(answer.Result, &points); err != nil {
			return nil, fmt.Errorf("query %s: %w", expr, err)
		}
	case "scalar":
		points = make([]point, 1)
		if err := json.Unmarshal(answer.Result, &points[0].Value); err != nil {
			return nil, fmt.Errorf("query %s: %w", expr, err)
		}
	default:
		return nil, fmt.Errorf("query %s: the answer is a %s", expr, answer.ResultType)
	}
	samples := make([]Sample, len(points))
	for i, p := range points {
		text, _ := p.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("query %s: value %v: %w", expr, p.Value, err)
		}
		samples[i] = Sample{Metric: p.Metric, Value: value}
	}
	return samples, nil
}

// Finite reports whether the value is a number that can be drawn.
func (s Sample) Finite() bool { return !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) }

// Alert is one that is pending or firing.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"` // pending or firing
}

// Alerts returns the alerts that are pending or firing now.
func (s *Server) Alerts(ctx context.Context) ([]Alert, error) {
	var answer struct {
		Alerts []Alert `json:"alerts"`
	}
	err := s.api(ctx, "/api/v1/alerts", nil, &answer)
	return answer.Alerts, err
}

// Rule is the result of the last evaluation of a rule.
type Rule struct {
	Name      string `json:"name"`
	Type      string `json:"type"`   // alerting or recording
	Health    string `json:"health"` // ok, err or unknown: not evaluated yet
	LastError string `json:"lastError"`
}

// Rules returns all rules of the server.
func (s *Server) Rules(ctx context.Context) ([]Rule, error) {
	var answer struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := s.api(ctx, "/api/v1/rules", nil, &answer); err != nil {
		return nil, err
	}
	var rules []Rule
	for _, g := range answer.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules, nil
}

// api calls the server's HTTP API and decodes the data of its answer.
func (s *Server) api(ctx context.Context, path string, values url.Values, data any) error {
	text, err := s.get(ctx, path, values)
	if err != nil {
		return err
	}
	answer := struct {
		Data any `json:"data"`
	}{data}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (s *Server) get(ctx context.Context, path string, values url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+"?"+values.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.2000s", path, resp.Status, text)
	}
	return text, err
}
