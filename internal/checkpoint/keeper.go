package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// saveEvery is how often it is seen if there is something to save.
	saveEvery = 5 * time.Second
	// saveFirst is when that is seen for the first time: agents that live for seconds only, one after the other, must not begin
	// at the same place for ever, until history from there is gone.
	saveFirst = time.Second
	// saveProgressEvery is how often resourceVersions are saved that moved without an acknowledgement: by bookmarks, mostly.
	saveProgressEvery = time.Minute
	// warnEvery is how often it is logged that the checkpoint cannot be saved.
	warnEvery = time.Minute
	// conflictRounds is how often in a row others may change what is not ours (labels, mostly) between a look and a save,
	// before we wait.
	conflictRounds = 3

	backoffFirst = 250 * time.Millisecond
	backoffMax   = 10 * time.Second
)

// Keeper saves where informers are, and knows where they were when the last run ended.
type Keeper struct {
	store   Store
	id      Identity
	writer  string
	log     *slog.Logger
	metrics *metrics

	unlock     func() error     // these are set by Load
	loaded     map[string]Scope // what was there
	loadedLogs []Log
	saved      time.Time // when that was saved

	loadedEpoch uint64 // of whoever saved that

	saving chan struct{} // of one element: who puts it in saves, alone; it guards the fields of saver
	saver  saver
	failed chan struct{} // closed once failure is set

	lastSaved atomic.Int64          // when something was saved, in Unix nanoseconds
	trouble   atomic.Pointer[error] // why the last attempt to read or save failed
	began     time.Time
	failing   atomic.Int64 // when the first attempt to save since the last success began, in nanoseconds since began; 0: there is none

	mu        sync.Mutex
	logs      func() []Log // nil: the bus has none, or has not told yet
	tracks    map[string]*track
	positions map[string]Position // as they were loaded, or told last
	looks     uint64              // numbers the looks at what is tracked
	kept      uint64              // the last look that is saved
	failure   error               // nothing is saved any more
}

// track is one that tells a position.
type track struct {
	position func() (Position, bool)
}

// version names a document: no two have the same. The zero version is of none.
type version struct {
	writer string
	save   uint64
}

// change is how much has changed since something was saved.
type change int

const (
	unchanged change = iota
	seen             // when the API server gave a sign of life
	moved            // resourceVersions, without an acknowledgement
	news             // something that a restart would have to do again
)

// NewKeeper returns a keeper of the checkpoint in s. It reads nothing and starts nothing. reg may be nil.
func NewKeeper(s Store, id Identity, log *slog.Logger, reg prometheus.Registerer) *Keeper {
	return &Keeper{
		store: s, id: id, writer: rand.Text(), log: log, metrics: newMetrics(reg), began: time.Now(),
		saving: make(chan struct{}, 1), failed: make(chan struct{}),
		tracks: map[string]*track{}, positions: map[string]Position{},
	}
}

// Load locks the checkpoint and reads it. It is called once, before all others; unless it fails, Close has to follow. What
// may pass it retries until ctx ends; everything else is an *Error.
//
// It is for an agent without an election. Where there was one before, the last leader's epoch stays in what is saved, for the next.
func (k *Keeper) Load(ctx context.Context) error {
	err := k.load(ctx)
	k.id.Epoch = k.loadedEpoch
	return err
}

// load is Load for a keeper that may follow any leader.
func (k *Keeper) load(ctx context.Context) (err error) {
	k.id.Epoch = math.MaxUint64
	unlock, err := k.store.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock())
		}
	}()
	d, err := k.read(ctx)
	if err != nil {
		return err
	}
	k.unlock = unlock
	k.saver = saver{durable: map[string]Position{}, last: time.Now()}
	k.metrics.allSaved()
	k.trouble.Store(nil)
	if d == nil {
		return nil
	}
	k.loaded, k.loadedEpoch, k.saved, k.saver.base = d.Scopes, d.Epoch, d.Saved, version{d.Writer, d.Save}
	k.loadedLogs, k.saver.logs = d.Logs, d.Logs
	k.metrics.lastSave.Set(float64(d.Saved.Unix()))
	k.lastSaved.Store(d.Saved.UnixNano())
	for name, scope := range d.Scopes {
		k.positions[name] = Position{Scope: scope}
	}
	k.saver.durable = maps.Clone(k.positions)
	return nil
}

