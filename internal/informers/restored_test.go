package informers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A scope that takes the place of another one in the run that found etcd restored has its history number: consumers take what has a lower
// one for late.
func TestReloadAfterRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		copied := s.put("a", "1", map[string]string{"in": "1"}).rv
		s.put("a", "2", map[string]string{"in": "1"})
		s.put("a", "2", map[string]string{"in": "1"}) // what follows the restore does not come as far
		l := live(t, s, newMemory(), func(_ *informers.Options, _ *recorder) {})
		l.awaitCaptured(t)
		s.restore(copied)
		s.CloseClientConnections()
		s.put("a", "3", map[string]string{"in": "1"})
		pass(12 * time.Minute) // if the first question breaks with the connection, the next watch asks
		eventually(t, "the restore to be found", func() bool { return l.has("gap 0 rewound") })
		l.awaitCaptured(t)
		l.reload(t, specOf(rule(selected("in=1", ""))))
		s.put("b", "1", map[string]string{"in": "1"})
		eventually(t, "the new scope", func() bool { return l.has("c b uid-102 -→1") })
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, d := range l.deltas {
			if d.Op == object.Created && d.History != 1 {
				t.Errorf("%s has the history number %d, want 1", short(d), d.History)
			}
		}
	})
}
