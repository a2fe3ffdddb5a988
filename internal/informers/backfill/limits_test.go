package backfill_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
)

// flaky answers from a past, and fails as a test configures it.
type flaky struct {
	*past
	asks  atomic.Int64
	fault func(ctx context.Context, ask int64) error // of an ask, from 1
}

var errTransient = errors.New("overloaded")

// Ask implements backfill.Asker.
func (f *flaky) Ask(ctx context.Context, q backfill.Question) (*backfill.Answer, error) {
	if err := f.fault(ctx, f.asks.Add(1)); err != nil {
		return nil, err
	}
	return f.past.Ask(ctx, q)
}

// Retry implements backfill.Asker.
func (*flaky) Retry(ctx context.Context, request func(context.Context) error) error {
	for {
		if err := request(ctx); !errors.Is(err, errTransient) {
			return err
		}
	}
}

// walk walks the past with limits.
func (f *flaky) walk(t *testing.T, requests int64, d time.Duration) (backfill.Result, time.Duration) {
	t.Helper()
	f.lo, f.hi = 3, 30
	began := time.Now()
	byKey, complete, err := backfill.Walk(t.Context(), f, backfill.Gap{From: 10, To: 30, Changed: []backfill.Change{
		*f.change(10, 30),
	}},
		backfill.Options{Requests: requests, Time: d})
	r := byKey["configmaps/shop/cm"]
	if err != nil || complete != r.Complete {
		t.Errorf("complete %t, error %v, want what the only name is", complete, err)
	}
	return r, time.Since(began)
}

// Retries count against the request budget. Versions found before it is exhausted are kept.
func TestWalkBackWithinItsRequests(t *testing.T) {
	for _, tt := range []struct {
		requests int64
		want     string
		complete bool
	}{
		{0, "", false},
		{1, "", false},
		{2, "", false},
		{3, "21 a", false},
		{4, "17 a, 21 a", false},
		{5, "14 a, 17 a, 21 a", false},
		{6, "12 a, 14 a, 17 a, 21 a", false},
		{7, "12 a, 14 a, 17 a, 21 a", true},
	} {
		f := &flaky{
			past: history("3 a, 12 a, 14 a, 17 a, 21 a, 29 a"),
			fault: func(_ context.Context, ask int64) error {
				if ask <= 2 {
					return errTransient
				}
				return nil
			},
		}
		r, _ := f.walk(t, tt.requests, time.Minute)
		if got := strings.Join(texts(r.Versions), ", "); got != tt.want || r.Complete != tt.complete ||
			f.asks.Load() != tt.requests {
			t.Errorf("%d requests: %q, complete %t, after %d; want %q, %t", tt.requests, got, r.Complete, f.asks.Load(),
				tt.want, tt.complete)
		}
	}
}

// An unanswered question ends with the time limit of the walk, which is not an error.
func TestWalkBackWithinItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{
			past: history("3 a, 12 a, 14 a, 17 a, 21 a, 29 a"),
			fault: func(ctx context.Context, ask int64) error {
				if ask < 3 {
					return nil
				}
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}
		r, took := f.walk(t, unlimited, 5*time.Second)
		if got := strings.Join(texts(r.Versions), ", "); got != "17 a, 21 a" || r.Complete || took != 5*time.Second {
			t.Errorf("%q, complete %t, after %v, want two versions after 5s", got, r.Complete, took)
		}
	})
}

// One name without an answer leaves the others complete.
func TestWalkBackOfSeveralNames(t *testing.T) {
	f := &flaky{past: history("3 a, 12 a, 14 a"), fault: func(context.Context, int64) error { return nil }}
	f.lo, f.hi = 3, 20
	ok, other := *f.change(10, 20), *f.change(10, 20)
	other.Key, other.After = "configmaps/shop/other", at("other", "z", 15)
	other.Before = at("other", "z", 5)
	byKey, complete, err := backfill.Walk(t.Context(), f, backfill.Gap{From: 10, To: 20, Changed: []backfill.Change{
		other, ok,
	}},
		backfill.Options{Requests: unlimited, Time: time.Minute})
	if err != nil || complete || len(byKey) != 2 || !byKey[ok.Key].Complete || byKey[other.Key].Complete {
		t.Errorf("%+v, complete %t, error %v; want cm to be complete and the other not", byKey, complete, err)
	}
}