// read reads what is kept until that works, or cannot.
func (k *Keeper) read(ctx context.Context) (*Document, error) {
	b := newBackoff()
	for {
		d, err := k.look(ctx)
		if e := new(Error); err == nil || errors.As(err, &e) {
			return d, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		delay := b.Step()
		k.warn(ctx, "read", err, delay)
		if !retry.Sleep(ctx, delay) {
			return nil, context.Cause(ctx)
		}
	}
}

// look reads what is kept, and sees that it is ours to go on from.
func (k *Keeper) look(ctx context.Context) (*Document, error) {
	d, err := Read(ctx, k.store)
	if err != nil || d == nil {
		return nil, err
	}
	return d, at(k.store, d.check(k.id))
}

// Scopes is what the last run left, by name.
func (k *Keeper) Scopes() map[string]Scope { return maps.Clone(k.loaded) }

// Saved is when that was saved, zero: there was no checkpoint.
func (k *Keeper) Saved() time.Time { return k.saved }

// Track has position asked whenever something is saved; ok is false as long as there is nothing to resume from. It must not
// block, and what it has returned must not change. A later Track of the same scope takes the place of an earlier one. A
// scope of the last run is kept as it is until its position is told, or it is forgotten.
func (k *Keeper) Track(scope string, position func() (p Position, ok bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tracks[scope] = &track{position}
}

// Forget drops a scope.
func (k *Keeper) Forget(scope string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tracks, scope)
	delete(k.positions, scope)
}

// Flush returns nil once what was tracked at the time of the call is saved: by a look at it that began after the call, one
// for all that call at the same time. What may pass it retries until ctx ends. It needs no Run.
func (k *Keeper) Flush(ctx context.Context) error {
	k.mu.Lock()
	need := k.looks + 1
	k.mu.Unlock()
	return k.save(ctx, need, moved)
}

// Run saves what has changed after a second, and then at most every 5 s (where only resourceVersions moved: every minute),
// until ctx ends. It returns an error when nothing can be saved any more, mostly ErrConflict, which has to end the agent: two that write in
// turns would each forget what the other has sent.
func (k *Keeper) Run(ctx context.Context) error {
	first := time.NewTimer(saveFirst)
	defer first.Stop()
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		least := news
		select {
		case <-ctx.Done():
			return k.failedWith()
		case <-k.failed:
			return k.failedWith()
		case <-first.C:
			least = moved
		case <-tick.C:
		}
		_ = k.save(ctx, 0, least) // what fails for good closes failed, all else is tried again
	}
}

// Close saves for the last time and unlocks the checkpoint. It is called when Run has returned and nothing more will be
// acknowledged. What may pass it retries until ctx ends. Where saving has failed for good, it only unlocks.
func (k *Keeper) Close(ctx context.Context) error {
	if k.failedWith() != nil {
		return k.unlock() // Run has told why
	}
	return errors.Join(k.save(ctx, 0, seen), k.unlock())
}

