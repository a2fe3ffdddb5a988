package console

import (
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// KubernetesEvent is what a line says of an Event of Kubernetes: something happened to an object.
type KubernetesEvent struct {
	Time            time.Time // at which it was observed
	Resource        string    // of the object, "pods" or "widgets.example.com"
	Namespace, Name string    // of the object
	UID             string    // of the object
	ResourceVersion string    // of the Event
	Event           string    // the name of the Event
	Cluster         string    // what the line says of the cluster; "": nothing
	Type            string    // "Normal" or "Warning"
	Reason, Message string
	By              string // the component that reports it
	Count           int    // how often it happened so far
	// First and Last are the times of the Event itself. Late reports that Last is not the time at
	// which it was observed.
	First, Last time.Time
	Late        bool
	Skipped     int // versions that filters withheld before it
}

// PrintKubernetesEvent prints one Event.
func (p *Printer) PrintKubernetesEvent(e *KubernetesEvent) error {
	p.buf = p.buf[:0]
	p.putCountedReads()
	style := terminal.Plain
	if e.Type == "Warning" {
		style = terminal.Yellow
	}
	p.beginLine(e.Time, "", "Event", style)
	resource, name := e.Resource, e.Name
	plain, group, _ := strings.Cut(resource, ".")
	if builtin(group) && !p.opts.Wide {
		resource = plain
	}
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	p.putCell(style, clean(resource), &p.resources, 5)
	p.putCell(style, clean(name), &p.names, 4)
	if p.opts.Wide {
		p.putColumn(terminal.Dim, "rv="+orDash(e.ResourceVersion), 12)
		p.putColumn(terminal.Dim, "cluster="+orDash(e.Cluster), 8)
		p.putColumn(terminal.Dim, "uid="+orDash(e.UID), 40)
	} else if e.Cluster != "" {
		p.putColumn(terminal.Dim, "cluster="+clean(e.Cluster), 8)
	}
	text := clean(strings.TrimSpace(e.Type + " " + e.Reason))
	below := p.opts.View == Diff
	if !below && e.Message != "" {
		text += ": " + clean(strings.TrimSpace(e.Message))
	}
	who := ""
	if e.By != "" {
		who = "by " + clean(e.By)
	}
	p.endWithAuthors([]byte(text+p.eventRemarks(e)), who)
	if below {
		p.putMessage(e.Message)
	}
	return p.write()
}

// eventRemarks returns the text after the reason: how often, when, and the parts that are missing.
func (p *Printer) eventRemarks(e *KubernetesEvent) string {
	var parts []string
	clock := func(t time.Time) string {
		t = t.In(p.opts.Location)
		if sameDay(t, e.Time.In(p.opts.Location)) {
			return t.Format(time.TimeOnly)
		}
		return t.Format(time.DateTime)
	}
	if e.Count > 1 {
		text := string(appendCount(nil, e.Count)) + " times"
		if !e.First.IsZero() && e.First.Before(e.Last) {
			text += " since " + clock(e.First)
		}
		parts = append(parts, text)
	}
	switch {
	case !e.Late || e.Last.IsZero():
	case e.Count > 1:
		parts = append(parts, "last at "+clock(e.Last))
	default:
		parts = append(parts, "at "+clock(e.Last))
	}
	if e.Skipped > 0 {
		parts = append(parts, strconv.Itoa(e.Skipped)+" withheld before")
	}
	if p.opts.Wide {
		parts = append(parts, "event "+clean(e.Event))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// putMessage appends a message below the line of its Event, whole: lines that are too long for the
// terminal are continued.
func (p *Printer) putMessage(text string) {
	const indent = 4
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		rest := clean(strings.TrimRight(line, "\r"))
		for rest != "" {
			part := rest
			if room := p.width - indent; p.width > 0 && width(part) > max(room, leastShown) {
				part = wrapped(part, max(room, leastShown))
			}
			rest = strings.TrimLeft(rest[len(part):], " ")
			p.putSpace(indent)
			p.put(terminal.Plain, part)
			p.endLine()
		}
	}
}

// wrapped returns the beginning of a text that fits into columns, to the end of a word if possible.
func wrapped(text string, columns int) string {
	fits := strings.TrimSuffix(cut(text, columns), ellipsis)
	if len(fits) == 0 { // a character that is wider
		return text
	}
	if at := strings.LastIndexByte(fits, ' '); at > 0 {
		return fits[:at]
	}
	return fits
}
