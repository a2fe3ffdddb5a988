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

	"github.com/kubecdc/kubecdc/internal/pause"
)

const (
	// saveEvery is the interval of the checks for something to save.
	saveEvery = 5 * time.Second
	// saveFirst is the delay of the first check. It is short, so that a series of agents that live
	// only for seconds makes progress before the API server compacts the history at their start.
	saveFirst = time.Second
	// saveQuietEvery is how often resourceVersions are saved that moved without an
	// acknowledgement, mostly by bookmarks.
	saveQuietEvery = time.Minute
	// warnEvery is the interval of warnings that the checkpoint cannot be saved.
	warnEvery = time.Minute
	// conflictRounds is how many consecutive changes by other clients (mostly of labels) one save
	// attempt tolerates.
	conflictRounds = 3

	backoffFirst = 250 * time.Millisecond
	backoffMax   = 10 * time.Second
)

// Keeper saves the positions of informers, and returns those of the last run.
type Keeper struct {
	store   Store
	id      Identity
	writer  string
	log     *slog.Logger
	metrics *metrics

	unlock      func() error // Load sets these
	loaded      map[string]Scope
	loadedLogs  []Log
	loadedEpoch uint64
	saved       time.Time // when the loaded document was saved
	loadedTime  time.Time

	saving chan struct{} // a semaphore of one: its holder saves, and may use the fields of saver
	saver  saver
	failed chan struct{} // closed once failure is set

	lastSaved atomic.Int64          // of the last save, in Unix nanoseconds
	trouble   atomic.Pointer[error] // of the last attempt to read or save
	began     time.Time
	// start of the first attempt to save since the last success, in nanoseconds since began; 0 if
	// there is none
	failing atomic.Int64

	mu        sync.Mutex
	logs      func() []Log     // nil if the bus has none, or TrackLogs was not called yet
	now       func() time.Time // nil: TrackTime was not called yet
	tracks    map[string]*track
	positions map[string]Position // loaded, or last reported
	pulls     uint64              // numbers the pulls of positions
	kept      uint64              // the last pull that is saved
	failure   error               // no further save is possible
}

// track is the source of one scope's position. The holder of saving alone uses the last fields.
type track struct {
	position func() (Position, bool)
	changes  func() uint64 // nil: it may always have changed

	seen uint64 // changes before the last glance at the position
	of   uint64 // the save that it was compared with
	what change // what had changed since then
}

// version identifies a document. The zero version stands for none.
type version struct {
	writer string
	save   uint64
}

// change is how much has changed since the last save.
type change int

const (
	unchanged change = iota
	seen             // only LastSeen
	moved            // resourceVersions, without an acknowledgement
	news             // something that a restart would have to repeat
)

// NewKeeper returns a keeper of the checkpoint in s. It reads nothing and starts nothing. reg may
// be nil.
func NewKeeper(s Store, id Identity, log *slog.Logger, reg prometheus.Registerer) *Keeper {
	return &Keeper{
		store:     s,
		id:        id,
		writer:    rand.Text(),
		log:       log,
		metrics:   newMetrics(reg),
		began:     time.Now(),
		saving:    make(chan struct{}, 1),
		failed:    make(chan struct{}),
		tracks:    map[string]*track{},
		positions: map[string]Position{},
	}
}

// Load locks the checkpoint and reads it. It is called once, before all other methods; unless it
// fails, Close must follow. It retries transient errors until ctx ends; any other error is an
// *Error.
//
// Load is for an agent without leader election. If an earlier run had one, saves keep its epoch for
// the next leader.
func (k *Keeper) Load(ctx context.Context) error {
	err := k.load(ctx)
	k.id.Epoch = k.loadedEpoch
	return err
}

// load is Load for a keeper that accepts any epoch.
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
	k.saver = saver{durable: map[string]Position{}, last: time.Now(), saves: 1}
	k.metrics.allSaved()
	k.trouble.Store(nil)
	if d == nil {
		return nil
	}
	k.loaded = d.Scopes
	k.loadedEpoch = d.Epoch
	k.saved = d.Saved
	k.saver.base = version{d.Writer, d.Save}
	k.loadedLogs, k.saver.logs = d.Logs, d.Logs
	k.loadedTime = d.Time
	k.metrics.lastSave.Set(float64(d.Saved.Unix()))
	k.lastSaved.Store(d.Saved.UnixNano())
	for name, scope := range d.Scopes {
		k.positions[name] = Position{Scope: scope}
	}
	k.saver.durable = maps.Clone(k.positions)
	return nil
}

// read reads the stored document. It retries transient errors.
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
		if pause.For(ctx, delay) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// look reads the stored document and checks that this agent may resume from it.
func (k *Keeper) look(ctx context.Context) (*Document, error) {
	d, err := Read(ctx, k.store)
	if err != nil || d == nil {
		return nil, err
	}
	return d, at(k.store, d.check(k.id))
}

