package admin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// Probe is one check of /readyz.
type Probe struct {
	Name  string
	Ready func() error
	Aside bool // it is shown, but does not affect readiness
	// Lasts reports whether the error has lasted so long that the agent is not ready, although
	// Aside is set. nil: never.
	Lasts func() bool
	// Detail describes the checked part in a few words. It may be nil, or return "".
	Detail  func() string
	Standby bool // it is also made while another agent leads
}

// Election is a [leader.Elector].
type Election interface {
	Status() leader.Status
	Ready() error
}

// checkInterval is the time between two automatic runs of the checks. It is the precision of the
// time since when a check has had its result.
const checkInterval = 5 * time.Second

// Checks runs all probes, and records since when each has had its result. It is a
// prometheus.Collector.
type Checks struct {
	probes   []Probe
	election Election

	ready *prometheus.Desc
	ok    *prometheus.Desc

	mu    sync.Mutex
	since map[string]condition
}

type condition struct {
	ok bool
	at time.Time
}

// Check is the result of a probe.
type Check struct {
	Name   string    `json:"name"`
	OK     bool      `json:"ok"`
	Aside  bool      `json:"aside,omitempty"` // does not affect readiness
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"` // of the last change of ok

	words string // for people
}

// Readiness is the response of /readyz.
type Readiness struct {
	Ready   bool    `json:"ready"`
	Standby bool    `json:"standby,omitempty"` // another agent leads
	Checks  []Check `json:"checks"`
}

// NewChecks returns checks of an election, which may be nil, and of probes. While another agent
// leads, only the probes with Standby are run: a standby has neither a bus nor informers.
func NewChecks(election Election, probes ...Probe) *Checks {
	return &Checks{
		election: election,
		probes:   probes,
		since:    map[string]condition{},
		ready: prometheus.NewDesc("kubecdc_agent_ready",
			"1 if /readyz reports that the agent is ready. A standby is ready.", nil, nil),
		ok: prometheus.NewDesc("kubecdc_agent_check_ok",
			"1 for each check of /readyz that passes. A standby makes only the checks of the leader and of the configuration.",
			[]string{"check"}, nil),
	}
}

// Look runs the checks.
func (c *Checks) Look(now time.Time) Readiness { return c.look(now, true) }

// look runs the checks. The checked parts are described if details is set, which may cost more.
func (c *Checks) look(now time.Time, details bool) Readiness {
	r := Readiness{Ready: true, Checks: make([]Check, 0, len(c.probes)+1)}
	if c.election != nil {
		status := c.election.Status()
		k := c.noteCheck("leader", c.election.Ready(), status.String(), now)
		k.words = k.Detail
		r.Ready = k.OK
		r.Standby = !status.Leading && status.Over == nil
		r.Checks = append(r.Checks, k)
	}
	for i := range c.probes {
		p := &c.probes[i]
		if r.Standby && !p.Standby {
			continue
		}
		err, detail := p.Ready(), ""
		if details && err == nil && p.Detail != nil {
			detail = p.Detail()
		}
		result := c.noteCheck(p.Name, err, detail, now)
		result.Aside = p.Aside && (err == nil || p.Lasts == nil || !p.Lasts())
		r.Ready = r.Ready && (result.OK || result.Aside)
		r.Checks = append(r.Checks, result)
	}
	return r
}

// noteCheck records a result.
func (c *Checks) noteCheck(name string, err error, detail string, now time.Time) Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.since[name]
	if !known || was.ok != (err == nil) {
		was = condition{err == nil, now}
		c.since[name] = was
	}
	k := Check{
		Name:   name,
		OK:     was.ok,
		Detail: detail,
		Since:  was.at,
		words:  "ok",
	}
	switch {
	case err != nil:
		k.Detail, k.words = err.Error(), err.Error()
	case detail != "":
		k.words += ", " + detail
	}
	return k
}

// run runs the checks at intervals until ctx ends.
func (c *Checks) run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		c.look(time.Now(), false)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Text returns the response of /readyz for people.
func (r *Readiness) Text(now time.Time) string {
	var b strings.Builder
	for _, k := range r.Checks {
		sign := "[+]"
		if !k.OK {
			sign = "[-]"
		}
		fmt.Fprintf(&b, "%s %s: %s", sign, k.Name, k.words)
		if d := now.Sub(k.Since); d >= time.Second {
			fmt.Fprintf(&b, " (for %s)", terminal.Duration(d))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Leader returns the state of the election; it returns false without one.
func (c *Checks) Leader() (leader.Status, bool) {
	if c.election == nil {
		return leader.Status{}, false
	}
	return c.election.Status(), true
}

// Describe implements prometheus.Collector.
func (c *Checks) Describe(out chan<- *prometheus.Desc) {
	out <- c.ready
	out <- c.ok
}

// Collect implements prometheus.Collector.
func (c *Checks) Collect(out chan<- prometheus.Metric) {
	value := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	r := c.look(time.Now(), false)
	out <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, value(r.Ready))
	for _, k := range r.Checks {
		out <- prometheus.MustNewConstMetric(c.ok, prometheus.GaugeValue, value(k.OK), k.Name)
	}
}
