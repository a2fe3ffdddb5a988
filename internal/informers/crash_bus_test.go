package informers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// moments counts the crash points that agents reach, and kills the running agent at one of them.
type moments struct {
	mu    sync.Mutex
	over  bool     // the script is over: points do not count any more
	count int      // points reached
	at    int      // the point of the kill; 0: none
	kill  func()   // kills the running agent, and does not block
	where string   // the point at which it was killed; "": it was not
	names []string // of all points, if there is no kill
}

// beforeSave is the name of the crash points right before a save.
const beforeSave = "before a save"

// reach is called at a crash point. The caller holds no lock.
func (m *moments) reach(name func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return
	}
	m.count++
	switch m.at {
	case 0:
		m.names = append(m.names, name())
	case m.count:
		m.where = name()
		m.kill()
	}
}

// reachDelta is reach for the moments of a broker.
func (m *moments) reachDelta(moment string, d *object.Delta) {
	m.reach(func() string {
		if d.Stream != nil {
			return fmt.Sprintf("%s of %s of %s", moment, short(d), d.Stream.Scope)
		}
		return fmt.Sprintf("%s of %s rv=%d h%d", moment, short(d), d.ResourceVersion, d.History)
	})
}

// setKill sets what kills the running agent.
func (m *moments) setKill(kill func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kill = kill
}

// killNow kills the running agent, if it is not killed yet.
func (m *moments) killNow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kill()
}

// end ends the counting.
func (m *moments) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
}

// disk is the store of a checkpoint that survives the agent. After a kill it refuses all saves,
// until the next agent loads the checkpoint.
type disk struct {
	points *moments
	saved  func(scopes map[string]checkpoint.Scope) // called after each save

	mu   sync.Mutex
	data []byte
	dead bool
}

var errKilled = errors.New("the agent was killed")

func (d *disk) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
}

// reach reaches a crash point. It returns an error if the agent is killed there, or was before.
func (d *disk) reach(name string) error {
	d.points.reach(func() string { return name })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errKilled
	}
	return nil
}

func (d *disk) Save(_ context.Context, data []byte) error {
	if err := d.reach(beforeSave); err != nil {
		return err
	}
	doc, err := checkpoint.Decode(data)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.data = data
	d.mu.Unlock()
	d.saved(doc.Scopes)
	return d.reach("after a save")
}

func (d *disk) Load(context.Context) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = false
	return d.data, nil
}

func (d *disk) Lock(context.Context) (unlock func() error, err error) {
	return func() error { return nil }, nil
}

func (d *disk) Delete(context.Context) error { return nil }
func (d *disk) String() string               { return "the disk" }
