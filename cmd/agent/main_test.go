package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
)

func TestMain(m *testing.M) {
	if url, dir, ok := strings.Cut(os.Getenv(asStranger), " "); ok {
		attack(url, dir)
		os.Exit(0)
	}
	// Most tests wait. Run more of them at a time than there are processors, unless the command
	// line overrides it.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", shortExit) // of the children, which inherit it
	}
	testscript.Main(m, map[string]func(){"kubecdc": main})
}

// shortExit shortens the second that a process with the race detector sleeps when it exits.
const shortExit = "atexit_sleep_ms=20"

// Each script is a session at a terminal.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", os.Getenv("GORACE"))
			for _, name := range []string{"record.jsonl", "rollout.jsonl"} { // for the commands that read the past
				record, err := os.ReadFile(filepath.Join("testdata", name))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(e.WorkDir, name), record, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// The configurations in README and the documentation must be valid. Each is complete, a part of
// one, or a part below the bus that its document is about. Manifests of Kubernetes, which have a
// kind, are skipped.
func TestConfigurationsOfTheDocumentation(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	shown := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			if regexp.MustCompile("(?m)^kind:").Match(b[1]) {
				continue
			}
			shown++
			part := string(b[1])
			if !strings.Contains(part, "apiVersion:") {
				part = "apiVersion: kubecdc.dev/v1\n" + part
			}
			_, err := config.Parse([]byte(part), filepath.Base(file), agent.CheckRules)
			if err != nil {
				if _, below := config.Parse([]byte(belowBus(file, string(b[1]))), filepath.Base(file),
					agent.CheckRules); below == nil {
					continue
				}
				t.Error(err)
			}
		}
	}
	if shown < 2 {
		t.Errorf("%d configurations found", shown)
	}
}

// belowBus returns a configuration with some keys of the bus that the document is named after.
func belowBus(file, keys string) string {
	kind := strings.TrimSuffix(filepath.Base(file), ".md")
	below := "    " + strings.ReplaceAll(strings.TrimSpace(keys), "\n", "\n    ")
	if needed := map[string]string{
		"kafka": "brokers: [\"kafka:9092\"]",
		"http":  "url: https://events.example.com/",
	}[kind]; needed != "" {
		if key, _, _ := strings.Cut(needed, ":"); !strings.Contains(below, "    "+key+":") {
			below += "\n    " + needed
		}
	}
	return "apiVersion: kubecdc.dev/v1\nbus:\n  " + kind + ":\n" + below + "\n"
}

// tail accepts the flags in the next steps that a driver prints.
func TestFlagsOfNextSteps(t *testing.T) {
	tail := newTailCommand(io.Discard, io.Discard)
	if err := tail.ParseFlags([]string{"--diff", "--since", "1h", "--bus", "nats://nats.example:4222"}); err != nil {
		t.Error(err)
	}
}
