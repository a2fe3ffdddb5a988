package debezium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// sweep is a deletion of rows that a stream event causes.
type sweep struct {
	snapshot string // that is completed; "": the event is a gap
	uid      string // of the object that a gap is about
}

// sweepOf returns the sweep that a stream event causes; nil: none.
func (t *Target) sweepOf(e *consume.Event) *sweep {
	switch {
	case e.Type == consume.TypeSnapshotCompleted:
		return &sweep{snapshot: e.Stream.Snapshot}
	case e.Stream != nil && e.Stream.DeadLetter != "":
		// The row of a deletion is among the dead letters.
		if uid, deleted := letterOf(e.GroupResource(), e.Stream.DeadLetter); deleted {
			return &sweep{uid: uid}
		}
	}
	return nil
}

// letterOf returns the object of a dead letter, and reports whether it is a deletion: "pods/UID/d",
// "pods/UID/d/h1". "": it is about another resource.
func letterOf(resource, id string) (uid string, deleted bool) {
	rest, ok := strings.CutPrefix(id, resource+"/")
	if !ok {
		return "", false
	}
	uid, rest, _ = strings.Cut(rest, "/")
	what, _, _ := strings.Cut(rest, "/")
	return uid, what == "d"
}

// runSweeps makes sweeps, one at a time, until ctx ends. The relay sends no other record of the
// resource meanwhile.
func (t *Target) runSweeps(ctx context.Context) {
	var taken []*publish.Event
	for ctx.Err() == nil {
		taken = t.sweeps.Take(taken)
		for _, e := range taken {
			t.runSweep(ctx, e)
		}
		clear(taken)
		select {
		case <-t.sweeps.Ready:
		case <-ctx.Done():
		}
	}
	for _, e := range t.sweeps.Close() {
		e.Done(publish.ErrClosed)
	}
}

// runSweep deletes rows, and then sends the stream event that causes it. It retries until that
// succeeds, the deletions are refused, or ctx ends.
func (t *Target) runSweep(ctx context.Context, e *publish.Event) {
	ev := relay.RecordOf(e).Event
	defer t.problem.Store(nil)
	for failures := 1; ; failures++ {
		err := t.sweep(ctx, ev, t.sweepOf(ev))
		switch {
		case err == nil:
			t.publishStream(e, ev)
			return
		case ctx.Err() != nil, errors.Is(err, publish.ErrClosed):
			e.Done(publish.ErrClosed)
			return
		case errors.Is(err, publish.ErrRefused), errors.Is(err, publish.ErrFenced):
			e.Done(err)
			return
		}
		err = fmt.Errorf("cannot delete rows of objects that no longer exist: %w", err)
		t.problem.Store(&err)
		if suppressed, ok := t.window.First("sweep"); ok {
			t.o.Log.Warn("cannot read the table's topics, retrying; later records of the resource wait",
				"resource", ev.GroupResource(), "err", err,
				"advice", "the user needs Read and Describe on the topics of the target", "suppressed", suppressed)
		}
		if pause.For(ctx, publish.BusyBackoff().Delay(failures)) != nil {
			e.Done(publish.ErrClosed)
			return
		}
	}
}

// sweep deletes the rows that s is about.
func (t *Target) sweep(ctx context.Context, e *consume.Event, s *sweep) error {
	isStale := func(r *rowHead) bool { return r.Source.UID == s.uid }
	if s.snapshot != "" {
		began, err := t.snapshotBegan(ctx, e)
		if err != nil || began == nil {
			return err
		}
		isStale = func(r *rowHead) bool { return began.leavesOut(r) }
	}
	stale, err := t.staleRows(ctx, e, isStale)
	if err != nil {
		return err
	}
	if len(stale) > 0 {
		t.o.Log.Info("deleting rows of objects that no longer exist",
			"resource", e.GroupResource(), "scope", e.Scope, "event_id", e.ID, "rows", len(stale))
	}
	return t.deleteRows(ctx, e, stale)
}

// began is what the stream's topic says about a snapshot.
type began struct {
	scope, snapshot string
	version         version
	at              time.Time       // of its start
	letters         map[string]bool // uids of objects whose read may be among the dead letters
}

