package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// startTimeout is for how long a target may take nothing at the start. Later a replay waits for as
// long as it takes.
const startTimeout = 15 * time.Second

// Options say what is sent again.
type Options struct {
	Record    *record.Record
	Selection *record.Selection
	Match     func(*consume.Event) bool // which events of the selection are sent; nil: all
	// Whole reports whether the selection and Match take all events of a scope of a resource
	// ("deployments.apps"). scope is its name; "" stands for all scopes of the resource. nil: they
	// do.
	Whole    func(resource, scope string) bool
	From, To timeline.Moment
	Cluster  string  // the name of the cluster in the events; "": as it is
	Speed    float64 // of the record's time; 0: as fast as possible
	// Asked is the selection in the user's words. The ids of the snapshot follow from it and From.
	Asked []string
	// Copies returns how many partitions have a copy of an event about the stream, if the record
	// has several logs.
	Copies  func(logs []consume.Position, e *consume.Event) int
	Refused relay.Refused
	// Position is the file that the replay continues from and saves to; nil: none.
	Position *Position
	// Stderr shows the progress of Run; nil: it is not shown.
	Stderr *terminal.Output
}

// Replay sends a part of a record again.
type Replay struct {
	// Sync, if set, is called before a position is saved.
	Sync func() error
	// Split reports whether the target has logs that are for one namespace each. Such a target gets
	// no progress.
	Split bool

	o       Options
	id      string // in the ids of the snapshot
	state   *timeline.State
	reading record.Reading
	scopes  map[scopeKey]*scope
	logs    []consume.Position // where the record was read to, of each log
	again   consume.Query      // reads once more what Prepare has read, and on
	fold    *timeline.Fold
	// etcds says which resources are of another etcd, as far as was read.
	etcds *timeline.Etcds
	bad   map[consume.Position]consume.About // records that cannot be read, and may belong to the selection

	sent atomic.Int64
	at   atomic.Pointer[time.Time] // of the last event of the record that was sent; nil during the snapshot
	// delivered reports whether the target has taken anything.
	delivered atomic.Bool
}

// scopeKey names a scope.
type scopeKey struct {
	cluster consume.ClusterKey
	name    string
}

// scope is what the record says of a scope at From.
type scope struct {
	last     *consume.Event  // about the stream of the scope
	began    *consume.Stream // the last start of the scope or of a snapshot that names the agent; nil: none does
	underWay string          // id of the snapshot that has started and not completed; "": none
	version  string          // of that one, or of the last one
	floor    string          // of the last one that was completed; "": not to be named
	complete bool            // one was completed, and no gap follows it
}

