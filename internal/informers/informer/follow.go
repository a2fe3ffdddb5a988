package informer

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// freshTries is how many times an expired watch is retried on its own connection. Another API
	// server, whose history goes back further, may have the same address.
	freshTries = 3
	// reopenAfter limits how long a watch that was ended because it was blocked waits for room.
	reopenAfter = 5 * time.Second
)

// errDoubt ends an HTTP watch whose history is refuted or undecided.
var errDoubt = errors.New("the API server may have another history: etcd was restored")

// follower follows history over a succession of HTTP watches. The API server ends each of them
// after some minutes, a connection may break or fall silent, the queue may be full, and etcd may be
// restored meanwhile. None of that may lose a change, or make the follower skip one that the store
// does not know:
//
//  1. Each HTTP watch begins at rv, up to which the store has everything. rv advances only after
//     the store has taken a batch (applyBatch), or after a quiet watch has settled the scope
//     (settle.go).
//  2. If the end of a watch does not show that history is still the same, the next object waits for
//     a probe (doubt.go). If history is refuted, the follower ends, and the owner lists again.
//  3. awaitNext decides what follows an HTTP watch: another one, at once or later, or a list. After
//     a 410 the follower first tries other connections, where another API server may have the
//     history.
//
// Its fields belong to the informer's owner goroutine. A second goroutine, which reads the HTTP
// watch, borrows reader (watch.go).
type follower struct {
	informer *Informer
	reader   *reader // lent to the goroutine that reads an HTTP watch
	rv       uint64  // the store has everything up to here; it never goes back
	doubt    doubt
	// of the definition: when the last HTTP watch that sent anything was opened, or when the list
	// began
	generation uint32
	stall      apiserver.Stall
	frameless  int // HTTP watches without a frame that ended while the store waits for a replay

	reopen  *retry.Backoff // between HTTP watches that end at once
	expired int            // consecutive HTTP watches that ended with 410
	again   *retry.Backoff // between those
}

// follow applies everything after rv to the store. It returns when another list is needed, or ctx
// ends.
func (i *Informer) follow(ctx context.Context, rv uint64) {
	f := &follower{
		informer:   i,
		reader:     i.newReader(),
		rv:         rv,
		doubt:      newDoubt(i),
		generation: i.generation.listed,
		reopen:     retry.New(),
		again:      retry.New(),
	}
	f.reader.lean, f.reader.live = true, true
	i.generation.cleanEnd = 0
	for {
		got, err := f.watch(ctx)
		if ctx.Err() != nil || !f.awaitNext(ctx, &got, err) {
			return
		}
	}
}

// watched is the result of one HTTP watch.
type watched struct {
	opened      bool
	frames      int
	objects     int           // frames that are no bookmarks
	lasted      time.Duration // time since the server accepted it
	endedInTime bool          // it ended at its timeout
	generation  uint32        // of the definition, when the server accepted it
	below       bool          // it has sent an unknown version below the position
	last        time.Time     // the last frame; zero: there was none
	passed      bool          // its frames did not come with its end: the path holds back nothing
}

func (w *watched) isLong() bool { return w.lasted > apiserver.ShortWatch }

// retryResult classifies a watch on a connection of its own, for a metric's label.
func (w *watched) retryResult(err error) string {
	switch {
	case w.frames > 0, err == nil, w.isLong() && !apiserver.IsGone(err):
		return "found"
	case apiserver.IsGone(err):
		return "expired"
	default:
		return "failed"
	}
}

