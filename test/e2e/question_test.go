package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// questionFloors are the least shares of exact answers. Those of filtered scopes count from a
// snapshot until something is withheld again.
var questionFloors = floors{
	"plain": 95, "quiet": 95, "ended": 95, "filtered": 95, "node": 95, "copy of plain": 95,
	topicsClass: 95, quietTopicsClass: 95, "events": 90,
}

// trial is an inquiry with the agents and faults of TestTruthByQuestion.
type trial struct {
	inquiry
	to     world.Destination // of the agents
	read   world.Destination
	stream *world.Stream
	busWay *proxy.Proxy // between the shaken agent and the bus

	gateway *world.Gateway
	steady  *reloaded // whose watches are cut, and whose selection changes
	shaken  *world.Agent
	filters *world.Agent
	shown   atomic.Int64 // when the last snapshot of its topics was complete, in nanoseconds since 1970
	apples  *kind

	plain, quiet         []*topic // of the steady agent
	rough, still         []*topic // of the shaken one
	led                  []*topic // of the elected one
	defined, left, moved *topic
	filtered             []*topic // of the agent with filters
	buffered             *topic   // whose watch a proxy buffers
	notes, events        *topic

	rng       *rand.Rand
	began     time.Time
	lasts     time.Duration // how long writers write
	disturbed int           // how often

	machines machines
	elected  [2]*world.Agent
	relay    relay
	annex    *extension
	spread   *spread        // nil: the bus has no topics
	middle   map[int]uint64 // by lane, the position of a record in the middle of a snapshot
	// cut removes what is before these positions.
	cut func(t *testing.T, before map[int]uint64)
}

// TestTruthByQuestion asks a record for what LISTs of the API server had, by their versions and by
// their times. An exact answer is the LIST, and most answers are exact. Meanwhile everything
// happens that makes answers wrong. Watches are cut and held back. Agents are stopped, killed,
// killed inside a snapshot, and deposed. A resource is deleted and defined again, a node goes, and
// an aggregated API is away. Selections change, and filters withhold versions. A relay copies the
// record, an agent has a topic for each namespace, and the beginning of the record is removed.
func TestTruthByQuestion(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	truthByQuestion(t, 4*time.Minute)
}

// TestTruthByQuestionForLong is TestTruthByQuestion for half an hour, with Events: the answers
// about these are known ten minutes later.
func TestTruthByQuestionForLong(t *testing.T) {
	lasts := truthLasts(t)
	notRacing(t)
	t.Parallel()
	truthByQuestion(t, lasts)
}

// truthLasts returns for how long make test-truth writes.
func truthLasts(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("TRUTH")
	if text == "" {
		t.Skip("takes an hour: part of make test-truth")
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return lasts
}

// TestTruthByQuestionOfAnOlderServer is TestTruthByQuestionForLong with the API server of a former
// minor, which behaves as an older one still. It does not ask etcd how far its watch cache is. So
// the bookmarks of quiet resources stay behind, and answers about them by version are not exact for
// long.
func TestTruthByQuestionOfAnOlderServer(t *testing.T) {
	lasts := truthLasts(t)
	notRacing(t)
	t.Parallel()
	x := newTrial(t, lasts, controlplane.Options{
		Version:       "1.36",
		APIServerArgs: []string{"--emulated-version=1.33"},
		FeatureGates:  map[string]bool{"ConsistentListFromCache": false},
	})
	for _, p := range slices.Concat(x.quiet, x.still) {
		p.classByVersion = "quiet, apart"
	}
	x.playOnNATS(t)
}

func truthByQuestion(t *testing.T, lasts time.Duration) {
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		newTrial(t, lasts, controlplane.Options{}).playOnNATS(t)
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		kafka.Require(t)
		x := newTrial(t, lasts, controlplane.Options{})
		k := world.StartKafka(t, kafka.Options{Advertise: func(_ int, _ kafka.Listener, addr string) (string, error) {
			x.busWay = world.RunProxy(t, addr)
			return x.busWay.Addr(), nil
		}})
		k.PartitionCount = 8
		x.bus = "kafka://" + k.Inside()[0] + "/" + k.Topic
		x.to = k
		x.read = k
		x.cut = func(t *testing.T, before map[int]uint64) {
			t.Helper()
			if err := k.DeleteRecords(t.Context(), k.Topic, before); err != nil {
				t.Fatal(err)
			}
		}
		x.spread = newSpread(t, x.plane, k)
		x.play(t)
	})
}

