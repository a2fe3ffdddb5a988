package walk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// noticing is the test of e2e that must fail for the changed agent, which reports created objects
// as updated.
const (
	noticing    = "TestSnapshotThenLive"
	changedFile = "internal/object/contract.go"
	changedLine = `return "created"`
	changedInto = `return "updated"`
)

// goTest replaces the command with which make runs tests. It runs go test with the flags of make,
// but only one test of one package of the test module.
const goTest = `#!/usr/bin/env bash
set -euo pipefail
[[ $PWD == */test ]] || exit 0
flags=()
for arg; do
	[[ $arg == ./* || $arg == github.com/* ]] || flags+=("$arg")
done
exec go test "${flags[@]}" -v -run '^%s$/^initial$' ./%s
`

// TestChangedAgentIsTested runs one test of e2e twice, as make does, and changes the agent in
// between. The test module does not change, so Go's test cache has a result for the second run, but
// it is that of another agent. -count=1 in the Makefile disables the cache.
func TestChangedAgentIsTested(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two agents")
	}
	dir := t.TempDir()
	command := filepath.Join(dir, "gotest")
	script := fmt.Appendf(nil, goTest, noticing, folderOf(t, noticing))
	if err := os.WriteFile(command, script, 0o700); err != nil { //nolint:gosec // It is run.
		t.Fatal(err)
	}
	run := func(env ...string) (string, error) {
		t.Helper()
		// -o skips the prerequisites of the target, which are not under test here.
		cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-o", "control-plane", "-o", "kafka",
			"test", "GOTEST="+command)
		cmd.Dir = root
		// Without the variables of a make that runs this test, or of its environment.
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=", "KUBECDC_E2E_AGENT=", "KUBECDC_E2E_RACE=")
		cmd.Env = append(cmd.Env, env...)
		cmd.WaitDelay = time.Minute
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err != nil || !strings.Contains(out, "--- PASS: "+noticing+"/initial") {
		t.Fatalf("make test with the agent as it is: %v\n%s", err, out)
	}
	out, err := run("GOFLAGS=-overlay=" + overlayOf(t, dir))
	if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: "+noticing+"/initial") {
		t.Fatalf("make test with a changed agent: %v, want a failure of %s\n%s", err, noticing, out)
	}
}

// folderOf returns the folder of a test, relative to the test module.
func folderOf(t *testing.T, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "test", "e2e*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob(filepath.Join(root, "test", "e2e*", "*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, deeper...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			folder, err := filepath.Rel(filepath.Join(root, "test"), filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			return folder
		}
	}
	t.Fatalf("no test %s in test/e2e", name)
	return ""
}

// overlayOf writes a file for `go build -overlay` that replaces the file in the tree by the changed
// one.
func overlayOf(t *testing.T, dir string) string {
	t.Helper()
	text := read(t, changedFile)
	if strings.Count(text, changedLine) != 1 {
		t.Fatalf("%s has the line %q %d times, want once", changedFile, changedLine, strings.Count(text, changedLine))
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(text, changedLine, changedInto, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs(filepath.Join(root, changedFile))
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// TestTargetsLeaveOutTheTestCache checks that each target of the Makefile runs the tests of the
// test module without the cache.
func TestTargetsLeaveOutTheTestCache(t *testing.T) {
	target, commands := "", 0
	for line := range strings.Lines(strings.ReplaceAll(read(t, "Makefile"), "\\\n", " ")) {
		if name, _, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "\t") {
			target = name
		}
		_, after, found := strings.Cut(line, "cd test &&")
		if !found || !strings.HasPrefix(line, "\t") {
			continue
		}
		for command := range strings.SplitSeq(strings.ReplaceAll(after, "||", ";"), ";") {
			if !strings.Contains(command, "go test ") && !strings.Contains(command, "$(GOTEST) ") {
				continue
			}
			commands++
			if !strings.Contains(command, " -count=1 ") {
				t.Errorf("make %s: without -count=1, Go's cache answers with the results of another agent: %s", target,
					strings.TrimSpace(command))
			}
		}
	}
	if commands < 8 {
		t.Errorf("the Makefile runs %d commands with tests of the test module: this test shows nothing", commands)
	}
}
