package nats_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

var schedules = flag.Int("schedules", 8, "how many schedules TestSchedules runs")

// TestSchedules publishes objects' versions one after the other to a server that acknowledges,
// refuses, keeps silent, answers late and cuts connections at random. It also claims duplicates of
// records that it does not have. A fence shuts and opens, and Run ends at any time. Each event ends
// once, acknowledged versions of an object are stored, the first records of all in order, and
// nothing is left.
func TestSchedules(t *testing.T) {
	for seed := range uint64(*schedules) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runSchedule(t, seed)
		})
	}
}

// versionBody is the body of a version.
const versionBody = `{"version":%d}`

// shutter is a fence that opens and shuts, until it is over.
type shutter struct {
	mu   sync.Mutex
	open chan struct{} // closed: open
	over bool
}

func (s *shutter) Pass(ctx context.Context) error {
	s.mu.Lock()
	open, over := s.open, s.over
	s.mu.Unlock()
	if over {
		return errors.New("another agent leads")
	}
	select {
	case <-open: // also if ctx has ended
		return nil
	default:
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *shutter) set(open, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.open: // calls that wait at a shut fence check again
	default:
		close(s.open)
	}
	s.over, s.open = over, make(chan struct{})
	if open {
		close(s.open)
	}
}

func runSchedule(t *testing.T, seed uint64) {
	t.Helper()
	const keys, versions = 24, 30
	dice := rand.New(rand.NewPCG(seed, 1))
	s := startFakeServer(t, seed)
	f := &shutter{open: make(chan struct{})}
	f.set(true, false)
	cfg := bustest.NATSConfig("nats://" + s.l.Addr().String())
	cfg.AckTimeout, cfg.Fence = 50*time.Millisecond, f
	r := bustest.RunNATS(t, cfg)
	end, finish := context.WithCancel(t.Context())
	defer finish()
	var objects sync.WaitGroup
	published := make([]int, keys)
	for k := range keys {
		objects.Go(func() { published[k] = publishVersions(end, t, r.Bus, k, versions) })
	}
	all := make(chan struct{})
	go func() { objects.Wait(); close(all) }()

	switch limit := time.After(time.Duration(100+dice.IntN(1500)) * time.Millisecond); dice.IntN(4) {
	case 0: // Run ends while events are in flight
		trouble(all, limit, dice, s, f)
		finish()
		r.Stop()
	case 1: // another agent leads
		trouble(all, limit, dice, s, f)
		finish()
		f.set(false, true)
		<-all
	default:
		trouble(all, limit, dice, s, f)
		s.behave()
		f.set(true, false)
	}
	select {
	case <-all:
	case <-time.After(20 * time.Second):
		t.Log(r.Debug())
		t.Fatal("events that never end")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range keys {
		if end.Err() == nil && published[k] != versions {
			t.Errorf("object %d: %d versions were published, want %d", k, published[k], versions)
		}
		log := s.log[fmt.Sprintf("kubecdc.prod-eu-1.object.core.pods.shop.web-%d", k)]
		latest := 0 // a copy may come later
		for i, body := range log {
			var version int
			if _, err := fmt.Sscanf(body, versionBody, &version); err != nil || version > latest+1 {
				t.Errorf("object %d: record %d is %s, after version %d: %v", k, i, body, latest, err)
			}
			latest = max(latest, version)
		}
		if latest < published[k] {
			t.Errorf("object %d: %d versions were acknowledged, %d are stored", k, published[k], latest)
		}
	}
}

// trouble cuts connections, and shuts and opens the fence.
func trouble(all <-chan struct{}, limit <-chan time.Time, dice *rand.Rand, s *fakeServer, f *shutter) {
	tick := time.NewTicker(time.Duration(10+dice.IntN(100)) * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-all:
			return
		case <-limit:
			return
		case <-tick.C:
		}
		switch dice.IntN(4) {
		case 0:
			s.cut()
		case 1:
			f.set(false, false)
		default:
			f.set(true, false)
		}
	}
}

// publishVersions publishes versions of an object, each until it is acknowledged, and returns the
// number of acknowledged ones. Errors other than retries occur only after end has ended.
func publishVersions(end context.Context, t *testing.T, b *natsbus.Bus, key, versions int) int {
	for v := range versions {
		ev := bustest.Event(fmt.Sprintf("web-%d", key), v+1, fmt.Sprintf(versionBody, v+1))
		for alone := false; ; {
			done := make(chan error, 2)
			e := publish.NewEvent(ev, func(err error) { done <- err }, nil)
			e.Alone = alone
			b.Publish(e)
			err := <-done
			if len(done) > 0 {
				t.Errorf("object %d version %d has ended twice", key, v+1)
			}
			again := new(publish.RetryError)
			if err == nil {
				break
			} else if errors.As(err, &again) {
				alone = alone || again.Alone
				if pause.For(t.Context(), 2*time.Millisecond) != nil {
					return v
				}
				continue
			}
			if end.Err() == nil || !errors.Is(err, publish.ErrClosed) && !errors.Is(err, publish.ErrFenced) {
				t.Errorf("object %d version %d: %v", key, v+1, err)
			}
			return v
		}
	}
	return versions
}