func (x *trial) playOnNATS(t *testing.T) {
	t.Helper()
	bus := world.StartBusProcess(t)
	x.busWay = world.RunProxy(t, world.HostPort(bus.URL))
	x.bus = bus.URL
	x.to = &world.Bus{URL: "nats://" + x.busWay.Addr()}
	x.read = bus
	x.cut = func(t *testing.T, before map[int]uint64) {
		t.Helper()
		stream, err := x.stream.JS.Stream(t.Context(), world.StreamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(before[0])); err != nil {
			t.Fatal(err)
		}
	}
	x.play(t)
}

func newTrial(t *testing.T, lasts time.Duration, opts controlplane.Options) *trial {
	t.Helper()
	opts.NoControllerManager = true
	p := world.StartPlane(t, opts) // It defines resources.
	x := &trial{gateway: world.StartGateway(t, p), apples: newKind(p, "question", "apples")}
	x.plane = p
	x.lasts = lasts
	x.rng = world.Luck()
	const plain, quiet, rough, still = "q-plain", "q-quiet", "q-rough", "q-still"
	x.plain = []*topic{
		newTopic("plain", "configmaps", plain, "ConfigMap", nil),
		newTopic("plain", "secrets", plain, "Secret", nil),
		newTopic("plain", oracle.Widgets, plain, "Widget", nil),
	}
	x.quiet = []*topic{
		newTopic("quiet", "limitranges", quiet, "LimitRange", obj{"spec": obj{"limits": []obj{}}}),
		newTopic("quiet", "resourcequotas", quiet, "ResourceQuota", obj{"spec": obj{"hard": obj{}}}),
	}
	x.rough = []*topic{
		newTopic("plain", "configmaps", rough, "ConfigMap", nil),
		newTopic("plain", "secrets", rough, "Secret", nil),
	}
	x.still = []*topic{newTopic("quiet", "limitranges", still, "LimitRange", obj{"spec": obj{"limits": []obj{}}})}
	x.defined = newTopic("ended", x.apples.resource(), "q-defined", "Kapples", nil)
	x.left = newTopic("ended", "endpoints", "q-left", "Endpoints", nil)
	x.moved = newTopic("ended", "configmaps", "q-moved", "ConfigMap", nil)
	x.filtered = newFiltered(p.API)
	x.buffered = newTopic("plain", "serviceaccounts", "q-buffered", "ServiceAccount", nil)
	x.led = []*topic{
		newTopic("plain", "configmaps", questionLead, "ConfigMap", nil),
		newTopic("plain", "secrets", questionLead, "Secret", nil),
	}
	x.machines.pods = newPods()
	p.NewNamespace(t, "q-own")
	p.NewNamespace(t, extensionNamespace)
	x.annex = newExtension(t, p, "question.annex.e2e.kubecdc.dev", true, 5_000_000)
	x.notes = newTopic("aggregated", x.annex.resource(), extensionNamespace, "Note", nil)
	x.notes.isOwn = true
	x.beginAnnex(t)
	x.first = x.plain[0]
	x.topics = slices.Concat(x.plain, x.quiet, x.rough, x.still, x.led, x.filtered,
		[]*topic{x.defined, x.left, x.moved, x.buffered, x.machines.pods, x.notes})
	x.events = newTopic("events", "events", "q-events", "Event", obj{"involvedObject": obj{"namespace": "q-events"}})
	if lasts > 10*time.Minute {
		x.topics = append(x.topics, x.events)
	}
	newNamespaces(t, p, x.topics)
	if err := x.apples.define(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.defined.holds = []span{{from: time.Now().Add(-time.Minute)}}
	x.left.holds = []span{{from: time.Now().Add(-time.Minute)}}
	x.moved.holds = []span{{from: time.Now().Add(-time.Minute)}}
	return x
}

// steadyRules is the selection of the steady agent, with a part that a reload changes.
func (x *trial) steadyRules(more string) string {
	if slices.Contains(x.topics, x.events) {
		more += "\n  - {resources: [events], namespaces: [q-events]}"
	}
	return fmt.Sprintf(`  - {resources: [customresourcedefinitions]}
  - {resources: [configmaps, secrets, %s], namespaces: [q-plain]}
  - {resources: [limitranges, resourcequotas], namespaces: [q-quiet]}
  - {resources: [serviceaccounts], namespaces: [q-buffered]}
  - {resources: ["*.%s"], namespaces: [q-defined]}
  - {resources: ["*.%s"]}
%s`, oracle.Widgets, x.apples.group, x.annex.group, more)
}

const (
	leftRule     = "  - {resources: [endpoints], namespaces: [q-left]}"
	selectorRule = "  - {resources: [configmaps], namespaces: [q-moved], labelSelector: 'team=payments'}"
	movedRule    = "  - {resources: [configmaps], namespaces: [q-moved]}"
)

// begin starts the agents, and waits for their first snapshots.
func (x *trial) begin(t *testing.T) {
	t.Helper()
	const objects = 4
	for _, p := range x.topics {
		for n := range objects {
			if p.isOwn {
				continue
			}
			if err := p.write(t.Context(), x.plane.API, n, objects); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.plane.MakeMany(t, "q-rough", "many", 300)
	first := x.steadyRules(leftRule + "\n" + selectorRule)
	x.steady = &reloaded{watch: first, Agent: world.StartAgent(t, x.plane, world.AgentConfig{
		Bus: x.to, Kubeconfig: x.gateway.Kubeconfig(t, x.plane), Watch: first,
	})}
	x.steady.file = x.steady.Argv[slices.Index(x.steady.Argv, "--config")+1]
	x.shaken = world.StartAgent(t, x.plane, world.AgentConfig{
		Bus: x.to, Extra: "queue: {events: 64}",
		Watch: "  - {resources: [configmaps, secrets], namespaces: [q-rough]}\n  - {resources: [limitranges], namespaces: [q-still]}",
	})
	x.filters = world.StartAgent(t, x.plane, world.AgentConfig{
		Bus: x.to, Extra: "noise: [status-only, lease-heartbeats, managed-fields-only, endpoints-churn]",
		Watch: `  - {resources: [configmaps], namespaces: [q-where], where: 'op != "u" || !after.metadata.labels.step.startsWith("noise")'}
  - {resources: [secrets], namespaces: [q-ops], operations: [created, updated]}
  - {resources: [` + oracle.Widgets +
			`, leases.coordination.k8s.io, serviceaccounts, endpoints], namespaces: [q-noise]}`,
	})
	x.beginMachines(t)
	x.beginElected(t)
	x.stream = x.read.Read(t, x.plane.Reader())
	// The definitions, three scopes of Pods, and three of Nodes.
	x.awaitSnapshots(t, len(x.topics)+1+2+2)
	x.beginRelay(t)
	if x.spread != nil {
		x.spread.begin(t)
	}
}

// awaitSnapshots waits for the first snapshots of a number of scopes.
func (x *trial) awaitSnapshots(t *testing.T, scopes int) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		done := map[string]bool{}
		for _, rec := range x.stream.All() {
			if rec.Stream == oracle.SnapshotCompleted {
				done[rec.Scope.Text] = true
			}
		}
		if len(done) < scopes {
			return fmt.Errorf("snapshots of %d scopes, want %d: %v", len(done), scopes, slices.Sorted(maps.Keys(done)))
		}
		return nil
	})
}

