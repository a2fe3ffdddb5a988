package informer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// After the end of a watch, the next one sends everything since. So no change is lost, but the
// changes in between get the time at which the agent saw them. A reader who asks for a moment in
// between must know that. The watch alone does not show how long that span was: an API server may
// hold back changes, or lag behind another one.
//
// So each end of a watch begins an interruption, at the last frame before it. After the next watch
// is open, a list of one object gives the version of that moment: the proof. The interruption is
// over once the watch has shown this version, by a change or a bookmark. If it shows no change
// before that, nothing has happened in between, and no interruption is reported. After a watch that
// held back changes (buffering.go), the next one must also have shown that it holds back nothing.
//
// Watches may end again and again. Then such a list is made once a minute, not for each end. But
// after a change it is made at once: only a change makes an interruption that is reported.

const (
	// frameWithin is the longest time between two frames of a watch with bookmarks. The API server
	// sends one each minute.
	frameWithin = 65 * time.Second
	// askEvery is the least time between two questions, unless there are changes.
	askEvery = time.Minute
	// swift bounds an interruption that is not reported. The API server ends each watch from time
	// to time. The next watch must be open within this time, and then show the version within the
	// same time.
	swift = time.Second
	// ReportFor is how long an interruption, or a hidden span, is reported after its end.
	ReportFor = 10 * time.Minute
	// nearby is the time between two interruptions of one reason that are reported as one.
	nearby = 2 * time.Second
	// maxInterruptions bounds the interruptions of one report. Later ones are joined with the last.
	maxInterruptions = 64
)

// coverage knows when a scope was not observed. Times are those of the run. The owner, the reader
// of a watch, and askForVersions note what they have seen. Any goroutine may ask for a report.
type coverage struct {
	// listsSent reports whether all changes that lists have shown are sent, and so have their
	// times. It also returns the latest of these times.
	listsSent func() (time.Time, bool)
	asks      chan struct{} // capacity 1: askForVersions is to get the version that the watch must show

	mu           sync.Mutex
	watching     bool      // a watch is open
	mayHoldBack  bool      // the watch follows one that held back changes: its frames may come with its end
	hasBookmarks bool      // the watches have bookmarks
	last         time.Time // of the last frame, or the last list, that the store has
	asked        time.Time // when the version was last asked for
	open         *interruption
	ended        []endedInterruption // to report
	keep         time.Time           // interruptions that were noted before this time are no longer reported
}

// interruption is one that is not over. It has three phases: there is no watch; the watch is open;
// the version that the watch must show is known.
type interruption struct {
	object.Interruption
	clean  bool      // the API server has ended the watch, and no other interruption followed
	began  time.Time // when it was found
	opened time.Time // when the last watch since was opened; zero: there was none
	round  int       // counts the watches, and the interruptions
	proof  uint64    // the version that the watch must show; 0: not known
	// changed is the lowest version of a change since the interruption began. 0: there was none. 1:
	// the version is not known, so the change precedes any proof.
	changed uint64
	shown   uint64 // the highest version that this watch has shown
}

type endedInterruption struct {
	object.Interruption
	noted time.Time
}

// begin begins an interruption at from, because the run starts now.
func (c *coverage) begin(from, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from.IsZero() || from.After(now) {
		from = now
	}
	c.last = from
	c.interruptLocked(from, object.InterruptedStart, now)
}

// endWatch begins an interruption at the last frame. clean: the API server has ended the watch.
func (c *coverage) endWatch(why object.InterruptionReason, clean bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isFirst := c.open == nil
	c.interruptLocked(c.last, why, now)
	c.open.clean = clean && isFirst
	c.watching = false
}

// interrupt begins an interruption at from, while the watch continues.
func (c *coverage) interrupt(from time.Time, why object.InterruptionReason, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hasShown := c.last.After(from) // before this call
	if !hasShown {
		from = c.last // it is not known whether the watch has shown all between the last frame and from
	}
	c.interruptLocked(from, why, now)
	if hasShown { // it may have been a change
		c.open.changed = 1
	}
	if c.watching {
		c.askLocked(now)
	}
}

func (c *coverage) interruptLocked(from time.Time, why object.InterruptionReason, now time.Time) {
	if c.open == nil {
		c.open = &interruption{Interruption: object.Interruption{From: from, Why: why}, began: now}
	}
	o := c.open
	if from.Before(o.From) {
		o.From = from
	}
	o.clean = false
	o.round++
	o.proof, o.shown = 0, 0
}

// openWatch notes that a watch is open. asked: another request asks for the version anyway.
// mayHoldBack: the watch may hold back changes until its end, so the interruption lasts until
// notePassed is called.
func (c *coverage) openWatch(asked, mayHoldBack bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching = true
	c.mayHoldBack = mayHoldBack
	c.open.opened = now
	c.open.round++
	c.open.proof, c.open.shown = 0, 0
	if !asked {
		c.askLocked(now)
	}
}

// openProved notes that a watch is open, and by the time ended had shown all up to a version. It
// was opened at the time asked, and the API server had no later version then. So this version is
// the proof, and no list of one object is needed.
func (c *coverage) openProved(version uint64, asked, ended time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching, c.mayHoldBack = true, false
	c.last = asked
	o := c.open
	o.opened = ended
	o.round++
	o.proof, o.shown = version, version
	c.endLocked(ended)
}

// notePassed notes that the watch holds back nothing.
func (c *coverage) notePassed(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayHoldBack = false
	if c.open != nil {
		c.endLocked(now)
	}
}

// askLocked makes askForVersions ask for the version. It does not if the version is known, or if
// there is no change and it was asked for within a minute.
func (c *coverage) askLocked(now time.Time) {
	if c.open.proof == 0 && (c.open.changed != 0 || c.asked.IsZero() || now.Sub(c.asked) >= askEvery) {
		broadcast.Wake(c.asks)
	}
}

