package kafka_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// relayEvent is the record of an update of an object, or, without a name, of an event about the
// stream.
func relayEvent(typ, name string, rv int) kafkago.Message {
	e := map[string]any{
		"specversion": "1.0", "source": "/kubernetes/prod", "type": "dev.kubecdc." + typ, "cluster": "prod",
		"apiversion": "v1", "kind": "ConfigMap", "resource": "configmaps",
	}
	key := "configmaps"
	if name == "" {
		e["id"], e["scope"] = fmt.Sprintf("configmaps/%s/%d", typ, rv), "configmaps"
		e["data"] = map[string]any{"snapshot": "s1", "resourceVersion": fmt.Sprint(rv)}
	} else {
		key = "prod/core/configmaps/shop/" + name
		e["id"] = fmt.Sprintf("configmaps/%s/%d", name, rv)
		e["uid"] = name
		e["namespace"] = "shop"
		e["name"] = name
		e["op"] = "u"
		e["resourceversion"] = fmt.Sprint(rv)
		e["sequence"] = fmt.Sprintf("%020d", rv)
		e["partitionkey"] = key
		e["data"] = map[string]any{"op": "u", "resourceVersion": fmt.Sprint(rv)}
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return kafkago.Message{}
	}
	return kafkago.Message{
		Key: []byte(key), Value: raw,
		Headers: []kafkago.Header{{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}},
	}
}

// relayLine is a line of a relay's output.
type relayLine struct {
	ID, Type, Name, Sequence string
}

// relayProcess is a running kubecdc relay.
type relayProcess struct {
	cmd    *exec.Cmd
	stderr relayLog
	ended  chan struct{}

	mu    sync.Mutex
	lines []relayLine
}

func startRelay(t *testing.T, binary string, args ...string) *relayProcess {
	t.Helper()
	p := &relayProcess{
		cmd:   exec.CommandContext(t.Context(), binary, append([]string{"relay"}, args...)...),
		ended: make(chan struct{}),
	}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		r := bufio.NewReader(stdout)
		for {
			raw, err := r.ReadBytes('\n')
			var l relayLine
			if err == nil && json.Unmarshal(raw, &l) == nil {
				p.mu.Lock()
				p.lines = append(p.lines, l)
				p.mu.Unlock()
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		p.end(os.Kill)
		if t.Failed() {
			t.Logf("log of the relay:\n%s", &p.stderr)
		}
	})
	return p
}

// end sends the signal and waits for the end of the process.
func (p *relayProcess) end(s os.Signal) {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(s)
	<-p.ended
	_ = p.cmd.Wait() // the test checks the lines, not the exit code
}

func (p *relayProcess) got() []relayLine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// objects returns the ids of objects' events, each once.
func (p *relayProcess) objects() map[string]bool {
	ids := map[string]bool{}
	for _, l := range p.got() {
		if l.Name != "" {
			ids[l.ID] = true
		}
	}
	return ids
}

func (p *relayProcess) checkOrder(t *testing.T) {
	t.Helper()
	last := map[string]string{}
	for _, l := range p.got() {
		if l.Name != "" && l.Sequence <= last[l.Name] {
			oracle.Fail(t, "%s came behind %s", l.ID, last[l.Name])
		}
		last[l.Name] = max(last[l.Name], l.Sequence)
	}
}

