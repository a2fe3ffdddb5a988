package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/retry"
)

var errFails = errors.New("fails")

func TestDo(t *testing.T) {
	busy := apierrors.NewTooManyRequests("busy", 7)
	for name, c := range map[string]struct {
		errs  []error         // of the attempts
		final error           // after which failed returns false
		least []time.Duration // delays
		want  error
	}{
		"at once": {errs: []error{nil}},
		"later":   {errs: []error{errFails, errFails, nil}, least: []time.Duration{retry.First, 2 * retry.First}},
		"permanent": {errs: []error{busy, errFails}, final: errFails, least: []time.Duration{
			7 * time.Second, 2 * retry.First,
		}, want: errFails},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				waited := time.Duration(0)
				calls := 0
				var delays []time.Duration
				err := retry.Do(t.Context(), func() error {
					calls++
					return c.errs[calls-1]
				}, func(err error, delay time.Duration) bool {
					delays = append(delays, delay)
					again := c.final == nil || !errors.Is(err, c.final)
					if again {
						waited += delay
					}
					return again
				})
				if !errors.Is(err, c.want) || calls != len(c.errs) || time.Since(began) != waited {
					t.Errorf("got %v after %d attempts and %v, want %v after %d and %v", err, calls, time.Since(began),
						c.want, len(c.errs), waited)
				}
				if !slices.EqualFunc(delays, c.least,
					func(d, least time.Duration) bool { return d >= least && d <= 2*least }) {
					t.Errorf("delays %v, want at least %v", delays, c.least)
				}
			})
		})
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	cause := errors.New("over")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		began, attempts := time.Now(), 0
		err := retry.Do(ctx, func() error { attempts++; return errFails }, func(error, time.Duration) bool {
			return true
		})
		if !errors.Is(err, cause) || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		// If the context has ended, an attempt that fails is not reported.
		err = retry.Do(ctx, func() error { return errFails }, func(error, time.Duration) bool {
			t.Error("called")
			return true
		})
		if !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
}
