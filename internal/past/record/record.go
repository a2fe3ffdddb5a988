package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// MaxOutage is how long a bus may be unreachable while an answer is read.
const MaxOutage = 30 * time.Second

// Record is a bus or a file that holds the past.
type Record struct {
	Source consume.Source
	// Cluster is the name of the only cluster that is asked for, as in consume.Query.
	Cluster string

	// Reads reports whether the source may have some of the events of objects, and whether it has
	// all of them, as driver.Confined. nil: it has all. Only says in words what it has. Both may be
	// known only after the first read.
	Reads func(objects []consume.Objects, events consume.Events, cluster string) (some, all bool)
	Only  func() string

	// Since is the moment before which Versions may omit versions and gaps; zero: it omits none. A
	// source that cannot send the events of one object alone is read from MaxLag before Since.
	// There, copies and snapshots of an earlier version count as versions.
	Since time.Time

	// OnLate takes the late spans that Versions finds, once they are known: those of several scopes
	// together. nil: they are not asked for. Reading.LateUnknown says if it has not looked for
	// them.
	OnLate func([]timeline.Late) error

	// OnRetry and OnResume are as in consume.Query. Either may be nil.
	OnRetry  func(error)
	OnResume func()

	events atomic.Int64
	before time.Duration // instead of readBefore, in tests
}

// HasSeveralLogs reports whether the record is in several logs. Each is read until it has passed a
// moment: it says nothing about the others.
func (r *Record) HasSeveralLogs() bool { return !r.Source.Traits().OneLog }

// Seeks reports whether the source can send stream events alone. If not, and the record is one log,
// a state is read from its beginning.
func (r *Record) Seeks() bool { return r.Source.Traits().Seeks && !r.HasSeveralLogs() }

// Events returns the number of events that have been read so far. It is safe for concurrent use.
func (r *Record) Events() int64 { return r.events.Load() }

// Reading reports the data that a record did not provide.
type Reading struct {
	Began time.Time // when the reading began, by the clock of the reader
	// what the source has, if it does not have all objects of the selection; "": it has all
	Only       string
	Unreadable Unreadable        // records that may be about objects of the selection
	Latest     time.Time         // time of the latest event at or before the first moment of States
	Incomplete []Incomplete      // objects whose event lacks a part that could not be fetched
	Begin      []certainty.Scope // of Versions: the certainty of each scope at the beginning of the span

	// LateUnknown: Versions has not looked for late spans, to read less.
	LateUnknown bool

	logs []consume.Log // that were read
}

// Incomplete is an object whose event lacks a part.
type Incomplete struct {
	Name string // as of certainty.ObjectName
	Err  error  // of fetching the part
}

// Lacks says in words what the source has, if it does not have all objects of a selection. "": it
// has all.
func (r *Record) Lacks(s *Selection) string {
	if r.Reads != nil {
		if _, all := r.Reads(s.objects(), consume.AllEvents, s.Cluster); !all {
			return r.Only()
		}
	}
	return ""
}

// States returns the states of moments, in the same order, for the objects of a selection. It
// ignores labels: the caller applies Selector.
func (r *Record) States(
	ctx context.Context, s *Selection, moments ...timeline.Moment,
) (timeline.States, *Reading, error) {
	if r.HasSeveralLogs() {
		return r.readStatesInLogs(ctx, s, moments)
	}
	began := time.Now()
	etcds, err := r.readEtcds(ctx, s, moments...)
	if err != nil {
		return nil, nil, err
	}
	var states timeline.States
	for _, m := range moments {
		states = append(states, timeline.NewState(m, timeline.Options{Etcd: etcds.Etcd, Asked: s.Asks}))
	}
	start, w, err := r.findStart(ctx, s, moments, etcds)
	if err != nil {
		return nil, nil, err
	}
	var latest time.Time
	complete, noting := false, !r.Seeks() && asksEtcds(s, moments)
	reading, err := r.read(ctx, consume.Query{Objects: s.objects(), Start: start}, w, r.takenWithEtcds(etcds, s),
		func(e *consume.Event) (bool, error) {
			if complete {
				return false, nil // only noted
			}
			if moments[0].Includes(e) && e.Time.After(latest) {
				latest = e.Time
			}
			states.Add(e)
			complete = states.Done()
			return complete && !noting, nil
		})
	if err != nil {
		return nil, nil, err
	}
	reading.keepIncomplete(states, nil)
	reading.Began = began
	reading.Latest = latest
	reading.Only = r.Lacks(s)
	return states, reading, nil
}

