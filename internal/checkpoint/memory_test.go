package checkpoint_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// memory is a store that keeps nothing beyond the test.
type memory struct {
	mu     sync.Mutex
	data   []byte
	saves  int // successful ones
	tries  int
	locked bool
	err    error         // of Save and Load, nil: none
	lost   error         // of Save, which saves nevertheless
	delay  time.Duration // of each Save
}

func (m *memory) Lock(context.Context) (func() error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, &checkpoint.Error{Kind: checkpoint.ErrLocked, Where: "memory", What: "locked", Remedy: "wait"}
	}
	m.locked = true
	return func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.locked = false
		return nil
	}, nil
}

func (m *memory) Load(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data, m.err
}

func (m *memory) Save(_ context.Context, data []byte) error {
	if m.delay > 0 { // no timer that has already expired, see waitFor in the tests of package leader
		<-time.After(m.delay)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries++
	if m.err != nil {
		return m.err
	}
	m.data = data
	m.saves++
	return m.lost
}

func (m *memory) Delete(context.Context) error { return nil }
func (m *memory) String() string               { return "memory" }

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) lose(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = err
}

// counts returns the number of successful saves, and of all attempts.
func (m *memory) counts() (saves, tries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saves, m.tries
}

// there returns the stored scopes.
func (m *memory) there(t *testing.T) map[string]checkpoint.Scope {
	t.Helper()
	d, err := checkpoint.Read(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if d == nil {
		return nil
	}
	return d.Scopes
}

// informer reports a position that a test sets.
type informer struct {
	mu      sync.Mutex
	p       checkpoint.Position
	ok      bool
	asked   int
	changes uint64
}

func at(rv, acked uint64) checkpoint.Position {
	return checkpoint.Position{Scope: checkpoint.Scope{
		Version:         "v1",
		Resource:        "pods",
		Kind:            "Pod",
		ResourceVersion: rv,
	}, Acked: acked}
}

func informerAt(rv, acked uint64) *informer { return &informer{p: at(rv, acked), ok: true} }

func (i *informer) set(rv, acked uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.p, i.ok = at(rv, acked), true
	i.changes++
}

func (i *informer) change(f func(*checkpoint.Position)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(&i.p)
	i.changes++
}

func (i *informer) position() (checkpoint.Position, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	return i.p, i.ok
}

// count counts the changes of the position.
func (i *informer) count() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.changes
}

func newKeeper(t *testing.T, s checkpoint.Store) *checkpoint.Keeper {
	t.Helper()
	k := checkpoint.NewKeeper(s, us, slog.New(slog.DiscardHandler), nil)
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// run starts Run, and returns a function that stops it and returns its error.
func run(t *testing.T, k *checkpoint.Keeper) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func rvs(scopes map[string]checkpoint.Scope) map[string]uint64 {
	out := map[string]uint64{}
	for name, s := range scopes {
		out[name] = s.ResourceVersion
	}
	return out
}
