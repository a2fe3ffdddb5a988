package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	questionNodes = "q-node"
	questionLead  = "q-lead"
)

// machines are the agents of two nodes, and the central agent. One of the nodes goes.
type machines struct {
	central *world.Agent
	agents  map[string]*world.Agent // by node
	pods    *topic
}

// newPods returns the topic of Pods that are on two nodes, and on none.
func newPods() *topic {
	p := newTopic("node", "pods", questionNodes, "Pod", nil)
	p.removal = "?gracePeriodSeconds=0"
	p.make = func(name, text string) obj {
		spec := obj{"containers": []obj{{"name": "c", "image": "none.invalid/c"}}}
		if k := int(name[len(name)-1]-'0') % 3; k < 2 {
			spec["nodeName"] = nodeOfQuestion(k)
		}
		return obj{"apiVersion": "v1", "kind": "Pod", "metadata": obj{"name": name, "labels": obj{
			"step": text,
		}}, "spec": spec}
	}
	return p
}

func nodeOfQuestion(k int) string { return fmt.Sprint("q-machine-", k) }

func (x *trial) beginMachines(t *testing.T) {
	t.Helper()
	m := &x.machines
	m.agents = map[string]*world.Agent{}
	const watch = "  - {resources: [pods], namespaces: [" + questionNodes + "]}\n  - {resources: [nodes]}"
	for k := range 2 {
		x.addMachine(t, nodeOfQuestion(k))
	}
	m.central = world.StartAgent(t, x.plane, world.AgentConfig{Bus: x.to, Watch: watch, Extra: "mode: central"})
	for k := range 2 {
		name := nodeOfQuestion(k)
		m.agents[name] = world.StartAgent(t, x.plane, world.AgentConfig{
			Bus: x.to, Watch: watch, Extra: "mode: node", Env: []string{"NODE_NAME=" + name},
		})
	}
}

func (x *trial) addMachine(t *testing.T, name string) {
	t.Helper()
	node := obj{"apiVersion": "v1", "kind": "Node", "metadata": world.Meta(name)}
	if _, err := x.plane.API.Create(t.Context(), "/api/v1/nodes", node); err != nil {
		t.Fatal(err)
	}
}

// loseMachine kills the agent of a node, and deletes the Node. The central agent takes over. Then
// the machine comes back. Answers about versions may be uncertain from the last progress before the
// kill until the take-over, and until the agent is back.
func (x *trial) loseMachine(t *testing.T) {
	t.Helper()
	m, name := &x.machines, nodeOfQuestion(1)
	aside := func(from time.Time) {
		m.pods.setAside(span{from.Add(-bookmark), time.Now().Add(grace)})
		m.pods.excuse("the node is gone", from.Add(-lastClaim), time.Now().Add(grace))
	}
	from := time.Now()
	m.agents[name].Crash()
	world.Pass(t.Context(), 3*time.Second)
	if err := x.plane.API.Remove(t.Context(), "/api/v1/nodes/"+name); err != nil {
		t.Fatal(err)
	}
	scope := "pods/" + questionNodes + "?fieldSelector=spec.nodeName=" + name
	wait.Eventually(t, time.Minute, func() error { return observes(t.Context(), m.central, scope, true) })
	x.awaitRecord(t, "a snapshot of the take-over", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.SnapshotCompleted && rec.Scope.Text == scope && rec.Time.After(from)
	})
	aside(from)
	world.Pass(t.Context(), 20*time.Second)
	from = time.Now()
	x.addMachine(t, name)
	m.agents[name].Again(t)
	wait.Eventually(t, time.Minute, func() error { return observes(t.Context(), m.central, scope, false) })
	m.agents[name].Ready(t)
	aside(from)
}

// hide begins a span in which filters withhold versions. Nothing is required until show ends it: a
// trial may end before.
func (p *topic) hide() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hides.IsZero() {
		p.hides = time.Now()
	}
}

// show ends the span of hide.
func (p *topic) show(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asides = append(p.asides, span{p.hides, until})
	p.hides = time.Time{}
}

// setAside adds a span in which nothing is required of the share of exact answers.
func (p *topic) setAside(s span) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asides = append(p.asides, s)
}

func (x *trial) awaitRecord(t *testing.T, what string, is func(*oracle.Record) bool) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		if !slices.ContainsFunc(x.stream.All(), func(rec oracle.Record) bool { return is(&rec) }) {
			return errors.New("not on the bus: " + what)
		}
		return nil
	})
}

// beginElected starts two agents. One leads, and the other is a standby.
func (x *trial) beginElected(t *testing.T) {
	t.Helper()
	for k := range x.elected {
		x.elected[k] = world.StartAgent(t, x.plane, world.AgentConfig{
			Bus:        x.to,
			Watch:      "  - {resources: [configmaps, secrets], namespaces: [" + questionLead + "]}",
			Checkpoint: "{configMap: {namespace: q-own, name: agents-checkpoint}}",
			Extra:      "leaderElection: {enabled: true, lease: agents, namespace: q-own}",
		})
		if k == 0 {
			x.elected[k].Ready(t)
		}
	}
}

