package informers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// expiringServer is an API server that never has the second page of a list.
type expiringServer struct {
	*apiServer
	streams string // how it answers sendInitialEvents: "served", "refused", "ignored" or "hangs"

	mu       sync.Mutex
	requests []string
}

func newExpiringServer(t *testing.T, streams string) *expiringServer {
	s := &expiringServer{apiServer: newAPIServer(t), streams: streams}
	s.fault, s.initial = s.answer, true
	return s
}

func (s *expiringServer) answer(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/configmaps") {
		return false
	}
	if isMetadata(r) && r.URL.Query().Get("continue") == "" {
		return false
	}
	q := r.URL.Query()
	switch {
	case q.Get("continue") != "":
		fail(w, http.StatusGone, metav1.StatusReasonExpired)
		return true
	case q.Get("sendInitialEvents") == "true":
		s.note("streamed")
		return s.stream(w, r)
	case q.Get("watch") == "" && q.Get("limit") == "":
		s.note("unpaged")
	case q.Get("watch") == "" && q.Get("limit") == "500":
		s.note("paged")
	}
	return false
}

func (s *expiringServer) note(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
}

func (s *expiringServer) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *expiringServer) stream(w http.ResponseWriter, r *http.Request) bool {
	switch s.streams {
	case "refused":
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case "ignored": // a server that does not know the parameter sends objects, and no more than an ordinary bookmark
		frames, rv := s.initialFrames()
		say(w, append(frames, bookmark(rv))...)
		<-r.Context().Done()
	case "hangs":
		frames, _ := s.initialFrames()
		say(w, frames...)
		<-r.Context().Done()
	default:
		return false
	}
	return true
}

func (s *expiringServer) initialFrames() (frames []string, rv uint64) {
	s.do(func() {
		rv = s.rv
		for _, v := range s.now {
			frames = append(frames, fmt.Sprintf(`{"type":"ADDED","object":%s}`, v.JSON(false, v.rv)))
		}
	})
	slices.Sort(frames)
	return frames, rv
}

// A first list whose pages always expire is made in another way, unless it is streamed in the first
// place. Until then its scope is failing, and the manager is not ready.
func TestListWhosePagesAlwaysExpire(t *testing.T) {
	other := []string{"streamed", "paged", "paged", "paged", "unpaged"}
	for streams, requests := range map[string][]string{"served": {
		"streamed",
	}, "refused": other, "ignored": other, "hangs": other} {
		t.Run(streams, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newExpiringServer(t, streams)
				for n := range 7 {
					s.put(fmt.Sprint("cm-", n), "1", nil)
				}
				l := live(t, s.apiServer, newMemory(), func(o *informers.Options, _ *recorder) { o.MaxUnpaged = 7 })
				pass(5 * time.Minute)
				want := []string{"snapshot.started 7"}
				for n := range 7 {
					want = append(want, fmt.Sprintf("r cm-%d uid-%d -→1", n, n+1))
				}
				want = append(want, "snapshot.completed 7")
				l.waitChanges(t, want...)
				s.put("cm-0", "2", nil)
				l.waitChanges(t, append(want, "u cm-0 uid-1 1→2")...)
				if got := s.noted(); !slices.Equal(got, requests) {
					t.Errorf("requests: %v", got)
				}
				if err := l.set.Ready(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A list without pages is not made of more objects than configured. The scope stays failing, the
// set is not ready, and nothing says that the first snapshot is complete.
func TestListWhosePagesAlwaysExpireIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newExpiringServer(t, "refused")
		for n := range 7 {
			s.put(fmt.Sprint("cm-", n), "1", nil)
		}
		l := live(t, s.apiServer, newMemory(), func(o *informers.Options, _ *recorder) { o.MaxUnpaged = 6 })
		for range 30 {
			pass(time.Minute)
			select {
			case <-l.set.Captured():
				t.Fatal("the first snapshot counts as complete")
			default:
			}
			if l.set.Ready() == nil {
				t.Fatal("the set is ready")
			}
		}
		st := l.set.Status()[0]
		if st.Health == informer.HealthOK || !slices.Contains([]string{"expired"}, st.Reason) {
			t.Errorf("%+v", st)
		}
		unpaged := 0
		for _, request := range s.noted() {
			if request == "unpaged" {
				unpaged++
			}
		}
		if unpaged < 5 || unpaged > 30 {
			t.Errorf("%d lists without pages within 30 minutes", unpaged)
		}
	})
}

// The pages of a relist may always expire too.
func TestRelistWhosePagesAlwaysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newExpiringServer(t, "refused")
		for n := range 2 {
			s.put(fmt.Sprint("cm-", n), "1", nil)
		}
		l := live(t, s.apiServer, newMemory(), func(o *informers.Options, _ *recorder) { o.MaxUnpaged = 100 })
		l.awaitCaptured(t)
		l.forgetDeltas()
		s.compact()
		for n := range 7 {
			s.put(fmt.Sprint("cm-", n), "2", nil)
		}
		s.do(func() { s.compacted = s.rv })
		s.CloseClientConnections()
		eventually(t, "all objects", func() bool { return len(l.changes()) >= 8 })
		if got := s.noted(); !slices.Contains(got, "unpaged") {
			t.Errorf("requests: %v", got)
		}
	})
}
