package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is a test package. first reports whether a test runs for the first time, and creates a
// file as a mark.
const module = `package sick

import (
	"os"
	"path/filepath"
	"testing"
)

func first(t *testing.T) bool {
	mark := filepath.Join(os.Getenv("SICK"), t.Name())
	_, err := os.Stat(mark)
	os.WriteFile(mark, nil, 0o600)
	return err != nil
}

func TestSound(t *testing.T) {}
`

// TestRuns checks the output, exit code and counts for a package with one failing test.
func TestRuns(t *testing.T) {
	for _, tc := range []struct {
		name  string
		test  string // source of the failing test
		limit string // GOTEST_FLAKY
		args  []string
		exit  int
		want  []string // in the output
		never string   // not in the output
		count string
	}{
		{
			name: "passes the second time", exit: 0, count: "2 0 0 1\n",
			test:  `func TestSick(t *testing.T) { if first(t) { t.Error("too slow") } }`,
			want:  []string{"FLAKY: TestSick", "too slow", "2 passed, 0 failed, 0 skipped"},
			never: "has failed twice",
		},
		{
			name: "fails twice", exit: 1, count: "1 1 0 0\n",
			test:  `func TestSick(t *testing.T) { t.Error("too slow") }`,
			want:  []string{"TestSick of sick has failed twice", "1 passed, 1 failed, 0 skipped"},
			never: "FLAKY",
		},
		{
			name: "no flaky test is allowed", limit: "0", exit: 1, count: "1 1 0 1\n",
			test: `func TestSick(t *testing.T) { if first(t) { t.Error("too slow") } }`,
			want: []string{"FLAKY: TestSick", "GOTEST_FLAKY=0", "1 passed, 1 failed, 0 skipped"},
		},
		{
			name: "verdict of an oracle", exit: 1, count: "1 1 0 0\n",
			test:  `func TestSick(t *testing.T) { if first(t) { t.Error("VERDICT: 1 faults of kind \"missing\"") } }`,
			want:  []string{"VERDICT: 1 faults"},
			never: "again",
		},
		{
			name: "verdict in a subtest", exit: 1, count: "1 2 0 0\n",
			test:  `func TestSick(t *testing.T) { t.Run("seed", func(t *testing.T) { if first(t) { t.Error("VERDICT: chain") } }) }`,
			want:  []string{"VERDICT: chain"},
			never: "again",
		},
		{
			name: "panic", exit: 1, count: "1 1 0 0\n",
			test:  `func TestSick(t *testing.T) { if first(t) { panic("nil map") } }`,
			want:  []string{"nil map"},
			never: "again",
		},
		{
			name: "the tests leave a process behind", exit: 1, count: "1 1 0 0\n",
			test: `func TestSick(t *testing.T) { if first(t) { t.Error("too slow") } }
				func TestMain(m *testing.M) {
					code := m.Run()
					if code != 0 { os.Stderr.WriteString("FAIL: the tests leave behind process 7: sleep\n") }
					os.Exit(code)
				}`,
			want:  []string{"leave behind process 7"},
			never: "again",
		},
		{
			name: "seed is kept", exit: 0, count: "2 0 0 1\n",
			test: `func TestSick(t *testing.T) {
				if first(t) { t.Fatal("bad luck with FAULT_SEED=4711") }
				if got := os.Getenv("FAULT_SEED"); got != "4711" { t.Errorf("FAULT_SEED is %q", got) }
			}`,
			want: []string{"running TestSick of sick again, FAULT_SEED=4711", "was run again, FAULT_SEED=4711"},
		},
		{
			name: "fails twice with a seed", exit: 1, count: "1 1 0 0\n",
			test:  `func TestSick(t *testing.T) { t.Error("bad luck with FAULT_SEED=4711") }`,
			want:  []string{"TestSick of sick has failed twice, FAULT_SEED=4711"},
			never: "FLAKY",
		},
		{
			name: "seed of a subtest is kept", exit: 0, count: "3 0 0 1\n",
			test: `func TestSick(t *testing.T) {
				again := !first(t)
				t.Run("one", func(t *testing.T) {
					if again && os.Getenv("FAULT_SEED") == "12" { return }
					t.Error("FAULT_SEED=12")
				})
			}`,
			want: []string{"was run again, FAULT_SEED=12"},
		},
		{
			name: "more than a few fail", exit: 1, count: "1 4 0 0\n",
			test: `func TestA(t *testing.T) { if first(t) { t.Error("slow") } }
				func TestB(t *testing.T) { if first(t) { t.Error("slow") } }
				func TestC(t *testing.T) { if first(t) { t.Error("slow") } }
				func TestD(t *testing.T) { if first(t) { t.Error("slow") } }`,
			never: "again",
		},
		{
			name: "does not build", exit: 1, count: "0 1 0 0\n",
			test: `func TestSick(t *testing.T) { nothing() }`,
			want: []string{"undefined: nothing"},
		},
		{
			name: "the time limit ends two tests", exit: 1, count: "1 1 0 0\n", args: []string{"-timeout=1s"},
			test: `func TestSick(t *testing.T) { t.Parallel(); t.Log("waits for a bus"); <-t.Context().Done() }
				func TestSicker(t *testing.T) { t.Parallel(); t.Log("waits for a server"); <-t.Context().Done() }`,
			want:  []string{"waits for a bus", "waits for a server", "test timed out after 1s"},
			never: "again",
		},
		{
			name: "the time limit ends a test after another failed", exit: 1, count: "1 2 0 0\n", args: []string{
				"-timeout=1s",
			},
			test: `func TestSick(t *testing.T) { t.Error("too slow") }
				func TestSicker(t *testing.T) { t.Log("waits for a server"); <-t.Context().Done() }`,
			want:  []string{"too slow", "waits for a server", "test timed out after 1s"},
			never: "again",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, counts := t.TempDir(), filepath.Join(t.TempDir(), "counts")
			for name, text := range map[string]string{
				"go.mod":       "module sick\n\ngo 1.26\n",
				"sick_test.go": module + tc.test + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			t.Setenv("SICK", t.TempDir())
			t.Setenv("GOTEST_COUNTS", counts)
			t.Setenv("GOTEST_TIMES", "")
			t.Setenv("GOTEST_FLAKY", tc.limit)
			t.Setenv("FAULT_SEED", "")
			var out, stderr bytes.Buffer
			if got := run(t.Context(), append(tc.args, "-count=1", "./..."), &out, &stderr); got != tc.exit {
				t.Errorf("exit code %d, want %d", got, tc.exit)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q", want)
				}
			}
			if tc.never != "" && strings.Contains(out.String(), tc.never) {
				t.Errorf("there is %q", tc.never)
			}
			if got, err := os.ReadFile(counts); err != nil || string(got) != tc.count {
				t.Errorf("counts %q, want %q (%v)", got, tc.count, err)
			}
			if t.Failed() {
				t.Logf("%s%s", &out, &stderr)
			}
		})
	}
}