// Scopes returns the scopes of the loaded checkpoint, by name.
func (k *Keeper) Scopes() map[string]Scope { return maps.Clone(k.loaded) }

// Saved returns when the loaded checkpoint was saved; zero if there was none.
func (k *Keeper) Saved() time.Time { return k.saved }

// Time returns the last time of the run that saved the loaded checkpoint; zero if that is not
// known.
func (k *Keeper) Time() time.Time { return k.loadedTime }

// TrackTime registers the clock of the run, whose time each save has. now must not block.
func (k *Keeper) TrackTime(now func() time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = now
}

// pullTime returns the time of the run, or of the one before it.
func (k *Keeper) pullTime() time.Time {
	k.mu.Lock()
	now := k.now
	k.mu.Unlock()
	if now == nil {
		return k.loadedTime
	}
	return now().UTC()
}

// Track registers the source of a scope's position, which each save calls; ok is false while there
// is nothing to resume from. position must not block, and its results must not change. A later
// Track of the same scope replaces an earlier one. A scope of the last run keeps its loaded
// position until its source returns one, or Forget is called.
//
// changes counts what may have changed the position, nil if nobody counts. It must not block. A
// change that is not counted is saved within a minute.
func (k *Keeper) Track(scope string, position func() (p Position, ok bool), changes func() uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tracks[scope] = &track{position: position, changes: changes}
}

// Forget drops a scope.
func (k *Keeper) Forget(scope string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tracks, scope)
	delete(k.positions, scope)
}

// Flush saves all tracked positions as of the call, or later ones. Concurrent calls share a save.
// It retries transient errors until ctx ends, and does not need Run.
func (k *Keeper) Flush(ctx context.Context) error {
	k.mu.Lock()
	need := k.pulls + 1
	k.mu.Unlock()
	return k.save(ctx, need, moved)
}

// Run saves changes after a second and then at most every 5 s (every minute if only
// resourceVersions moved), until ctx ends. It returns an error if no further save is possible,
// mostly ErrConflict. The agent must then exit: two alternating writers would each lose the other's
// positions.
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
		_ = k.save(ctx, 0, least) // a final error closes failed; any other is retried
	}
}

// Close saves for the last time and unlocks the checkpoint. It is called after Run has returned and
// the last acknowledgement has arrived. It retries transient errors until ctx ends. After a final
// error it only unlocks.
func (k *Keeper) Close(ctx context.Context) error {
	if k.failedWith() != nil {
		return k.unlock() // Run has returned the error
	}
	return errors.Join(k.save(ctx, 0, seen), k.unlock())
}

// save collects the positions, and saves them if they changed by at least least, or if
// resourceVersions moved and the last save is old. If need is not 0, the save of another goroutine
// suffices if its pull has that number or a later one.
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
		if rest := k.saver.rest(); need > 0 && rest > 0 && pause.For(ctx, rest) != nil {
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
		if pause.For(ctx, delay) != nil {
			return fmt.Errorf("save the checkpoint: %w: %w", context.Cause(ctx), err)
		}
	}
}

// attempt is one attempt of save.
func (k *Keeper) attempt(ctx context.Context, least change) error {
	logs := k.pullLogs()
	s := &k.saver
	if time.Since(s.last) >= saveQuietEvery {
		least = min(least, moved)
	}
	if least == news && sameLogs(s.logs, logs) {
		what, known := k.glance()
		switch {
		case known && what == moved:
			return nil // not saved: kept stays
		case known && what < moved:
			k.noteSaved()
			return nil
		}
	}
	number, positions := k.pull()
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
			s.durable = nil // either the old ones or the new ones
			return err
		}
		s.durable = positions
		s.logs = logs
		s.last = time.Now()
		s.saves++
		if !s.failing.IsZero() {
			k.log.Info("the checkpoint is saved again", "where", k.store.String(), "after", time.Since(s.failing))
			s.failing, s.warned = time.Time{}, time.Time{}
		}
	case what >= moved:
		return nil // not saved: kept stays
	}
	k.noteSaved()
	k.mu.Lock()
	k.kept = number
	k.mu.Unlock()
	return nil
}

// noteSaved notes that there is nothing to save.
func (k *Keeper) noteSaved() {
	k.metrics.allSaved()
	k.failing.Store(0)
	k.trouble.Store(nil)
}

