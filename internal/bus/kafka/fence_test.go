package kafka_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/publish"
)

var errOther = errors.New("another agent leads")

// fence is a Fence that a test opens and shuts.
type fence struct {
	mu         sync.Mutex
	open, over bool
	changed    chan struct{}
}

func newFence(open bool) *fence { return &fence{open: open, changed: make(chan struct{})} }

func (f *fence) set(open, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.over = open, over
	close(f.changed)
	f.changed = make(chan struct{})
}

// Pass implements publish.Fence.
func (f *fence) Pass(ctx context.Context) error {
	for {
		f.mu.Lock()
		open := f.open
		over := f.over
		changed := f.changed
		f.mu.Unlock()
		switch {
		case over:
			return errOther
		case open:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Events handed to a bus with a shut fence wait, without a failed attempt. They are written when
// the fence opens, and never if it stays shut. A retry checks the fence too.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(2)
		m.topic("kubecdc.prod-eu-1", 3)
		m.topic("dead.prod-eu-1", 1)
		var away atomic.Bool
		m.fault = func(*modelPartition) fault {
			if away.Load() {
				return fault{code: kafkago.NotLeaderForPartition}
			}
			return fault{}
		}
		f := newFence(false)
		cfg := kafkaConfig(m.addrs...)
		cfg.Fence = f
		k := runKafka(t, cfg, m)
		const n = 20
		var ended []error
		var mu sync.Mutex
		results := func() int { mu.Lock(); defer mu.Unlock(); return len(ended) }
		publishAll := func(version int) {
			for i := range n {
				k.Bus.Publish(publish.NewEvent(keyed(string(rune('a'+i)), version), func(err error) {
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, err)
				}, nil))
			}
		}
		stored := func() (all int) {
			for p := range 3 {
				all += len(m.logOf("kubecdc.prod-eu-1", p))
			}
			return all
		}
		settle := func() { <-time.After(time.Minute); synctest.Wait() }

		publishAll(1)
		settle()
		if stored() != 0 || results() != 0 || m.sends != 0 || k.Ready() != nil {
			t.Errorf("%d stored, %d ended, %d attempts; %v", stored(), results(), m.sends, k.Ready())
		}
		f.set(true, false)
		settle()
		if stored() != n || results() != n {
			t.Errorf("%d stored and %d ended of %d", stored(), results(), n)
		}

		away.Store(true)
		publishAll(2)
		settle()
		f.set(false, false)
		settle()
		away.Store(false)
		settle()
		if stored() != n {
			t.Errorf("%d were written behind a shut fence", stored()-n)
		}
		f.set(true, false)
		settle()
		if stored() != 2*n || results() != 2*n {
			t.Errorf("%d stored and %d ended of %d", stored(), results(), 2*n)
		}

		f.set(false, false)
		publishAll(3)
		settle()
		f.set(false, true)
		settle()
		if stored() != 2*n || results() != 3*n {
			t.Errorf("%d stored, %d ended", stored(), results())
		}
		for _, err := range ended[2*n:] {
			if !errors.Is(err, publish.ErrFenced) || !errors.Is(err, errOther) || errors.Is(err, publish.ErrRefused) {
				t.Errorf("when it never may again: %v", err)
			}
		}
		if err := k.stop(); err != nil {
			t.Error(err)
		}
	})
}

// When Run ends, all events end with ErrClosed: those that wait for a topic, a partition or a
// broker, and stream events; so do all later ones.
func TestRunEndsAllEvents(t *testing.T) {
	for name, prepare := range map[string]func(*model){
		"no topic":  func(*model) {},
		"no leader": func(m *model) { m.topic("kubecdc.prod-eu-1", 2).partitions[0].leader = -1 },
		"no broker": func(m *model) { m.addrs[0] = "127.0.0.1:1" },
		"all refused": func(m *model) {
			m.topic("kubecdc.prod-eu-1", 2)
			m.fault = func(*modelPartition) fault { return fault{code: kafkago.NotEnoughReplicas} }
		},
		"answers lost": func(m *model) {
			m.topic("kubecdc.prod-eu-1", 2)
			m.fault = func(*modelPartition) fault { return fault{lostBefore: true} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(1)
				m.topic("dead.prod-eu-1", 1)
				cfg := kafkaConfig(m.addrs...)
				prepare(m)
				k := runKafka(t, cfg, m)
				var mu sync.Mutex
				acked := 0
				closed := 0
				other := 0
				count := func(err error) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						acked++
					case errors.Is(err, publish.ErrClosed):
						closed++
					default:
						other++
					}
				}
				publishSome := func() {
					for i := range 20 {
						k.Bus.Publish(publish.NewEvent(keyed(string(rune('a'+i)), 1), count, nil))
					}
					k.Bus.Publish(publish.NewEvent(streamEvent("gap"), count, nil))
					k.Bus.Publish(publish.NewEvent(reportOf(t, 1, scopeAt(pods, "", 1)), count, nil))
				}
				publishSome()
				<-time.After(3 * time.Second)
				if err := k.stop(); err != nil {
					t.Error(err)
				}
				publishSome()
				if acked+closed != 44 || closed < 23 || other != 0 {
					t.Errorf("%d acknowledged, %d closed, %d others", acked, closed, other)
				}
				if err := k.Ready(); !errors.Is(err, publish.ErrClosed) {
					t.Error(err)
				}
			})
		})
	}
}
