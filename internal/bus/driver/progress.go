package driver

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// LastProgresser is a Bus that can return the last progress of a writer, of the last run that it
// has. LastProgress waits until Run has connected. false: there is none, or it cannot be found in a
// bounded part of the log. Its errors are the cause of ctx and publish.ErrClosed.
type LastProgresser interface {
	LastProgress(ctx context.Context, writer string) (publish.ProgressEvent, bool, error)
}

// Limiter is a Bus that knows how large an event may be. MaxEventBytes returns the greatest
// encode.Event.Size that it accepts now; 0: not known.
type Limiter interface{ MaxEventBytes() int }

// ProgressSpan is the time before the last progress event of a run in which all others were sent
// that a writer has split its progress over. It sends its progress each minute.
const ProgressSpan = 3 * time.Minute

// LastProgress returns what the last run among events of a writer says. The events may be in any
// order, and may be others. It reports false if none is the writer's.
//
// The newest event of the run about a scope counts, and none that is older than the last by more
// than ProgressSpan. An entry for all scopes of a resource stands for those that its own event does
// not name. So it replaces all older entries of the resource, and a newer entry of the resource
// replaces it.
func LastProgress(writer string, events []*consume.Event) (publish.ProgressEvent, bool) {
	own := slices.DeleteFunc(slices.Clone(events), func(e *consume.Event) bool {
		return e.Progress == nil || e.Progress.Writer != writer
	})
	if len(own) == 0 {
		return publish.ProgressEvent{}, false
	}
	slices.SortStableFunc(own, func(a, b *consume.Event) int { // the newest first
		p, q := b.Progress, a.Progress
		return cmp.Or(consume.CompareRuns(p.Run, q.Run), cmp.Compare(p.Run, q.Run), cmp.Compare(p.Number, q.Number))
	})
	last := own[0]
	m := merge{ProgressEvent: publish.ProgressEvent{
		Writer: writer,
		Run:    last.Progress.Run,
		Time:   last.Time,
	}, resources: map[string]*merged{}}
	for i := 0; i < len(own); {
		e := own[i]
		if e.Progress.Run != m.Run || e.Time.Before(last.Time.Add(-ProgressSpan)) {
			break
		}
		same := i // copies of one event, each with the scopes of its log
		for i < len(own) && own[i].Progress.Run == m.Run && own[i].Progress.Number == e.Progress.Number {
			i++
		}
		m.add(own[same:i])
	}
	return m.ProgressEvent, true
}

// merge collects the entries of the events of a run, from the newest event to the oldest.
type merge struct {
	publish.ProgressEvent
	resources map[string]*merged
}

// merged is what newer events say about a resource.
type merged struct {
	all   bool            // it has an entry for all scopes that have none
	named map[string]bool // scopes with an entry
}

// add adds the entries of the copies of one event.
func (m *merge) add(copies []*consume.Event) {
	own := map[string]*merged{} // of this event
	for _, e := range copies {
		m.Ends = m.Ends || e.Progress.Ends
		for i := range e.Progress.Scopes {
			s := &e.Progress.Scopes[i]
			newer, here := m.resources[s.Resource], own[s.Resource]
			if here == nil {
				here = &merged{named: map[string]bool{}}
				own[s.Resource] = here
			}
			if here.named[s.Scope] || newer != nil && (newer.all || s.Scope == "" || newer.named[s.Scope]) {
				continue
			}
			here.all, here.named[s.Scope] = here.all || s.Scope == "", true
			m.Scopes = append(m.Scopes, publish.ScopeProgress{
				Resource:        s.Resource,
				Scope:           s.Scope,
				Count:           max(s.Count, 1),
				ResourceVersion: number(s.ResourceVersion),
				History:         s.History,
				To:              s.To,
				At:              e.Time,
			})
		}
	}
	for resource, o := range own {
		newer := m.resources[resource]
		if newer == nil {
			m.resources[resource] = o
			continue
		}
		newer.all = newer.all || o.all
		for scope := range o.named {
			newer.named[scope] = true
		}
	}
}

// number returns the value of digits; 0 if they are none.
func number(digits string) uint64 {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
