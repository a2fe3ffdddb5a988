package replay

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Logs of the events that the record does not have. No stream, topic or file has such a name.
const (
	snapshotLog = "*snapshot*"
	deletionLog = "*deletions*"
	progressLog = "*progress*"
)

// subscription hands the snapshot and the events of a replay to a relay. Its fields belong to the
// goroutine that calls Next.
type subscription struct {
	r      *Replay
	pace   pace
	resume map[consume.Log]uint64 // an earlier run has sent all below

	snapshot func() (*consume.Event, error, bool) // nil: over
	stop     func()                               // releases snapshot
	number   uint64                               // of the event of the snapshot

	in      *input
	ready   []*driver.Record // to be returned
	ended   bool             // there are no more
	deleted uint64           // deletions so far

	known    map[objectKey]bool   // objects that the target has, or had
	underWay map[scopeKey]string  // the snapshots whose start the target has
	once     map[eventKey]bool    // starts and gaps that are not to be sent, or not again
	later    map[resourceKey]bool // the record has events after To
	claims   *claims
	finished bool // the progress at the end is in ready
}

// resourceKey names a resource in a log.
type resourceKey struct {
	log      consume.Log
	cluster  consume.ClusterKey
	resource string
}

// objectKey identifies an object. Those of two resources, or of two clusters, may have the same
// UID.
type objectKey struct {
	cluster       consume.ClusterKey
	resource, uid string
}

func keyOf(o *consume.Object) objectKey {
	return objectKey{
		consume.ClusterKey{
			Source: strings.Clone(o.Source),
			UID:    strings.Clone(o.ClusterUID),
		}, strings.Clone(o.Resource), strings.Clone(o.UID),
	}
}

// eventKey identifies an event about the stream. Those of two clusters of one name may have the
// same id.
type eventKey struct {
	cluster consume.ClusterKey
	id      string
}

func resourceOf(e *consume.Event) resourceKey {
	return resourceKey{e.Position.Log, e.ClusterKey(), e.GroupResource()}
}

func (r *Replay) newSubscription() *subscription {
	s := &subscription{
		r: r,
		pace: pace{
			speed: r.o.Speed,
		},
		known:    map[objectKey]bool{},
		underWay: map[scopeKey]string{},
		once:     map[eventKey]bool{},
		later:    map[resourceKey]bool{},
		claims:   newClaims(r.o.To),
	}
	for _, v := range r.state.Objects() {
		s.known[keyOf(&v.Object)] = true
	}
	return s
}

// Open implements driver.Subscription.
func (s *subscription) Open(ctx context.Context) error {
	parts, events := s.r.parts()
	var err error
	s.resume, err = s.r.o.Position.begin(events)
	if err != nil {
		return err
	}
	s.snapshot, s.stop = iter.Pull2(s.r.snapshot(parts))
	s.in, err = s.r.open(ctx, s.r.again)
	return err
}

// Close implements driver.Subscription.
func (s *subscription) Close() error {
	if s.stop != nil {
		s.stop()
	}
	if s.in == nil {
		return nil
	}
	return s.in.Close()
}

// Ready implements driver.Subscription.
func (s *subscription) Ready() error { return nil }

// Behind implements driver.Subscription.
func (s *subscription) Behind(context.Context, []driver.Mark) (uint64, error) { return 0, nil }

// Save implements driver.Subscription.
func (s *subscription) Save(_ context.Context, marks []driver.Mark) error {
	if len(marks) == 0 {
		return nil
	}
	s.r.delivered.Store(true)
	if s.r.o.Position == nil {
		return nil
	}
	if s.r.Sync != nil {
		if err := s.r.Sync(); err != nil {
			return err
		}
	}
	return s.r.o.Position.save(marks)
}

// Next implements driver.Subscription. It returns io.EOF after the last event.
func (s *subscription) Next(ctx context.Context) (*driver.Record, error) {
	for len(s.ready) == 0 {
		if s.ended && s.finished {
			return nil, io.EOF
		}
		if s.ended {
			if err := s.finish(); err != nil {
				return nil, err
			}
			continue
		}
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
	}
	rec := s.ready[0]
	s.ready[0], s.ready = nil, s.ready[1:]
	if rec.Name != snapshotLog && rec.Name != progressLog {
		if err := s.pace.wait(ctx, rec.Event.Time); err != nil {
			return nil, err
		}
		s.r.at.Store(&rec.Event.Time)
	}
	s.r.sent.Add(1)
	return rec, nil
}

