package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/leader"
)

// probe is what /readyz asks. A nil error: ready.
type probe struct {
	name  string
	ready func() error
	aside bool // it is shown, and the agent is ready without it
	// lasts reports whether what is wrong has lasted for so long that the agent is not ready, although it is aside. nil: it never does.
	lasts func() bool
	// detail is more about what is ready, in a few words. It may be nil, or return "".
	detail func() string
}

// election is what is asked of a leader.Elector.
type election interface {
	Status() leader.Status
	Ready() error
}

// lookEvery is how often checks are made for their own sake: to know for how long each has been as it is.
const lookEvery = 5 * time.Second

// checks makes all probes, and knows for how long each has been ready, or not.
type checks struct {
	probes []probe
	// election tells if another agent leads; then the other probes are not made: a standby has neither a bus nor informers.
	// nil: there is none.
	election election

	ready *prometheus.Desc
	ok    *prometheus.Desc

	mu    sync.Mutex
	since map[string]condition
}

type condition struct {
	ok bool
	at time.Time
}

// check is how one probe ended.
type check struct {
	Name   string    `json:"name"`
	OK     bool      `json:"ok"`
	Aside  bool      `json:"aside,omitempty"` // the agent is ready without it
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"` // it has been so

	words string // for people
}

// readiness is what /readyz answers.
type readiness struct {
	Ready   bool    `json:"ready"`
	Standby bool    `json:"standby,omitempty"` // another agent leads
	Checks  []check `json:"checks"`
}

func newChecks(probes ...probe) *checks {
	return &checks{
		probes: probes, since: map[string]condition{},
		ready: prometheus.NewDesc("kubecdc_agent_ready", "1 where /readyz says that the agent is ready. A standby is.", nil, nil),
		ok: prometheus.NewDesc("kubecdc_agent_check_ok",
			"1 for each check of /readyz that finds nothing wrong. A standby makes that of the leader alone.", []string{"check"}, nil),
	}
}

// look makes the checks.
func (c *checks) look(now time.Time) readiness {
	r := readiness{Ready: true, Checks: make([]check, 0, len(c.probes)+1)}
	if c.election != nil {
		status := c.election.Status()
		k := c.note("leader", c.election.Ready(), status.String(), now)
		k.words = k.Detail
		r.Ready, r.Standby, r.Checks = k.OK, !status.Leading && status.Over == nil, append(r.Checks, k)
		if r.Standby {
			return r
		}
	}
	for i := range c.probes {
		p := &c.probes[i]
		err, detail := p.ready(), ""
		if err == nil && p.detail != nil {
			detail = p.detail()
		}
		result := c.note(p.name, err, detail, now)
		result.Aside = p.aside && (err == nil || p.lasts == nil || !p.lasts())
		r.Ready = r.Ready && (result.OK || result.Aside)
		r.Checks = append(r.Checks, result)
	}
	return r
}

func (c *checks) note(name string, err error, detail string, now time.Time) check {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.since[name]
	if !known || was.ok != (err == nil) {
		was = condition{err == nil, now}
		c.since[name] = was
	}
	k := check{Name: name, OK: was.ok, Detail: detail, Since: was.at, words: "ok"}
	switch {
	case err != nil:
		k.Detail, k.words = err.Error(), err.Error()
	case detail != "":
		k.words += ", " + detail
	}
	return k
}

// watch makes the checks now and then until ctx ends.
func (c *checks) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		c.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// text is what /readyz shows people.
func (r *readiness) text(now time.Time) string {
	var b strings.Builder
	for _, k := range r.Checks {
		sign := "[+]"
		if !k.OK {
			sign = "[-]"
		}
		fmt.Fprintf(&b, "%s %s: %s", sign, k.Name, k.words)
		if d := now.Sub(k.Since); d >= time.Second {
			fmt.Fprintf(&b, " (for %s)", span(d))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Describe implements prometheus.Collector.
func (c *checks) Describe(out chan<- *prometheus.Desc) {
	out <- c.ready
	out <- c.ok
}

// Collect implements prometheus.Collector.
func (c *checks) Collect(out chan<- prometheus.Metric) {
	value := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	r := c.look(time.Now())
	out <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, value(r.Ready))
	for _, k := range r.Checks {
		out <- prometheus.MustNewConstMetric(c.ok, prometheus.GaugeValue, value(k.OK), k.Name)
	}
}

// span is a duration as people say it: 3 days and 4 hours matter, the seconds then do not.
func span(d time.Duration) string {
	d = d.Truncate(time.Second)
	switch day := 24 * time.Hour; {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
