package http_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// moody is a receiver that behaves at random, and keeps the accepted versions of each object.
type moody struct {
	t   *testing.T
	mu  sync.Mutex
	rnd *rand.Rand
	got map[string][]int
}

func (m *moody) take(body string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range strings.FieldsFunc(body, func(r rune) bool { return strings.ContainsRune(`[]",`, r) }) {
		var name string
		var rv int
		if _, err := fmt.Sscanf(one, "%s %d", &name, &rv); err != nil {
			m.t.Errorf("%q: %v", one, err)
		}
		m.got[name] = append(m.got[name], rv)
	}
}

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	dice := m.rnd.IntN(60)
	m.mu.Unlock()
	if dice == 0 {
		cutOff(w) // before the body
		return
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	status := map[int]int{2: 500, 3: 403, 4: 404, 5: 401, 6: 408, 7: 302, 8: 503}[dice]
	switch {
	case dice == 9:
		<-r.Context().Done() // it never answers
	case dice == 1:
		m.take(string(b))
		cutOff(w) // the answer is lost
	case status != 0:
		w.WriteHeader(status)
	default:
		m.take(string(b))
	}
}

// shutter is a fence that shuts now and then.
type shutter struct{ asked atomic.Int64 }

func (s *shutter) Pass(ctx context.Context) error {
	if s.asked.Add(1)%50 != 0 {
		return nil
	}
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The receiver, the fence and the end of Run vary at random. Each event ends once, acknowledged
// events are stored, and each object's versions are stored in order.
func TestEachEventEndsOnce(t *testing.T) {
	t.Parallel()
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		for _, batch := range []int{1, 8} {
			t.Run(fmt.Sprintf("seed-%d-batch-%d", seed, batch), func(t *testing.T) {
				t.Parallel()
				m := &moody{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), got: map[string][]int{}}
				r := run(t, publishhttp.Config{URL: serve(t, m.ServeHTTP), Batch: batch, Timeout: yamldoc.Duration{
					Duration: 300 * time.Millisecond,
				}, Fence: new(shutter)})
				const keys, versions = 16, 15
				acked := make([]int, keys)
				var published, ended atomic.Int64
				var all sync.WaitGroup
				for k := range keys {
					all.Go(func() {
						name, alone := fmt.Sprintf("web-%d", k), false
						for acked[k] < versions {
							done := make(chan error, 1)
							e := publish.NewEvent(event(name, acked[k]+1, fmt.Sprintf(`"%s %d"`, name, acked[k]+1)),
								func(err error) { ended.Add(1); done <- err }, nil)
							e.Alone = alone
							published.Add(1)
							r.bus.Publish(e)
							err := <-done
							again := new(publish.RetryError)
							switch {
							case err == nil:
								acked[k], alone = acked[k]+1, false
							case errors.As(err, &again):
								alone = again.Alone
							case errors.Is(err, publish.ErrClosed):
								return
							default:
								t.Error(err)
								return
							}
						}
					})
				}
				if seed%2 == 0 { // at any time
					limit := int64(20 * seed)
					wait(t, "some events", func() bool { return published.Load() > limit })
					r.stop()
				}
				all.Wait()
				r.stop()
				if published.Load() != ended.Load() {
					t.Errorf("%d events were published, %d ended", published.Load(), ended.Load())
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				for k, n := range acked {
					got := slices.Compact(m.got[fmt.Sprintf("web-%d", k)])
					for i, rv := range got {
						if rv != i+1 {
							t.Fatalf("object %d: the receiver has %v", k, got)
						}
					}
					if len(got) < n {
						t.Errorf("object %d: %d versions are acknowledged, the receiver has %d", k, n, len(got))
					}
				}
			})
		}
	}
}