// save looks at what is tracked, and saves it if it changed as much as least, or if resourceVersions moved for long enough.
// Where need is not 0, a look that is as late and that somebody else has saved meanwhile will do.
func (k *Keeper) save(ctx context.Context, need uint64, least change) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("save the checkpoint: %w", context.Cause(ctx))
	case <-k.failed:
		return k.failedWith()
	case k.saving <- struct{}{}:
	}
	defer func() { <-k.saving }()
	b := newBackoff()
	for {
		k.mu.Lock()
		failure, done := k.failure, need > 0 && k.kept >= need
		k.mu.Unlock()
		if failure != nil || done {
			return failure
		}
		if rest := k.saver.rest(); need > 0 && rest > 0 && !retry.Sleep(ctx, rest) {
			return fmt.Errorf("save the checkpoint: %w", context.Cause(ctx))
		}
		err := k.attempt(ctx, least)
		switch {
		case err == nil:
			return nil
		case k.final(err):
			k.fail(err)
			return err
		}
		delay := b.Step()
		if ctx.Err() == nil {
			k.warn(ctx, "save", err, delay)
		}
		if !retry.Sleep(ctx, delay) {
			return fmt.Errorf("save the checkpoint: %w: %w", context.Cause(ctx), err)
		}
	}
}

// attempt is one attempt of save.
func (k *Keeper) attempt(ctx context.Context, least change) error {
	look, positions := k.pull()
	logs := k.pullLogs()
	s := &k.saver
	if time.Since(s.last) >= saveProgressEvery {
		least = min(least, moved)
	}
	what := compare(s.durable, positions)
	if !sameLogs(s.logs, logs) {
		what = news
	}
	switch {
	case what >= least:
		began := time.Now()
		k.failing.CompareAndSwap(0, max(1, int64(began.Sub(k.began))))
		err := k.write(ctx, positions, logs)
		s.written = time.Now()
		s.took = s.written.Sub(began)
		if err != nil {
			s.durable = nil // either of both
			return err
		}
		s.durable, s.logs, s.last = positions, logs, time.Now()
		if !s.failing.IsZero() {
			k.log.Info("the checkpoint is saved again", "where", k.store.String(), "after", time.Since(s.failing))
			s.failing, s.warned = time.Time{}, time.Time{}
		}
	case what >= moved:
		return nil // whoever flushes has to look again
	}
	k.metrics.allSaved()
	k.failing.Store(0)
	k.trouble.Store(nil)
	k.mu.Lock()
	k.kept = look
	k.mu.Unlock()
	return nil
}