// awaitNext waits until it is time for the next HTTP watch. It returns false if another list is
// needed, or ctx ended first. err ended the last watch, cleanly if nil.
func (f *follower) awaitNext(ctx context.Context, got *watched, err error) bool {
	i := f.informer
	f.noteWatch(got, err)
	i.notePath(got, err)
	i.coverage.endWatch(interruptedBy(err), err == nil || errors.Is(err, errGeneration), i.deps.Now())
	if i.isRemovalShown(err) {
		i.countWatch("closed")
		return false
	}
	i.generation.cleanEnd = 0
	if err == nil {
		i.generation.cleanEnd = got.generation + 1
	}
	switch {
	case errors.Is(err, errBlocked):
		i.countWatch("blocked")
		return f.awaitRoom(ctx)
	case f.decideRelist(ctx, got, err):
		return false
	case apiserver.IsGone(err):
		i.countWatch("expired")
		return f.awaitExpiredRetry(ctx)
	case errors.Is(err, errGeneration):
		i.countWatch("closed")
		return true
	case errors.Is(err, apiserver.ErrSilent):
		i.countWatch("silent")
		i.log.Debug("a watch was silent for too long: reopening it", "scope", i.name, "rv", f.rv, "silent_for",
			apiserver.Silence)
		return true
	case errors.Is(err, errHeldBack):
		i.countWatch("held_back")
		return true
	case err == nil:
		i.countWatch("closed")
		// The server ends every watch from time to time; a server that ends them at once gets a
		// delay.
		return got.isLong() || f.reopen.Wait(ctx, nil)
	default:
		return f.awaitRetry(ctx, got, err)
	}
}

// interruptedBy returns why the end of an HTTP watch interrupts the observation.
func interruptedBy(err error) object.InterruptionReason {
	switch {
	case err == nil, errors.Is(err, errGeneration):
		return object.InterruptedClosed
	case errors.Is(err, errBlocked):
		return object.InterruptedBlocked
	case errors.Is(err, apiserver.ErrSilent), errors.Is(err, errHeldBack):
		return object.InterruptedSilent
	case errors.Is(err, errDoubt), apiserver.IsGone(err):
		return object.InterruptedListed
	default:
		return object.InterruptedCut
	}
}

// decideRelist decides whether the owner must list again for another reason than a 410, and sets
// the reason for it.
func (f *follower) decideRelist(ctx context.Context, got *watched, err error) bool {
	i := f.informer
	if apiserver.IsGone(err) && time.Since(f.doubt.failed) >= apiserver.ProbeEvery {
		f.doubt.probe(ctx, f.rv, true)
	}
	switch {
	case f.doubt.phase == refuted:
		i.countWatch("rewound")
		i.relist = relistRewound
	case f.doubt.phase == undecided:
		i.countWatch("undecided")
		i.relist = relistUndecided
	case f.countFrameless(got):
		i.countWatch("closed")
		i.relist = relistReplay
	default:
		return false
	}
	i.setBlocked(false) // the batch that blocked it may be of the other history
	return true
}

// awaitRetry waits after an HTTP watch that ended with err. It returns false if ctx ended first, or
// if the watches fail at one version: then a list must lead past it.
func (f *follower) awaitRetry(ctx context.Context, got *watched, err error) bool {
	i := f.informer
	i.countWatch("error")
	delay := f.reopen.Next(err)
	broken := got.opened && apiserver.IsBroken(got.lasted, err)
	i.broken = i.broken || broken
	i.noteFailed(ctx, "watch", err, delay)
	if broken && f.stall.Add(f.rv) && i.stalls.takeTurn(time.Now()) {
		i.relist = relistStalled
		return false
	}
	return i.pause(ctx, err, delay)
}

// maxFrameless is how many HTTP watches without a frame may end before a list is compared instead.
const maxFrameless = 2

// countFrameless counts the HTTP watches that end without a frame while the store waits for the API
// server to repeat the changes since the checkpoint. It reports whether a list must show instead
// that it has. The times of several silent watches are not added: each may have ended just before a
// frame.
func (f *follower) countFrameless(got *watched) (tooMany bool) {
	switch {
	case got.frames > 0:
		f.frameless = 0
	case got.opened && f.informer.store.View().Replaying:
		f.frameless++
	}
	return f.frameless >= maxFrameless
}

