package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// chance is a source of randomness for many goroutines.
type chance struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (c *chance) one(in int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(in) == 0
}

// unreliable is a connection to the model that is cut before or after the broker has a batch, and
// that stops answering.
type unreliable struct {
	*model
	chance *chance
	quiet  atomic.Bool
}

func (u *unreliable) RoundTrip(ctx context.Context, addr net.Addr, req kafkago.Request) (kafkago.Response, error) {
	if _, ok := req.(*rawproduce.Request); !ok || u.quiet.Load() {
		return u.model.RoundTrip(ctx, addr, req)
	}
	if u.chance.one(40) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	res, err := u.model.RoundTrip(ctx, addr, req)
	if u.chance.one(3) || errors.Is(err, errLost) {
		return nil, kafkanet.ErrCut
	}
	return res, err
}

// writer publishes versions of one object, stream events of one scope, or reports, one after the
// other, as the dispatcher does. It republishes events that are handed back.
type writer struct {
	k       *kafkaRun
	make    func(n int) *encode.Event
	log     func(n int, err error)
	version int
	event   *publish.Event
	busy    atomic.Bool // the bus has the event
	stop    *atomic.Bool
	t       *testing.T
	wg      *sync.WaitGroup
}

func (w *writer) next() {
	if w.stop.Load() {
		return
	}
	w.version++
	w.event = publish.NewEvent(w.make(w.version), w.done, nil)
	w.publish()
}

func (w *writer) publish() {
	w.wg.Add(1)
	w.busy.Store(true)
	w.k.Bus.Publish(w.event)
}

func (w *writer) done(err error) {
	if !w.busy.CompareAndSwap(true, false) {
		w.t.Errorf("version %d is done twice", w.version)
		return
	}
	again := new(publish.RetryError)
	if errors.As(err, &again) {
		w.event.Alone = again.Alone
	}
	w.wg.Go(func() { // it only queues
		defer w.wg.Done()
		<-time.After(time.Millisecond)
		switch {
		case again.Err != nil:
			w.publish()
		default:
			w.log(w.version, err)
			if !errors.Is(err, publish.ErrClosed) && !errors.Is(err, publish.ErrFenced) {
				w.next()
			}
		}
	})
}

// Schedules have random answers, errors, silence, cuts, late duplicates, shut fences and topics
// that are missing at first. Every event handed to the bus is done exactly once, at the latest when
// Run ends. Acknowledged events are stored, and no later version of an object is stored before an
// earlier one.
func TestSchedules(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	var acked, closed, alone atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { schedule(t, seed, &acked, &closed, &alone) })
			})
		}
	})
	t.Logf("%d acknowledged, %d closed, %d alone", acked.Load(), closed.Load(), alone.Load())
	if acked.Load() == 0 || closed.Load() == 0 || alone.Load() == 0 {
		t.Error("the schedules were too tame")
	}
}