// pull asks where everything is.
func (k *Keeper) pull() (look uint64, positions map[string]Position) {
	k.mu.Lock()
	k.looks++
	look = k.looks
	tracks := maps.Clone(k.tracks)
	k.mu.Unlock()

	// Without the lock: whoever tells may be about to call Track, and hold a lock of his own.
	told := make(map[string]Position, len(tracks))
	for name, t := range tracks {
		if p, ok := t.position(); ok {
			told[name] = p.clean()
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range told {
		if k.tracks[name] != tracks[name] {
			continue // forgotten meanwhile, or tracked anew: the next look sees to it
		}
		if was, ok := k.positions[name]; ok && p.ResourceVersion < was.ResourceVersion && p.History == was.History {
			k.log.Warn("a checkpoint goes back", "scope", name, "from_rv", was.ResourceVersion, "to_rv", p.ResourceVersion)
		}
		k.positions[name] = p
	}
	return look, maps.Clone(k.positions)
}

// clean is the position in the form that it has when it is read again, to be compared.
func (p Position) clean() Position {
	p.LastSeen = p.LastSeen.UTC().Truncate(time.Second)
	p.SnapshotBegan = p.SnapshotBegan.UTC().Round(0)
	if len(p.Namespaces) == 0 {
		p.Namespaces = nil
	}
	return p
}

// compare tells the greatest change of a scope.
func compare(was, now map[string]Position) change {
	if was == nil || len(was) != len(now) {
		return news
	}
	most := unchanged
	for name, b := range now {
		a, ok := was[name]
		if !ok {
			return news
		}
		most = max(most, a.compare(b))
		if most == news {
			return news
		}
	}
	return most
}

func (p Position) compare(q Position) change {
	what := unchanged
	switch {
	case p.ResourceVersion != q.ResourceVersion, p.State != q.State:
		what = moved
		if p.Acked != q.Acked {
			return news
		}
	case !p.LastSeen.Equal(q.LastSeen):
		what = seen
	}
	a, b := p.Scope, q.Scope
	a.ResourceVersion, a.State, a.LastSeen = b.ResourceVersion, b.State, b.LastSeen
	if !reflect.DeepEqual(a, b) {
		return news
	}
	return what
}

// write writes positions and logs, and finds out what it means if somebody else has written.
func (k *Keeper) write(ctx context.Context, positions map[string]Position, logs []Log) error {
	s := &k.saver
	for range conflictRounds {
		s.attempts++
		d := Document{
			FormatVersion: FormatVersion, Identity: k.id, Writer: k.writer, Save: s.attempts,
			Saved: time.Now().UTC().Truncate(time.Second), Logs: logs, Scopes: make(map[string]Scope, len(positions)),
		}
		for name, p := range positions {
			d.Scopes[name] = p.Scope
		}
		data, err := d.Encode()
		if err != nil {
			return err
		}
		err = k.store.Save(ctx, data)
		if err == nil {
			k.wrote(&d, len(data))
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			k.metrics.saves.WithLabelValues("error").Inc()
			return err
		}
		k.metrics.saves.WithLabelValues("conflict").Inc()
		// Somebody may have put a label on it, or it is our own: a request that has got no answer can have been carried
		// out all the same.
		there, lookErr := k.look(ctx)
		switch {
		case lookErr != nil:
			return lookErr
		case there == nil && s.base != version{}:
			return k.conflict("it was removed while this agent ran")
		case there == nil:
		case there.Writer == k.writer:
			s.base = version{there.Writer, there.Save}
			if there.Save == s.attempts {
				k.wrote(&d, len(data))
				return nil
			}
		case s.base != version{there.Writer, there.Save}:
			return k.conflict("another agent, or 'kubecdc checkpoint reset', wrote it at " + there.Saved.Format(time.RFC3339) + " while this agent ran")
		}
	}
	return fmt.Errorf("%s: somebody changes it all the time", k.store)
}

func (k *Keeper) wrote(d *Document, size int) {
	k.saver.base, k.saver.accepted = version{d.Writer, d.Save}, true
	k.metrics.saves.WithLabelValues("ok").Inc()
	k.metrics.bytes.Set(float64(size))
	k.metrics.lastSave.SetToCurrentTime()
	k.lastSaved.Store(time.Now().UnixNano())
}

// conflict says more than the store can.
func (k *Keeper) conflict(what string) error {
	return &Error{Kind: ErrConflict, Where: k.store.String(), What: what, Remedy: oneAgent}
}

// final tells errors that end the agent. A refusal does at the start, when somebody looks; later, what refuses may accept
// again, as it did before.
func (k *Keeper) final(err error) bool {
	if errors.Is(err, ErrRefused) {
		return !k.saver.accepted
	}
	e := new(Error)
	return errors.As(err, &e)
}

// failedWith is why nothing is saved any more, nil: it is.
func (k *Keeper) failedWith() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failure
}

func (k *Keeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
	close(k.failed)
}

// warn logs err, once in a window. The caller saves, or is the only one there is.
func (k *Keeper) warn(ctx context.Context, doing string, err error, delay time.Duration) {
	k.trouble.Store(&err)
	s, now := &k.saver, time.Now()
	if s.failing.IsZero() {
		s.failing = now
	}
	level := slog.LevelDebug
	if now.Sub(s.warned) >= warnEvery {
		level, s.warned = slog.LevelWarn, now
	}
	k.log.Log(ctx, level, "cannot reach the checkpoint, retrying", "doing", doing, "err", err, "retry_in", delay, "failing_for", now.Sub(s.failing))
}

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: backoffFirst, Factor: 2, Jitter: 0.5, Steps: 8, Cap: backoffMax}
}
