package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// poisoned is the name of an object whose events do not get through to the bus.
const poisoned = "poisoned"

// TestPoisoned cuts each connection to the bus that carries an event of one object. The operator
// moves these events to the dead letters, and all others get through.
func TestPoisoned(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	for _, name := range []string{"nats", "http"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := &busTruth{Namespace: "poisoned-" + name, Revisions: revisions(1_000), Letters: true}
			switch name {
			case "nats":
				b := world.StartBus(t)
				via := world.RunProxy(t, world.HostPort(b.URL))
				// The subject, which the dead letter does not have.
				via.Inspect(proxy.CutAt([]byte("." + oracle.Escape(run.Namespace) + "." + poisoned + " ")))
				run.To = &proxied{Bus: b, via: "nats://" + via.Addr()}
				run.Trouble = func(ctx context.Context) error { return giveUp(ctx, run.agent) }
			case "http":
				h, dead := world.StartReceiver(t, nil), world.StartReceiver(t, nil)
				via := world.RunProxy(t, world.HostPort(h.URL))
				via.Inspect(proxy.CutAt([]byte(`"name":"` + poisoned + `"`)))
				h.URL = "http://" + via.Addr()
				run.To = &withLetters{Receiver: h, dead: dead}
				run.Extra = fmt.Sprintf("deadLetter: {url: %q}\n", dead.URL)
				run.Trouble = func(ctx context.Context) error { return giveUp(ctx, run.agent) }
			}
			runPoisoned(t, p, run)
		})
	}
}

// TestKafkaPoisoned cuts each connection to Kafka that carries an event of one object. The agent
// sends these events alone, again and again, and they do not delay any others. After the cuts end,
// the events are stored: none is in the dead letters, and none is missing.
func TestKafkaPoisoned(t *testing.T) {
	slow(t)
	t.Parallel()
	name := []byte(`"name":"` + poisoned + `"`)
	var cuts atomic.Int64
	var healed atomic.Bool
	cut := func() proxy.Filter {
		up := &frames{each: func(frame []byte) bool {
			if healed.Load() || !bytes.Contains(frame, name) {
				return true
			}
			cuts.Add(1)
			return false
		}}
		return func(down bool, piece []byte) bool { return down || up.add(piece) }
	}
	k := world.StartKafka(t, kafka.Options{
		Nodes: world.KafkaNodes(t),
		Advertise: func(_ int, l kafka.Listener, addr string) (string, error) {
			if l != kafka.Plain {
				return "", nil
			}
			via := world.RunProxy(t, addr)
			via.Inspect(cut)
			return via.Addr(), nil
		},
	})
	k.More = "compression: none" // Compressed frames could not be inspected.
	p := world.SharedPlane(t)
	// A single event is sent again only after a growing pause.
	run := &busTruth{To: k, Namespace: "poisoned-kafka", Revisions: revisions(1_000), Idle: 2 * time.Minute}
	run.begin(t, p)
	poison(t, p, run.Namespace)
	giveUp := time.Now().Add(time.Minute)
	// At least four attempts among others, then alone.
	run.Enough = func() bool { return cuts.Load() >= 7 || time.Now().After(giveUp) }
	run.write(t, p)
	wait.Eventually(t, time.Minute, func() error {
		if n := len(run.stream.All()); n < run.Revisions {
			return fmt.Errorf("%d records of the others, want %d", n, run.Revisions)
		}
		return nil
	})
	for _, rec := range run.stream.All() {
		if rec.Key.Name == poisoned {
			t.Errorf("%s is on the bus before the way lets it through", rec.ID)
		}
	}
	if n := cuts.Load(); n < 7 {
		t.Errorf("%d cuts: the test shows too little", n)
	}
	healed.Store(true)
	run.judge(t, p)
}

// poison creates, changes and deletes the object that does not get through.
func poison(t *testing.T, p *world.Plane, namespace string) {
	t.Helper()
	uri := world.Collection("configmaps", namespace)
	cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": world.Meta(poisoned), "data": obj{"text": "one"}}
	if _, err := p.API.Create(t.Context(), uri, cm); err != nil {
		t.Fatal(err)
	}
	if _, err := p.API.MergePatch(t.Context(), uri+"/"+poisoned, obj{"data": obj{"text": "two"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.API.Remove(t.Context(), uri+"/"+poisoned); err != nil {
		t.Fatal(err)
	}
}

// runPoisoned writes the object among others. The dead letters must have all of its events, and
// only those.
func runPoisoned(t *testing.T, p *world.Plane, run *busTruth) {
	t.Helper()
	run.begin(t, p)
	deadline := time.Now().Add(time.Minute)
	run.Enough = func() bool { return len(run.stream.Dead()) >= 3 || time.Now().After(deadline) }
	poison(t, p, run.Namespace)
	run.write(t, p)
	run.judge(t, p)
	var ops []string
	for _, l := range run.stream.Dead() {
		ops = append(ops, l.Op)
		if l.Key.Name != poisoned {
			oracle.Fail(t, "%s is in the dead letters: %s", l.ID, l.Why)
		}
	}
	slices.Sort(ops)
	if !slices.Equal(ops, []string{oracle.Created, oracle.Deleted, oracle.Updated}) {
		t.Errorf("in the dead letters are %v of %s, want all three", ops, poisoned)
	}
}

// giveUp moves each event that was sent alone without success to the dead letters, as an operator
// does.
func giveUp(ctx context.Context, a *world.Agent) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := a.GiveUp(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// proxied is a bus that the agent reaches through a proxy.
type proxied struct {
	*world.Bus
	via string
}

func (p *proxied) Config() string {
	b := *p.Bus
	b.URL = p.via
	return b.Config()
}