// noteWatch updates the state of f after an HTTP watch.
func (f *follower) noteWatch(got *watched, err error) {
	if f.expired > 0 {
		f.informer.metrics.expiredRetries.WithLabelValues(got.retryResult(err)).Inc()
	}
	if got.objects > 0 || got.isLong() {
		f.reopen = retry.New()
	}
	if got.objects > 0 || got.isLong() && !apiserver.IsGone(err) {
		f.expired = 0
	}
	if got.frames > 0 || got.lasted >= apiserver.SoundAfter {
		f.informer.broken, f.informer.stalls = false, stalls{}
	}
	// An API server may return with another history. A watch without any frame may have waited for
	// a resourceVersion that this history has not reached.
	if !errors.Is(err, errBlocked) && (!got.endedInTime || got.frames == 0) {
		f.doubt.raise()
	}
}

// awaitRoom waits until the queue has room again.
func (f *follower) awaitRoom(ctx context.Context) bool {
	// Not forever: if other resources keep the queue full, this one gets its share only when it
	// asks for room.
	long := time.NewTimer(reopenAfter)
	defer long.Stop()
	select {
	case <-f.informer.spec.Lane.Room():
	case <-long.C:
	case <-ctx.Done():
		return false
	}
	f.informer.setBlocked(false)
	return true
}

// awaitExpiredRetry waits until an expired watch is retried on another connection. It returns false
// after enough retries, or if ctx ended.
func (f *follower) awaitExpiredRetry(ctx context.Context) bool {
	// After a change of the definition every API server starts its history over.
	if f.expired == freshTries || f.generation != f.informer.generation.number.Load() {
		return false
	}
	if f.expired == 0 {
		f.again = retry.New() // not reopen: an outage may have made its delay long, and history expires meanwhile
	}
	f.expired++
	return f.again.Wait(ctx, nil)
}

// replayWithin is how long an open watch must be silent until the agent takes it that all former
// changes were sent. Without bookmarks, nothing shows that.
const replayWithin = 2 * time.Minute

