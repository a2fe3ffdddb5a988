package informers_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
)

func (l *life) awaitCaptured(t *testing.T) {
	t.Helper()
	select {
	case <-l.set.Captured():
	case <-time.After(20 * time.Second):
		t.Fatal("the snapshot is not complete")
	}
}

// Enabling or disabling leader election, or renaming its Lease, changes which objects are ignored,
// but not history.
func TestIgnoredObjectsChange(t *testing.T) {
	own := func(names ...string) (out []informers.Name) {
		for _, n := range names {
			out = append(out, informers.Name{Resource: "configmaps", Namespace: "shop", Name: n})
		}
		return out
	}
	for name, c := range map[string]struct{ before, after []informers.Name }{
		"on":                   {nil, own("lease")},
		"off":                  {own("lease"), nil},
		"renamed":              {own("lease"), own("other")},
		"to what is there":     {own("kept"), own("lease")},
		"to what is not":       {own("lease"), own("none")},
		"from what is not":     {own("none"), own("lease")},
		"the checkpoint stays": {own("state", "lease"), own("state")},
	} {
		for _, release := range []string{"new", "old"} {
			t.Run(name+", checkpoint of the "+release+" release", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, m := newAPIServer(t), newMemory()
					for _, o := range []string{"kept", "lease", "other", "state"} {
						s.put(o, "1", nil)
					}
					l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Ignore = c.before })
					l.awaitCaptured(t)
					// Ignored objects change all the time.
					for _, o := range []string{"lease", "state"} {
						s.put(o, "2", nil)
					}
					last := s.put("kept", "2", nil).rv
					eventually(t, "the checkpoint to pass it", func() bool {
						_ = m.Flush(t.Context())
						c, _ := m.saved("configmaps")
						return c.ResourceVersion == last
					})
					l.end()
					if release == "old" {
						for scope, c := range maps.Clone(m.scopes) {
							c.Ignored = nil
							m.scopes[scope] = c
						}
					}
					s.put("new", "1", nil)
					l = live(t, s, m, func(o *informers.Options, _ *recorder) { o.Ignore = c.after })
					l.wait(t, "c new uid-5 -→1")
					s.put("new", "2", nil)
					l.wait(t, "c new uid-5 -→1", "u new uid-5 1→2")
				})
			})
		}
	}
}

// A restored etcd is detected whatever the agent ignores now.
func TestRewoundWhileIgnoredObjectsChange(t *testing.T) {
	for _, release := range []string{"new", "old"} {
		t.Run("checkpoint of the "+release+" release", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("kept", "1", nil)
				s.put("lease", "1", nil)
				l := live(t, s, m, nil)
				l.awaitCaptured(t)
				_ = m.Flush(t.Context())
				l.end()
				if release == "old" {
					c := m.scopes["configmaps"]
					c.Ignored = nil
					m.scopes["configmaps"] = c
				}
				s.do(func() { s.history[0].uid = "uid-of-another" })
				l = live(t, s, m, func(o *informers.Options, _ *recorder) {
					o.Ignore = []informers.Name{{Resource: "configmaps", Namespace: "shop", Name: "lease"}}
				})
				l.wait(t, "gap 0 rewound", "snapshot.started 1", "r kept uid-of-another -→1", "snapshot.completed 1")
			})
		})
	}
}
