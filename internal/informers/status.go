package informers

import (
	"fmt"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
)

// few names the first of many scopes.
func few(scopes []string) string {
	const named = 10
	if more := len(scopes) - named; more > 0 {
		return fmt.Sprintf("%v and %d more", scopes[:named], more)
	}
	return fmt.Sprint(scopes)
}

// noneStale returns nil if no informer is stale.
func noneStale(all []scope.Status) error {
	var stale []string
	for _, st := range all {
		if st.Health == scope.HealthStale {
			stale = append(stale, st.Scope)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("no sign of life from the API server for too long: %s", few(stale))
	}
	return nil
}

// heldBack reports whether Captured waits for an informer. waiting is one that it waited for: it is checked first, so that each change of one
// of a thousand informers does not check all of them. The next one is random (the order of a map), so that few checks of all are needed.
func (s *Manager) heldBack(waiting **running) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	holds := func(i *running) bool {
		if i == nil || s.active.informers[i.Name()] != i {
			return false
		}
		st := i.Status()
		return st.HoldsBack()
	}
	if len(s.namespaces.undecided) > 0 || holds(*waiting) {
		return true
	}
	for _, i := range s.active.informers {
		if holds(i) {
			*waiting = i
			return true
		}
	}
	return false
}
