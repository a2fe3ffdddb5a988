package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is the content of a progress event: how far a writer has come with its scopes.
type Report struct {
	Writer, Run string
	Number      int // Of the events of the run, from 1.
	// Since: the event has all interruptions and hidden spans from this time on.
	Since time.Time
	Ends  bool // The run ends.
	// APIServerVersion is the version of the API server; "": nothing is said.
	APIServerVersion string
	Entries          []Entry
}

// Reaches reports whether the log has everything of a resource up to a revision.
func (p *Report) Reaches(resource string, rev uint64) bool {
	found := false
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.Resource == resource {
			found = true
			if e.Rev < rev {
				return false
			}
		}
	}
	return found
}

// Entry is the progress of one scope, or of several of one resource.
type Entry struct {
	Resource string
	// Scope is the name of the scope. "": all scopes of the resource that the run has started and
	// not ended, and that no other entry of the event names. Count is their number.
	Scope string
	Count int
	// Etcd names the etcd of the resource among those of the writer; "": nothing is said.
	Etcd string
	// Rev is the revision up to which the log has everything before this event; 0: nothing is
	// claimed.
	Rev     uint64
	History uint64
	// To is the time up to which the log has everything before this event, except inside
	// Interruptions.
	To time.Time
	// SnapshotBegan is when the last snapshot of the whole scope began that the log has completely.
	SnapshotBegan time.Time
	Interruptions []Interruption
	Hidden        []HiddenSpan
}

// Interruption is a span of time in which a writer did not observe a scope.
type Interruption struct {
	Why   string    `json:"why"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"` // Zero: it was not over.
}

// The reasons of interruptions.
const (
	InterruptedStart   = "start"
	InterruptedClosed  = "closed"
	InterruptedCut     = "cut"
	InterruptedSilent  = "silent"
	InterruptedBlocked = "blocked"
	InterruptedListed  = "listed"
	InterruptedStopped = "stopped"
	InterruptedStepped = "stepped"
)

// HiddenSpan is a span in which filters withheld the last version of at least one object, or its
// deletion. Each end has a time, a revision or both.
type HiddenSpan struct {
	From, Until       time.Time
	FromRev, UntilRev uint64
}

// isOpen reports whether the span was not over.
func (h *HiddenSpan) isOpen() bool { return h.Until.IsZero() && h.UntilRev == 0 }

// reportData is the data of a progress event.
type reportData struct {
	Writer        string    `json:"writer"`
	Run           string    `json:"run"`
	Number        int       `json:"number"`
	Since         time.Time `json:"since"`
	To            time.Time `json:"to"`
	SnapshotBegan time.Time `json:"snapshotBegan"`
	Ends          bool      `json:"ends"`
	APIServer     string    `json:"apiServerVersion"`
	Etcd          string    `json:"etcd"`
	Scopes        []struct {
		Resource        string         `json:"resource"`
		Scope           string         `json:"scope"`
		Count           int            `json:"count"`
		Etcd            string         `json:"etcd"`
		ResourceVersion string         `json:"resourceVersion"`
		History         uint64         `json:"history"`
		To              time.Time      `json:"to"`
		SnapshotBegan   time.Time      `json:"snapshotBegan"`
		Interruptions   []Interruption `json:"interruptions"`
		Hidden          []struct {
			From                 time.Time `json:"from"`
			FromResourceVersion  string    `json:"fromResourceVersion"`
			Until                time.Time `json:"until"`
			UntilResourceVersion string    `json:"untilResourceVersion"`
		} `json:"hidden"`
	} `json:"scopes"`
}

// formOf has the form of the names in a progress event.
var formOf = struct{ writer, run *regexp.Regexp }{
	regexp.MustCompile(`^[0-9a-f]{16}$`), regexp.MustCompile(`^[0-9]+-[0-9]+$`),
}

