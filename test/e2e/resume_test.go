package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// luck is a generator for tests in which nothing depends on it.
func luck() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

// resumeStage is a stage on the shared control plane, whose agent observes the ConfigMaps of a namespace of the test's own.
func resumeStage(t testing.TB, namespace string, objects int, c agentConfig) *stage {
	t.Helper()
	s := stageOn(t, sharedPlane(t), luck())
	s.newNamespace(t, namespace)
	s.makeMany(t, namespace, "old", objects)
	if c.Watch == "" {
		c.Watch = watchConfigMaps(namespace)
	}
	s.begin(t, c)
	return s
}

func watchConfigMaps(namespace string) string {
	return "  - resources: [configmaps]\n    namespaces: [" + namespace + "]"
}

// judge waits for what has to be there, reports what is wrong and returns the verdict. No snapshot may need a reason.
func (s *stage) judge(t testing.TB, asked func(*record) bool, resources ...string) verdict {
	t.Helper()
	got, faults := s.conclude(t, 10*time.Second, asked, resources, nil)
	report(t, s.plane, s.stream, faults)
	s.tellStory(t, faults, resources, nil)
	return got
}

// judgeWhole is judge where no history may be lost.
func (s *stage) judgeWhole(t testing.TB, resources ...string) {
	t.Helper()
	got := s.judge(t, nil, resources...)
	got.noGaps(t)
}

// since are the records behind the first n, without progress.
func (s *stage) since(n int) []record {
	var list []record
	for _, rec := range s.stream.all()[n:] {
		if rec.Stream != progress {
			list = append(list, rec)
		}
	}
	return list
}

// rewrite changes one object, whose event tells that all before it is on the bus, and waits for it.
func (s *stage) rewrite(t testing.TB, namespace, name, text string) *record {
	t.Helper()
	raw, err := s.plane.api.mergePatch(t.Context(), collection("configmaps", namespace)+"/"+name, obj{"data": obj{"text": text}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := readVersion("configmaps", 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	return s.await(t, fmt.Sprintf("update of %s at %d", v.Key, v.Rev), func(rec *record) bool { return rec.Key == v.Key && rec.Rev == v.Rev })
}

// await waits for a record.
func (s *stage) await(t testing.TB, what string, is func(*record) bool) *record {
	t.Helper()
	var found *record
	from := 0
	eventually(t, time.Minute, func() error {
		all := s.stream.all()
		for i := range all[from:] {
			if is(&all[from+i]) {
				found = &all[from+i]
				return nil
			}
		}
		from = len(all)
		if s.agent.ended() && !s.agent.killed {
			t.Fatalf("waiting for %s: the agent has ended: %v", what, s.agent.err)
		}
		return errors.New("not on the bus: " + what)
	})
	return found
}

// change does n updates, deletions and creations, of objects that were not changed before.
func (s *stage) change(t testing.TB, namespace string, n int) {
	t.Helper()
	all := collection("configmaps", namespace)
	for i := range n {
		uri := fmt.Sprintf("%s/old-%d", all, (s.changed+i)*7)
		var err error
		switch i % 10 {
		case 0, 1, 2:
			_, err = s.plane.api.create(t.Context(), all, obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(fmt.Sprint("new-", s.changed+i))})
		case 3, 4, 5:
			err = s.plane.api.remove(t.Context(), uri)
		default:
			_, err = s.plane.api.mergePatch(t.Context(), uri, obj{"data": obj{"text": "while it was down"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.changed += n
}

// onlyLong skips what takes too long for make test.
func onlyLong(t testing.TB, took string) {
	t.Helper()
	if os.Getenv("FAULTS") == "" && !long() {
		t.Skipf("takes %s: part of make test-faults", took)
	}
}

// TestRestart ends the agent and starts it again, first with no change meanwhile, then with a hundred.
func TestRestart(t *testing.T) {
	t.Parallel()
	const (
		namespace = "restart"
		changes   = 100
	)
	objects := size(1_500, 3_000, 10_000)
	s := resumeStage(t, namespace, objects, agentConfig{})
	s.stream.completed(t, "configmaps")
	for _, how := range []struct {
		name string
		end  func()
	}{
		{"stopped", func() { s.stopAgent(t) }},
		{"killed", func() { s.agent.crash() }},
	} {
		if how.name == "killed" { // What it has sent last is remembered within five seconds: else it is sent once more.
			pass(t.Context(), 6*time.Second)
		}
		how.end()
		n := len(s.stream.all())
		s.agent.again(t)
		s.agent.ready(t)
		last := s.rewrite(t, namespace, "old-1", how.name)
		for _, rec := range s.since(n) {
			if rec.ID != last.ID {
				t.Errorf("%s and started again, with no change meanwhile: %s is on the bus", how.name, rec.ID)
			}
		}
	}

	s.stopAgent(t)
	told := s.await(t, "progress at shutdown", func(rec *record) bool {
		return rec.Stream == progress && rec.Rev >= s.history.latestOf(namespace)
	})
	if n := len(s.since(int(told.Position))); n > 0 {
		t.Errorf("%d records behind the progress at shutdown", n)
	}
	s.change(t, namespace, changes)
	n, begin := len(s.stream.all()), time.Now()
	s.agent.again(t)
	s.await(t, "any event of the changes", func(rec *record) bool { return rec.Position > uint64(n) && rec.Op != "" })
	first := time.Since(begin)
	s.rewrite(t, namespace, "old-1", "last")
	got := s.judge(t, nil, "configmaps")
	got.noGaps(t)
	ops := make(map[string]int)
	for _, rec := range s.since(n) {
		ops[rec.Op]++
	}
	if want := changes + 1; len(s.since(n)) != want || ops[created] != 30 || ops[deleted] != 30 || ops[updated] != 41 {
		t.Errorf("%d records after %d changes while the agent was down and one later, want %d: %v", len(s.since(n)), changes, want, ops)
	}
	if got.Duplicates != 0 {
		t.Errorf("%d duplicates", got.Duplicates)
	}
	t.Logf("restart to the first new event with %d objects: %s", objects, first.Round(time.Millisecond))
}

// TestReplacedWhileDown has an object go and another of its name come while the agent is down: a deletion and a creation.
func TestReplacedWhileDown(t *testing.T) {
	slow(t)
	t.Parallel()
	const namespace = "replaced"
	s := resumeStage(t, namespace, 5, agentConfig{})
	s.stream.completed(t, "configmaps")
	s.stopAgent(t)
	n := len(s.stream.all())
	uri := collection("configmaps", namespace)
	if err := s.plane.api.remove(t.Context(), uri+"/old-3"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.plane.api.create(t.Context(), uri, obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("old-3")}); err != nil {
		t.Fatal(err)
	}
	s.agent.again(t)
	s.judgeWhole(t, "configmaps")
	var ops []string
	for _, rec := range s.since(n) {
		ops = append(ops, rec.Op)
	}
	if want := []string{deleted, created}; !slices.Equal(ops, want) {
		t.Errorf("ops %v, want %v", ops, want)
	}
}