// depose stops the process of the leader until the other agent leads, and then continues it.
func (x *trial) depose(t *testing.T) {
	t.Helper()
	leads := func(a *world.Agent) bool {
		value, err := a.Metric(t.Context(), "kubecdc_leader")
		return err == nil && value == 1
	}
	i := slices.IndexFunc(x.elected[:], leads)
	if i < 0 {
		t.Fatal("nobody leads")
	}
	was, next := x.elected[i], x.elected[1-i]
	signal := func(s syscall.Signal) {
		if err := was.Cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	x.absent(t, "deposed", lastClaim, x.led, func() {
		signal(syscall.SIGSTOP)
		wait.Eventually(t, time.Minute, func() error {
			if !leads(next) {
				return errors.New("the other agent does not lead")
			}
			return nil
		})
		world.Pass(t.Context(), 3*time.Second)
		was.Killed = true // It ends by itself, with an error.
		signal(syscall.SIGCONT)
		_ = was.Wait(time.Minute)
		was.Again(t)
	})
}

// relay is a process that copies the record to another bus.
type relay struct {
	process *world.Process
	args    []string
	copy    *world.Bus
	log     strings.Builder
}

func (x *trial) beginRelay(t *testing.T) {
	t.Helper()
	x.relay.copy = world.StartBus(t)
	js, err := jetstream.New(x.relay.copy.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: world.StreamName, Subjects: []string{
		"kubecdc.>",
	}})
	if err != nil {
		t.Fatal(err)
	}
	x.relay.args = []string{
		"relay", "--bus", x.bus, "--to", x.relay.copy.URL, "--name", "questions", "--start", "beginning", "--cluster",
		world.ClusterName,
	}
	x.relay.start(t)
	t.Cleanup(func() {
		x.relay.process.Kill()
		if t.Failed() {
			t.Logf("the relay says:\n%s", x.relay.log.String())
		}
	})
}

func (r *relay) start(t *testing.T) {
	t.Helper()
	var err error
	cmd := exec.Command(build.SharedAgent(t), r.args...)
	cmd.Stderr = &r.log // One process at a time writes to it.
	r.process, err = world.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
}

// askCopy asks the copy about some of the LISTs.
func (x *trial) askCopy(t *testing.T) (replies []*reply) {
	t.Helper()
	if x.relay.process.Ended() {
		t.Errorf("the relay has ended: %v", x.relay.process.Err)
		return nil
	}
	of := inquiry{plane: x.plane, bus: x.relay.copy.URL, topics: x.topics}
	for n, s := range x.seen() {
		if !s.calm || n%3 != 0 && n%3 != 1 {
			continue
		}
		early := time.Since(s.at) < settles
		replies = append(replies, of.askAll(t, s, n%2 == 0, early)...)
	}
	for _, r := range replies {
		r.class = "copy of " + r.topic.class
	}
	return replies
}

// askCut removes the beginning of the record, up to the middle of a snapshot of the shaken agent,
// as retention does. Nothing that it has lost is exact.
func (x *trial) askCut(t *testing.T) (replies []*reply) {
	t.Helper()
	x.cut(t, x.middle)
	for n, s := range x.seen() {
		if s.calm && n%4 < 2 {
			replies = append(replies, x.askAll(t, s, n%8 < 4, false)...)
		}
	}
	for _, r := range replies {
		r.class = "cut"
	}
	return replies
}

// beginAnnex starts an API server that the cluster aggregates.
func (x *trial) beginAnnex(t *testing.T) {
	t.Helper()
	if _, err := x.plane.API.Create(t.Context(), world.Collection("services", extensionNamespace), obj{
		"apiVersion": "v1", "kind": "Service", "metadata": world.Meta("annex"), "spec": obj{
			"type":         "ExternalName",
			"externalName": "127.0.0.1",
		},
	}); err != nil {
		t.Fatal(err)
	}
	x.annex.churn(t, 5)
	x.annex.start(t)
	x.annex.register(t)
}

// loseAnnex makes the aggregated API server unavailable for a while.
func (x *trial) loseAnnex(t *testing.T) {
	t.Helper()
	from := time.Now()
	x.annex.stop()
	x.annex.available(t, "False")
	world.Pass(t.Context(), 5*time.Second)
	x.annex.start(t)
	x.annex.available(t, "True")
	x.notes.excuse("unavailable", from.Add(-bookmark), time.Now().Add(bookmark))
}

func (x *trial) writeAnnex(t *testing.T) func(context.Context, int) error {
	return func(context.Context, int) error {
		x.annex.churn(t, 2)
		return nil
	}
}
