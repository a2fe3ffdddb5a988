package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// killFilters kills the agent with filters while nothing is withheld. It has not said so since its
// last progress.
func (x *trial) killFilters(t *testing.T) {
	t.Helper()
	wait.Eventually(t, 4*time.Minute, func() error {
		shown := time.Since(time.Unix(0, x.shown.Load()))
		if shown < 15*time.Second || shown > 45*time.Second { // The checkpoint may say that something is withheld.
			return fmt.Errorf("the last snapshot of filtered scopes was %s ago", shown)
		}
		return nil
	})
	all := x.filtered
	from := time.Now()
	x.absent(t, "killed", lastClaim, all, func() {
		x.filters.Crash()
		world.Pass(t.Context(), 2*time.Second)
		x.filters.Again(t)
		x.filters.Ready(t)
	})
	for _, p := range all {
		p.setAside(span{from.Add(-lastClaim), time.Now().Add(grace)})
	}
}

// killInsideSnapshot kills the shaken agent while it sends a snapshot, and starts it again.
func (x *trial) killInsideSnapshot(t *testing.T) {
	t.Helper()
	var ids []string
	// The snapshot is completed when its reads are acknowledged: the time of two delays is left for
	// the kill.
	x.busWay.Delay(time.Second)
	wait.Eventually(t, 90*time.Second, func() (err error) { // It may still be catching up.
		ids, err = x.shaken.RequestSnapshot(t.Context(), "configmaps", "q-rough")
		return err
	})
	wait.Eventually(t, time.Minute, func() error {
		reads := 0
		for _, rec := range x.stream.All() {
			if rec.Op == oracle.Read && slices.Contains(ids, rec.Snapshot) {
				reads++
			}
		}
		if reads < 20 {
			return errors.New("the snapshot has not begun")
		}
		return nil
	})
	x.shaken.Crash()
	x.middle = map[int]uint64{}
	for _, rec := range x.stream.All() {
		x.middle[rec.Lane] = max(x.middle[rec.Lane], rec.Position)
	}
	x.busWay.Delay(0)
	for _, rec := range x.stream.All() {
		if rec.Stream == oracle.SnapshotCompleted && slices.Contains(ids, rec.Snapshot) {
			t.Error("the snapshot was complete before the agent was killed")
		}
	}
	x.shaken.Again(t)
	x.shaken.Ready(t)
}

// away is for how long an agent is stopped.
func (x *trial) away() time.Duration {
	if x.lasts < 10*time.Minute {
		return 20 * time.Second
	}
	return time.Duration(20+x.rng.IntN(70)) * time.Second
}

// disturb injects the faults, in three minutes.
func (x *trial) disturb(t *testing.T) {
	t.Helper()
	if x.disturbed%2 == 0 {
		defer x.buffer(t)()
	}
	x.disturbed++
	signal := func(s syscall.Signal) {
		if err := x.shaken.Cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	world.Pass(t.Context(), 20*time.Second)
	x.absent(t, "stopped", 0, slices.Concat(x.rough, x.still), func() {
		if err := x.shaken.Stop(time.Minute); err != nil {
			t.Fatal(err)
		}
		world.Pass(t.Context(), x.away())
		x.shaken.Again(t)
	})
	x.absent(t, "cut", 0, x.plain[2:], func() {
		x.gateway.Cut("widgets", true)
		world.Pass(t.Context(), 10*time.Second)
		x.gateway.Cut("widgets", false)
	})
	if x.stream.JS != nil { // From Kafka, a relay that was started again does not know what the first one has lost.
		x.relay.process.Kill()
		x.relay.start(t)
	}
	if x.lasts > 10*time.Minute {
		x.killFilters(t)
	}
	if x.spread != nil {
		x.spread.kill(t)
	}
	x.loseAnnex(t)
	world.Pass(t.Context(), time.Until(x.began.Add(75*time.Second))) // Its watch has shown a bookmark.
	held := time.Now()
	x.gateway.Hold("secrets", true)
	x.depose(t)
	x.loseMachine(t)
	world.Pass(t.Context(), time.Until(held.Add(cached+5*time.Second)))
	x.gateway.Hold("secrets", false)
	x.plain[1].excuse("held", held.Add(-bookmark), time.Now().Add(bookmark))
	x.plain[1].setAside(span{held.Add(-grace), time.Now().Add(grace)}) // Its watch may not resume.
	x.absent(t, "killed", lastClaim, slices.Concat(x.rough, x.still), func() {
		x.shaken.Crash()
		world.Pass(t.Context(), 3*time.Second)
		x.shaken.Again(t)
		x.shaken.Ready(t)
		x.killInsideSnapshot(t)
	})
	x.absent(t, "frozen", 0, slices.Concat(x.rough, x.still), func() {
		signal(syscall.SIGSTOP)
		world.Pass(t.Context(), x.away())
		signal(syscall.SIGCONT)
	})
}

// buffer has a proxy that buffers the responses of a watch, until the function that it returns is
// called. The agent has brief watches meanwhile, and for half a minute longer.
//
// A watch that ended within the first minute would pass on what the proxy holds. Such a short delay
// is not seen. So the watch is cut first: a new one lasts five minutes at least.
func (x *trial) buffer(t *testing.T) (end func()) {
	t.Helper()
	from := time.Now()
	x.gateway.Cut(x.buffered.resource, true)
	world.Pass(t.Context(), 2*time.Second)
	x.gateway.Cut(x.buffered.resource, false)
	world.Pass(t.Context(), grace)
	x.gateway.Buffer(x.buffered.resource, true)
	return func() {
		x.gateway.Buffer(x.buffered.resource, false)
		until := time.Now().Add(bookmark)
		x.buffered.excuse("buffered", from.Add(-bookmark), until)
		x.buffered.setAside(span{from.Add(-grace), until}) // Its watches may not resume.
	}
}

// bookmark is how long a watch may send nothing: bookmarks come each minute.
const bookmark = 65 * time.Second

// lastClaim is how long before its death a process may have claimed something. Its last progress is
// up to a minute old, and the time in it is that of the quietest scope.
const lastClaim = bookmark + 90*time.Second

// absent injects a fault. Topics that are written each few seconds are excused for its time, and
// for the time before it that the agent cannot claim. Quiet ones are, from bookmark to bookmark.
func (x *trial) absent(t *testing.T, why string, before time.Duration, topics []*topic, fault func()) {
	t.Helper()
	from := time.Now()
	fault()
	until := time.Now()
	for _, p := range topics {
		least, most := max(before, grace), 2*grace // An agent that starts asks for a proof.
		if p.class == "quiet" {
			least, most = bookmark, bookmark
		}
		p.excuse(why, from.Add(-least), until.Add(most))
	}
}