// TestFinal checks that a failed test is not run again if the test or its package has printed one
// of these lines.
func TestFinal(t *testing.T) {
	if n := len(repeatable(t, "TestSick", "too slow")); n != 1 {
		t.Errorf("%d tests are run again without such a line, want 1", n)
	}
	for _, line := range []string{
		"VERDICT: 1 faults of kind \"missing\"",
		"[rapid] failed after 7 tests: order",
		"[rapid] failed: order", // in a fuzz test
		"[rapid] panic after 7 tests: nil map",
		"[rapid] flaky test, can not reproduce a failure",
		"WARNING: DATA RACE",
		"testing.go:1712: race detected during execution of test",
		"testing: race detected outside of test execution",
		"panic: nil map",
		"agent's log: fatal error: all goroutines are asleep - deadlock!",
		"goleak: Errors on successful test run: found unexpected goroutines:",
		"FAIL: the tests leave behind /tmp/k7/file",
	} {
		for _, test := range []string{"TestSick", ""} {
			if len(repeatable(t, test, line)) > 0 {
				t.Errorf("run again after test %q printed: %s", test, line)
			}
		}
	}
}

// repeatable returns the tests that are run again after TestSick failed and test printed a line. If
// test is empty, the package printed it.
func repeatable(t *testing.T, test, line string) []failure {
	t.Helper()
	c := newCounter(io.Discard)
	for _, e := range []event{
		{Action: "run", Test: "TestSick"},
		{Action: "output", Test: test, Output: line + "\n"},
		{Action: "fail", Test: "TestSick"},
		{Action: "fail"},
	} {
		c.event(e)
	}
	return c.repeatable()
}

// TestTimes checks the recorded durations of tests.
func TestTimes(t *testing.T) {
	times := filepath.Join(t.TempDir(), "times")
	t.Setenv("GOTEST_COUNTS", "")
	t.Setenv("GOTEST_TIMES", times)
	for line, want := range map[string]string{
		`{"Action":"pass","Package":"p","Test":"TestLong","Elapsed":12.34}`:     "12.3 p TestLong\n",
		`{"Action":"fail","Package":"p","Test":"TestLong","Elapsed":12.34}`:     "12.3 p TestLong\n",
		`{"Action":"pass","Package":"p","Test":"TestShort","Elapsed":0.9}`:      "",
		`{"Action":"pass","Package":"p","Test":"TestLong/sub","Elapsed":12.34}`: "",
	} {
		c := newCounter(io.Discard)
		if err := c.read(strings.NewReader(line)); err != nil || c.times.String() != want {
			t.Errorf("%s: times %q, want %q (%v)", line, c.times.String(), want, err)
		}
	}
	for range 2 {
		if err := add(times, "a\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(times); string(got) != "a\na\n" {
		t.Errorf("%q, %v", got, err)
	}
}
