package record_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// storedRecord is a JetStream in memory: its events have times of storage, and a query can leave
// out progress.
type storedRecord struct {
	events []*consume.Event
	stored []time.Time
	spares bool                    // leaves out what a query does not ask for
	lost   map[*consume.Event]bool // cannot be read
	read   int                     // progress events
}

func (s *storedRecord) add(stored time.Time, e consume.Event) {
	e.Source, e.Cluster = "/kubernetes/x", "x"
	e.ID = fmt.Sprint(len(s.events))
	e.Position = consume.Position{Next: uint64(len(s.events) + 2)}
	s.events, s.stored = append(s.events, &e), append(s.stored, stored)
}

func (s *storedRecord) Traits() consume.Traits { return seeks }

func (s *storedRecord) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	return &storedReader{s: s, q: q}, nil
}

type storedReader struct {
	s  *storedRecord
	q  consume.Query
	at int
}

func (r *storedReader) Next(context.Context) (*consume.Event, error) {
	for ; r.at < len(r.s.events); r.at++ {
		e := r.s.events[r.at]
		isProgress := e.Progress != nil
		switch {
		case r.q.Events == consume.ProgressEvents && !isProgress:
		case r.q.Events == consume.StreamEvents && !isProgress && e.Stream == nil:
		case r.q.LastOfEach && r.isFollowed():
		case isProgress && r.s.spares && r.s.stored[r.at].Before(r.q.ProgressSince):
		default:
			r.at++
			if isProgress {
				r.s.read++
			}
			if r.s.lost[e] {
				return nil, &consume.RecordError{Position: e.Position, About: consume.About{
					Cluster:  "x",
					Progress: isProgress,
				}}
			}
			read := *e // each read makes its own event
			return &read, nil
		}
	}
	return nil, io.EOF
}

// isFollowed reports whether the writer has a later progress.
func (r *storedReader) isFollowed() bool {
	e := r.s.events[r.at]
	return e.Progress != nil && slices.ContainsFunc(r.s.events[r.at+1:], func(o *consume.Event) bool {
		return o.Progress != nil && o.Progress.Writer == e.Progress.Writer
	})
}

func (r *storedReader) Positions() []consume.Position { return nil }
func (r *storedReader) CaughtUp() bool                { return r.at == len(r.s.events) }
func (r *storedReader) Close() error                  { return nil }

func (r *storedReader) Whole(_ context.Context, e *consume.Event) (*consume.Event, error) {
	return e, nil
}

// writerOfDay is an agent of one resource, over some hours.
type writerOfDay struct {
	name, resource string
	skew           time.Duration // of its clock to that of the bus
	run            string
	number         int
	away           []consume.Interruption // of the last ten minutes
	hidden         []consume.HiddenSpan   // not over, or of the last ten minutes
	last           time.Time              // to of the last progress
	works, started bool
}

func (w *writerOfDay) event(at time.Time) consume.Event {
	return consume.Event{Time: at, APIVersion: "v1", Kind: "K", Resource: w.resource, Scope: w.resource}
}

// minute lets the agent live for a minute, and adds what it sends. stored is when the bus stores
// it.
func (w *writerOfDay) minute(t *rapid.T, s *storedRecord, now, stored time.Time) {
	at := now.Add(w.skew)
	switch fate := rapid.IntRange(0, 60).Draw(t, "fate"); {
	case w.works && fate == 0: // killed
		w.works = false
		return
	case !w.works && fate > 8:
		return
	case !w.works:
		w.start(s, at, stored)
	case fate == 1: // a silent watch
		w.away = append(w.away, consume.Interruption{
			From:  at.Add(-50 * time.Second),
			Until: at.Add(-5 * time.Second),
			Why:   consume.InterruptedCut,
		})
	}
	w.hide(t, at)
	w.report(s, at.Add(30*time.Second), stored, w.number > 0 && rapid.IntRange(0, 200).Draw(t, "ends") == 0)
}

// hide begins and ends spans in which filters hide a version.
func (w *writerOfDay) hide(t *rapid.T, at time.Time) {
	n := len(w.hidden)
	isOpen := n > 0 && w.hidden[n-1].Until.IsZero()
	switch {
	case isOpen && rapid.IntRange(0, 15).Draw(t, "shown") == 0:
		w.hidden[n-1].Until, w.hidden[n-1].UntilResourceVersion = at.Add(time.Second), "10"
	case !isOpen && rapid.IntRange(0, 30).Draw(t, "hidden") == 0:
		w.hidden = append(w.hidden, consume.HiddenSpan{From: at.Add(time.Second), FromResourceVersion: "10"})
	}
}

