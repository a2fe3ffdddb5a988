package checkpoint_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// A harmless conflict is ignored; one that means another agent or a reset ends Run.
func TestConflict(t *testing.T) {
	t.Parallel()
	hide := func(w http.ResponseWriter) bool { // carried out, but the answer never arrives
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = conn.Close()
		}
		return true
	}
	once := func(f func(http.ResponseWriter) bool) func(http.ResponseWriter) bool {
		done := false
		return func(w http.ResponseWriter) bool {
			if done {
				return false
			}
			done = true
			return f(w)
		}
	}
	for name, c := range map[string]struct {
		meddle func(t *testing.T, s *apiServer, pods *informer)
		want   string // "": no conflict
	}{
		"a label": {meddle: func(_ *testing.T, s *apiServer, _ *informer) { s.label("a", "b") }},
		"our own write": {meddle: func(_ *testing.T, s *apiServer, _ *informer) {
			s.do(func() { s.after = once(hide) })
		}},
		"our own write, labelled": {meddle: func(_ *testing.T, s *apiServer, _ *informer) {
			s.do(func() {
				s.after = once(func(w http.ResponseWriter) bool {
					o := *s.now
					o.Metadata = maps.Clone(o.Metadata)
					o.Metadata["labels"] = map[string]any{"a": "b"}
					s.put(&o)
					return hide(w)
				})
			})
		}},
		"another agent": {
			func(t *testing.T, s *apiServer, _ *informer) {
				other := newKeeper(t, s.store(t))
				other.Track("nodes", informerAt(1, 1).position, nil)
				if err := errors.Join(other.Flush(t.Context()), other.Close(t.Context())); err != nil {
					t.Fatal(err)
				}
			},
			"another agent, or 'kubecdc checkpoint reset', wrote it at ",
		},
		"reset": {
			func(t *testing.T, s *apiServer, _ *informer) {
				if _, err := checkpoint.Reset(t.Context(), s.store(t), ""); err != nil {
					t.Fatal(err)
				}
			},
			"it was removed while this agent ran",
		},
		"reset of one resource": {
			func(t *testing.T, s *apiServer, _ *informer) {
				if _, err := checkpoint.Reset(t.Context(), s.store(t), "pods"); err != nil {
					t.Fatal(err)
				}
			},
			"another agent, or 'kubecdc checkpoint reset', wrote it at ",
		},
		"removed": {
			func(_ *testing.T, s *apiServer, _ *informer) { s.do(func() { s.now = nil }) },
			"it was removed while this agent ran",
		},
		"damaged": {
			func(_ *testing.T, s *apiServer, _ *informer) {
				s.do(func() {
					s.put(&object{Metadata: maps.Clone(s.now.Metadata), Data: map[string]string{
						"checkpoint.json": "{}",
					}})
				})
			},
			"it is damaged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			k := newKeeper(t, server.store(t))
			pods := informerAt(1, 1)
			k.Track("pods", pods.position, nil)
			if err := k.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.meddle(t, server, pods)
			stop := run(t, k)
			pods.set(2, 2)
			err := k.Flush(t.Context())
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				pods.set(3, 3)
				if err := errors.Join(k.Flush(t.Context()), stop(), k.Close(t.Context())); err != nil {
					t.Error(err)
				}
				d, err := checkpoint.Read(t.Context(), server.store(t))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(map[string]uint64{"pods": 3}, rvs(d.Scopes)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Flush: %v, want %s", err, c.want)
			}
			if err := stop(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run: %v, want %s", err, c.want)
			}
			server.requests()
			if err := errors.Join(k.Flush(t.Context()), k.Close(t.Context())); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("after it: %v, want %s", err, c.want)
			}
			if got := server.requests(); got != "" {
				t.Errorf("requests after a conflict: %s", got)
			}
		})
	}
}

// A save without an answer may have been carried out. Even if its content is no longer wanted, it
// must not remain there.
func TestSaveOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		k := newKeeper(t, m)
		k.Track("pods", informerAt(1, 1).position, nil)
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.Track("nodes", informerAt(2, 2).position, nil)
		m.lose(errors.New("timeout"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := k.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		m.lose(nil)
		k.Forget("nodes")
		if err := errors.Join(k.Flush(t.Context()), k.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(map[string]uint64{"pods": 1}, rvs(m.there(t))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A first write of a run that gets no answer is not mistaken for another agent's either.
func TestConflictAtTheFirstSave(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	k := newKeeper(t, server.store(t))
	hidden := false
	server.after = func(w http.ResponseWriter) bool {
		if hidden {
			return false
		}
		hidden = true
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return true
	}
	k.Track("pods", informerAt(1, 1).position, nil)
	if err := errors.Join(k.Flush(t.Context()), k.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if got := strings.Fields(server.requests()); !slices.Equal(got, []string{"GET", "POST", "POST", "GET", "PUT"}) {
		t.Errorf("requests: %v", got)
	}
}

// direct is a connection to an API server that breaks at random, before or after a request is
// carried out.
type direct struct {
	server *apiServer
	chance *rand.Rand
	faults map[string]int
}

func (d *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	lot := d.chance.IntN(10)
	if lot == 0 {
		d.faults["refused"]++
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	d.server.serve(w, r)
	switch {
	case lot == 1:
		d.faults["answer lost"]++
		return nil, io.ErrUnexpectedEOF
	case lot == 2 && d.server.now != nil:
		d.faults["label"]++
		d.server.label("n", strconv.Itoa(d.chance.IntN(100)))
	}
	return w.Result(), nil
}

// An agent that is alone finds no conflict, and its flushes are stored, whatever happens to
// connections and labels.
func TestConfigMapBehindABadConnection(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			d := &direct{server: &apiServer{rv: 100}, chance: rand.New(rand.NewPCG(seed, 0)), faults: map[string]int{}}
			for life := range 5 {
				store, err := checkpoint.NewConfigMap(&rest.Config{Host: "http://api", Transport: d}, "kubecdc",
					"checkpoint")
				if err != nil {
					t.Fatal(err)
				}
				k := newKeeper(t, store)
				from := uint64(100 * life)
				if got := k.Scopes()["pods"].ResourceVersion; life > 0 && got != from {
					t.Fatalf("seed %d: resumed at %d, want %d", seed, got, from)
				}
				pods := informerAt(from, 0)
				k.Track("pods", pods.position, nil)
				stop := run(t, k)
				for n := range uint64(100) {
					pods.set(from+n+1, n)
					if n%10 == 0 {
						<-time.After(5 * time.Second)
					}
					if err := k.Flush(t.Context()); err != nil {
						t.Fatalf("seed %d, after %v: %v", seed, d.faults, err)
					}
					var there string
					d.server.do(func() { there = d.server.now.Data["checkpoint.json"] })
					saved, err := checkpoint.Decode([]byte(there))
					if err != nil || saved.Scopes["pods"].ResourceVersion != from+n+1 {
						t.Fatalf("seed %d: %v, saved %v, want %d", seed, err, saved, from+n+1)
					}
				}
				if err := errors.Join(stop(), k.Close(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			if d.faults["answer lost"] == 0 || d.faults["label"] == 0 || d.faults["refused"] == 0 {
				t.Errorf("seed %d: faults %v", seed, d.faults)
			}
		})
	}
}