// glance returns the greatest change of any scope since the last save, as pull and compare do, but
// asks only for positions that may have changed. It returns false if that is not known.
func (k *Keeper) glance() (what change, known bool) {
	s := &k.saver
	k.mu.Lock()
	isSame := s.durable != nil && len(s.durable) == len(k.positions)
	changed := map[string]*track{}
	for name, t := range k.tracks {
		if t.mayHaveChanged(s.saves) {
			changed[name] = t
		} else {
			what = max(what, t.what)
		}
	}
	k.mu.Unlock()
	if !isSame {
		return news, false
	}
	// Not under mu: see pull.
	for name, t := range changed {
		if t.changes != nil {
			t.seen = t.changes() // before position: a later change counts again
		}
		p, ok := t.position()
		was, saved := s.durable[name]
		switch {
		case !ok:
			t.what = unchanged
		case !saved:
			t.what = news
		default:
			t.what = was.compare(p.clean())
		}
		t.of = s.saves
		what = max(what, t.what)
	}
	return what, true
}

// mayHaveChanged reports whether the position may be another one than at the last glance, or that
// was before the last save.
func (t *track) mayHaveChanged(saves uint64) bool {
	return t.changes == nil || t.of != saves || t.seen != t.changes()
}

// pull collects the positions of all scopes, and numbers the collection.
func (k *Keeper) pull() (number uint64, positions map[string]Position) {
	k.mu.Lock()
	k.pulls++
	number = k.pulls
	tracks := maps.Clone(k.tracks)
	k.mu.Unlock()

	// Not under mu: position takes the scope's lock, under which the scope may call Track.
	reported := make(map[string]Position, len(tracks))
	for name, t := range tracks {
		if p, ok := t.position(); ok {
			reported[name] = p.clean()
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range reported {
		if k.tracks[name] != tracks[name] {
			continue // Forget or Track was called meanwhile: the next pull has the new state
		}
		if was, ok := k.positions[name]; ok && p.ResourceVersion < was.ResourceVersion && p.History == was.History {
			k.log.Warn("the position of a scope moved backward", "scope", name, "from_rv", was.ResourceVersion, "to_rv",
				p.ResourceVersion)
		}
		k.positions[name] = p
	}
	return number, maps.Clone(k.positions)
}

// clean returns the position as it is after a save and a load, for comparison.
func (p Position) clean() Position {
	p.LastSeen = p.LastSeen.UTC().Truncate(time.Second)
	p.SnapshotBegan = p.SnapshotBegan.UTC().Round(0)
	if len(p.Namespaces) == 0 {
		p.Namespaces = nil
	}
	return p
}

// compare returns the greatest change of any scope.
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
	a.ResourceVersion = b.ResourceVersion
	a.State = b.State
	a.LastSeen = b.LastSeen
	if !reflect.DeepEqual(a, b) {
		return news
	}
	return what
}

// write stores positions and logs. After a conflict it reads the document to find out who has
// written it.
func (k *Keeper) write(ctx context.Context, positions map[string]Position, logs []Log) error {
	s := &k.saver
	for range conflictRounds {
		s.attempts++
		d := Document{
			FormatVersion: FormatVersion,
			Identity:      k.id,
			Writer:        k.writer,
			Save:          s.attempts,
			Saved:         time.Now().UTC().Truncate(time.Second),
			Time:          k.pullTime(),
			Logs:          logs,
			Scopes:        make(map[string]Scope, len(positions)),
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
		// Another client may have changed a label, or the write was our own: a request without an
		// answer may have taken effect.
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
			return k.conflict(
				"another agent, or 'kubecdc checkpoint reset', wrote it at " + there.Saved.Format(time.RFC3339) +
					" while this agent ran")
		}
	}
	return fmt.Errorf("%s: other clients keep changing it", k.store)
}

func (k *Keeper) wrote(d *Document, size int) {
	k.saver.base, k.saver.accepted = version{d.Writer, d.Save}, true
	k.metrics.saves.WithLabelValues("ok").Inc()
	k.metrics.bytes.Set(float64(size))
	k.metrics.lastSave.SetToCurrentTime()
	k.lastSaved.Store(time.Now().UnixNano())
}

// conflict returns a more specific error than the store's.
func (k *Keeper) conflict(what string) error {
	return &Error{
		Kind:   ErrConflict,
		Where:  k.store.String(),
		What:   what,
		Remedy: oneAgent,
	}
}

// final reports whether err ends the agent. A refusal does so only before the first successful
// save, while an operator watches the start; later, the store may accept again.
func (k *Keeper) final(err error) bool {
	if errors.Is(err, ErrRefused) {
		return !k.saver.accepted
	}
	e := new(Error)
	return errors.As(err, &e)
}

// failedWith returns the final error, nil if there is none.
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

// warn logs err, as a warning at most once in warnEvery. The caller holds saving, or is the only
// user of k.
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
	k.log.Log(ctx, level, "cannot reach the checkpoint, retrying", "doing", doing, "err", err, "retry_in", delay,
		"failing_for", now.Sub(s.failing))
}

func newBackoff() *wait.Backoff {
	return &wait.Backoff{
		Duration: backoffFirst,
		Factor:   2,
		Jitter:   0.5,
		Steps:    8,
		Cap:      backoffMax,
	}
}