// open returns the HTTP watch that has shown the first list, or else opens another one. The caller
// must close it.
func (f *follower) open(ctx context.Context) (*stream, error) {
	if s := f.informer.takeStarted(); s != nil {
		s.reader = f.reader
		return s, nil
	}
	s := newStream(ctx, f.informer, f.reader)
	if err := s.open(f.rv, f.expired > 0); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// watch opens one HTTP watch and applies its events until it ends. The error is nil if it ended
// cleanly.
func (f *follower) watch(ctx context.Context) (got watched, err error) {
	i := f.informer
	s, err := f.open(ctx)
	if err != nil {
		return got, err
	}
	defer s.close()
	defer func() { got.lasted = time.Since(s.watch.Opened) }()
	got.opened, got.generation = true, s.generation
	probes := f.doubt.isDue() && f.doubt.isOpen()
	if s.started.isPrompt() {
		i.coverage.openProved(s.started.rv, s.started.asked, s.started.ended)
	} else {
		i.coverage.openWatch(probes, s.brief, i.deps.Now())
	}
	i.state.noteOpened(s.lastFrame())
	if !i.broken {
		i.noteRecovered()
	}
	if probes && f.probeHistory(ctx, false) {
		return got, errDoubt
	}
	sound := time.AfterFunc(apiserver.SoundAfter, i.noteRecovered)
	defer sound.Stop()
	s.done.Go(func() {
		defer close(s.batches)
		s.err = s.read()
	})
	if !s.brief {
		s.done.Go(func() { i.askAbout(s) })
	}
	defer func() { got.passed = s.passed.Load() }()
	quiet := time.AfterFunc(replayWithin, func() {
		if !s.suspect.Load() {
			i.store.AwaitReplay(0)
		}
	})
	defer quiet.Stop()
	for b := range s.batches {
		quiet.Stop()
		if got.frames == 0 {
			i.noteRecovered()
		}
		if f.probeHistoryBefore(ctx, b, &got) {
			return got, errDoubt
		}
		if ctx.Err() != nil {
			return got, context.Cause(ctx) // the probe had no answer; the next run reads the batch again
		}
		f.applyBatch(ctx, s, b)
		quiet.Reset(replayWithin)
		s.applied.Add(int64(len(b.events)))
		got.frames += len(b.events)
		got.last = b.read
		got.objects += b.objects
		f.generation = got.generation
	}
	got.endedInTime = s.endedInTime
	if s.err == nil {
		f.settleScope(ctx, s)
	}
	return got, s.err
}

// probeHistoryBefore compares history before a batch is applied, if it is in doubt. It reports
// whether the scope must be listed again instead. The first object on an HTTP watch waits for a
// probe. So does the first one below the position, because a watch sends nothing below the version
// at which it was opened.
func (f *follower) probeHistoryBefore(ctx context.Context, b *batch, got *watched) (mustList bool) {
	if !got.below && f.hasUnknownBelow(b) {
		got.below = true
		f.doubt.raise()
		return f.probeHistory(ctx, true)
	}
	if b.objects > 0 && got.objects == 0 && f.probeHistory(ctx, true) {
		return true
	}
	return b.bookmarks > 0 && f.doubt.isDue() && f.probeHistory(ctx, false)
}

// probeHistory compares history if it is in doubt, and reports whether the scope must be listed
// again.
func (f *follower) probeHistory(ctx context.Context, thorough bool) (mustList bool) {
	f.doubt.probe(ctx, f.rv, thorough)
	return f.doubt.phase == refuted || f.doubt.phase == undecided
}

// hasUnknownBelow reports whether a batch has a version below the position that the store does not
// know.
func (f *follower) hasUnknownBelow(b *batch) bool {
	at := f.rv
	for k := range b.events {
		e := &b.events[k]
		if e.Type != watch.Bookmark && e.Type != watch.Deleted && e.Version < at && !f.informer.store.Knows(e.Object) {
			return true
		}
		at = max(at, e.Version)
	}
	return false
}

// applyBatch applies a batch to the store.
func (f *follower) applyBatch(ctx context.Context, s *stream, b *batch) {
	i := f.informer
	if !i.store.Apply(ctx, b.events, func() { s.applying.Store(max(1, int64(time.Since(s.watch.Opened)))) }) {
		return // the store may have only a part of the batch: no later event may be applied either
	}
	s.applying.Store(0)
	for k := range b.events { // a deletion may have the version of the deleted object, which is lower
		f.rv = max(f.rv, b.events[k].Version)
	}
	for k := range slices.Backward(b.events) {
		last := &b.events[k]
		if last.Type == watch.Bookmark {
			continue
		}
		if gone := last.Type == watch.Deleted; !gone || !i.selection.HasServerSelector() {
			// otherwise it may still exist
			f.doubt.noteWitness(&witness{object: last.Object, gone: gone})
		}
		break
	}
	i.noteSeen(b.read, b.observed)
	lowest, highest := versionsOf(b)
	i.coverage.noteFrames(lowest, highest, b.bookmarks > 0, b.observed)
	clear(b.events)
}

// versionsOf returns the lowest version of the changes in a batch, 0 if there are none, and the
// highest version.
func versionsOf(b *batch) (lowest, highest uint64) {
	for k := range b.events {
		e := &b.events[k]
		highest = max(highest, e.Version)
		if e.Type != watch.Bookmark && (lowest == 0 || e.Version < lowest) {
			lowest = e.Version
		}
	}
	return lowest, highest
}

func (i *Informer) countWatch(result string) { i.metrics.watches.WithLabelValues(result).Inc() }

// setBlocked records whether the watch is ended because the queue is full: then it is not stale.
func (i *Informer) setBlocked(blocked bool) {
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = blocked
	if blocked {
		s.enterFromLocked(PhaseLive, PhaseBlocked)
	} else {
		s.life = time.Now() // no response was possible before
		s.enterFromLocked(PhaseBlocked, PhaseLive)
	}
}
