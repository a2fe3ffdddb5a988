package wait_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/test/wait"
)

var errNotYet = errors.New("not yet")

// after returns a condition that holds d after the call.
func after(d time.Duration) func() error {
	begin := time.Now()
	return func() error {
		if time.Since(begin) < d {
			return errNotYet
		}
		return nil
	}
}

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := wait.For(t.Context(), time.Minute, after(30*time.Second)); err != nil {
			t.Errorf("a condition that holds after 30 s: %v", err)
		}
		begin := time.Now()
		if err := wait.For(t.Context(), time.Minute, after(time.Hour)); !errors.Is(err, errNotYet) {
			t.Errorf("a condition that does not hold in time: %v", err)
		}
		if d := time.Since(begin); d != time.Minute {
			t.Errorf("returned after %s, not after a minute", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if err := wait.For(ctx, time.Minute, after(time.Hour)); !errors.Is(err, errNotYet) ||
			time.Since(begin) != time.Second {
			t.Errorf("a context that ends after 1 s: %v after %s", err, time.Since(begin))
		}
	})
}

// failing records that a test was ended by Fatal.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatal(...any) { f.end() }

func (f *failing) Fatalf(string, ...any) { f.end() }

func (f *failing) end() {
	f.failed = true
	runtime.Goexit()
}

// fails reports whether do fails the test that it is given.
func fails(t *testing.T, do func(testing.TB)) bool {
	t.Helper()
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(f)
	}()
	<-done
	return f.failed
}

func TestLimitsFailTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t testing.TB)
		want bool
	}{
		"Eventually, in time": {do: func(t testing.TB) { wait.Eventually(t, time.Minute, after(time.Second)) }},
		"Eventually, never": {want: true, do: func(t testing.TB) {
			wait.Eventually(t, time.Minute, after(time.Hour))
		}},
		"Settled": {do: func(t testing.TB) {
			changing := after(30 * time.Second)
			wait.Settled(t, time.Second, time.Minute, func() uint64 {
				if changing() == nil {
					return 0
				}
				return uint64(time.Now().UnixNano())
			})
		}},
		"Settled, never quiet": {want: true, do: func(t testing.TB) {
			wait.Settled(t, time.Second, time.Minute, func() uint64 { return uint64(time.Now().UnixNano()) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := fails(t, c.do); got != c.want {
					t.Errorf("the test failed: %t, want %t", got, c.want)
				}
			})
		})
	}
}
