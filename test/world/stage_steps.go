package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// StopAgent stops the agent, which must end without an error: the bus is reachable, so the agent
// can drain.
func (s *Stage) StopAgent(t testing.TB) {
	t.Helper()
	if err := s.Agent.Stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
}

// KillServers kills both API servers and restarts them one after the other, in random order.
func (s *Stage) KillServers(t testing.TB) {
	t.Helper()
	s.KillAPIServer(0)
	s.KillAPIServer(1)
	s.Pause(t, 0, time.Second)
	first := s.RNG.IntN(2)
	s.API.Prefer(first)
	s.StartServer(t, first)
	s.StartServer(t, 1-first)
}

// Luck returns a generator for tests that do not depend on its numbers.
func Luck() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

// ResumeStage returns a stage on the shared control plane. By default, its agent observes the
// ConfigMaps of the namespace.
func ResumeStage(t testing.TB, namespace string, objects int, c AgentConfig) *Stage {
	t.Helper()
	s := StageOn(t, SharedPlane(t), Luck())
	s.NewNamespace(t, namespace)
	s.MakeMany(t, namespace, "old", objects)
	if c.Watch == "" {
		c.Watch = WatchConfigMaps(namespace)
	}
	s.Begin(t, c)
	return s
}

// WatchConfigMaps returns the value of watch for the ConfigMaps of a namespace.
func WatchConfigMaps(namespace string) string {
	return "  - resources: [configmaps]\n    namespaces: [" + namespace + "]"
}

// Judge waits for the expected records of resources without a selector, reports the faults and
// returns the verdict. asked reports whether a snapshot was requested.
func (s *Stage) Judge(t testing.TB, asked func(*oracle.Record) bool, resources ...string) oracle.Verdict {
	t.Helper()
	got, faults := s.Conclude(t, asked, resources, nil)
	Report(t, s.Plane, s.Stream, faults)
	s.TellStory(t, faults, resources, nil)
	return got
}

// JudgeWhole is Judge for a test in which no history may be lost.
func (s *Stage) JudgeWhole(t testing.TB, resources ...string) {
	t.Helper()
	got := s.Judge(t, nil, resources...)
	got.NoGaps(t)
}

// Since returns the records after the first n, without progress.
func (s *Stage) Since(n int) []oracle.Record {
	var list []oracle.Record
	for _, rec := range s.Stream.All()[n:] {
		if rec.Stream != oracle.Progress {
			list = append(list, rec)
		}
	}
	return list
}

// Rewrite changes one object and waits for its event. All earlier events are then on the bus, too.
func (s *Stage) Rewrite(t testing.TB, namespace, name, text string) *oracle.Record {
	t.Helper()
	raw, err := s.Plane.API.MergePatch(t.Context(), Collection("configmaps", namespace)+"/"+name, obj{"data": obj{
		"text": text,
	}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := oracle.ReadVersion("configmaps", 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	return s.Await(t, fmt.Sprintf("update of %s at %d", v.Key, v.Rev), func(rec *oracle.Record) bool {
		return rec.Key == v.Key && rec.Rev == v.Rev
	})
}

// arrives is the time in which the test has the last record of an agent that has ended.
const arrives = 5 * time.Second

// Await waits for a record.
func (s *Stage) Await(t testing.TB, what string, is func(*oracle.Record) bool) *oracle.Record {
	t.Helper()
	var found *oracle.Record
	from := 0
	var ended time.Time
	wait.Eventually(t, time.Minute, func() error {
		all := s.Stream.All()
		for i := range all[from:] {
			if is(&all[from+i]) {
				found = &all[from+i]
				return nil
			}
		}
		from = len(all)
		if ended.IsZero() && s.Agent.Ended() && !s.Agent.Killed {
			ended = time.Now()
		}
		if !ended.IsZero() && time.Since(ended) > arrives {
			t.Fatalf("waiting for %s: the agent has ended: %v", what, s.Agent.Err)
		}
		return errors.New("not on the bus: " + what)
	})
	return found
}

// Change makes n updates, deletions and creations of objects that it has not changed before.
func (s *Stage) Change(t testing.TB, namespace string, n int) {
	t.Helper()
	all := Collection("configmaps", namespace)
	for i := range n {
		uri := fmt.Sprintf("%s/old-%d", all, (s.changed+i)*7)
		var err error
		switch i % 10 {
		case 0, 1, 2:
			_, err = s.Plane.API.Create(t.Context(), all, obj{
				"apiVersion": "v1",
				"kind":       "ConfigMap",
				"metadata":   Meta(fmt.Sprint("new-", s.changed+i)),
			})
		case 3, 4, 5:
			err = s.Plane.API.Remove(t.Context(), uri)
		default:
			_, err = s.Plane.API.MergePatch(t.Context(), uri, obj{"data": obj{"text": "while it was down"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.changed += n
}