// snapshotBegan returns what the stream's topic says about the snapshot that e completes. nil: the
// relay has not sent its start, or records since then are missing: such a snapshot sweeps nothing.
func (t *Target) snapshotBegan(ctx context.Context, e *consume.Event) (*began, error) {
	b := &began{
		scope:    e.Scope,
		snapshot: e.Stream.Snapshot,
		version:  versionOf(e.Stream.ResourceVersion, e.History()),
		letters:  map[string]bool{},
	}
	letters := map[string]time.Time{} // by uid
	table := e.GroupResource()
	err := t.o.Stream.Scan(ctx, nil, func(_, value []byte) error {
		var r streamRow
		if json.Unmarshal(value, &r) != nil || r.Source != e.Source || r.ClusterUID != e.ClusterUID ||
			r.Resource != table {
			return nil
		}
		var s consume.Stream
		at, err := time.Parse(time.RFC3339Nano, r.Time)
		if err != nil || json.Unmarshal(r.Data, &s) != nil {
			return nil
		}
		isStart := r.Event == consume.TypeSnapshotStarted.Name() && r.Scope == e.Scope && s.Snapshot == b.snapshot
		switch {
		case s.DeadLetter != "":
			uid, _ := letterOf(table, s.DeadLetter)
			if at.After(letters[uid]) {
				letters[uid] = at
			}
		case isStart && (b.at.IsZero() || at.Before(b.at)):
			b.at = at
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the topic of the stream: %w", err)
	}
	for uid, at := range letters {
		b.letters[uid] = !at.Before(b.at.Add(-clockSkew))
	}
	until, lost := t.losses(e.ClusterKey(), table)
	switch {
	case b.at.IsZero():
		t.o.Log.Info("a snapshot deletes no row, because its start was not sent",
			"scope", e.Scope, "snapshot", b.snapshot)
		return nil, nil
	case lost && !b.at.After(until):
		t.o.Log.Warn("a snapshot deletes no row, because records may be missing since its start: the next one does",
			"scope", e.Scope, "snapshot", b.snapshot, "missing_until", until)
		return nil, nil
	}
	return b, nil
}

// clockSkew is how far the clocks of two agents may be apart.
const clockSkew = 5 * time.Minute

// leavesOut reports whether an object of the snapshot's scope was neither read nor changed since
// its start.
func (b *began) leavesOut(r *rowHead) bool {
	s := &r.Source
	at := time.UnixMilli(s.TSMs)
	switch {
	case !isIn(s, b.scope), b.letters[s.UID], s.SnapshotID == b.snapshot, !at.Before(b.at.Truncate(time.Millisecond)):
		return false
	case at.Before(b.at.Add(-clockSkew)):
		return true
	}
	// Another agent, whose clock is behind, may have continued the snapshot.
	return !b.version.below(versionOf(s.ResourceVersion, s.History))
}

// isIn reports whether the object of a row belongs to a scope.
func isIn(s *source, scope string) bool {
	return consume.ScopeCovers(scope, s.Schema) && selectorsOf(s.Scope) == selectorsOf(scope)
}

// selectorsOf returns the selectors in a scope's name, with the question mark; "": it has none.
func selectorsOf(scope string) string {
	if eq := strings.IndexByte(scope, '='); eq >= 0 { // patterns of namespaces have none
		return scope[max(strings.LastIndexByte(scope[:eq], '?'), 0):]
	}
	return ""
}

// rowHead is a row without its objects.
type rowHead struct {
	Source source `json:"source"`
	Op     string `json:"op"`
}

// staleRows returns the rows of the event's resource that exist in the topic and for which isStale
// is true, by key.
func (t *Target) staleRows(
	ctx context.Context, e *consume.Event, isStale func(*rowHead) bool,
) (map[string]*source, error) {
	stale := map[string]*source{}
	table := e.GroupResource()
	err := t.o.Rows.Scan(ctx, resourceOf(e), func(key, value []byte) error {
		var r rowHead
		if value != nil && json.Unmarshal(value, &r) != nil {
			return nil // of somebody else
		}
		s := &r.Source
		switch {
		case value == nil, r.Op == remove, !isStale(&r):
			delete(stale, string(key))
		case s.Connector == connector && s.EventSource == e.Source && s.ClusterUID == e.ClusterUID && s.Table == table:
			stale[string(key)] = s
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the topic of the rows: %w", err)
	}
	return stale, nil
}

func resourceOf(e *consume.Event) *object.Resource {
	r := &object.Resource{
		Group:   e.Group(),
		Name:    e.Resource,
		Kind:    e.Kind,
		Version: e.APIVersion,
	}
	if r.Group != "" {
		r.Version = e.APIVersion[len(r.Group)+1:]
	}
	return r
}

// deleteRows deletes rows, because of a stream event. It returns after all are acknowledged, or
// with an error.
func (t *Target) deleteRows(ctx context.Context, because *consume.Event, rows map[string]*source) error {
	const atOnce = publish.InFlight / 2
	keys := slices.Sorted(maps.Keys(rows))
	for some := range slices.Chunk(keys, atOnce) {
		outcomes := make(chan error, len(some)) // one for each: nobody waits to send
		for _, key := range some {
			s := rows[key]
			value, err := deletion(s, because, time.Now())
			if err != nil {
				return err
			}
			d := &object.Delta{
				Op:       object.Deleted,
				Inferred: true,
				Observed: because.Time.UnixNano(),
				Ref:      object.NewRef(resourceOf(because), s.Schema, s.ObjectName, s.UID),
			}
			d.Ref.Resource.Namespaced = s.Schema != ""
			t.o.Rows.Publish(publish.NewEvent(&encode.Event{
				Delta:        d,
				ID:           []byte(because.ID),
				Source:       []byte(because.Source),
				ClusterUID:   []byte(because.ClusterUID),
				Type:         []byte(because.Type),
				PartitionKey: []byte(key),
				ContentType:  mediaType,
				Body:         value,
			}, func(err error) {
				if err == nil {
					t.known.noteGone(key, s)
				}
				outcomes <- err
			}, nil))
		}
		var errs []error
		for range some {
			errs = append(errs, <-outcomes) // Run of the bus ends all events
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("delete rows: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
