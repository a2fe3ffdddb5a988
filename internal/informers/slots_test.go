package informers_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kubecdc/kubecdc/internal/informers"
)

// Unanswered lists do not block lists of other groups, and do not block each other forever.
func TestListsThatAreNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newCustoms(t), newMemory()
		s.define(true)
		s.put("a", "1", nil)
		held, hung := make(chan struct{}), atomic.Int64{}
		t.Cleanup(func() { close(held) })
		answer := func(_ http.ResponseWriter, r *http.Request) {
			hung.Add(1)
			select {
			case <-held:
			case <-r.Context().Done():
			}
		}
		s.refused.Store(&answer)
		var names []string
		for n := range 2 * informers.ConcurrentLists {
			names = append(names, strings.Repeat("n", n+1))
		}
		l := live(t, s.apiServer, m, func(o *informers.Options, r *recorder) {
			takes(widgets(inNamespaces(names...)))(o, r)
		})
		eventually(t, "lists to hang", func() bool { return hung.Load() >= informers.ConcurrentLists })
		l.reload(t, specOf(widgets(inNamespaces(names...)), rule(nil)))
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		eventually(t, "all lists to be asked for", func() bool { return hung.Load() >= int64(len(names)) })
	})
}