// start begins a run.
func (w *writerOfDay) start(s *storedRecord, at, stored time.Time) {
	w.works = true
	w.number = 0
	w.run = fmt.Sprintf("0-%d", at.UnixMilli())
	e := w.event(at)
	e.Type, e.ResourceVersion = consume.TypeScopeStarted, "10"
	e.Stream = &consume.Stream{
		ResourceVersion: "10",
		Writer:          w.name,
		Run:             w.run,
		Initial:         !w.started,
		Continued:       w.started,
	}
	s.add(stored, e)
	if !w.started {
		for _, typ := range []consume.EventType{consume.TypeSnapshotStarted, consume.TypeSnapshotCompleted} {
			e.Type = typ
			e.Stream = &consume.Stream{
				ResourceVersion: "10",
				Snapshot:        "s" + w.name,
				Writer:          w.name,
				Run:             w.run,
				Initial:         true,
			}
			s.add(stored, e)
		}
	}
	from := at
	if w.started {
		from = w.last
	}
	w.started = true
	w.away = append(w.away, consume.Interruption{From: from, Until: at.Add(time.Second), Why: consume.InterruptedStart})
}

// report sends the progress of the run.
func (w *writerOfDay) report(s *storedRecord, at, stored time.Time, ends bool) {
	w.away = slices.DeleteFunc(w.away, func(i consume.Interruption) bool {
		return i.Until.Before(at.Add(-10 * time.Minute))
	})
	w.hidden = slices.DeleteFunc(w.hidden, func(h consume.HiddenSpan) bool {
		return !h.Until.IsZero() && h.Until.Before(at.Add(-10*time.Minute))
	})
	w.number++
	w.last = at.Add(-time.Second)
	p := &consume.Progress{Writer: w.name, Run: w.run, Number: w.number, Since: at.Add(-10 * time.Minute)}
	if began := consume.RunBegan(w.run); began.After(p.Since) {
		p.Since = began
	}
	p.Scopes = []consume.ScopeProgress{{
		Resource:        w.resource,
		ResourceVersion: "10",
		To:              w.last,
		Interruptions:   slices.Clone(w.away),
		Hidden:          slices.Clone(w.hidden),
	}}
	if ends {
		p.Ends, w.works = true, false
	}
	s.add(stored, consume.Event{Type: consume.TypeProgress, Time: at, Progress: p})
}

// drawDay draws the record of some agents. They are killed and start again, their clocks differ
// from that of the bus, and the bus is away.
func drawDay(t *rapid.T) (s *storedRecord, begin time.Time, minutes int) {
	begin = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	s = &storedRecord{}
	var all []*writerOfDay
	for n, resource := range []string{"pods", "nodes", "services"} {
		skew := time.Duration(rapid.SampledFrom([]int{0, 0, 1, -1, -40, 40, 200}).Draw(t, "skew")) * time.Minute
		all = append(all, &writerOfDay{name: fmt.Sprint("w", n), resource: resource, skew: skew})
	}
	minutes = rapid.IntRange(10, 600).Draw(t, "minutes")
	back := begin // when the bus is back
	for m := range minutes {
		now := begin.Add(time.Duration(m) * time.Minute)
		if now.After(back) && rapid.IntRange(0, 100).Draw(t, "bus") == 0 {
			back = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "away")) * time.Minute)
		}
		stored := now
		if back.After(now) {
			stored = back
		}
		for _, w := range all {
			w.minute(t, s, now, stored)
		}
	}
	return s, begin, minutes
}

func ignore(*timeline.Version, *consume.Event) error { return nil }

