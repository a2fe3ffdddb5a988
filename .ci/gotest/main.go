// Command gotest replaces `go test` in CI: it takes the same arguments and prints about the same
// output. It also appends "passed failed skipped flaky" to the file that GOTEST_COUNTS names. For
// each test that took a second or longer, it appends "seconds package test" to the file that
// GOTEST_TIMES names. Subtests count. A package that fails without a failing test (it does not
// build), or whose process ended while tests ran, counts as one more failure. No test is run again
// in this case.
//
// If at most three tests fail, each is run once more, alone and with the seed of its first run. A
// test that passes then counts as passed and as flaky. More flaky tests than GOTEST_FLAKY allows
// (no limit by default) fail the run. A verdict of an oracle, a failed property of rapid, a data
// race, a leak or a panic is final: such a run is not repeated. A test or its package may have
// printed it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := newCounter(stdout)
	code, err := c.run(ctx, args, stderr)
	if err == nil && ctx.Err() == nil {
		code = c.again(ctx, args, stderr, code)
	}
	for _, f := range c.failures {
		fmt.Fprint(stdout, reason(f.output)) // repeated at the end, below the logs of the tests
	}
	if limit := os.Getenv("GOTEST_FLAKY"); limit != "" && c.flaky > 0 {
		if most, parsed := strconv.Atoi(limit); parsed != nil || c.flaky > most {
			fmt.Fprintf(stdout, "%d flaky tests, GOTEST_FLAKY=%s allows no more\n", c.flaky, limit)
			c.pass, c.fail = c.pass-c.flaky, c.fail+c.flaky
		}
	}
	fmt.Fprintf(stdout, "%d passed, %d failed, %d skipped\n", c.pass, c.fail, c.skip)
	counts := fmt.Sprintln(c.pass, c.fail, c.skip, c.flaky)
	err = errors.Join(err, add(os.Getenv("GOTEST_COUNTS"), counts), add(os.Getenv("GOTEST_TIMES"), c.times.String()))
	if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}
	if code == 0 && c.fail > 0 {
		return 1
	}
	return code
}

// run runs go test and counts. It returns its exit code.
func (c *counter) run(ctx context.Context, args []string, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = stderr
	cmd.Env = append(os.Environ(), c.env...)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 1, err
	}
	err = c.read(pipe)
	var exit *exec.ExitError
	switch waited := cmd.Wait(); {
	case errors.As(waited, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode(), err
	case waited != nil:
		return 1, errors.Join(err, waited)
	}
	return 0, err
}

// event is a line of `go test -json`, see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

type counter struct {
	out              io.Writer
	pass, fail, skip int
	running          map[string]string // output of tests that have not ended, shown only if they fail
	failed           map[string]bool   // packages with a failed test
	failures         []failure
	flaky            int      // tests that failed and then passed when they were run again
	env              []string // variables to set for go test, in addition to those of this process
	// a package has failed without a failing test, or while tests ran, or has printed a final mark
	broken bool
	times  strings.Builder
}

// failure is a test that has failed.
type failure struct{ pkg, test, output string }

func newCounter(out io.Writer) *counter {
	return &counter{out: out, running: map[string]string{}, failed: map[string]bool{}}
}

func (c *counter) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprint(c.out, line) // no event: a message of the go command
		default:
			c.event(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (c *counter) event(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "run":
		c.running[key] = ""
	case "output":
		if output, runs := c.running[key]; runs {
			c.running[key] = output + e.Output
		} else if e.Output != "PASS\n" {
			c.broken = c.broken || isFinal(e.Output)
			fmt.Fprint(c.out, e.Output)
		}
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			c.packageEnded(e)
			return
		}
		c.testEnded(e)
		delete(c.running, key)
	}
}

func (c *counter) testEnded(e event) {
	key := e.Package + " " + e.Test
	if e.Elapsed >= 1 && !strings.Contains(e.Test, "/") {
		fmt.Fprintf(&c.times, "%.1f %s %s\n", e.Elapsed, e.Package, e.Test)
	}
	switch e.Action {
	case "pass":
		c.pass++
		if e.Elapsed >= 5 && !strings.Contains(e.Test, "/") {
			fmt.Fprintf(c.out, "--- PASS: %s (%.1fs)\n", e.Test, e.Elapsed) // a sign of life
		}
	case "skip":
		c.skip++
		fmt.Fprint(c.out, c.running[key])
	case "fail":
		c.fail++
		c.failed[e.Package] = true
		fmt.Fprint(c.out, c.running[key])
		c.failures = append(c.failures, failure{e.Package, e.Test, c.running[key]})
	}
}

// reason returns at most the last 20 lines of a test's output, without the log lines of the code
// under test.
func reason(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		if text := strings.TrimSpace(line); !strings.HasPrefix(text, `{"time":`) && !strings.HasPrefix(text, "=== ") {
			lines = append(lines, line)
		}
	}
	const most = 20
	return strings.Join(lines[max(0, len(lines)-most):], "")
}

func (c *counter) packageEnded(e event) {
	cut := !c.failed[e.Package]
	for key, output := range c.running {
		if strings.HasPrefix(key, e.Package+" ") { // It ran when the process ended.
			cut = true
			fmt.Fprint(c.out, output)
			delete(c.running, key)
		}
	}
	if e.Action == "fail" && cut {
		c.fail++
		c.broken = true
	}
}

// add appends text to the file at path. If path is empty, it does nothing.
func add(path, text string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("save the counts and times: %w", err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