// fill adds what follows to ready, if anything does.
func (s *subscription) fill(ctx context.Context) error {
	if s.snapshot != nil {
		e, err, ok := s.snapshot()
		if !ok {
			s.snapshot = nil
			s.r.state = nil // it may be large
			return nil
		}
		s.number++
		log := consume.Log{Name: snapshotLog}
		if err != nil || s.number < s.resume[log] {
			return err
		}
		s.ready = append(s.ready, &driver.Record{
			Log:      log,
			Position: s.number,
			Event:    e,
			Copies:   1,
		})
		return nil
	}
	e, err := s.in.next(ctx)
	if errors.Is(err, io.EOF) {
		s.ended = true
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.add(e); err != nil {
		return err
	}
	s.ended = !s.r.o.Record.HasSeveralLogs() && s.r.fold.Done()
	return nil
}

// finish adds the progress at the end.
func (s *subscription) finish() error {
	s.finished = true
	events, err := s.r.finish(s.claims)
	for i, e := range events {
		s.ready = append(s.ready, &driver.Record{
			Log: consume.Log{
				Name: progressLog,
			},
			Position: uint64(i + 1),
			Event:    e,
			Copies:   1,
		})
	}
	return err
}

// addProgress takes the progress of an agent.
func (s *subscription) addProgress(e *consume.Event) error {
	if s.r.o.Record.HasSeveralLogs() {
		id := eventKey{e.ClusterKey(), e.ID}
		s.claims.copies[id]++
		if s.claims.copies[id] == s.r.o.Copies(s.in.Positions(), e) {
			delete(s.claims.copies, id)
			s.claims.noteProgress(e, s.r.isWhole, s.r.hasProgress(e))
		}
	} else {
		s.claims.noteProgress(e, s.r.isWhole, s.r.hasProgress(e))
	}
	if s.r.precedes(e) || !s.r.hasProgress(e) || !s.r.sendsProgress() {
		return nil
	}
	return s.send(e)
}

// add takes an event of the record.
func (s *subscription) add(e *consume.Event) error {
	r, resource := s.r, resourceOf(e)
	versions := r.fold.Add(e)
	included := r.o.To.Includes(e)
	if included && e.Time.After(s.claims.latest[resource.cluster]) {
		s.claims.latest[resource.cluster] = e.Time
	}
	switch {
	case e.Progress != nil:
		return s.addProgress(e)
	case e.Stream != nil:
		s.claims.note(e, included)
	}
	if !included {
		s.later[resource] = s.later[resource] || e.Data != nil
		return nil
	}
	if r.o.From.Includes(e) {
		if e.Type == consume.TypeSnapshotStarted {
			// if the agent continues it, the target does not know the reads before
			s.once[eventKey{e.ClusterKey(), e.ID}] = true
		}
		return nil // the snapshot says it
	}
	if e.Data != nil {
		news := slices.ContainsFunc(versions, func(v *timeline.Version) bool { return v.ID == e.ID })
		object := objectKey{resource.cluster, resource.resource, e.UID}
		if !news && !s.known[object] {
			return nil
		}
		if news {
			s.known[keyOf(
				&consume.Object{
					Source:     e.Source,
					ClusterUID: e.ClusterUID,
					Resource:   resource.resource,
					UID:        e.UID,
				})] = true
		}
		return s.send(e)
	}
	key, id := scopeKey{e.ClusterKey(), e.Scope}, eventKey{e.ClusterKey(), e.ID}
	switch e.Type {
	case consume.TypeScopeEnded:
		if !r.isWhole(resource.resource, e.Scope) {
			return nil // it would say that the objects which are sent are all that the scope had
		}
	case consume.TypeSnapshotStarted, consume.TypeGap:
		if s.once[id] {
			return nil
		}
		s.once[id] = true
		if e.Type == consume.TypeSnapshotStarted {
			s.underWay[key] = e.Stream.Snapshot
		}
	case consume.TypeSnapshotCompleted:
		if !r.o.Record.HasSeveralLogs() && s.underWay[key] == e.Stream.Snapshot && !s.later[resource] {
			break // the target sweeps by itself
		}
		for _, v := range versions {
			if e := r.newDeletion(v); r.matches(e) {
				s.deleted++
				s.ready = append(s.ready, &driver.Record{
					Log: consume.Log{
						Name: deletionLog,
					},
					Position: s.deleted,
					Event:    e,
					Copies:   1,
				})
			}
		}
		if s.later[resource] {
			return nil
		}
	case consume.TypeScopeStarted, consume.TypeProgress:
	}
	return s.send(e)
}

// send sends an event of the record, unless an earlier run has.
func (s *subscription) send(e *consume.Event) error {
	if e.Position.Next <= s.resume[e.Position.Log] || !s.r.matches(e) {
		return nil
	}
	rec := &driver.Record{
		Log:      e.Position.Log,
		Position: e.Position.Next - 1,
		Event:    e,
		Copies:   1,
	}
	if e.Data == nil && s.r.o.Record.HasSeveralLogs() {
		rec.Copies = s.r.o.Copies(s.in.Positions(), e)
	}
	if s.r.o.Cluster != "" {
		var err error
		rec.Event, err = rename(e, s.r.o.Cluster)
		if err != nil {
			return err
		}
	}
	s.ready = append(s.ready, rec)
	return nil
}