// keepIncomplete keeps the objects that lack a part in one of the states, and those of other
// versions that are shown. Others had another version at these moments, or were read after them.
func (r *Reading) keepIncomplete(states timeline.States, shown map[string]bool) {
	lacks := map[string]bool{}
	maps.Copy(lacks, shown)
	for _, s := range states {
		for _, v := range s.Objects() {
			if v.After == nil {
				lacks[certainty.ObjectName(v.Resource, v.Namespace, v.Name)] = true
			}
		}
	}
	r.Incomplete = slices.DeleteFunc(r.Incomplete, func(i Incomplete) bool { return !lacks[i.Name] })
}

// Versions calls f for each version of the objects of a selection up to a moment, with the event
// that shows it, in the order in which they are read. It also calls f for each gap of their scopes,
// with a nil version. It returns the certainty of each scope at the moment, and in the Reading that
// at since, unless since is nil.
func (r *Record) Versions(
	ctx context.Context, s *Selection, since *timeline.Moment, to timeline.Moment, f func(
		*timeline.Version, *consume.Event,
	) error,
) ([]certainty.Scope, *Reading, error) {
	began := time.Now()
	moments := []timeline.Moment{to}
	if since != nil {
		moments = append(moments, *since)
	}
	etcds, err := r.readEtcds(ctx, s, moments...)
	if err != nil {
		return nil, nil, err
	}
	var start consume.Start
	var w *window
	joined := r.HasSeveralLogs() && !r.Since.IsZero()
	switch {
	case joined:
		start = consume.Since(r.Since.Add(-timeline.MaxLag))
	case since != nil:
		start, w, err = r.findStart(ctx, s, []timeline.Moment{*since}, etcds)
	default:
		start, w, err = r.findStartOfOne(ctx, s, to, etcds)
	}
	if err != nil {
		return nil, nil, err
	}
	late := lateSpans{Record: r, since: since, isUnknown: since == nil && w != nil && !w.since.IsZero()}
	var folds []*timeline.Fold
	for k, m := range moments {
		o := timeline.Options{
			Etcd:   etcds.Etcd,
			Asked:  s.Asks,
			Joined: joined,
			Late:   r.OnLate != nil && !late.isUnknown && k == 0,
		}
		folds = append(folds, timeline.NewFold(m, o))
	}
	late.fold = folds[0]
	var gaps consume.Tracker
	takeGap := func(gap *consume.Event) error {
		if !gaps.Apply(gap).News {
			return nil
		}
		return f(nil, gap)
	}
	if since == nil && r.Seeks() {
		if err := r.eachEarlierGap(ctx, s, start, to, takeGap); err != nil {
			return nil, nil, err
		}
	}
	complete, noting := false, !r.Seeks() && asksEtcds(s, moments)
	reading, err := r.read(ctx, consume.Query{Objects: s.objects(), Start: start}, w, r.takenWithEtcds(etcds, s),
		func(e *consume.Event) (bool, error) {
			if complete {
				return false, nil // only noted
			}
			for _, begin := range folds[1:] {
				begin.Add(e)
			}
			versions := folds[0].Add(e)
			if err := late.takeEvent(e); err != nil {
				return true, err
			}
			if gap := folds[0].Gap(); gap != nil {
				if err := takeGap(gap); err != nil {
					return true, err
				}
			}
			for _, v := range versions {
				if err := f(v, e); err != nil {
					return true, err
				}
			}
			if r.HasSeveralLogs() {
				return e.Data == nil && !noting && areDoneIn(folds, e.Position.Log), nil
			}
			complete = !slices.ContainsFunc(folds, func(f *timeline.Fold) bool { return !f.Done() })
			return complete && !noting, nil
		})
	if err != nil {
		return nil, nil, err
	}
	for _, f := range folds {
		r.noteLogs(reading, f)
	}
	reading.Began = began
	reading.Only = r.Lacks(s)
	reading.LateUnknown = late.isUnknown
	if err := late.end(); err != nil {
		return nil, nil, err
	}
	for _, begin := range folds[1:] {
		reading.Begin = begin.Scopes()
	}
	return folds[0].Scopes(), reading, nil
}

// Has reports whether the record has events of the objects of a selection. If the source can seek,
// it reads no stream events.
func (r *Record) Has(ctx context.Context, s *Selection) (bool, error) {
	found := false
	q := consume.Query{Objects: s.objects(), Events: consume.ObjectEvents, Start: consume.Beginning()}
	_, err := r.read(ctx, q, nil, s.taken(), func(e *consume.Event) (bool, error) {
		found = found || e.Data != nil
		return found, nil
	})
	return found, err
}

