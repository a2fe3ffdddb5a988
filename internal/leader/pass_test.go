package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/leader"
)

// While a machine is suspended, its monotonic clock stands still; the fence relies on the wall
// clock.
func TestWallClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var suspended, set time.Duration
		base := time.Now()
		clock := func() leader.Instant {
			mu.Lock()
			defer mu.Unlock()
			d := time.Since(base)
			return leader.Instant{Mono: int64(d - suspended), Wall: int64(d + set)}
		}
		c, cut := wall(new(leader.Server))
		a := start(t, "a", c, clock)
		a.took(t)
		cut(true)
		for _, jump := range []time.Duration{time.Hour, -time.Hour, 0} {
			mu.Lock()
			set = jump
			mu.Unlock()
			if a.passes() != (jump == 0) {
				t.Errorf("the wall clock is set by %v: passes: %t", jump, a.passes())
			}
		}
		pass(deadline + retry)
		mu.Lock()
		suspended = deadline + retry // its monotonic clock has missed the suspension
		mu.Unlock()
		if a.passes() {
			t.Error("it passes after the machine was suspended")
		}
		mu.Lock()
		suspended = 0
		mu.Unlock()
		cut(false)
		pass(2 * time.Second)
		if !a.passes() {
			t.Error("it does not pass again")
		}
		end(t, a)
	})
}

func TestPassWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := start(t, "a", &leader.Client{Server: new(leader.Server)}, nil)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAway)
		defer cancel()
		if err := a.Fence().Pass(ctx); !errors.Is(err, errAway) {
			t.Errorf("before it leads: %v", err)
		}
		if _, err := a.Wait(ctx); !errors.Is(err, errAway) {
			t.Errorf("Wait: %v", err)
		}
		if err := a.Fence().Pass(t.Context()); err != nil {
			t.Error(err)
		}
		end(t, a)
	})
}

func TestOptions(t *testing.T) {
	good := leader.Options{
		Namespace:     "n",
		Name:          "l",
		Identity:      "i",
		LeaseDuration: duration,
		RenewDeadline: deadline,
		RetryPeriod:   retry,
	}
	got := map[string]string{}
	for name, change := range map[string]func(*leader.Options){
		"no namespace": func(o *leader.Options) { o.Namespace = "" },
		"no identity":  func(o *leader.Options) { o.Identity = "" },
		"order":        func(o *leader.Options) { o.RenewDeadline = duration },
	} {
		o := good
		change(&o)
		_, err := leader.New(o)
		got[name] = fmt.Sprint(err)
	}
	want := map[string]string{
		"no namespace": "leader election: the Lease needs a namespace and a name, and the agent an identity",
		"no identity":  "leader election: the Lease needs a namespace and a name, and the agent an identity",
		"order":        "leader election: retryPeriod (1s) must be greater than 0 and less than renewDeadline (6s), which must be less than leaseDuration (6s)",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// BenchmarkPass compares an open fence with one clock read, which is all that it should cost.
func BenchmarkPass(b *testing.B) {
	c := &leader.Client{Server: new(leader.Server)}
	e := leader.NewWith(leader.Options{
		Namespace:     "n",
		Name:          "l",
		Identity:      "i",
		LeaseDuration: 3 * time.Hour,
		RenewDeadline: 2 * time.Hour,
		RetryPeriod:   time.Hour,
		Log:           slog.New(slog.DiscardHandler),
	}, c, nil)
	leader.Renew(e)
	ctx, fence := b.Context(), e.Fence()
	b.Run("fence", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if fence.Pass(ctx) != nil {
				b.Fatal("it is shut")
			}
		}
	})
	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			if time.Now().IsZero() {
				b.Fatal("no time")
			}
		}
	})
}