// A relay reads a topic, is killed and started again, and resumes: nothing is missing, and each
// object's versions are in order.
func TestRelayGoesOnBehindItsGroup(t *testing.T) {
	t.Parallel()
	const relayed = "going.prod"
	c := lasting.get(t)
	if nodes(t) > 1 {
		c = kafka.Start(t, kafka.Options{Nodes: nodes(t)})
	}
	const partitions, objects, versions = 3, 12, 40
	if err := c.CreateTopic(t.Context(), relayed, partitions, nil); err != nil {
		t.Fatal(err)
	}
	writer := &kafkago.Writer{
		Addr:         kafkago.TCP(c.Inside()...),
		Topic:        relayed,
		Balancer:     kafkago.Murmur2Balancer{},
		RequiredAcks: kafkago.RequireAll,
		BatchTimeout: time.Millisecond,
	}
	transport := &kafkago.Transport{MetadataTTL: time.Second}
	writer.Transport = transport
	t.Cleanup(func() {
		_ = writer.Close()
		transport.CloseIdleConnections()
	})
	write := func(from, to int) {
		t.Helper()
		var ms []kafkago.Message
		for v := from; v < to; v++ {
			for o := range objects {
				ms = append(ms, relayEvent("object.updated", fmt.Sprintf("web-%d", o), v))
			}
		}
		wait.Eventually(t, time.Minute, func() error { return writer.WriteMessages(t.Context(), ms...) })
	}
	// everywhere writes an event about the stream to each partition, as the agent does.
	everywhere := func(typ string, rv int) {
		t.Helper()
		for p := range partitions {
			wait.Eventually(t, time.Minute, func() error {
				conn, err := kafkago.DialLeader(t.Context(), "tcp", c.Inside()[0], relayed, p)
				if err != nil {
					return err
				}
				defer conn.Close()
				_, err = conn.WriteMessages(relayEvent(typ, "", rv))
				return err
			})
		}
	}
	binary := build.SharedAgent(t)
	args := []string{
		"--bus", "kafka://" + strings.Join(c.Inside(), ",") + "/" + relayed, "--to", "stdout:", "--name", "audit",
		"--start", "beginning",
	}

	everywhere("snapshot.started", 1)
	write(1, versions/2)
	everywhere("snapshot.completed", versions)
	first := startRelay(t, binary, args...)
	wait.Eventually(t, time.Minute, func() error {
		if n := len(first.objects()); n < objects*(versions/2-1) {
			return fmt.Errorf("%d events of objects", n)
		}
		if !slices.ContainsFunc(first.got(),
			func(l relayLine) bool { return l.Type == "dev.kubecdc.snapshot.completed" }) {
			return fmt.Errorf("no snapshot.completed")
		}
		return nil
	})
	first.checkOrder(t)
	var completed, behind int
	for i, l := range first.got() {
		if l.Type == "dev.kubecdc.snapshot.completed" {
			completed++
			behind = len(first.got()) - 1 - i
		}
	}
	if completed != 1 || behind != 0 {
		oracle.Fail(t, "snapshot.completed came %d times, and %d events behind it: want it once, behind all", completed,
			behind)
	}
	first.end(os.Kill)

	write(versions/2, versions)
	second := startRelay(t, binary, args...)
	want := func() error {
		ids := second.objects()
		for v := versions / 2; v < versions; v++ {
			for o := range objects {
				if !ids[fmt.Sprintf("configmaps/web-%d/%d", o, v)] {
					return fmt.Errorf("version %d of web-%d is missing", v, o)
				}
			}
		}
		return nil
	}
	wait.Eventually(t, time.Minute, want)
	second.checkOrder(t)
	second.end(syscall.SIGTERM) // it saves its position

	status := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, "relay", "status", "--bus", args[1], "--name", "audit", "-o", "json")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err, string(out))
		}
		return string(out)
	}
	if text := status(); strings.Count(text, `"behind": 0`) != partitions {
		t.Errorf("status after all was delivered:\n%s", text)
	}
	write(versions, versions+1)
	third := startRelay(t, binary, args...)
	wait.Eventually(t, time.Minute, func() error {
		if n := len(third.objects()); n < objects {
			return fmt.Errorf("%d events of objects", n)
		}
		return nil
	})
	if n := len(third.got()); n != objects {
		oracle.Fail(t, "after an end in order, %d events came: want only the %d new ones", n, objects)
	}
}

// A live start leaves out earlier records, even if nothing was delivered before the next start.
func TestRelayBeginsLive(t *testing.T) {
	t.Parallel()
	const relayed = "live.prod"
	c := lasting.get(t)
	if err := c.CreateTopic(t.Context(), relayed, 1, nil); err != nil {
		t.Fatal(err)
	}
	put := func(rv int) {
		t.Helper()
		conn, err := kafkago.DialLeader(t.Context(), "tcp", c.Inside()[0], relayed, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.WriteMessages(relayEvent("object.updated", "web", rv)); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	binary := build.SharedAgent(t)
	args := []string{"--bus", "kafka://" + c.Inside()[0] + "/" + relayed, "--to", "stdout:", "--name", "live"}
	first := startRelay(t, binary, args...)
	wait.Eventually(t, time.Minute, func() error {
		cmd := exec.CommandContext(t.Context(), binary, "relay", "status", "--bus", args[1], "--name", "live", "-o",
			"json")
		if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte(`"position": 1`)) {
			return fmt.Errorf("%s %w", out, err)
		}
		return nil
	})
	first.end(os.Kill)
	put(2)
	second := startRelay(t, binary, args...)
	wait.Eventually(t, time.Minute, func() error {
		if len(second.got()) == 0 {
			return io.ErrNoProgress
		}
		return nil
	})
	if got := second.got(); got[0].ID != "configmaps/web/2" || len(first.got()) != 0 {
		oracle.Fail(t, "delivered first: %v, then: %v", first.got(), got)
	}
}
