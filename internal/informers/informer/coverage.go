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

// A watch that ends is followed by another one, which sends everything since. So no change is lost,
// but the changes in between have the time at which the agent saw them. A reader who asks for a
// moment in between must know that. The watch alone does not show how long the span was: an API
// server may hold back what it has, or lag behind another one.
//
// So each end of a watch begins an interruption, at the last frame before it. After the next watch
// is open, a list of one object gives the version of that moment. The interruption is over once the
// watch has shown this version, by a change or a bookmark. If no change precedes that, nothing has
// happened in between: then there was no interruption. After a watch that held back changes
// (buffering.go), the next one must also have shown that it holds back nothing.
//
// A watch that ends again and again costs one such list a minute, and not one for each end. A
// change is asked about at once: only then an interruption can be reported.

const (
	// frameWithin is the longest time between two frames of a watch with bookmarks. The API server
	// sends one each minute.
	frameWithin = 65 * time.Second
	// askEvery is the least time between two questions, unless there are changes.
	askEvery = time.Minute
	// swift is the longest time from the end of a watch that the API server ends, as each one is
	// from time to time, to the next watch. The version must be shown within the same time after
	// that. Then there was no interruption.
	swift = time.Second
	// ReportFor is how long an interruption, or a hidden span, is reported after its end.
	ReportFor = 10 * time.Minute
	// nearby is the time between two interruptions of one reason that are reported as one.
	nearby = 2 * time.Second
	// maxInterruptions bounds the interruptions of one report. Later ones are joined with the last.
	maxInterruptions = 64
)

// coverage knows when a scope was not observed. Times are those of the run.
type coverage struct {
	// settled reports whether all that lists have shown has its time, and the latest of these
	// times.
	settled func() (time.Time, bool)
	asks    chan struct{} // capacity 1: the version that the watch must show is not known

	mu          sync.Mutex
	watching    bool      // a watch is open
	mayHoldBack bool      // it follows one that held back changes: its frames may come with its end
	marks       bool      // the watches have bookmarks
	last        time.Time // of the last frame, or the last list, that the store has
	asked       time.Time // when the version was last asked for
	open        *interruption
	ended       []endedInterruption // those to report
	keep        time.Time           // those that were noted before are no longer reported
}

// interruption is one that is not over. Its phases: there is no watch; the watch is open; the
// version that the watch must show is known.
type interruption struct {
	object.Interruption
	clean  bool      // the API server has ended the watch, and no other interruption followed
	began  time.Time // when it was found
	opened time.Time // of the last watch since; zero: there was none
	round  int       // counts the watches, and what has interrupted them
	proof  uint64    // the version that the watch must show; 0: not known
	// changed is the lowest version of a change since. 0: there was none. 1: its version is not
	// known, so it precedes any proof.
	changed uint64
	shown   uint64 // the highest version that this watch has shown
}

type endedInterruption struct {
	object.Interruption
	noted time.Time
}

// begin begins an interruption now, because of the start of the run. It began at from.
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
		from = c.last // the time between the last frame and from is not known to be whole
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

// openWatch notes that a watch is open. asked: the version is being asked for anyway. mayHoldBack:
// it may hold back changes until its end, so the interruption lasts until pass is called.
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

// openWhole notes that a watch is open, and has shown all up to a version by the time ended. It was
// asked for at the time asked, and the API server had no later version then. So no list of one
// object is needed.
func (c *coverage) openWhole(version uint64, asked, ended time.Time) {
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

// pass notes that the watch holds back nothing.
func (c *coverage) pass(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayHoldBack = false
	if c.open != nil {
		c.endLocked(now)
	}
}

// askLocked makes the version be asked for, unless it is known, or was asked for within a minute
// and there is no change.
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

// noteChange notes that a list shows changes, or that history is lost: it is not known when these
// happened. There is no watch, so an interruption is open.
func (c *coverage) noteChange() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != nil {
		c.open.changed = 1
	}
}

// show notes a batch of frames that the store has: the lowest version of its changes, 0 if it has
// only bookmarks, and its highest version.
func (c *coverage) show(lowest, highest uint64, bookmark bool, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	silence := at.Sub(c.last)
	before := c.last
	c.last = at
	marks := c.marks
	c.marks = c.marks || bookmark
	o := c.open
	if o == nil {
		if !marks || silence <= frameWithin {
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

// settle notes that the watch has shown everything up to the version of a list. began is when the
// list began, and round the one of that time.
func (c *coverage) settle(version uint64, round int, began, now time.Time) {
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

// prove notes that an API server was at a version after the beginning of a round.
func (c *coverage) prove(round int, version uint64, at time.Time) {
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
	settled, isSettled := c.settled()
	if !isSettled {
		return
	}
	// A frame may have been read before the changes of a list had their times.
	if settled.After(at) {
		at = settled
	}
	c.open = nil
	preceded := o.changed != 0 && o.changed <= o.proof
	isSwift := o.clean && o.opened.Sub(o.began) <= swift && at.Sub(o.opened) <= swift
	if !preceded || isSwift {
		return
	}
	o.Until = at
	c.noteLocked(o.Interruption, at)
}

// noteLocked adds an interruption to those to report.
func (c *coverage) noteLocked(i object.Interruption, now time.Time) {
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

// question returns the round for which a version is to be asked now, or false if none is.
func (c *coverage) question(now time.Time) (round int, asks bool) {
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
	if c.open != nil { // a list may have settled since the last frame
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
	_, err := i.latestOnWatch(ctx)
	return err
}

// latestOnWatch returns the current resourceVersion of etcd. If the watch must show a version, it
// is this one.
func (i *Informer) latestOnWatch(ctx context.Context) (uint64, error) {
	round, asks := i.coverage.question(i.deps.Now())
	version, err := i.Latest(ctx)
	if asks && err == nil {
		i.coverage.prove(round, version, i.deps.Now())
	}
	return version, err
}