// An answer from the progress around a moment is as certain as one from all of it. Agents are
// killed and start again, their clocks differ from that of the bus, and the bus is away.
func TestProgressAroundAMomentIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, begin, minutes := drawDay(t)
		end := begin.Add(time.Duration(minutes) * time.Minute)
		moment := timeline.At(
			begin.Add(time.Duration(rapid.IntRange(-60, minutes*60+4*3600).Draw(t, "second")) * time.Second))
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			moment = timeline.Moment{}
		case 1:
			moment = timeline.Now(end)
		}
		type question func(r *record.Record) ([]certainty.Scope, error)
		state := func(r *record.Record) ([]certainty.Scope, error) {
			states, _, err := r.States(t.Context(), &record.Selection{}, moment)
			if err != nil {
				return nil, err
			}
			return states[0].Scopes(), nil
		}
		versions := func(r *record.Record) ([]certainty.Scope, error) {
			scopes, _, err := r.Versions(t.Context(), &record.Selection{}, nil, moment, ignore)
			return scopes, err
		}
		ask := func(q question, spares bool) map[string]certainty.Scope {
			s.spares, s.read = spares, 0
			scopes, err := q(&record.Record{Source: s})
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]certainty.Scope{}
			for _, scope := range scopes {
				out[scope.Name] = scope
			}
			return out
		}
		for _, q := range []question{state, versions} {
			want, got := ask(q, false), ask(q, true)
			for name := range want {
				if got[name].Certainty != want[name].Certainty {
					t.Fatalf("%s at %s: %v, and from all progress %v\n%+v\n%+v", name, moment,
						got[name].Certainty, want[name].Certainty, got[name], want[name])
				}
			}
			for name, scope := range got { // it may read a little further, and find scopes that start after the moment
				if _, isWanted := want[name]; !isWanted && scope.Certainty != certainty.Unknown {
					t.Fatalf("%s at %s: %v, and all progress does not show it", name, moment, scope.Certainty)
				}
			}
		}
	})
}

// A progress that cannot be read is missing. An answer without it is never more certain, so it need
// not be said.
func TestMissingProgressMakesNoAnswerMoreCertain(t *testing.T) {
	lowered := 0
	rapid.Check(t, func(t *rapid.T) {
		s, begin, minutes := drawDay(t)
		s.spares = rapid.Bool().Draw(t, "spares")
		moment := timeline.At(
			begin.Add(time.Duration(rapid.IntRange(0, minutes*60+600).Draw(t, "second")) * time.Second))
		ask := func() []certainty.Scope {
			r := &record.Record{Source: s}
			states, reading, err := r.States(t.Context(), &record.Selection{}, moment)
			if err != nil {
				t.Fatal(err)
			}
			if n := reading.Unreadable.Total(); n > 0 {
				t.Fatalf("%d records are counted", n)
			}
			return states[0].Scopes()
		}
		want := map[string]certainty.Level{}
		for _, scope := range ask() {
			want[scope.Name] = scope.Certainty
		}
		s.lost = map[*consume.Event]bool{}
		often := rapid.IntRange(1, 10).Draw(t, "often")
		for _, e := range s.events {
			if e.Progress != nil && rapid.IntRange(0, often).Draw(t, "lost") == 0 {
				s.lost[e] = true
			}
		}
		for _, scope := range ask() {
			if was, isKnown := want[scope.Name]; isKnown && scope.Certainty < was {
				t.Fatalf("%s at %s: %v, and %v if all progress can be read", scope.Name, moment, scope.Certainty, was)
			} else if scope.Certainty > was {
				lowered++
			}
		}
	})
	if lowered == 0 {
		t.Error("no answer was less certain")
	}
}

// A day of a calm cluster: only the progress around the moment is read.
func TestEarlierProgressIsNotRead(t *testing.T) {
	begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	s := &storedRecord{spares: true}
	w, gone := &writerOfDay{name: "w", resource: "pods"}, &writerOfDay{name: "gone", resource: "pods"}
	other := &writerOfDay{name: "other", resource: "nodes"}
	for _, w := range []*writerOfDay{w, gone, other} {
		w.start(s, begin, begin)
	}
	for m := range 1440 {
		at := begin.Add(time.Duration(m)*time.Minute + 30*time.Second)
		w.report(s, at, at, false)
		other.report(s, at, at, false)
		if m < 60 {
			gone.report(s, at, at, false)
		}
	}
	pods := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}
	moment := timeline.At(begin.Add(20 * time.Hour))
	for _, asked := range []*record.Selection{{}, pods} {
		r := &record.Record{Source: s}
		judge := func(what string, scopes []certainty.Scope, err error) {
			if err != nil {
				t.Fatal(err)
			}
			if worst := certainty.Worst(scopes); worst != certainty.Exact {
				t.Errorf("the %s is %v", what, worst)
			}
			if s.read > 100 {
				t.Errorf("the %s reads %d progress events", what, s.read)
			}
			s.read = 0
		}
		states, _, err := r.States(t.Context(), asked, moment)
		judge("state", states[0].Scopes(), err)
		scopes, _, err := r.Versions(t.Context(), asked, nil, moment, ignore)
		judge("history", scopes, err)
	}
}
