package scope

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// freshTries is how many times an expired watch is retried on its own connection. Another API server, whose history goes back further, may
	// have the same address.
	freshTries = 3
	// reopenAfter limits how long a watch that was ended because it was blocked waits for room.
	reopenAfter = 5 * time.Second
)

// errRewound ends an HTTP watch on a history that differs from the one followed so far.
var errRewound = errors.New("the API server has another history: etcd was restored")

// follower follows history over a succession of HTTP watches. Its fields belong to the informer's owner goroutine.
type follower struct {
	informer   *Informer
	reader     *reader  // lent to the goroutine that reads an HTTP watch
	rv         uint64   // the store has everything up to here
	witness    *witness // the last version that was listed, or taken without doubt; nil if there is none yet
	doubted    *witness // the last version taken since the doubt began; nil if there is none
	generation uint32   // of the definition, at the opening of the last HTTP watch that sent anything, or at the start of the list
	doubtful   bool     // the API server may have switched to another history since

	probed        time.Time // time of the last probe of history
	unanswered    time.Time // time of the last probe without an answer
	witnessHidden bool      // the API server does not answer lists of a single object

	reopen  *retry.Backoff // between HTTP watches that end at once
	expired int            // consecutive HTTP watches that ended with 410
	again   *retry.Backoff // between those
}

// follow applies everything after rv to the store. It returns when another list is needed, or ctx ends.
func (i *Informer) follow(ctx context.Context, rv uint64) {
	f := &follower{
		informer: i, reader: i.newReader(), rv: rv, generation: i.generation.listed,
		reopen: retry.New(), again: retry.New(),
	}
	f.reader.lean, f.reader.live = true, true
	if o := i.store.Newest(); o != nil {
		f.witness = &witness{object: o}
	}
	i.generation.whole = 0
	for {
		got, err := f.watch(ctx)
		if ctx.Err() != nil || !f.continues(ctx, &got, err) {
			return
		}
	}
}