// readReport reads a progress event, and checks its attributes.
func (r *Reader) readReport(
	rec *Record, e *envelope, m Message, problem func(string, ...any), want func(_, _, _ string),
) {
	rec.Stream = Progress
	var body struct {
		Data reportData `json:"data"`
	}
	if err := json.Unmarshal(m.Body, &body); err != nil {
		problem("progress: %v", err)
		return
	}
	p := parseReport(&body.Data, problem)
	rec.Report = p
	rec.Writer = p.Writer
	rec.Run = p.Run
	want("id", e.ID, fmt.Sprintf("progress/%s/%s/%d", p.Writer, p.Run, p.Number))
	want("subject", e.Subject, "/progress/"+p.Writer)
	want("dataschema", e.DataSchema, "https://kubecdc.dev/schema/progress/v1")
	want("partitionkey", e.PartitionKey, r.Cluster+"/progress/"+p.Writer)
	if m.Subject != "" {
		want("NATS subject", m.Subject, "kubecdc."+Escape(r.Cluster)+".progress."+p.Writer)
	}
	if m.Key != "" {
		want("key", m.Key, e.PartitionKey+"/"+strconv.Itoa(m.Lane))
	}
	other := strings.Join([]string{
		e.APIVersion, e.Kind, e.Resource, e.Namespace, e.Name, e.UID, e.Op, e.ResourceVersion, e.Sequence,
	}, "")
	if other != "" {
		problem("progress of a writer has attributes of an object: %q", other)
	}
	if !formOf.writer.MatchString(p.Writer) || !formOf.run.MatchString(p.Run) {
		problem("progress by writer %q, run %q", p.Writer, p.Run)
	}
	epoch, _ := runOf(p.Run)
	if epoch != rec.Epoch {
		problem("progress of run %q with epoch %d", p.Run, rec.Epoch)
	}
	if p.Number < 1 || p.Since.IsZero() {
		problem("progress with number %d, since %s", p.Number, p.Since)
	}
}

func parseReport(d *reportData, problem func(string, ...any)) *Report {
	p := &Report{
		Writer:           d.Writer,
		Run:              d.Run,
		Number:           d.Number,
		Since:            d.Since,
		Ends:             d.Ends,
		APIServerVersion: d.APIServer,
	}
	for i := range d.Scopes {
		s := &d.Scopes[i]
		e := Entry{
			Resource:      s.Resource,
			Scope:         s.Scope,
			Count:         max(s.Count, 1),
			Etcd:          cmp.Or(s.Etcd, d.Etcd),
			Rev:           parseRev("resourceVersion", s.ResourceVersion, problem),
			History:       s.History,
			To:            s.To,
			SnapshotBegan: s.SnapshotBegan,
			Interruptions: s.Interruptions,
		}
		if e.Rev != 0 && e.To.IsZero() {
			e.To = d.To
		}
		if e.Rev != 0 && e.SnapshotBegan.IsZero() {
			e.SnapshotBegan = d.SnapshotBegan
		}
		for j := range s.Hidden {
			h := &s.Hidden[j]
			e.Hidden = append(e.Hidden, HiddenSpan{
				From:     h.From,
				FromRev:  parseRev("fromResourceVersion", h.FromResourceVersion, problem),
				Until:    h.Until,
				UntilRev: parseRev("untilResourceVersion", h.UntilResourceVersion, problem),
			})
		}
		isNamed := e.Scope != ""
		if e.Resource == "" || isNamed && ParseScope(e.Scope).Resource != e.Resource || isNamed && s.Count > 1 {
			problem("progress of %d scopes %q of resource %q", s.Count, e.Scope, e.Resource)
		}
		for _, x := range e.Interruptions {
			if !slices.Contains(interruptionReasons, x.Why) {
				problem("interruption of %s%s with reason %q", e.Resource, e.Scope, x.Why)
			}
		}
		p.Entries = append(p.Entries, e)
	}
	return p
}

var interruptionReasons = []string{
	InterruptedStart, InterruptedClosed, InterruptedCut, InterruptedSilent,
	InterruptedBlocked, InterruptedListed, InterruptedStopped, InterruptedStepped,
}

// runOf returns the epoch of a run and when it began, in milliseconds since 1970.
func runOf(run string) (epoch, began uint64) {
	first, second, _ := strings.Cut(run, "-")
	epoch, _ = strconv.ParseUint(first, 10, 64) // Its form is checked.
	began, _ = strconv.ParseUint(second, 10, 64)
	return epoch, began
}
