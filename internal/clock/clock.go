package clock

import (
	"context"
	"os"
	"sync"
	"time"
)

const (
	// leastStep is the change of the wall clock, against the monotonic one, that counts as a step.
	leastStep = time.Second
	// slewFor is the time within which the change must happen. Slower ones are followed.
	slewFor = time.Minute
	// leastStop is the time between two readings after which the process stood still.
	leastStop = 2 * time.Second
	// readEvery is the interval of readings. It is short against leastStop: a stop of that length
	// always shows.
	readEvery = 500 * time.Millisecond
)

// Why is the cause of an Interruption.
type Why string

// The causes.
const (
	Stepped Why = "stepped" // the wall clock was set, or the machine was suspended
	Stopped Why = "stopped" // the process stood still
)

// Interruption is a span of time in which the times of the run are not known to fit what happened.
type Interruption struct {
	From, To time.Time // the lower and the higher of the times before and after it
	Why      Why
	Step     time.Duration // how far the wall clock was set; negative: back
}

// Clock gives the times of a run. It is safe for concurrent use.
type Clock struct {
	source func() reading
	report func(Interruption)

	mu       sync.Mutex
	watched  bool    // Run takes readings
	previous reading // the last one
	last     int64   // the last time that was given, or could have been
	offset   int64   // of the wall clock against the monotonic one
	since    int64   // monotonic time of offset
}

// reading is one moment on two clocks, in nanoseconds.
type reading struct {
	wall int64 // since 1970
	mono int64 // since any moment
}

// New returns a clock at the current time. It calls report for each interruption, without a lock
// held; report must not block. nil: nobody asks.
func New(report func(Interruption)) *Clock { return newClock(systemClock(), report) }

func newClock(source func() reading, report func(Interruption)) *Clock {
	now := source()
	return &Clock{
		source:   source,
		report:   report,
		previous: now,
		last:     now.wall,
		offset:   now.wall - now.mono,
		since:    now.mono,
	}
}

// Now returns the current time of the run. It is never before an earlier result.
func (c *Clock) Now() time.Time { return c.read(false) }

// Wall returns the time of the wall clock, which may go back.
func (c *Clock) Wall() time.Time { return time.Unix(0, c.source().wall) }

// Ahead returns how far the times of the run are ahead of the wall clock. Above 0 they stand still.
func (c *Clock) Ahead() time.Duration {
	now := c.Now()
	return max(0, now.Sub(c.Wall()))
}

// Begin makes the times begin no earlier than t.
func (c *Clock) Begin(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.IsZero() {
		c.last = max(c.last, t.UnixNano())
	}
}

// Run detects interruptions until ctx ends, also if nobody asks for the time.
func (c *Clock) Run(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	c.read(true)
	defer c.unwatch()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.read(true)
		}
	}
}

func (c *Clock) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = false
}

// read takes a reading, and returns the time of the run. watching: others follow within readEvery.
func (c *Clock) read(watching bool) time.Time {
	c.mu.Lock()
	found := c.takeLocked(c.source())
	c.watched = c.watched || watching
	now := c.last
	c.mu.Unlock()
	if found != nil && c.report != nil {
		c.report(*found)
	}
	return time.Unix(0, now)
}

// takeLocked compares a reading with the previous one, and moves the time of the run. It returns an
// interruption between them, nil if there was none.
func (c *Clock) takeLocked(now reading) *Interruption {
	before := c.last
	passed := now.mono - c.previous.mono
	own := max(before, c.previous.wall+passed) // the time if nobody had set the clock
	offset := now.wall - now.mono
	moved := time.Duration(offset - c.offset)
	stepped := moved.Abs() >= leastStep
	stopped := c.watched && time.Duration(passed) >= leastStop
	c.previous = now
	if stepped || now.mono-c.since >= int64(slewFor) {
		c.offset = offset
		c.since = now.mono
	}
	c.last = max(before, now.wall)
	switch {
	case stepped:
		c.last = max(own, now.wall)
		return &Interruption{
			From: time.Unix(0, min(before, now.wall)),
			To:   time.Unix(0, c.last),
			Why:  Stepped,
			Step: moved,
		}
	case stopped:
		return &Interruption{From: time.Unix(0, before), To: time.Unix(0, c.last), Why: Stopped}
	}
	return nil
}

// shiftVariable names an environment variable with the name of a file. The duration in that file is
// added to the wall clock. Only tests set it, when they link the agent: other builds cannot be
// shifted.
var shiftVariable string //nolint:gochecknoglobals // the linker can set nothing else

// systemClock returns the clocks of the machine.
func systemClock() func() reading {
	began := time.Now()
	clock := func() reading {
		now := time.Now()
		return reading{wall: now.UnixNano(), mono: int64(now.Sub(began))}
	}
	if shiftVariable == "" {
		return clock
	}
	return shifted(clock, os.Getenv(shiftVariable))
}

// shifted returns a clock whose wall time is shifted by the duration in a file, if that can be
// read.
func shifted(clock func() reading, file string) func() reading {
	return func() reading {
		now := clock()
		text, err := os.ReadFile(file)
		if err != nil {
			return now
		}
		if d, err := time.ParseDuration(string(text)); err == nil {
			now.wall += int64(d)
		}
		return now
	}
}
