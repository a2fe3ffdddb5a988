package publish_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// A backoff doubles up to its limit, and a random half of it spreads the attempts of many agents.
func TestBackoff(t *testing.T) {
	b := publish.Backoff{First: 100 * time.Millisecond, Limit: time.Second}
	for _, c := range []struct {
		failures int
		want     time.Duration
	}{
		{1, 100 * time.Millisecond},
		{2, 200 * time.Millisecond},
		{3, 400 * time.Millisecond},
		{4, 800 * time.Millisecond},
		{5, time.Second},
		{30, time.Second},
		{1000, time.Second},
	} {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			d := b.Delay(c.failures)
			least, most = min(least, d), max(most, d)
		}
		if least < c.want/2 || least > c.want*6/10 || most > c.want || most < c.want*9/10 {
			t.Errorf("after %d failures, it waits %s to %s, want half of %s to all of it", c.failures, least, most, c.want)
		}
	}
	long := publish.Backoff{First: 20 * time.Second, Limit: time.Hour}
	for _, failures := range []int{29, 30} { // 20 seconds, doubled 29 times, overflow
		if d := long.Delay(failures); d < time.Hour/2 || d > time.Hour {
			t.Errorf("after %d failures, it waits %s, want half an hour to an hour", failures, d)
		}
	}
	if d := (publish.Backoff{}).Delay(1); d != 0 {
		t.Errorf("no backoff is %s", d)
	}
}

// One log line of a kind is due per minute. The next one says how many were suppressed.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w publish.Window
		check := func(kind string, suppressed int, ok bool) {
			t.Helper()
			if n, due := w.First(kind); n != suppressed || due != ok {
				t.Errorf("%s: due %t after %d, want %t after %d", kind, due, n, ok, suppressed)
			}
		}
		check("pods", 0, true)
		check("pods", 0, false)
		check("nodes", 0, true)
		sleep(time.Minute - 1)
		check("pods", 0, false)
		sleep(1)
		check("pods", 2, true)
		check("pods", 0, false)
		w.Forget("pods")
		check("pods", 0, true)
		sleep(time.Minute)
		check("pods", 0, true)
	})
}

// sleep advances the clock of the bubble.
func sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
}
