package console

import (
	"cmp"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// putStream appends an event about the stream, or one of an unknown type.
func (p *Printer) putStream(e *consume.Event) {
	word, style := "event", terminal.Dim
	switch e.Type {
	case consume.TypeSnapshotStarted, consume.TypeSnapshotCompleted:
		word = "snapshot"
	case consume.TypeGap:
		word, style = "GAP", alarm
		if e.Stream != nil && e.Stream.Reason == consume.ReasonContentChanged {
			style = terminal.Yellow // nothing is missing
		}
	case consume.TypeProgress:
		word = "progress"
	case consume.TypeScopeStarted, consume.TypeScopeEnded:
		word = "scope"
	}
	p.beginLine(e.Time, "", word, style)
	p.putCell(style, clean(p.streamResource(e)), &p.resources, 5)
	if p.opts.Wide {
		p.putCell(style, clean(e.Type.Name()), &p.names, 4)
		p.putColumn(terminal.Dim, "cluster="+orDash(cmp.Or(p.cluster(e), e.Cluster)), 8)
		p.putColumn(terminal.Dim, "scope="+orDash(e.Scope), 8)
	} else if of := p.cluster(e); of != "" {
		p.putColumn(terminal.Dim, "cluster="+clean(of), 8)
	}
	if e.Progress != nil {
		p.put(style, clean(p.progressText(e.Progress, e.Time)))
		p.endLine()
		return
	}
	if e.Stream == nil {
		p.put(style, "of unknown type "+clean(string(e.Type)))
		p.endLine()
		return
	}
	p.putParts(style, p.streamText(e.Type, e.Stream), e.Type == consume.TypeGap)
	p.endLine()
}

// putParts appends the parts of a text. isWhole: it is not cut, but continues on the next line.
func (p *Printer) putParts(style terminal.Style, parts []string, isWhole bool) {
	for k, part := range parts {
		part = clean(part)
		if k > 0 {
			part = "; " + part
		}
		if isWhole && width(part) > p.room() {
			p.endLine()
			p.putSpace(len("15:04:05 "))
			part = strings.TrimPrefix(part, "; ")
		}
		p.put(style, part)
	}
}

// progressText returns the text of the progress that an agent sent at a time.
func (p *Printer) progressText(g *consume.Progress, at time.Time) string {
	scopes, unknown := 0, 0
	var to time.Time // the earliest
	for i := range g.Scopes {
		s := &g.Scopes[i]
		count := max(s.Count, 1)
		scopes += count
		switch {
		case s.To.IsZero():
			unknown += count
		case to.IsZero() || s.To.Before(to):
			to = s.To
		}
	}
	text := string(appendCount(nil, scopes)) + plural(scopes, " scope", " scopes")
	if !to.IsZero() {
		layout := time.TimeOnly
		if !sameDay(to.In(p.opts.Location), at.In(p.opts.Location)) {
			layout = time.DateTime
		}
		text += to.In(p.opts.Location).Format(" up to " + layout)
	}
	if unknown > 0 {
		text += "; of " + string(appendCount(nil, unknown)) + " nothing is known yet"
	}
	if g.Ends {
		text += "; the run ends"
	}
	return text
}

func sameDay(a, b time.Time) bool {
	return a.Format(time.DateOnly) == b.Format(time.DateOnly)
}

// streamResource returns the subject of an event about the stream: its scope if that is a part of
// the resource, else the resource. That of progress is the writer.
func (p *Printer) streamResource(e *consume.Event) string {
	if e.Progress != nil {
		return e.Progress.Writer
	}
	if e.Scope != "" && strings.ContainsAny(e.Scope, "/?") && !p.opts.Wide {
		return e.Scope
	}
	if e.Resource == "" {
		return e.Subject
	}
	return shownResource(e)
}

// streamText returns the text of an event about the stream, in parts that may be on separate lines.
func (p *Printer) streamText(kind consume.EventType, s *consume.Stream) []string {
	var parts []string
	objects := string(appendCount(nil, s.Objects)) + plural(s.Objects, " object", " objects")
	switch kind {
	case consume.TypeSnapshotStarted:
		parts = append(parts, "started: "+objects+version(" as of rv ", s.ResourceVersion))
	case consume.TypeSnapshotCompleted:
		parts = append(parts, "completed: "+objects+version(" as of rv ", s.ResourceVersion))
	case consume.TypeProgress:
		parts = append(parts, "complete"+version(" up to rv ", s.ResourceVersion))
	case consume.TypeScopeStarted:
		how := "started"
		switch {
		case s.Continued:
			how = "continued"
		case s.Initial:
			how = "started for the first time"
		}
		parts = append(parts, how+version(" from rv ", s.ResourceVersion))
	case consume.TypeScopeEnded:
		parts = append(parts, "ended"+version(" at rv ", s.ResourceVersion), endReason(s))
	case consume.TypeGap:
		parts = append(parts, gapReason(s))
		span := version("from rv ", s.FromResourceVersion) + version(" to rv ", s.ToResourceVersion)
		if s.FromResourceVersion != "" && s.FromResourceVersion == s.ToResourceVersion {
			span = version("at rv ", s.FromResourceVersion)
		}
		if !s.Since.IsZero() {
			span += s.Since.In(p.opts.Location).Format(" since " + time.DateTime)
		}
		if span != "" {
			parts = append(parts, strings.TrimPrefix(span, " "))
		}
		switch {
		case s.Reason == consume.ReasonContentChanged && s.Recovered:
			parts = append(parts, "nothing is missing")
		case s.Reason == consume.ReasonContentChanged:
			parts = append(parts, "no version is missing, and a snapshot has the new form")
		case s.Recovered:
			parts = append(parts, "all versions in between were found")
		default:
			parts = append(parts, "versions in between are missing")
		}
	}
	if p.opts.Wide && s.Snapshot != "" {
		parts = append(parts, "snapshot "+s.Snapshot)
	}
	return parts
}

// endReason returns why a scope ended.
func endReason(s *consume.Stream) string {
	switch s.End {
	case consume.EndDeselected:
		return "no rule selects it any more"
	case consume.EndReplaced:
		return "replaced by " + strings.Join(s.Successors, ", ")
	case consume.EndRemoved:
		return "its resource, namespace or node was removed"
	case consume.EndTakenOver:
		return "another agent observes it"
	case consume.EndForgotten:
		return "an operator has ended it"
	}
	return string(s.End)
}

// version returns rv after words, "" if rv is unknown.
func version(words, rv string) string {
	if rv == "" {
		return ""
	}
	return words + rv
}

// gapReason returns the reason of a gap with an explanation.
func gapReason(s *consume.Stream) string {
	switch s.Reason {
	case consume.ReasonExpired:
		return "expired: history too old to be read"
	case consume.ReasonCompacted:
		return "compacted: history too old to be read"
	case consume.ReasonRewound:
		return "rewound: etcd was restored to an older state"
	case consume.ReasonSelectionChanged:
		return "selection-changed: the agent captures other objects now"
	case consume.ReasonCheckpointLost:
		return "checkpoint-lost: the agent had lost its position"
	case consume.ReasonContentChanged:
		if !s.Recovered {
			return "content-changed: the API server serves known versions in another form"
		}
		return "content-changed: strip, redaction or its key was changed"
	case consume.ReasonForbidden:
		return "forbidden: the agent was not allowed to read"
	case consume.ReasonDeadLetter:
		return "dead-letter: events went to the dead letters"
	case "":
		return "history is missing"
	}
	return string(s.Reason)
}