func schedule(t *testing.T, seed int, acked, closed, alone *atomic.Int64) {
	c := &chance{rng: rand.New(rand.NewPCG(uint64(seed), 2))}
	m := newModel(2)
	m.topic("dead.prod-eu-1", 1)
	if seed%3 > 0 {
		m.topic("kubecdc.prod-eu-1", 3)
	}
	m.fault = func(*modelPartition) fault {
		f := fault{deliver: c.one(2), move: c.one(15), lostBefore: c.one(6), lostAfter: c.one(6)}
		switch {
		case c.one(10):
			f.code = kafkago.NotEnoughReplicas
		case c.one(20):
			f.code = kafkago.OutOfOrderSequenceNumber
		case c.one(40):
			f.code = kafkago.InvalidRecord
		case c.one(20):
			f.after = kafkago.NotEnoughReplicasAfterAppend
		}
		return f
	}
	rt := &unreliable{model: m, chance: c}
	f := newFence(true)
	cfg := kafkaConfig(m.addrs...)
	cfg.Fence, cfg.Tombstones = f, seed%2 == 0
	k := runKafka(t, cfg, rt)

	const keys = 10
	var stop atomic.Bool
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := map[string]map[int]bool{} // by key: acknowledged versions
	start := func(key string, build func(n int) *encode.Event) *writer {
		stored[key] = map[int]bool{}
		w := &writer{k: k, make: build, stop: &stop, t: t, wg: &wg, log: func(n int, err error) {
			switch {
			case err == nil:
				acked.Add(1)
				mu.Lock()
				stored[key][n] = true
				mu.Unlock()
			case errors.Is(err, publish.ErrClosed):
				closed.Add(1)
			case !errors.Is(err, publish.ErrRefused) && !errors.Is(err, publish.ErrFenced):
				t.Errorf("%s: %v", key, err)
			}
		}}
		w.next()
		return w
	}
	var writers []*writer
	for i := range keys {
		key := "k" + strconv.Itoa(i)
		writers = append(writers, start(key, func(n int) *encode.Event { return keyed(key, n) }))
	}
	writers = append(writers, start(string(object.Gap), func(n int) *encode.Event {
		ev := streamEvent(object.Gap)
		ev.Body = fmt.Appendf(nil, "%s %d", object.Gap, n)
		return ev
	}), start("report", func(n int) *encode.Event { return reportOf(t, uint64(n), scopeAt(pods, "", uint64(n))) }))
	for i := range 5 {
		<-time.After(time.Duration(1+seed%7) * time.Second)
		if seed%2 == 0 {
			f.set(i%2 == 1, false)
		}
		if i == 2 && seed%3 == 0 {
			m.topic("kubecdc.prod-eu-1", 3)
		}
	}
	switch seed % 4 {
	case 0: // Run ends while events are in flight
	case 1:
		f.set(false, true)
		<-time.After(time.Minute)
	default: // all events that were handed over are acknowledged
		f.set(true, false)
		rt.quiet.Store(true)
		m.mu.Lock()
		m.fault = func(*modelPartition) fault { return fault{deliver: true} }
		m.mu.Unlock()
		stop.Store(true)
		wg.Wait()
	}
	if err := k.stop(); err != nil {
		t.Error(err)
	}
	stop.Store(true)
	wg.Wait()
	for _, w := range writers {
		if w.busy.Load() {
			t.Errorf("seed %d: version %d is never done", seed, w.version)
		}
		if w.event.Alone {
			alone.Add(1)
		}
	}
	checkLogs(t, seed, m, stored)
}

// checkLogs compares the stored events with the acknowledged ones.
func checkLogs(t *testing.T, seed int, m *model, acked map[string]map[int]bool) {
	t.Helper()
	gaps := acked[string(object.Gap)]
	delete(acked, string(object.Gap))
	delete(acked, "report") // not every partition has each
	for p := range 3 {
		last, log := map[string]int{}, values(m, "kubecdc.prod-eu-1", p)
		for n := range gaps {
			if !slices.Contains(log, fmt.Sprintf("%s %d", object.Gap, n)) {
				t.Errorf("seed %d: gap %d is acknowledged, and partition %d does not have it", seed, n, p)
			}
		}
		for _, r := range m.logOf("kubecdc.prod-eu-1", p) {
			if isReport(&r) {
				n := eventOf(t, &r).Progress.Number
				if n < last["report"] {
					t.Errorf("seed %d: report %d follows %d in partition %d", seed, n, last["report"], p)
				}
				last["report"] = n
			}
			if r.null || strings.Contains(r.key, "/") { // a tombstone, a stream event
				continue
			}
			if number(r) < last[r.key] {
				t.Errorf("seed %d: %s: version %s follows %d", seed, r.key, r.value, last[r.key])
			}
			last[r.key] = number(r)
			delete(acked[r.key], number(r))
		}
	}
	for key, missing := range acked {
		if len(missing) > 0 {
			t.Errorf("seed %d: %s: versions %v are acknowledged and not stored", seed, key, missing)
		}
	}
}
