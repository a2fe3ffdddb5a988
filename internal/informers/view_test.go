package informers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// mirror follows the views of a manager's informers only by their broadcasts.
type mirror struct {
	manager *Manager

	mu    sync.Mutex
	views map[*running]informer.View
}

// CompareViews makes a mirror follow the informers of a manager until ctx ends. Nothing else must
// run when rest returns. The mirror is then compared with the informers: if they differ, a change
// was not broadcast.
func CompareViews(ctx context.Context, t *testing.T, s *Manager, rest func()) {
	m := &mirror{manager: s, views: map[*running]informer.View{}}
	var g errgroup.Group
	g.Go(func() error {
		for {
			changed := s.mu.Next()
			s.mu.RLock()
			for _, r := range s.active.informers {
				if _, known := m.view(r); !known {
					m.follow(ctx, &g, r)
				}
			}
			s.mu.RUnlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
		}
	})
	for rest(); ctx.Err() == nil; rest() {
		for _, missed := range m.missed() {
			t.Error(missed)
		}
	}
	_ = g.Wait()
}

// follow follows one informer.
func (m *mirror) follow(ctx context.Context, g *errgroup.Group, r *running) {
	v, changed := r.View()
	m.note(r, v)
	g.Go(func() error {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
			v, changed = r.View()
			m.note(r, v)
		}
	})
}

func (m *mirror) view(r *running) (informer.View, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, known := m.views[r]
	return v, known
}

func (m *mirror) note(r *running, v informer.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.views[r] = v
}

// missed returns a message for each informer with a change that was not broadcast.
func (m *mirror) missed() (out []string) {
	m.manager.mu.RLock()
	all := make(map[*running]string, len(m.manager.active.informers))
	for scope, r := range m.manager.active.informers {
		all[r] = scope
	}
	m.manager.mu.RUnlock()
	for r, scope := range all {
		seen, known := m.view(r)
		if now, _ := r.View(); !known || seen != now {
			out = append(out,
				fmt.Sprintf("a change of %s was not broadcast (known: %v):\n  seen %+v\n  now  %+v", scope, known, seen,
					now))
		}
	}
	slices.Sort(out)
	return out
}