// StreamEvents calls f for each event about scopes, and for the progress of agents, from the
// beginning of the record to its end.
func (r *Record) StreamEvents(ctx context.Context, f func(*consume.Event)) (*Reading, error) {
	q := consume.Query{Events: consume.StreamEvents, Start: consume.Beginning()}
	all := taken{func(*consume.Event) bool { return true }, func(consume.About) bool { return true }}
	return r.read(ctx, q, nil, all, func(e *consume.Event) (bool, error) {
		f(e)
		return false, nil
	})
}

// errEnough ends a read.
var errEnough = errors.New("enough")

// taken selects the events of a question.
type taken struct {
	event      func(*consume.Event) bool
	unreadable func(consume.About) bool // may a record be such an event that cannot be read?
}

func (s *Selection) taken() taken { return taken{s.Takes, s.MayTake} }

// read calls f for each event that takes accepts, until it returns true or an error, or the record
// ends. If the source has several logs, true ends the log of the event alone, and the events of all
// logs come by time. w, unless nil, is the progress that q asks for.
func (r *Record) read(
	ctx context.Context, q consume.Query, w *window, takes taken, f func(*consume.Event) (enough bool, err error),
) (*Reading, error) {
	var earlier []*consume.Event
	if w != nil {
		q.ProgressSince, earlier = w.since, w.earlier()
	}
	join := func(at consume.Position) (enough bool, err error) {
		var due []*consume.Event
		due, earlier = before(earlier, at)
		for _, e := range due {
			if !takes.event(e) {
				continue
			}
			enough, err = f(e)
			if enough || err != nil {
				return enough, err
			}
		}
		return false, nil
	}
	joined := func(e *consume.Event) (enough bool, err error) {
		enough, err = join(e.Position)
		if enough || err != nil {
			return enough, err
		}
		return f(e)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var away *time.Timer
	if r.HasSeveralLogs() && !r.Source.Traits().Merges {
		return nil,
			errors.New("the record is in several logs that the bus cannot merge by time: its past cannot be read")
	}
	q.Cluster = r.Cluster
	q.StopAtEnd = true
	q.ByTime = r.HasSeveralLogs()
	q.OnRetry = func(err error) {
		if away == nil {
			away = time.AfterFunc(MaxOutage, func() {
				cancel(
					fmt.Errorf(
						"the bus was unreachable for %s, so the answer is incomplete: repeat the command when the bus is back: %w",
						MaxOutage, err))
			})
			if r.OnRetry != nil {
				r.OnRetry(err)
			}
		}
	}
	q.OnResume = func() {
		if away != nil {
			away.Stop()
			away = nil
			if r.OnResume != nil {
				r.OnResume()
			}
		}
	}
	reader, err := r.Source.Read(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }() // only read
	defer func() {
		if away != nil {
			away.Stop()
		}
	}()
	reading := &Reading{}
	leaver, _ := reader.(consume.Leaver)
	for {
		at, err := r.next(ctx, reader, takes, reading, joined)
		switch {
		case errors.Is(err, io.EOF):
			for _, p := range reader.Positions() {
				reading.logs = append(reading.logs, p.Log)
			}
			_, err := join(consume.Position{})
			return reading, err
		case errors.Is(err, errEnough) && r.HasSeveralLogs():
			if leaver != nil {
				leaver.Leave(at)
			}
		case errors.Is(err, errEnough):
			return reading, nil
		case err != nil:
			return reading, err
		}
	}
}

// next reads an event, and calls f if takes accepts it. It returns the log of the event.
func (r *Record) next(
	ctx context.Context, reader consume.Reader, takes taken, reading *Reading, f func(*consume.Event) (bool, error),
) (consume.Log, error) {
	e, err := reader.Next(ctx)
	var unreadable *consume.RecordError
	var missed *consume.MissedError
	switch {
	case errors.As(err, &unreadable):
		if takes.unreadable(unreadable.About) {
			reading.Unreadable.Add(unreadable.About, 1)
		}
		return consume.Log{}, nil
	case errors.As(err, &missed):
		return consume.Log{}, fmt.Errorf("%w; the answer is incomplete: repeat the command", err)
	case err != nil:
		return consume.Log{}, err
	}
	r.events.Add(1)
	if !takes.event(e) {
		return e.Position.Log, nil
	}
	if e.DataRef != "" && e.Data != nil && slices.Contains(e.Data.Truncated, "after") {
		whole, err := reader.Whole(ctx, e)
		if err != nil {
			name := certainty.ObjectName(e.GroupResource(), e.Namespace, e.Name)
			reading.Incomplete = append(reading.Incomplete, Incomplete{name, err})
		} else {
			whole.Position = e.Position
			e = whole
		}
	}
	enough, err := f(e)
	if err == nil && enough {
		err = errEnough
	}
	return e.Position.Log, err
}