// noteList notes that the store has a list.
func (c *coverage) noteList(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = now
}

// noteChange notes that a list shows changes, or that history is lost: nobody knows when the
// changes happened. There is no watch, so an interruption is open.
func (c *coverage) noteChange() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != nil {
		c.open.changed = 1
	}
}

// noteFrames notes a batch of frames that the store has. lowest is the lowest version of its
// changes, 0 if it has only bookmarks, and highest is its highest version.
func (c *coverage) noteFrames(lowest, highest uint64, bookmark bool, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	silence := at.Sub(c.last)
	before := c.last
	c.last = at
	hadBookmarks := c.hasBookmarks
	c.hasBookmarks = c.hasBookmarks || bookmark
	o := c.open
	if o == nil {
		if !hadBookmarks || silence <= frameWithin {
			return
		}
		// Changes that were held back may come in several batches.
		c.interruptLocked(before, object.InterruptedSilent, at)
		o = c.open
	}
	if lowest != 0 && (o.changed == 0 || lowest < o.changed) {
		o.changed = lowest
	}
	o.shown = max(o.shown, highest)
	c.askLocked(at)
	c.endLocked(at)
}

// openRound returns the round of the interruption that is not over, 0 if there is none.
func (c *coverage) openRound() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return 0
	}
	return c.open.round
}

// noteSettled notes that the watch has shown everything up to the version of a list. began is the
// time at which the list began, and round is the round of that time.
func (c *coverage) noteSettled(version uint64, round int, began, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if began.After(c.last) {
		c.last = began
	}
	o := c.open
	if o == nil {
		return
	}
	if o.proof == 0 && o.round == round {
		o.proof = version
	}
	o.shown = max(o.shown, version)
	c.endLocked(now)
}

// noteProof notes that an API server was at a version after the beginning of a round.
func (c *coverage) noteProof(round int, version uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil || c.open.round != round {
		return
	}
	c.open.proof = version
	c.endLocked(at)
}

// endLocked ends the interruption if the watch has shown what it must.
func (c *coverage) endLocked(at time.Time) {
	o := c.open
	if o.proof == 0 || o.shown < o.proof || c.mayHoldBack {
		return
	}
	sentAt, isSent := c.listsSent()
	if !isSent {
		return
	}
	// A frame may have been read before the changes of a list had their times.
	if sentAt.After(at) {
		at = sentAt
	}
	c.open = nil
	preceded := o.changed != 0 && o.changed <= o.proof
	isSwift := o.clean && o.opened.Sub(o.began) <= swift && at.Sub(o.opened) <= swift
	if !preceded || isSwift {
		return
	}
	o.Until = at
	c.addEndedLocked(o.Interruption, at)
}

// addEndedLocked adds an interruption that is over to those to report.
func (c *coverage) addEndedLocked(i object.Interruption, now time.Time) {
	c.ended = slices.DeleteFunc(c.ended, func(e endedInterruption) bool { return e.noted.Before(c.keep) })
	n := len(c.ended)
	isNear := n > 0 && c.ended[n-1].Why == i.Why && i.From.Sub(c.ended[n-1].Until) <= nearby
	if n == maxInterruptions || isNear {
		last := &c.ended[n-1]
		if i.From.Before(last.From) {
			last.From = i.From
		}
		last.Until, last.noted = i.Until, now
		return
	}
	c.ended = append(c.ended, endedInterruption{i, now})
}

// takeQuestion returns the round for which the caller must ask for a version now, or false if there
// is no need. It notes the time of the question.
func (c *coverage) takeQuestion(now time.Time) (round int, asks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil || c.open.proof != 0 || !c.watching {
		return 0, false
	}
	c.asked = now
	return c.open.round, true
}

// isOpen reports whether an interruption is not over.
func (c *coverage) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open != nil
}

// report returns the time up to which the store has everything, and the interruptions that were
// noted at since or later. The one that is not over is among them.
func (c *coverage) report(since, now time.Time) (to time.Time, all []object.Interruption) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep = since
	if c.open != nil { // since the last frame, the last change of a list may have been sent
		c.endLocked(now)
	}
	for _, e := range c.ended {
		if !e.noted.Before(since) {
			all = append(all, e.Interruption)
		}
	}
	if c.open == nil {
		return c.last, all
	}
	return c.open.From, append(all, c.open.Interruption)
}

// Interrupt notes that the process did not observe from a time on, while its watches were open.
func (i *Informer) Interrupt(from time.Time, why object.InterruptionReason) {
	i.coverage.interrupt(from, why, i.deps.Now())
}

// askForVersions asks the API server for its version after each interruption, until ctx ends.
func (i *Informer) askForVersions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.coverage.asks:
		}
		_ = retry.Do(ctx, func() error { return i.proveOnce(ctx) }, func(err error, _ time.Duration) bool {
			i.noteError("prove", err)
			return i.coverage.isOpen() && !apiserver.IsPermanent(err)
		})
	}
}

func (i *Informer) proveOnce(ctx context.Context) error {
	if err := i.deps.Proofs.Wait(ctx); err != nil {
		return err
	}
	if !i.coverage.isOpen() {
		return nil
	}
	_, err := i.latestAsProof(ctx)
	return err
}

// latestAsProof returns the current resourceVersion of etcd. If the open watch must show a version,
// it is this one.
func (i *Informer) latestAsProof(ctx context.Context) (uint64, error) {
	round, asks := i.coverage.takeQuestion(i.deps.Now())
	version, err := i.Latest(ctx)
	if asks && err == nil {
		i.coverage.noteProof(round, version, i.deps.Now())
	}
	return version, err
}