// Prepare reads the state at From. It sends nothing.
func Prepare(ctx context.Context, o Options) (*Replay, error) {
	began := time.Now()
	q, etcds, err := o.Record.Query(ctx, o.Selection, o.From, o.To)
	if err != nil {
		return nil, err
	}
	judged := timeline.Options{Etcd: etcds.Etcd, Asked: o.Selection.Asks}
	r := &Replay{
		o:      o,
		id:     snapshotID(o.From, o.Asked),
		state:  timeline.NewState(o.From, judged),
		scopes: map[scopeKey]*scope{},
		fold:   timeline.NewFold(o.To, judged),
		bad:    map[consume.Position]consume.About{},
		etcds:  etcds,
	}
	r.reading.Began = began
	in, err := r.open(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // only read
	r.again = q
	first, later := map[consume.Log]bool{}, map[resourceKey]bool{} // later: has been read after From
	var from []consume.Position
	for {
		e, err := in.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if !first[e.Position.Log] {
			first[e.Position.Log] = true
			from = append(from, consume.Position{Log: e.Position.Log, Next: e.Position.Next - 1})
		}
		if o.From.Includes(e) {
			e = r.note(ctx, in, e, later[resourceOf(e)])
		} else if e.Data != nil {
			later[resourceOf(e)] = true
		}
		r.state.Add(e)
		if !o.Record.HasSeveralLogs() && r.state.Done() {
			break
		}
	}
	r.logs = in.Positions()
	r.leaveGapsOpen()
	if len(from) > 0 {
		r.again.Start = consume.After(from...) // records that are removed meanwhile are missed then
	}
	return r, nil
}

// leaveGapsOpen notes the scopes that are inside a gap at From. Their objects may be wrong there,
// and the gap is not sent. So their snapshot is not complete: a reader of the replay knows such a
// scope from its next snapshot on.
func (r *Replay) leaveGapsOpen() {
	for _, s := range r.state.Scopes() {
		isInGap := s.Find(certainty.Gap) != nil || s.Find(certainty.RecoveredGap) != nil ||
			s.Find(certainty.DeadLetter) != nil
		if known := r.scopes[scopeKey{s.ClusterKey(), s.Name}]; known != nil && isInGap {
			known.complete = false
		}
	}
}

// note notes an event at or before From, and returns the whole event. later reports whether the
// record has events of its resource before it that are later than From.
func (r *Replay) note(ctx context.Context, in *input, e *consume.Event, later bool) *consume.Event {
	if e.Time.After(r.reading.Latest) {
		r.reading.Latest = e.Time
	}
	if e.Data != nil && e.DataRef != "" && slices.Contains(e.Data.Truncated, "after") {
		whole, err := in.Whole(ctx, e)
		if err != nil {
			r.reading.Incomplete = append(r.reading.Incomplete, record.Incomplete{
				Name: certainty.ObjectName(e.GroupResource(), e.Namespace, e.Name),
				Err:  err,
			})
			return e
		}
		whole.Position = e.Position
		return whole
	}
	if e.Stream == nil {
		return e
	}
	key := scopeKey{e.ClusterKey(), e.Scope}
	s := r.scopes[key]
	if s == nil {
		s = &scope{}
		r.scopes[key] = s
	}
	s.last = e
	if e.Stream.Writer != "" && e.Type != consume.TypeScopeEnded {
		s.began = e.Stream
	}
	switch e.Type {
	case consume.TypeSnapshotStarted:
		s.underWay, s.version = e.Stream.Snapshot, e.Stream.ResourceVersion
	case consume.TypeSnapshotCompleted:
		if s.underWay == e.Stream.Snapshot {
			s.underWay = ""
			s.floor = s.version
			s.complete = true
			if later { // consumers would take these events for late ones if they are not above it
				s.floor = ""
			}
		}
	case consume.TypeGap, consume.TypeScopeStarted, consume.TypeScopeEnded, consume.TypeProgress:
	}
	return e
}

// Start says how certain the state at From is, and what the record did not give.
func (r *Replay) Start() ([]certainty.Scope, *record.Reading) {
	r.reading.Unreadable, r.reading.Only = r.unreadable(), r.o.Record.Lacks(r.o.Selection)
	return r.state.Scopes(), &r.reading
}

// End says how certain the state is that a consumer has at the end, and what the record did not
// give, after Run.
func (r *Replay) End() ([]certainty.Scope, *record.Reading) {
	return r.fold.Scopes(), &record.Reading{
		Began:      r.reading.Began,
		Only:       r.o.Record.Lacks(r.o.Selection),
		Unreadable: r.unreadable(),
		Latest:     r.reading.Latest,
	}
}

func (r *Replay) unreadable() record.Unreadable {
	var all record.Unreadable
	for _, about := range r.bad {
		all.Add(about, 1)
	}
	return all
}

// Logs returns the logs of the record.
func (r *Replay) Logs() []consume.Log {
	var out []consume.Log
	for _, p := range r.logs {
		out = append(out, p.Log)
	}
	return out
}

func (r *Replay) matches(e *consume.Event) bool { return r.o.Match == nil || r.o.Match(e) }

// Clusters returns the names of the clusters in the state at From.
func (r *Replay) Clusters() map[consume.ClusterKey]string {
	names := map[consume.ClusterKey]string{}
	for key, s := range r.scopes {
		names[key.cluster] = s.last.Cluster
	}
	for _, v := range r.state.Objects() {
		names[v.ClusterKey()] = v.Cluster
	}
	return names
}

// Sent returns how many events have been sent.
func (r *Replay) Sent() int { return int(r.sent.Load()) }

// Run sends the snapshot and the events to a target, until all are delivered or ctx ends. It is
// called once.
func (r *Replay) Run(ctx context.Context, to relay.Target, log *slog.Logger) error {
	s := r.newSubscription()
	rel := relay.New(
		relay.Options{
			Name:         "replay",
			Subscription: s,
			Target:       to,
			Refused:      r.o.Refused,
			Whole:        r.o.Whole,
			ProgressWait: -1,
		},
		log, nil)
	g, running := errgroup.WithContext(ctx)
	waiting, delivered := context.WithCancel(running)
	g.Go(func() error {
		defer delivered()
		if err := rel.Run(running); err != nil {
			return errors.Unwrap(err) // without the relay's name
		}
		return context.Cause(running)
	})
	g.Go(func() error { return r.await(waiting, to) })
	g.Go(func() error {
		r.showProgress(waiting)
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return r.o.Position.finish()
}

// errSilent says that a target is connected and acknowledges nothing.
var errSilent = errors.New("it acknowledges no events: see the messages above")

// await returns an error if the target takes nothing for too long at the start.
func (r *Replay) await(ctx context.Context, to relay.Target) error {
	tick := time.NewTicker(startTimeout / 30)
	defer tick.Stop()
	for waited := 0; waited < 30; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if r.delivered.Load() {
			return nil
		}
		if to.Ready() != nil || r.sent.Load() > 0 {
			waited++
		}
	}
	return fmt.Errorf("the target has accepted nothing for %s: %w", startTimeout, cmp.Or(to.Ready(), errSilent))
}
