package informers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// moments counts the crash points that an agent reaches, and kills it at one of them.
type moments struct {
	mu     sync.Mutex
	counts bool            // the script is being played
	count  int             // points reached while it was
	at     int             // the point of the kill; 0: none
	kill   func()          // kills the agent that runs. It does not block.
	killed <-chan struct{} // closed once the agent is killed
	where  string          // the point at which it was killed; "": it was not
	names  []string        // of all points, if none is the one of the kill
}

// reach is called at a crash point, with nothing locked.
func (m *moments) reach(name func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.counts {
		return
	}
	m.count++
	switch m.count {
	case m.at:
		m.where = name()
		m.kill()
	default:
		if m.at == 0 {
			m.names = append(m.names, name())
		}
	}
}

// stop ends the counting.
func (m *moments) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts = false
}

// atDelta is the crash point of a broker.
func (m *moments) atDelta(moment string, d *object.Delta) {
	m.reach(func() string {
		if d.Stream != nil {
			return fmt.Sprintf("%s of %s of %s", moment, short(d), d.Stream.Scope)
		}
		return fmt.Sprintf("%s of %s rv=%d h%d", moment, short(d), d.ResourceVersion, d.History)
	})
}

// disk is the storage of a checkpoint that outlives the agent. After a kill it takes nothing until the next agent loads it.
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

func (d *disk) isDead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

func (d *disk) Lock(context.Context) (unlock func() error, err error) {
	return func() error { return nil }, nil
}

func (d *disk) Load(context.Context) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = false
	return d.data, nil
}

func (d *disk) Save(_ context.Context, data []byte) error {
	d.points.reach(func() string { return "before a save" })
	if d.isDead() {
		return errKilled
	}
	doc, err := checkpoint.Decode(data)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.data = data
	d.mu.Unlock()
	d.saved(doc.Scopes)
	d.points.reach(func() string { return "after a save" })
	if d.isDead() {
		return errKilled
	}
	return nil
}

func (d *disk) Delete(context.Context) error { return nil }
func (d *disk) String() string               { return "the disk" }
