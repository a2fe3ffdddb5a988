package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"math"
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
