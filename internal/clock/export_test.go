package clock

import (
	"sync"
	"time"
)

// Machine is a machine whose clocks a test moves.
type Machine struct{ now reading }

// NewMachine returns a machine whose wall clock shows 1,000 s.
func NewMachine() *Machine { return &Machine{reading{wall: int64(1000 * time.Second)}} }

// Clock returns a clock of the machine.
func (m *Machine) Clock(report func(Interruption)) *Clock {
	return newClock(func() reading { return m.now }, report)
}

// Pass lets time pass on both clocks.
func (m *Machine) Pass(d time.Duration) {
	m.now.wall += int64(d)
	m.now.mono += int64(d)
}

// Set sets the wall clock forward, or back if d is negative.
func (m *Machine) Set(d time.Duration) { m.now.wall += int64(d) }

// Tick takes a reading, as Run does.
func (c *Clock) Tick() { c.read(true) }

// Locked is Clock for a machine that several goroutines use.
func (m *Machine) Locked(mu *sync.Mutex, report func(Interruption)) *Clock {
	return newClock(func() reading {
		mu.Lock()
		defer mu.Unlock()
		return m.now
	}, report)
}
