package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestRecordEnd ends the scopes of an agent that has stopped, on each bus. While it works, the
// command refuses. The agent that starts again takes the ends back.
func TestRecordEnd(t *testing.T) {
	slow(t)
	for _, bus := range []struct {
		name  string
		stage func(t *testing.T) *world.Stage
	}{
		{"nats", func(t *testing.T) *world.Stage { return world.StageOn(t, world.SharedPlane(t), world.Luck()) }},
		{"kafka", func(t *testing.T) *world.Stage { return world.NewKafkaStage(t, 1, world.Luck()) }},
	} {
		t.Run(bus.name, func(t *testing.T) {
			t.Parallel()
			testRecordEnd(t, bus.stage(t), "record-end-"+bus.name)
		})
	}
}

func testRecordEnd(t *testing.T, s *world.Stage, namespace string) {
	s.NewNamespace(t, namespace)
	s.MakeConfigMaps(t, namespace, "it", 5)
	s.Begin(t, world.AgentConfig{Watch: "  - resources: [configmaps, secrets]\n    namespaces: [" + namespace + "]"})
	s.Stream.Completed(t, "configmaps", "secrets")
	started := s.Await(t, "the start of a scope", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.ScopeStarted
	})

	out, code := endRecord(t, s, started.Writer, "--yes")
	if code == 0 || !strings.Contains(out, "these agents may still work") || !strings.Contains(out, started.Writer) {
		t.Errorf("while the agent works: exit code %d, %s", code, out)
	}
	out, code = endRecord(t, s, "0123456789abcdef")
	if code == 0 ||
		!strings.Contains(out, "has no writer and no scope 0123456789abcdef; its writers:\n  "+started.Writer) {
		t.Errorf("an unknown writer: exit code %d, %s", code, out)
	}
	s.StopAgent(t)
	wait.Eventually(t, 10*time.Second, func() error {
		for _, rec := range s.Stream.All() {
			if rec.Report != nil && rec.Report.Ends {
				return nil
			}
		}
		return errors.New("no last progress")
	})

	n := len(s.Stream.All())
	want := []string{"configmaps/" + namespace, "secrets/" + namespace}
	if got := endedScopes(t, s, false, started.Writer, "--dry-run"); !slices.Equal(got, want) {
		t.Errorf("would end %q, want %q", got, want)
	}
	if got := endedScopes(t, s, true, "--checkpoint", "file * "+s.Checkpoint); !slices.Equal(got, want) {
		t.Errorf("ended %q, want %q", got, want)
	}
	for _, scope := range want {
		s.Await(t, "the end of "+scope, func(rec *oracle.Record) bool {
			return rec.Stream == oracle.ScopeEnded && rec.Scope.Text == scope && rec.Writer == started.Writer &&
				rec.Run == started.Run
		})
	}
	if out, code := endRecord(t, s, started.Writer); code != 0 || !strings.HasPrefix(out, "Nothing to end") {
		t.Errorf("again: exit code %d, %s", code, out)
	}
	ends := map[string]bool{}
	for _, rec := range s.Since(n) {
		if rec.Stream == oracle.ScopeEnded {
			ends[rec.ID] = true
		}
	}
	if len(ends) != 2 {
		t.Errorf("the record has the ends %v, want 2", ends)
	}
	if scope := askNow(t, s, namespace); scope.Certainty != "unknown" || scope.Ended.Reason != "forgotten" {
		t.Errorf("after the end: %+v, want that it is unknown", scope)
	}

	s.Agent.Again(t)
	s.Await(t, "the next start of the scope", func(rec *oracle.Record) bool {
		return rec.Stream == oracle.ScopeStarted && rec.Run != started.Run && rec.Scope.Text == want[0]
	})
	s.Rewrite(t, namespace, "it-0", "again")
	if scope := askNow(t, s, namespace); scope.Ended.Reason != "" {
		t.Errorf("after the next start: %+v, want no end", scope)
	}
	if out, code := endRecord(t, s, started.Writer); code == 0 {
		t.Errorf("the next run works: %s", out)
	}
	s.JudgeWhole(t, "configmaps", "secrets")
}

// endRecord calls kubecdc record end with the configuration of the agent.
func endRecord(t *testing.T, s *world.Stage, args ...string) (output string, code int) {
	t.Helper()
	config := s.Agent.Argv[slices.Index(s.Agent.Argv, "--config")+1]
	cmd := exec.CommandContext(t.Context(), build.SharedAgent(t),
		append([]string{"record", "end", "--config", config}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// endedScopes calls kubecdc record end, and returns the names of the scopes in its output. All must
// be ended, or none.
func endedScopes(t *testing.T, s *world.Stage, ended bool, args ...string) (names []string) {
	t.Helper()
	out, code := endRecord(t, s, append(args, "-o", "json")...)
	var got struct {
		Scopes []struct {
			Scope string
			Ended bool
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	for _, scope := range got.Scopes {
		if scope.Ended != ended {
			t.Errorf("%s: ended is %v", scope.Scope, scope.Ended)
		}
		names = append(names, scope.Scope)
	}
	return names
}

type endedScope struct {
	Certainty string
	Ended     struct{ Reason string }
}

// askNow returns what is known of the ConfigMaps now.
func askNow(t *testing.T, s *world.Stage, namespace string) endedScope {
	t.Helper()
	config := s.Agent.Argv[slices.Index(s.Agent.Argv, "--config")+1]
	var a struct {
		Kubecdc struct{ Scopes []endedScope }
	}
	out := past(t, "get", "configmaps", "-n", namespace, "--at", "now", "--config", config, "-o", "json")
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Kubecdc.Scopes) != 1 {
		t.Fatalf("%d scopes, want 1: %s", len(a.Kubecdc.Scopes), out)
	}
	return a.Kubecdc.Scopes[0]
}
