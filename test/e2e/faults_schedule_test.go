package e2e_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/world"
)

// faultKind is a fault of the agent or of the processes that it talks to. When do returns, all of
// them work again, except that the agent may still have to recover.
type faultKind struct {
	name   string
	weight int
	do     func(t testing.TB, s *world.Stage)
}

// allFaults returns the faults that a schedule is drawn from. The weights limit the share of slow
// faults, those that start an API server.
func allFaults() []faultKind {
	return []faultKind{
		{"agent killed", 6, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.Pause(t, 0, 1500*time.Millisecond)
			s.Agent.Again(t)
		}},
		{"agent killed after its start", 8, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.Agent.Again(t)
			for range 1 + s.RNG.IntN(2) { // During its Exact list, its catch-up or its first watch.
				s.Pause(t, 20*time.Millisecond, 900*time.Millisecond)
				s.Agent.Crash()
				s.Agent.Again(t)
			}
		}},
		{"agent stopped", 6, func(t testing.TB, s *world.Stage) {
			s.StopAgent(t)
			s.Pause(t, 0, 1500*time.Millisecond)
			s.Agent.Again(t)
		}},
		{"bus killed", 5, func(t testing.TB, s *world.Stage) {
			s.Server.Kill()
			s.Pause(t, 0, 2*time.Second)
			s.Server.Start(t)
		}},
		{"bus stopped", 4, func(t testing.TB, s *world.Stage) {
			s.Server.Freeze(t)
			s.Pause(t, 100*time.Millisecond, 3*time.Second)
			s.Server.Thaw(t)
		}},
		{"bus blackholed", 4, func(t testing.TB, s *world.Stage) {
			s.BusProxy.Hold(true)
			s.Pause(t, 100*time.Millisecond, 3*time.Second)
			if s.RNG.IntN(2) == 0 {
				s.BusProxy.Cut()
			}
			s.BusProxy.Hold(false)
		}},
		{"bus cut", 4, func(t testing.TB, s *world.Stage) {
			for range 1 + s.RNG.IntN(3) {
				s.BusProxy.Cut()
				s.Pause(t, 10*time.Millisecond, 500*time.Millisecond)
			}
		}},
		{"bus truncated", 4, func(t testing.TB, s *world.Stage) {
			s.BusProxy.Truncate(s.RNG.Int64N(2 << 10)) // Acknowledgements are short.
			s.Pause(t, 100*time.Millisecond, time.Second)
		}},
		{"bus delayed", 3, func(t testing.TB, s *world.Stage) {
			s.BusProxy.Delay(s.Between(time.Millisecond, 100*time.Millisecond))
			s.Pause(t, 500*time.Millisecond, 3*time.Second)
			s.BusProxy.Delay(0)
		}},
		{"API cut", 6, func(t testing.TB, s *world.Stage) {
			s.API.Prefer(s.RNG.IntN(2))
			for range 1 + s.RNG.IntN(3) {
				s.API.Cut()
				s.Pause(t, 10*time.Millisecond, 500*time.Millisecond)
			}
		}},
		{"API truncated", 8, func(t testing.TB, s *world.Stage) {
			s.API.Truncate(s.RNG.Int64N(64 << 10))
			s.Pause(t, 100*time.Millisecond, time.Second)
		}},
		{"API truncated at the start", 6, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.Agent.Again(t)
			for range 3 { // During discovery, a page, or the first frames.
				s.Pause(t, 20*time.Millisecond, 400*time.Millisecond)
				s.API.Truncate(s.RNG.Int64N(128 << 10))
			}
		}},
		{"API delayed", 4, func(t testing.TB, s *world.Stage) {
			s.API.Delay(s.Between(time.Millisecond, 100*time.Millisecond))
			s.Pause(t, 500*time.Millisecond, 3*time.Second)
			s.API.Delay(0)
		}},
		{"API refused", 3, func(t testing.TB, s *world.Stage) {
			s.API.Refuse(true)
			s.API.Cut()
			s.Pause(t, 100*time.Millisecond, 3*time.Second)
			s.API.Refuse(false)
		}},
		{"API blackholed", 4, func(t testing.TB, s *world.Stage) {
			s.API.Hold(true)
			s.Pause(t, 100*time.Millisecond, 3*time.Second)
			if s.RNG.IntN(2) == 0 {
				s.API.Cut()
			}
			s.API.Hold(false)
		}},
		{"API server lagging", 6, func(t testing.TB, s *world.Stage) {
			i := s.RNG.IntN(2)
			s.Etcd[i].Hold(true)
			s.API.Prefer(i)
			if s.RNG.IntN(3) == 0 {
				s.Agent.Crash()
				s.Agent.Again(t)
			} else {
				s.API.Cut() // It comes back to the one that lags.
			}
			s.Pause(t, time.Second, 4*time.Second)
			cut := s.RNG.IntN(2) == 0
			if cut {
				s.Etcd[i].Cut()
			}
			s.Etcd[i].Hold(false)
			if cut { // It may then have to read etcd from the start, without the earlier history.
				s.LoseHistory(t, i)
			}
		}},
		{"API server killed", 4, func(t testing.TB, s *world.Stage) {
			i := s.RNG.IntN(2)
			s.API.Prefer(1 - i)
			s.KillAPIServer(i)
			s.Pause(t, 0, 2*time.Second)
			s.StartServer(t, i)
		}},
		{"API server restarted", 3, func(t testing.TB, s *world.Stage) {
			i := s.RNG.IntN(2)
			s.API.Prefer(i) // The agent returns to it as soon as it is up.
			s.StopAPIServer(i)
			s.StartServer(t, i)
			s.API.Cut()
		}},
		{"both API servers killed", 4, func(t testing.TB, s *world.Stage) {
			s.KillServers(t)
		}},
		{"both API servers killed, agent down", 4, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.KillServers(t)
			s.Agent.Again(t)
		}},
		{"agent killed while it walks back", 3, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.KillServers(t)
			s.Agent.Again(t)
			for range 2 {
				s.Pause(t, 50*time.Millisecond, 1200*time.Millisecond)
				s.Agent.Crash()
				s.Agent.Again(t)
			}
		}},
		{"compacted", 4, func(t testing.TB, s *world.Stage) {
			s.CompactNow(t)
		}},
		{"compacted while down", 5, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.Pause(t, 200*time.Millisecond, 1500*time.Millisecond)
			s.CompactNow(t)
			s.Agent.Again(t)
		}},
		{"compacted while starting", 5, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.Pause(t, 200*time.Millisecond, time.Second)
			s.Agent.Again(t)
			for range 6 { // With luck, between the pages of its Exact list.
				s.Pause(t, 10*time.Millisecond, 200*time.Millisecond)
				s.CompactNow(t)
			}
		}},
		{"compacted and all restarted", 3, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.Pause(t, 200*time.Millisecond, time.Second)
			s.CompactNow(t)
			s.KillServers(t)
			s.Agent.Again(t)
			if s.RNG.IntN(2) == 0 { // During its new snapshot.
				s.Pause(t, 50*time.Millisecond, 900*time.Millisecond)
				s.Agent.Crash()
				s.Agent.Again(t)
			}
		}},
		{"agent killed, bus stopped", 5, func(t testing.TB, s *world.Stage) {
			s.Server.Freeze(t)
			s.Pause(t, 100*time.Millisecond, time.Second)
			s.Agent.Crash()
			s.Agent.Again(t)
			s.Pause(t, 100*time.Millisecond, time.Second)
			s.Server.Thaw(t)
		}},
		{"agent killed, API blackholed", 4, func(t testing.TB, s *world.Stage) {
			s.Agent.Crash()
			s.API.Hold(true)
			s.Agent.Again(t)
			s.Pause(t, 100*time.Millisecond, 2*time.Second)
			s.API.Hold(false)
			s.Pause(t, 10*time.Millisecond, 500*time.Millisecond)
			s.Agent.Crash()
			s.Agent.Again(t)
		}},
		{"bus killed, API cut", 4, func(t testing.TB, s *world.Stage) {
			s.Server.Kill()
			s.API.Cut()
			s.Pause(t, 100*time.Millisecond, time.Second)
			s.Server.Start(t)
			s.API.Cut()
		}},
	}
}

// draw returns a schedule of n faults. Each kind occurs in proportion to its weight, as far as n
// allows.
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
