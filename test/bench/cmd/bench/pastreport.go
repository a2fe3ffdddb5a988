package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/kubecdc/kubecdc/test/bench/past"
)

const (
	// wantLonger is how many times longer a question about the longer record may take.
	wantLonger = 1.3
	// wantProgress is the number of progress events a day, in addition to those that end runs.
	wantProgress = 1440
	wantEnds     = 1
)

// lengthNames are the names of the lengths in reports, in their order.
var lengthNames = [2]string{"short", "long"}

// PastReport is the outcome of --only record.
type PastReport struct {
	Objects   int        `json:"objects"`
	Resources int        `json:"resources"`
	Records   []*Length  `json:"records"`
	Asked     []*Asked   `json:"asked"`
	Goals     []PastGoal `json:"goals"`
}

// Length says how long a record is.
type Length struct {
	Bus        string     `json:"bus"`
	Name       string     `json:"name"`
	Days       float64    `json:"days"`
	Contents   past.Count `json:"contents"`
	Partitions int        `json:"partitions"` // that have progress
}

// Asked is the cost of a question on a short and a long record.
type Asked struct {
	Bus      string  `json:"bus"`
	Question string  `json:"question"`
	Most     float64 `json:"most,omitempty"`  // s, the goal
	Grows    bool    `json:"grows,omitempty"` // with the length, as the goals allow
	// Differs reports that the answers of both lengths are not the same.
	Differs bool `json:"differs,omitempty"`
	// Inexact is how many answers were not certain.
	Inexact int      `json:"inexact,omitempty"`
	Runs    int      `json:"runs"`
	Short   PastCost `json:"short"`
	Long    PastCost `json:"long"`

	times, cpus [2][]float64
}

