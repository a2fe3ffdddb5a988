package e2e_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/world"
)

// poisoned is the name of an object that the way to the bus does not let through.
const poisoned = "poisoned"

// TestPoisoned has something on the way to the bus cut each connection over which events of one object come. They end in the
// dead letters, and all others get through.
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
			case "http":
				h, dead := world.StartReceiver(t, nil), world.StartReceiver(t, nil)
				via := world.RunProxy(t, world.HostPort(h.URL))
				via.Inspect(proxy.CutAt([]byte(`"name":"` + poisoned + `"`)))
				h.URL = "http://" + via.Addr()
				run.To = &withLetters{Receiver: h, dead: dead}
				run.Extra = fmt.Sprintf("deadLetter: {url: %q}\n", dead.URL)
			}
			runPoisoned(t, p, run)
		})
	}
}

// TestKafkaPoisoned is TestPoisoned for Kafka. The way to the dead letters leads over the same connections.
func TestKafkaPoisoned(t *testing.T) {
	slow(t)
	name := []byte(`"name":"` + poisoned + `"`)
	cut := func() proxy.Filter {
		up := &frames{each: func(frame []byte) bool {
			return !bytes.Contains(frame, name) || bytes.Contains(frame, []byte(world.KafkaTopic+".dead"))
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
	k.More = "compression: none" // Or nobody on the way could read it.
	runPoisoned(t, world.SharedPlane(t), &busTruth{To: k, Namespace: "poisoned-kafka", Revisions: revisions(1_000), Letters: true})
}

// runPoisoned makes the object between others, and wants all events of it in the dead letters, and only those.
func runPoisoned(t *testing.T, p *world.Plane, run *busTruth) {
	t.Helper()
	run.begin(t, p)
	// Over HTTP, an event is refused only while others are answered.
	giveUp := time.Now().Add(time.Minute)
	run.Enough = func() bool { return len(run.stream.Dead()) >= 3 || time.Now().After(giveUp) }
	uri := world.Collection("configmaps", run.Namespace)
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
	run.write(t, p)
	run.judge(t, p)
	var ops []string
	for _, l := range run.stream.Dead() {
		if ops = append(ops, l.Op); l.Key.Name != poisoned {
			t.Errorf("%s is in the dead letters: %s", l.ID, l.Why)
		}
	}
	if slices.Sort(ops); !slices.Equal(ops, []string{oracle.Created, oracle.Deleted, oracle.Updated}) {
		t.Errorf("in the dead letters are %v of %s, want all three", ops, poisoned)
	}
}

// proxied is a bus to which the agent has a way of its own.
type proxied struct {
	*world.Bus
	via string
}

func (p *proxied) Config() string {
	b := *p.Bus
	b.URL = p.via
	return b.Config()
}