// play runs writers and faults, asks, and judges the answers.
func (x *trial) play(t *testing.T) {
	t.Helper()
	x.begin(t)
	x.beats = append(x.beats, x.writePlain, x.writeQuiet, x.writeEnded, x.writeFiltered, x.writeAnnex(t))
	if x.spread != nil {
		x.beats = append(x.beats, x.spread.write)
		x.also = append(x.also, &x.spread.inquiry)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := errors.New("a writer has failed the test")
		defer func() { ended <- err }()
		err = x.run(ctx)
	}()
	x.began = time.Now()
	var early []*reply
	for n := 0; time.Since(x.began) < x.lasts && t.Context().Err() == nil && len(ended) == 0; n++ {
		if n == 0 || n%8 == 0 && time.Since(x.began) < x.lasts-5*time.Minute {
			x.disturb(t)
		}
		world.Pass(t.Context(), 5*time.Second)
		seen := x.seen()
		if len(seen) > 0 { // Some that have just been seen, and some that were seen long ago.
			s := seen[max(0, len(seen)-1-n*n%len(seen))]
			early = append(early, x.askAll(t, s, s.calm && n%2 == 0, true)...)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	replies := append(early, x.askSeen(t)...)
	askedEnough(t, replies)
	least := maps.Clone(questionFloors)
	if !slices.Contains(x.topics, x.events) {
		delete(least, "events")
	}
	if x.spread == nil {
		delete(least, topicsClass)
		delete(least, quietTopicsClass)
	}
	replies = append(replies, x.askCopy(t)...)
	if x.spread != nil {
		replies = append(replies, x.spread.askSpread(t)...)
	}
	if x.middle != nil {
		replies = append(replies, x.askCut(t)...)
	}
	reportReplies(t, replies, least)
}
