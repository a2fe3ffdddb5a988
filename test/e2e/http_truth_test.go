package e2e_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// TestHTTPTruth sends to a receiver that answers with every kind of refusal that passes, hangs, and cuts connections.
func TestHTTPTruth(t *testing.T) {
	slow(t)
	t.Parallel()
	p := sharedPlane(t)
	for _, tc := range []struct {
		name, more, event string
		mode              string // The content type that the receiver sees.
	}{
		{"structured", "timeout: 2s", "", "application/cloudevents+json"},
		{"binary", "timeout: 2s", "event: {mode: binary}", "application/json"},
		{"batched", "timeout: 2s, batch: 64", "", "application/cloudevents-batch+json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := startReceiver(t, nil)
			h.more = tc.more
			run := &busTruth{
				To: h, Namespace: "truth-http-" + tc.name, Revisions: revisions(4_000), Extra: tc.event,
				Trouble: h.misbehave,
				Enough:  func() bool { return len(h.count()) > int(cutAfter) },
			}
			got := run.run(t, p)
			conducts := h.count()
			for how := accept; how <= cutAfter; how++ {
				if conducts[how] == 0 {
					t.Errorf("the receiver has never done %q", how)
				}
			}
			modes, largest := h.seen()
			for _, mode := range modes {
				if mode != tc.mode && mode != tc.mode+"; charset=utf-8" {
					t.Errorf("a request of %s, want %s", mode, tc.mode)
				}
			}
			// An answer may also be late, on a machine that is busy: whoever sends again says so.
			if again := run.agent.sentAgain(t, "cut", "timeout", "connection"); got.Duplicates > again*largest {
				t.Errorf("%d duplicates, where %d requests were sent again without an answer", got.Duplicates, again)
			}
			t.Logf("requests: %v, most events in one: %d", conducts, largest)
		})
	}
}

// sentAgain is how often the agent has published something once more for one of these reasons, as it counts.
func (a *agent) sentAgain(t testing.TB, reasons ...string) int {
	t.Helper()
	sum := 0
	for _, reason := range reasons {
		n, err := a.metric(t.Context(), "kubecdc_publish_retries_total", `reason="`+reason+`"`)
		if err == nil { // Else there was none.
			sum += int(n)
		}
	}
	return sum
}

// misbehave is for a while well, then does one bad thing to many requests, the next one, then a bit of everything; until ctx
// ends.
func (h *receiver) misbehave(ctx context.Context) error {
	defer h.behave(nil)
	rng := rand.New(rand.NewPCG(7, 7)) // Used under the receiver's lock.
	mostly := func(how conduct, percent int) func() conduct {
		return func() conduct {
			if rng.IntN(100) < percent {
				return how
			}
			return accept
		}
	}
	for ctx.Err() == nil {
		for _, phase := range []struct {
			how     conduct
			percent int
		}{
			{accept, 100},
			{unavailable, 100},
			{tooMany, 100},
			{broken, 50},
			{cutBefore, 20},
			{cutAfter, 20},
			{hangBefore, 3},
			{hangAfter, 3},
		} {
			before := h.count()[phase.how]
			h.behave(mostly(phase.how, phase.percent))
			pass(ctx, 300*time.Millisecond)
			_ = await(ctx, 10*time.Second, func() error { // Whoever has to retry waits before it does.
				if h.count()[phase.how] == before {
					return errors.New("not yet done")
				}
				return nil
			})
		}
		h.behave(func() conduct {
			if rng.IntN(4) == 0 {
				return conduct(rng.IntN(int(cutAfter) + 1))
			}
			return accept
		})
		pass(ctx, time.Second)
	}
	return nil
}
