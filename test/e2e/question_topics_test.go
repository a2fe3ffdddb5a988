package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// spread is an agent with a topic for each namespace. A topic without events gets progress once an
// hour. So answers about a quiet namespace are known after its next event.
type spread struct {
	inquiry
	to    *world.Kafka
	agent *world.Agent
	quiet *topic
}

const (
	topicsClass      = "topics"
	quietTopicsClass = "quiet topics"
)

func newSpread(t *testing.T, p *world.Plane, k *world.Kafka) *spread {
	t.Helper()
	to := *k
	to.Template = "spread.{cluster}.{namespace}"
	s := &spread{to: &to, quiet: newTopic(quietTopicsClass, "configmaps", "q-topic-quiet", "ConfigMap", nil)}
	s.plane = p
	s.topics = []*topic{
		newTopic(topicsClass, "configmaps", "q-topic-a", "ConfigMap", nil),
		newTopic(topicsClass, "secrets", "q-topic-a", "Secret", nil),
		newTopic(topicsClass, "configmaps", "q-topic-b", "ConfigMap", nil),
		s.quiet,
	}
	s.config = filepath.Join(t.TempDir(), "kubecdc.yaml")
	text := fmt.Sprintf("apiVersion: kubecdc.dev/v1\ncluster: %s\nbus:\n  kafka: {brokers: [%q], topic: %q}\n",
		world.ClusterName, k.Inside()[0], to.Template)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	newNamespaces(t, p, s.topics)
	return s
}

// begin starts the agent, and waits until it has captured.
func (s *spread) begin(t *testing.T) {
	t.Helper()
	const objects = 4
	for n := range objects {
		for _, p := range s.topics {
			if err := p.write(t.Context(), s.plane.API, n, objects); err != nil {
				t.Fatal(err)
			}
		}
	}
	from := time.Now()
	s.agent = world.StartAgent(t, s.plane, world.AgentConfig{
		Bus: s.to, Watch: `  - {resources: [configmaps], namespaces: ["q-topic-*"]}
  - {resources: [secrets], namespaces: [q-topic-a]}`,
	})
	s.agent.Ready(t)
	for _, p := range s.topics {
		awaitTopics(t, s.to, p.namespace)
		awaitSnapshot(t, p.resource, p.namespace, s.config)
	}
	for _, p := range s.topics {
		p.setAside(span{from, time.Now().Add(grace)})
	}
}

// awaitTopics waits until the agent has created the topics of namespaces.
func awaitTopics(t *testing.T, k *world.Kafka, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		name := strings.NewReplacer("{cluster}", world.ClusterName, "{namespace}", namespace).Replace(k.Template)
		wait.Eventually(t, time.Minute, func() error {
			_, err := k.Partitions(t.Context(), name)
			return err
		})
	}
}

// awaitSnapshot waits until the topic of a namespace has a snapshot of a resource. The events of
// the first one create the topic, which begins with the start of the snapshot.
func awaitSnapshot(t *testing.T, resource, namespace, config string) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		got, err := tryAsk(t, resource, "-n", namespace, "--at", stamp(time.Now()), "--config", config)
		if err != nil {
			return err // the topic may be empty
		}
		if len(got.Kubecdc.Scopes) == 0 {
			return errors.New("no scope")
		}
		for i := range got.Kubecdc.Scopes {
			lacks := func(c pastCause) bool { return c.Kind == "no-snapshot" }
			if slices.ContainsFunc(got.Kubecdc.Scopes[i].Causes, lacks) {
				return fmt.Errorf("no snapshot of %s in %s", resource, namespace)
			}
		}
		return nil
	})
}

// write changes all topics at each beat, and the quiet one each minute or two.
func (s *spread) write(ctx context.Context, n int) error {
	for _, p := range s.topics {
		if p == s.quiet && n%20 != 7 {
			continue
		}
		if err := p.write(ctx, s.plane.API, 4+n, 5); err != nil {
			return err
		}
	}
	return nil
}

// kill kills the agent, and starts it again. It has claimed nothing in the quiet topic since that
// was written.
func (s *spread) kill(t *testing.T) {
	t.Helper()
	from := s.quiet.lastClaimed(time.Now())
	busy := slices.DeleteFunc(slices.Clone(s.topics), func(p *topic) bool { return p == s.quiet })
	(&trial{}).absent(t, "killed", lastClaim, busy, func() {
		s.agent.Crash()
		world.Pass(t.Context(), 2*time.Second)
		s.agent.Again(t)
		s.agent.Ready(t)
	})
	s.quiet.excuse("killed", from.Add(-bookmark), time.Now().Add(bookmark))
}

// askSpread asks for each namespace alone, and for all.
func (s *spread) askSpread(t *testing.T) (replies []*reply) {
	t.Helper()
	seen := s.seen()
	most := 1 + len(seen)/50
	for n, sight := range seen {
		if n%most != 0 {
			continue
		}
		early := time.Since(sight.at) < settles
		for k, p := range s.topics {
			replies = append(replies, s.askOne(t, p, sight, (n/most+k)%2 == 0, early))
		}
		if n/most%4 == 0 {
			all := s.askAll(t, sight, n/most%8 == 0, early)
			for _, r := range all {
				r.class = "all " + r.class
			}
			replies = append(replies, all...)
		}
	}
	return replies
}

// lastClaimed returns the time of the last write that progress in the topic includes for sure, if
// the agent is killed at a time.
func (p *topic) lastClaimed(killed time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range slices.Backward(p.wrote) {
		if killed.Sub(w) > settles {
			return w
		}
	}
	return p.wrote[0]
}

// isSettled reports whether the topic was written after a time, and progress about that is in the
// record.
func (p *topic) isSettled(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.wrote, func(w time.Time) bool { return w.After(at) && time.Since(w) > settles })
}

// isQuietTopic reports whether progress about the topic comes with its events.
func (p *topic) isQuietTopic() bool { return strings.HasSuffix(p.class, quietTopicsClass) }
