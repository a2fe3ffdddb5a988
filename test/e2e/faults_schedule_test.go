package e2e_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// faultKind is something that is done to the agent or to those it talks to. When do returns all of them are as before, but
// for what the agent has left to do.
type faultKind struct {
	name   string
	weight int
	do     func(t testing.TB, s *stage)
}

// faultKinds is what a schedule is drawn from. The weights keep what takes long, the start of an API server, from
// taking all the time.
func allFaults() []faultKind {
	return []faultKind{
		{"agent killed", 6, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.pause(t, 0, 1500*time.Millisecond)
			s.agent.again(t)
		}},
		{"agent killed after its start", 8, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.agent.again(t)
			for range 1 + s.rng.IntN(2) { // In its Exact list, its catch-up, its first watch.
				s.pause(t, 20*time.Millisecond, 900*time.Millisecond)
				s.agent.crash()
				s.agent.again(t)
			}
		}},
		{"agent stopped", 6, func(t testing.TB, s *stage) {
			s.stopAgent(t)
			s.pause(t, 0, 1500*time.Millisecond)
			s.agent.again(t)
		}},
		{"bus killed", 5, func(t testing.TB, s *stage) {
			s.bus.kill()
			s.pause(t, 0, 2*time.Second)
			s.bus.start(t)
		}},
		{"bus stopped", 4, func(t testing.TB, s *stage) {
			s.bus.freeze(t)
			s.pause(t, 100*time.Millisecond, 3*time.Second)
			s.bus.thaw(t)
		}},
		{"bus blackholed", 4, func(t testing.TB, s *stage) {
			s.busProxy.Hold(true)
			s.pause(t, 100*time.Millisecond, 3*time.Second)
			if s.rng.IntN(2) == 0 {
				s.busProxy.Cut()
			}
			s.busProxy.Hold(false)
		}},
		{"bus cut", 4, func(t testing.TB, s *stage) {
			for range 1 + s.rng.IntN(3) {
				s.busProxy.Cut()
				s.pause(t, 10*time.Millisecond, 500*time.Millisecond)
			}
		}},
		{"bus truncated", 4, func(t testing.TB, s *stage) {
			s.busProxy.Truncate(s.rng.Int64N(2 << 10)) // Acknowledgements are short.
			s.pause(t, 100*time.Millisecond, time.Second)
		}},
		{"bus delayed", 3, func(t testing.TB, s *stage) {
			s.busProxy.Delay(s.between(time.Millisecond, 100*time.Millisecond))
			s.pause(t, 500*time.Millisecond, 3*time.Second)
			s.busProxy.Delay(0)
		}},
		{"API cut", 6, func(t testing.TB, s *stage) {
			s.api.Prefer(s.rng.IntN(2))
			for range 1 + s.rng.IntN(3) {
				s.api.Cut()
				s.pause(t, 10*time.Millisecond, 500*time.Millisecond)
			}
		}},
		{"API truncated", 8, func(t testing.TB, s *stage) {
			s.api.Truncate(s.rng.Int64N(64 << 10))
			s.pause(t, 100*time.Millisecond, time.Second)
		}},
		{"API truncated at the start", 6, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.agent.again(t)
			for range 3 { // In the middle of discovery, of a page, of the first frames.
				s.pause(t, 20*time.Millisecond, 400*time.Millisecond)
				s.api.Truncate(s.rng.Int64N(128 << 10))
			}
		}},
		{"API delayed", 4, func(t testing.TB, s *stage) {
			s.api.Delay(s.between(time.Millisecond, 100*time.Millisecond))
			s.pause(t, 500*time.Millisecond, 3*time.Second)
			s.api.Delay(0)
		}},
		{"API refused", 3, func(t testing.TB, s *stage) {
			s.api.Refuse(true)
			s.api.Cut()
			s.pause(t, 100*time.Millisecond, 3*time.Second)
			s.api.Refuse(false)
		}},
		{"API blackholed", 4, func(t testing.TB, s *stage) {
			s.api.Hold(true)
			s.pause(t, 100*time.Millisecond, 3*time.Second)
			if s.rng.IntN(2) == 0 {
				s.api.Cut()
			}
			s.api.Hold(false)
		}},
		{"API server lagging", 6, func(t testing.TB, s *stage) {
			i := s.rng.IntN(2)
			s.etcd[i].Hold(true)
			s.api.Prefer(i)
			if s.rng.IntN(3) == 0 {
				s.agent.crash()
				s.agent.again(t)
			} else {
				s.api.Cut() // It comes back to the one that lags.
			}
			s.pause(t, time.Second, 4*time.Second)
			cut := s.rng.IntN(2) == 0
			if cut {
				s.etcd[i].Cut()
			}
			s.etcd[i].Hold(false)
			if cut { // It may have to read etcd anew then, and has no history of before.
				s.losses = append(s.losses, loss{Rev: s.now(t)})
			}
		}},
		{"API server killed", 4, func(t testing.TB, s *stage) {
			i := s.rng.IntN(2)
			s.api.Prefer(1 - i)
			s.KillAPIServer(i)
			s.pause(t, 0, 2*time.Second)
			s.startServer(t, i)
		}},
		{"API server restarted", 3, func(t testing.TB, s *stage) {
			i := s.rng.IntN(2)
			s.api.Prefer(i) // Back to it as soon as it is there.
			s.StopAPIServer(i)
			s.startServer(t, i)
			s.api.Cut()
		}},
		{"both API servers killed", 4, func(t testing.TB, s *stage) {
			s.killServers(t)
		}},
		{"both API servers killed, agent down", 4, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.killServers(t)
			s.agent.again(t)
		}},
		{"agent killed while it walks back", 3, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.killServers(t)
			s.agent.again(t)
			for range 2 {
				s.pause(t, 50*time.Millisecond, 1200*time.Millisecond)
				s.agent.crash()
				s.agent.again(t)
			}
		}},
		{"compacted", 4, func(t testing.TB, s *stage) {
			s.compact(t)
		}},
		{"compacted while down", 5, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.pause(t, 200*time.Millisecond, 1500*time.Millisecond)
			s.compact(t)
			s.agent.again(t)
		}},
		{"compacted while starting", 5, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.pause(t, 200*time.Millisecond, time.Second)
			s.agent.again(t)
			for range 6 { // Between the pages of its Exact list, with luck.
				s.pause(t, 10*time.Millisecond, 200*time.Millisecond)
				s.compact(t)
			}
		}},
		{"compacted and all restarted", 3, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.pause(t, 200*time.Millisecond, time.Second)
			s.compact(t)
			s.killServers(t)
			s.agent.again(t)
			if s.rng.IntN(2) == 0 { // In its new snapshot.
				s.pause(t, 50*time.Millisecond, 900*time.Millisecond)
				s.agent.crash()
				s.agent.again(t)
			}
		}},
		{"agent killed, bus stopped", 5, func(t testing.TB, s *stage) {
			s.bus.freeze(t)
			s.pause(t, 100*time.Millisecond, time.Second)
			s.agent.crash()
			s.agent.again(t)
			s.pause(t, 100*time.Millisecond, time.Second)
			s.bus.thaw(t)
		}},
		{"agent killed, API blackholed", 4, func(t testing.TB, s *stage) {
			s.agent.crash()
			s.api.Hold(true)
			s.agent.again(t)
			s.pause(t, 100*time.Millisecond, 2*time.Second)
			s.api.Hold(false)
			s.pause(t, 10*time.Millisecond, 500*time.Millisecond)
			s.agent.crash()
			s.agent.again(t)
		}},
		{"bus killed, API cut", 4, func(t testing.TB, s *stage) {
			s.bus.kill()
			s.api.Cut()
			s.pause(t, 100*time.Millisecond, time.Second)
			s.bus.start(t)
			s.api.Cut()
		}},
	}
}

// stopAgent asks the agent to end, which it has to do in good order: nothing keeps it from draining.
func (s *stage) stopAgent(t testing.TB) {
	t.Helper()
	if err := s.agent.stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
}

// killServers kills both API servers and starts them again, one after the other or the second before the first is back.
func (s *stage) killServers(t testing.TB) {
	t.Helper()
	s.KillAPIServer(0)
	s.KillAPIServer(1)
	s.pause(t, 0, time.Second)
	first := s.rng.IntN(2)
	s.api.Prefer(first)
	s.startServer(t, first)
	s.startServer(t, 1-first)
}

// draw is a schedule of n faults. Each kind comes up as often as its weight says, as far as n goes.
func draw(kinds []faultKind, n int, rng *rand.Rand) []faultKind {
	var list []faultKind
	for len(list) < n {
		var round []faultKind
		for _, k := range kinds {
			for range k.weight {
				round = append(round, k)
			}
		}
		rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		list = append(list, round...)
	}
	return list[:n]
}