// PastCost has medians, and the highest peak.
type PastCost struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`    // s, of the command and of the server
	Answer  int64   `json:"answer"` // bytes
	Peak    int64   `json:"peak"`   // resident memory of the command, bytes
	Cold    *Cold   `json:"cold,omitempty"`
}

// Cold is the cost of the first question of a server.
type Cold struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
	Shown   bool    `json:"shown"` // progress was shown
}

// PastGoal is a goal. A ratio holds on a busy machine, too.
type PastGoal struct {
	Goal

	Ratio bool `json:"ratio,omitempty"`
}

// has notes the lengths of the record on a bus.
func (r *PastReport) has(bus string, o past.Options, c *past.Contents, partitions int) {
	for k, l := range []struct {
		begin time.Time
		count past.Count
	}{{o.Short, c.Short}, {o.Begin, c.Whole}} {
		r.Records = append(r.Records, &Length{
			Bus:        bus,
			Name:       lengthNames[k],
			Days:       o.End.Sub(l.begin).Hours() / 24,
			Contents:   l.count,
			Partitions: partitions,
		})
	}
}

// of returns the cost on the short record, 0, or the long one, 1.
func (a *Asked) of(length int) *PastCost { return []*PastCost{&a.Short, &a.Long}[length] }

// add adds a run on both lengths.
func (a *Asked) add(pair [2]*pastRun) {
	a.Runs++
	a.Differs = a.Differs || pair[0].sum != pair[1].sum
	for k, r := range pair {
		if !r.exact {
			a.Inexact++
		}
		a.times[k], a.cpus[k] = append(a.times[k], r.seconds), append(a.cpus[k], r.cpu)
		c := a.of(k)
		c.Seconds = middle(a.times[k])
		c.CPU = middle(a.cpus[k])
		c.Answer = r.answer
		c.Peak = max(c.Peak, r.peak)
	}
}

// judge compares what was measured with the goals.
func (r *PastReport) judge() {
	for _, l := range r.Records {
		day := float64(l.Contents.Progress) / l.Days
		r.goal(fmt.Sprintf("%s, %s: progress events a day and partition", l.Bus, l.Name),
			fmt.Sprintf("≤ %d", wantProgress), fmt.Sprintf("%.0f", day), day <= wantProgress+wantEnds, true)
	}
	for _, a := range r.Asked {
		name := a.Bus + ": " + a.Question
		if a.Most > 0 {
			r.goal(name, fmt.Sprintf("≤ %.1f s", a.Most),
				fmt.Sprintf("%.3f and %.3f s", a.Short.Seconds, a.Long.Seconds),
				max(a.Short.Seconds, a.Long.Seconds) <= a.Most, false)
		}
		if !a.Grows {
			v, cpu := a.Long.Seconds/a.Short.Seconds, a.Long.CPU/a.Short.CPU
			r.goal(name+", long record", fmt.Sprintf("≤ %.1f x", wantLonger),
				fmt.Sprintf("%.2f x (CPU %.2f x)", v, cpu), min(v, cpu) <= wantLonger, true)
			r.goal(name+", answers", "the same", fmt.Sprintf("differ: %t", a.Differs), !a.Differs, true)
		}
		r.goal(name+", certainty", "exact", fmt.Sprintf("%d of %d are not", a.Inexact, 2*a.Runs), a.Inexact == 0, true)
		for k, name := range lengthNames {
			if c := a.of(k).Cold; c != nil {
				const soon = 3 // s; then it must be shown
				r.goal(fmt.Sprintf("%s: %s, cold, %s", a.Bus, a.Question, name), "progress is shown",
					fmt.Sprintf("%.1f s, shown: %t", c.Seconds, c.Shown), c.Shown || c.Seconds < soon, true)
			}
		}
	}
}

func (r *PastReport) goal(name, wanted, measured string, met, ratio bool) {
	g := Goal{
		Name:     name,
		Wanted:   wanted,
		Measured: measured,
		Verdict:  "missed",
	}
	if met {
		g.Verdict = "met"
	}
	r.Goals = append(r.Goals, PastGoal{g, ratio})
}

// check returns an error that names the goals that were missed and do not depend on the machine.
func (r *PastReport) check() error {
	var errs []error
	for _, g := range r.Goals {
		if g.Ratio && g.Verdict == "missed" {
			errs = append(errs, fmt.Errorf("%s: %s, want %s", g.Name, g.Measured, g.Wanted))
		}
	}
	return errors.Join(errs...)
}

func (r *PastReport) print(w io.Writer) error {
	fmt.Fprintf(w, "Questions about the past: %s objects, %d resources, one agent\n", grouped(r.Objects), r.Resources)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "bus\trecord\tdays\tevents\tchanges\tprogress\tMB\t")
	for _, l := range r.Records {
		c := &l.Contents
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%s\t%s\t%s\t%s\t\n", l.Bus, l.Name, l.Days,
			grouped(c.Events), grouped(c.Changes), grouped(c.Progress), grouped(c.Bytes/1e6))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nMedians. CPU: of the command and the server. "+
		"Cold: the first question after a restart, files not in the page cache")
	t = tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "bus\tquestion\tshort, s\tlong, s\tratio\tCPU\tlong, CPU\tratio\t"+
		"cold, s\tlong, cold\tpeak\tanswer\truns\t")
	for _, a := range r.Asked {
		fmt.Fprintf(t, "%s\t%s\t%.3f\t%.3f\t%.2f\t%.3f\t%.3f\t%.2f\t%s\t%s\t%d MiB\t%s\t%d\t\n", a.Bus, a.Question,
			a.Short.Seconds, a.Long.Seconds, a.Long.Seconds/a.Short.Seconds, a.Short.CPU, a.Long.CPU,
			a.Long.CPU/a.Short.CPU,
			a.Short.Cold, a.Long.Cold, max(a.Short.Peak, a.Long.Peak)>>20, grouped(a.Long.Answer), a.Runs)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "goal\twanted\tmeasured\t")
	for _, g := range r.Goals {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", g.Name, g.Wanted, g.Measured, g.Verdict)
	}
	return t.Flush()
}

// String returns the time, "-" if it was not measured.
func (c *Cold) String() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", c.Seconds)
}