// watched is the result of one HTTP watch.
type watched struct {
	frames     int
	objects    int           // frames that are no bookmarks
	lasted     time.Duration // time since the server accepted it
	whole      bool          // it ended at its timeout
	generation uint32        // of the definition, when the server accepted it
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

// continues waits until it is time for the next HTTP watch. It returns false if another list is needed, or ctx ended first. err ended the
// last watch, cleanly if nil.
func (f *follower) continues(ctx context.Context, got *watched, err error) bool {
	i := f.informer
	f.note(got, err)
	if i.endsRemoved(err) {
		i.countWatch("closed")
		return false
	}
	if i.generation.whole = 0; err == nil {
		i.generation.whole = got.generation + 1
	}
	switch {
	case errors.Is(err, errBlocked):
		i.countWatch("blocked")
		return f.awaitRoom(ctx)
	case errors.Is(err, errRewound), apiserver.IsGone(err) && time.Since(f.unanswered) >= apiserver.ProbeEvery && f.rewound(ctx, true):
		i.countWatch("rewound")
		i.rewound = true
		i.setBlocked(false) // it was blocked if the waiting batch is of the other history
		return false
	case apiserver.IsGone(err):
		i.countWatch("expired")
		return f.triesAgain(ctx)
	case errors.Is(err, errGeneration):
		i.countWatch("closed")
		return true
	case errors.Is(err, apiserver.ErrSilent):
		i.countWatch("silent")
		i.log.Debug("a watch was silent for too long: reopening it", "scope", i.name, "rv", f.rv, "silent_for", apiserver.Silence)
		return true
	case err == nil:
		i.countWatch("closed")
		// The server ends every watch from time to time; a server that ends them at once gets a delay.
		return got.isLong() || f.reopen.Wait(ctx, nil)
	default:
		i.countWatch("error")
		delay := f.reopen.Next(err)
		i.failed(ctx, "watch", err, delay)
		return i.pause(ctx, err, delay)
	}
}

// note updates the state of f after an HTTP watch.
func (f *follower) note(got *watched, err error) {
	if f.expired > 0 {
		f.informer.metrics.expiredRetries.WithLabelValues(got.retryResult(err)).Inc()
	}
	if got.objects > 0 || got.isLong() {
		f.reopen = retry.New()
	}
	if got.objects > 0 || got.isLong() && !apiserver.IsGone(err) {
		f.expired = 0
	}
	// An API server may return with another history. A watch without any frame may have waited for a resourceVersion that its history has not
	// reached.
	if !errors.Is(err, errBlocked) && (!got.whole || got.frames == 0) {
		f.doubtful = true
	}
}

// awaitRoom waits until the queue has room again.
func (f *follower) awaitRoom(ctx context.Context) bool {
	// Not forever: in a queue that others keep full, this resource gets its share only if it asks for it.
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

// triesAgain waits until an expired watch is retried on another connection. It returns false after enough retries, or if ctx ended.
func (f *follower) triesAgain(ctx context.Context) bool {
	// After a change of the definition every API server starts its history over.
	if f.expired == freshTries || f.generation != f.informer.generation.number.Load() {
		return false
	}
	if f.expired == 0 {
		f.again = retry.New() // not reopen: history expires meanwhile, and an outage may have made its delay long
	}
	f.expired++
	return f.again.Wait(ctx, nil)
}

// replayWithin is the silence of an open watch after which it counts as having sent all former changes. Without bookmarks, nothing shows that.
const replayWithin = 2 * time.Minute

// watch opens one HTTP watch and applies its events until it ends. The error is nil if it ended cleanly.
func (f *follower) watch(ctx context.Context) (got watched, err error) {
	i := f.informer
	s := newStream(ctx, i, f.reader)
	defer s.close()
	i.generation.endWatch.Store(&s.end)
	defer i.generation.endWatch.Store(nil)
	if err := s.open(f.rv, f.expired > 0); err != nil {
		return got, err
	}
	defer func() { got.lasted = time.Since(s.watch.Opened) }()
	got.generation = i.generation.number.Load()
	i.state.answered(s.watch.Opened, 0)
	i.recovered()
	if f.probeDue() && f.rewound(ctx, false) {
		return got, errRewound
	}
	s.done.Go(func() {
		defer close(s.batches)
		s.err = s.read()
	})
	quiet := time.AfterFunc(replayWithin, func() { i.store.AwaitReplay(0) })
	defer quiet.Stop()
	for b := range s.batches {
		quiet.Stop()
		if f.rewoundBefore(ctx, b, got.objects == 0) {
			return got, errRewound
		}
		if ctx.Err() != nil {
			return got, context.Cause(ctx) // then the probe had no answer, and the next run reads the batch again
		}
		f.apply(ctx, s, b)
		quiet.Reset(replayWithin)
		got.frames += len(b.events)
		got.objects += b.objects
		f.generation = got.generation
	}
	got.whole = s.whole
	return got, s.err
}

// rewoundBefore reports whether a batch is of another history. first: no object precedes it on its HTTP watch. The first object always
// waits for a probe.
func (f *follower) rewoundBefore(ctx context.Context, b *batch, first bool) bool {
	if b.objects > 0 && first && f.rewound(ctx, true) {
		return true
	}
	return b.bookmarks > 0 && f.probeDue() && f.rewound(ctx, false)
}

// apply applies a batch to the store.
func (f *follower) apply(ctx context.Context, s *stream, b *batch) {
	i := f.informer
	if !i.store.Apply(ctx, b.events, func() { s.applying.Store(max(1, int64(time.Since(s.watch.Opened)))) }) {
		return // the store may lack a part of it: no later event may be applied either
	}
	s.applying.Store(0)
	f.rv = b.events[len(b.events)-1].Version
	for k := range slices.Backward(b.events) {
		last := &b.events[k]
		if last.Type == watch.Bookmark {
			continue
		}
		if gone := last.Type == watch.Deleted; !gone || !i.selection.HasServerSelector() { // otherwise it may still exist
			if w := (&witness{object: last.Object, gone: gone}); f.doubtful {
				f.doubted = w
			} else {
				f.witness = w
			}
		}
		break
	}
	i.seen(b.read)
	clear(b.events)
}

func (i *Informer) countWatch(result string) { i.metrics.watches.WithLabelValues(result).Inc() }

// setBlocked records whether the watch is ended because the queue is full: then it is not stale.
func (i *Informer) setBlocked(blocked bool) {
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = blocked
	if blocked {
		i.metrics.blocked.Set(1)
		s.moveLocked(PhaseLive, PhaseBlocked)
	} else {
		i.metrics.blocked.Set(0)
		s.life = time.Now() // no response was possible before
		s.moveLocked(PhaseBlocked, PhaseLive)
	}
}

// An etcd that is restored from a copy continues with another history. Changes after the copy never happened there, and their
// resourceVersions are assigned a second time, to other changes. No request fails because of it. If the history has not reached a
// resourceVersion (yet), kube-apiserver 1.36 answers requests for it as follows:
//
//   - WATCH: 200, and no frame until the timeout, not even a bookmark. It omits the events up to the resourceVersion, and sends those
//     after it. The same with and without a watch cache.
//   - LIST Exact: 504, reason Timeout, "Too large resource version", with a watch cache after 3 s, without (and for a name)
//     at once. A lagging API server answers the same.
//   - LIST NotOlderThan: waits for 3 s, then the same 504; without a watch cache at once.
//   - LIST without resourceVersion: 200, at the last one now: the only answer that distinguishes the two.
//
// If etcd has compacted a resourceVersion, a watch cache may still serve LIST Exact and WATCH. Without one, LIST is 410, and WATCH is
// 200 and an ERROR frame of 410.

// probeDue reports whether a probe may be made at rest. The first object on a watch that was not probed waits for its own probe.
func (f *follower) probeDue() bool { return time.Since(f.probed) >= apiserver.ProbeEvery }

// rewound reports whether the API server has another history than the one followed so far. It asks only in doubt. If the API server does
// not answer, it returns false, and the doubt remains. thorough: an object waits for the answer. Then it repeats a request that fails, and
// makes a second one if one list is not enough.
func (f *follower) rewound(ctx context.Context, thorough bool) bool {
	// The time limit begins after the wait for the budget: an object must not pass unchecked because other scopes have asked many questions.
	if !f.doubtful || f.informer.deps.Lookups.Wait(ctx) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, apiserver.ProbeTimeout)
	defer cancel()
	f.probed = time.Now()
	var same, settled bool
	err := retry.Do(ctx, func() (err error) {
		same, settled, err = f.compare(ctx, thorough)
		if err == nil && same && settled && f.doubted != nil { // later versions came while there was no answer
			f.witness, f.doubted = f.doubted, nil
			same, settled, err = f.compare(ctx, thorough)
		}
		if err != nil {
			f.informer.noteError("probe", err)
		}
		return err
	}, func(err error, _ time.Duration) bool { return thorough && !apiserver.IsPermanent(err) })
	if err != nil {
		f.unanswered = time.Now()
		return false
	}
	f.doubtful = !settled
	return !same
}

// compare compares the last seen version with the API server's. settled: no request can find out more. Usually one list suffices: it has
// the current resourceVersion, and the object as it was last seen.
func (f *follower) compare(ctx context.Context, thorough bool) (same, settled bool, err error) {
	i := f.informer
	if f.witness == nil || f.witnessHidden {
		now, err := i.Latest(ctx)
		return now >= f.rv, true, err
	}
	o := f.witness.object
	found, now, err := i.look(ctx, backfill.Question{Ref: o.Ref}, metav1.ListOptions{Limit: 1})
	switch {
	case errors.Is(err, apiserver.ErrUnanswerable), apiserver.IsPermanent(err):
		f.witnessHidden = true
		same, settled, err := f.compare(ctx, thorough)
		f.witnessHidden = err == nil // otherwise lists are refused at present, and whether single objects can be read is unknown
		return same, settled, err
	case err != nil:
		return true, false, err
	case now < f.rv:
		return false, true, nil
	case f.witness.gone && found == nil && !thorough:
		return true, false, nil // it may have been deleted once more, in another history
	case !f.witness.gone && found != nil && sameVersion(found.Object, o):
		return true, true, nil
	}
	same, known, err := i.sameHistory(ctx, f.witness)
	return same || !known, true, err
}

// Latest returns the current resourceVersion of etcd.
func (i *Informer) Latest(ctx context.Context) (uint64, error) {
	return i.deps.Client.Latest(ctx, i.resource, i.selection.Namespace, apiserver.JSON,
		metav1.ListOptions{LabelSelector: i.selection.LabelSelector, FieldSelector: i.selection.FieldSelector})
}

// witness is a seen version that identifies history.
type witness struct {
	object *object.Object
	gone   bool // the version is its deletion
}

// sameHistory reports whether a seen version is part of the API server's history. known is false if that history does not go back so far,
// or may not be read. uid and resourceVersion are not enough: after a restore, an object of the copy may change again and get the same
// ones. Then the times of its managedFields differ.
func (i *Informer) sameHistory(ctx context.Context, w *witness) (same, known bool, err error) {
	o := w.object
	f, err := i.ask(ctx, backfill.Question{Ref: o.Ref, At: o.ResourceVersion})
	absent := err == nil && f == nil
	if absent && w.gone { // that may be because it never existed
		f, err = i.ask(ctx, backfill.Question{Ref: o.Ref, At: o.ResourceVersion - 1})
	}
	switch {
	case errors.Is(err, apiserver.ErrUnanswerable), apiserver.IsPermanent(err):
		return false, false, nil
	case err != nil:
		return false, false, err
	case absent:
		return f != nil && f.Object.Ref.UID == o.Ref.UID, true, nil
	case w.gone: // or the server assigns no new version to deletions
		return false, f.Object.ResourceVersion != o.ResourceVersion, nil
	}
	return sameVersion(f.Object, o), true, nil
}

// sameVersion reports whether a and b are one version of one object.
func sameVersion(a, b *object.Object) bool {
	return a.Ref.UID == b.Ref.UID && a.ResourceVersion == b.ResourceVersion && a.Managed == b.Managed
}
