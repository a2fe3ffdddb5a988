package informers_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hangs are the ways in which a server keeps a request on a live connection.
func hangs() map[string]func(w http.ResponseWriter, r *http.Request) {
	begin := `{"kind":"APIGroupList","apiVersion":"v1","groups":[`
	return map[string]func(w http.ResponseWriter, r *http.Request){
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half a body": func(w http.ResponseWriter, r *http.Request) {
			drip(w, begin)
			<-r.Context().Done()
		},
		"a body that drips": func(w http.ResponseWriter, r *http.Request) {
			drip(w, begin)
			for wait(r.Context(), time.Second) {
				drip(w, " ")
			}
		},
	}
}

// hang keeps requests for a path while is returns true. Other requests are answered as before.
func (s *customs) hang(path string, how func(w http.ResponseWriter, r *http.Request)) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.fault
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == path {
			how(w, r)
			return true
		}
		return was(w, r)
	}
	return func() { s.do(func() { s.fault = was }) }
}

// A discovery that is not answered on a live connection ends after a while, and is repeated. This
// holds for the first one and for later ones.
func TestDiscoveryThatIsNotAnsweredIsRepeated(t *testing.T) {
	for name, how := range hangs() {
		for _, later := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", first", true: ", later"}[later], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newCustoms(t)
					answer := func() {}
					if !later {
						answer = s.hang("/apis", how)
					}
					l := live(t, s.apiServer, newMemory(), takes(rule(nil), widgets(nil)))
					if later {
						l.wait(t, "snapshot.started 0", "snapshot.completed 0")
						answer = s.hang("/apis", how)
					}
					pass(2 * time.Minute)
					if err := l.set.Ready(); later != (err == nil) {
						t.Errorf("after 2 min: ready: %v", err)
					}
					pass(8 * time.Minute)
					if err := l.set.Ready(); err == nil || !strings.Contains(err.Error(), "discover resources: ") {
						t.Errorf("after 10 min: ready: %v", err)
					}
					s.define(true)
					s.put("a", "1", nil)
					answer()
					pass(2 * time.Minute)
					l.awaitPhases(t, "configmaps live", "widgets.shop.test live")
					if err := l.set.Ready(); err != nil {
						t.Errorf("in the end: ready: %v", err)
					}
				})
			})
		}
	}
}

// A reload that adds a redaction does not wait for a discovery that is not answered: the last
// answer remains valid.
func TestReloadWhileDiscoveryIsNotAnswered(t *testing.T) {
	for _, path := range []string{"/apis", "/apis/shop.test/v1"} { // all groups, or the resources of one
		for name, how := range hangs() {
			t.Run(path+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newCustoms(t)
					s.define(true)
					l := live(t, s.apiServer, newMemory(), takes(rule(nil), widgets(nil)))
					l.awaitPhases(t, "configmaps live", "widgets.shop.test live")
					answer := s.hang(path, how)
					pass(time.Minute)
					began := time.Now()
					l.reload(t, specOf(rule(redacted("data.value")), widgets(redacted("data.value"))))
					if took := time.Since(began); took > 20*time.Second {
						t.Errorf("the reload took %v", took)
					}
					s.put("a", "secret", nil)
					pass(time.Second)
					for _, scope := range []string{"configmaps", "widgets.shop.test"} {
						of := l.ofScope(scope)
						if last := of[len(of)-1]; short(last) != "c a uid-1 -→" {
							t.Errorf("%s: sent %s, want the creation without the redacted value", scope, short(last))
						}
					}
					l.awaitPhases(t, "configmaps live", "widgets.shop.test live")
					answer()
				})
			})
		}
	}
}
