package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/bench/record"
	"github.com/kubecdc/kubecdc/test/process"
)

// held is how long the bus is stopped.
const held = 30 * time.Second

// block is the phase in which the bus is stopped while all updates happen. Afterwards everything
// has to arrive.
func block(ctx context.Context, r *rig, run *Run) error {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return err
	}
	before, err := process.ReadMemory(r.child.PID())
	if err != nil {
		return err
	}
	if err := r.sinkChild.Pause(); err != nil {
		return err
	}
	if err := r.order(ctx, run.Updates, 0); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < held; {
		select {
		case <-tick.C:
		case <-r.child.Done():
			return r.child.Failed(errors.New("ended by itself"))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now, err := process.ReadMemory(r.child.PID())
		if err != nil {
			return err
		}
		// The peak, because memory that is released before the bus answers was needed all the same.
		run.Growth = max(run.Growth, now.Peak-before.RSS)
		status, err := r.feedStatus(ctx)
		if err != nil {
			return err
		}
		r.bench.progress("%s, %s: bus stopped for %.0f s, RSS %+d MB, %s of %s updates read",
			r.name, r.transport(), time.Since(begun).Seconds(), (now.RSS-before.RSS)>>20, grouped(status.Frames),
			grouped(run.Updates))
	}
	if err := r.sinkChild.Continue(); err != nil {
		return err
	}
	begun := time.Now()
	state, err := r.await(ctx, info.State.Msgs+uint64(run.Updates), "updates after the bus is back")
	if err != nil {
		return err
	}
	run.PerSecond = float64(run.Updates) / state.LastTime.Sub(begun).Seconds()
	return nil
}

// walk is the phase in which updates come so slowly that nothing queues up. A collection then finds
// permanent data and little else.
func walk(ctx context.Context, r *rig, run *Run) error {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return err
	}
	if err := r.order(ctx, run.Updates, 2*perSecond); err != nil {
		return err
	}
	_, err = r.await(ctx, info.State.Msgs+uint64(run.Updates), "updates")
	return err
}

// perSecond is the rate at which latency is measured.
const perSecond = 500

// trickle is the phase in which updates come at a moderate rate and a subscriber of the stream
// records the age of each.
func trickle(ctx context.Context, r *rig, run *Run) error {
	var mu sync.Mutex
	ages := make([]float64, 0, run.Updates)
	done := make(chan struct{})
	consumer, err := r.js.OrderedConsumer(ctx, record.Stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{record.Objects}, DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		return err
	}
	subscription, err := consumer.Consume(func(m jetstream.Msg) {
		now := time.Now().UnixNano()
		sent := record.Sent(m.Data())
		mu.Lock()
		defer mu.Unlock()
		if len(ages) == run.Updates {
			return
		}
		ages = append(ages, float64(now-sent)/1e6)
		if len(ages) == run.Updates {
			close(done)
		}
	})
	if err != nil {
		return err
	}
	defer subscription.Stop()
	begun, err := r.usage()
	if err != nil {
		return err
	}
	if err := r.order(ctx, run.Updates, perSecond); err != nil {
		return err
	}
	limit := time.Duration(run.Updates)*time.Second/perSecond + stalled
	select {
	case <-done:
	case <-r.child.Done():
		return r.child.Failed(errors.New("ended by itself"))
	case <-time.After(limit):
		mu.Lock()
		defer mu.Unlock()
		return fmt.Errorf("a subscriber got %d of %d updates within %v", len(ages), run.Updates, limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ended, err := r.usage()
	if err != nil {
		return err
	}
	run.CPU = float64((ended[0] - begun[0]).Nanoseconds()) / 1e3 / float64(run.Updates)
	slices.Sort(ages)
	run.P50, run.P99 = ages[len(ages)/2], ages[len(ages)*99/100]
	return nil
}
