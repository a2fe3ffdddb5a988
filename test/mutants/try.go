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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome is the result for a mutant.
type outcome string

const (
	caught   outcome = "caught"
	survived outcome = "SURVIVED"
	broken   outcome = "ERROR" // the patch or its header is wrong
)

type verdict struct {
	kind   outcome
	by     []string // tests that failed
	why    string   // the reason for broken
	output string   // the output of the tests, if they did not catch the mutant
}

func failure(why, output string) verdict { return verdict{kind: broken, why: why, output: output} }

// because returns the reason for the verdict as text.
func (v *verdict) because() string {
	switch v.kind {
	case caught:
		return ": " + strings.Join(v.by, ", ")
	case survived:
		return ": its tests pass"
	}
	return ": " + v.why
}

// try runs the tests of a mutant until one of them catches it.
func (b *bench) try(ctx context.Context, m *mutant) verdict {
	if m.isReal() {
		// The tests build the agent, so they would also fail if it does not build.
		if out, err := b.command(ctx, m, "", "build", "./...").CombinedOutput(); err != nil {
			return failure("it does not build", string(out))
		}
	}
	var output strings.Builder
	for _, t := range m.tests {
		r, err := b.test(ctx, m, t, b.limit)
		if err != nil {
			return failure(err.Error(), "")
		}
		if v := r.judge(t, m.shows); v.kind != survived {
			return v
		}
		output.WriteString(r.output.String())
	}
	return verdict{kind: survived, output: output.String()}
}

// unchangedLimits is the limit of a package's tests on the unchanged tree, in limits of a mutant.
// They are the tests of all its mutants, and the first that are built.
const unchangedLimits = 5

// checkUnchanged runs all tests of the mutants on the unchanged tree: a test that fails there
// catches nothing.
func (b *bench) checkUnchanged(ctx context.Context, all []*mutant) error {
	sets := map[bool]map[string]*mutant{true: {}, false: {}} // a mutant without changes for each package
	var order []*mutant
	for _, m := range all {
		for _, t := range m.tests {
			plain := sets[m.tier == tierCheck][t.pkg]
			if plain == nil {
				plain = &mutant{name: t.pkg, mutantHeader: mutantHeader{tier: m.tier, tests: []testSet{{pkg: t.pkg}}}}
				sets[m.tier == tierCheck][t.pkg] = plain
				order = append(order, plain)
			}
			for _, name := range t.names {
				if !slices.Contains(plain.tests[0].names, name) {
					plain.tests[0].names = append(plain.tests[0].names, name)
				}
			}
		}
	}
	began := time.Now()
	var mu sync.Mutex
	var errs []error
	b.each(ctx, order, func(ctx context.Context, plain *mutant) {
		t := plain.tests[0]
		r, err := b.test(ctx, plain, t, unchangedLimits*b.limit)
		if err == nil {
			err = r.sound(t)
		}
		if err != nil {
			mu.Lock()
			errs = append(errs, fmt.Errorf("on the unchanged tree: %s: %w", t.pkg, err))
			mu.Unlock()
		}
	})
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if len(errs) == 0 {
		fmt.Fprintf(b.progress, "the tests of %d packages pass on the unchanged tree, after %.1fs\n", len(order),
			time.Since(began).Seconds())
	}
	return errors.Join(errs...)
}

// command returns a go command that runs in the repository's directory dir, with the changes of m.
func (b *bench) command(ctx context.Context, m *mutant, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.root, dir)
	cmd.Env = os.Environ()
	if m.overlay != "" {
		// Tests of the module test build the agent with the inherited GOFLAGS.
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" '-overlay="+m.overlay+"'"))
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// test runs tests with the changes of m, for at most limit.
func (b *bench) test(ctx context.Context, m *mutant, t testSet, limit time.Duration) (*result, error) {
	dir, pkg := "", t.pkg
	if t.isReal() {
		dir, pkg = "test", "./"+strings.TrimPrefix(t.pkg, "./test/")
	}
	// Each mutant is vetted and linked again. -vet=off and -ldflags=-w halve the time.
	args := []string{
		"test", "-json", "-count=1", "-vet=off", "-ldflags=-w", "-timeout", limit.String(), "-run", t.pattern(),
	}
	if m.tier == tierCheck {
		args = append(args, "-short")
	}
	args = append(args, pkg)
	if b.usesRapid(t) {
		// Without this, rapid would write the failure to a file in the tree, and replay it in later
		// runs.
		args = append(args, "-rapid.nofailfile")
	}
	cmd := b.command(ctx, m, dir, args...)
	r := &result{tests: map[string]string{}}
	cmd.Stderr = &r.output
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	err = r.read(pipe)
	waited := cmd.Wait()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	if exit := new(exec.ExitError); waited != nil && !errors.As(waited, &exit) {
		err = errors.Join(err, waited)
	}
	return r, err
}

// usesRapid reports whether the package has property tests.
func (b *bench) usesRapid(t testSet) bool {
	files, _ := filepath.Glob(filepath.Join(b.root, t.pkg, "*_test.go")) // the pattern is a valid one
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(data), `"pgregory.net/rapid"`)
	})
}

// result is the result of go test.
type result struct {
	tests   map[string]string // pass, fail or skip, by the test's name
	failed  bool              // the package has failed
	unbuilt bool              // the package does not build
	output  syncBuilder
}

// event is a line of `go test -json`, see `go doc test2json`.
type event struct {
	Action      string
	Test        string
	Output      string
	FailedBuild string
}

func (r *result) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			r.output.WriteString(line)
		default:
			r.event(&e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *result) event(e *event) {
	switch e.Action {
	case "output", "build-output":
		r.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test != "" {
			r.tests[e.Test] = e.Action
		} else if e.Action == "fail" {
			r.failed, r.unbuilt = true, r.unbuilt || e.FailedBuild != ""
		}
	case "build-fail":
		r.unbuilt = true
	}
}

// judge returns the verdict on a mutant that these tests must catch.
func (r *result) judge(t testSet, shows string) verdict {
	output := r.output.String()
	v := verdict{kind: survived, output: output}
	for _, name := range t.names {
		if r.tests[name] == "fail" {
			v.by = append(v.by, name)
		}
	}
	switch crash := crashOf(output); {
	case r.unbuilt:
		return failure("it does not build", output)
	case strings.Contains(output, "panic: test timed out after"):
		return failure("its tests hang, which is no verdict: see to it that one of them fails", output)
	case len(v.by) > 0:
	case r.failed && crash != "":
		v.by = []string{crash}
	case r.failed:
		return failure("the tests fail, but none that is named", output)
	default:
		if err := r.sound(t); err != nil {
			return failure(err.Error(), output)
		}
		return v
	}
	if !strings.Contains(output, shows) {
		return failure(fmt.Sprintf("its tests fail, but do not show %q", shows), output)
	}
	v.kind = caught
	return v
}

// crashOf returns the cause of a crash of the test process, or "" if there was none.
func crashOf(output string) string {
	for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: ", "found unexpected goroutines"} {
		if strings.Contains(output, sign) {
			return strings.TrimSuffix(sign, ": ")
		}
	}
	return ""
}

// sound returns nil if all of the tests ran and passed.
func (r *result) sound(t testSet) error {
	var errs []error
	for _, name := range t.names {
		switch r.tests[name] {
		case "pass":
		case "":
			errs = append(errs, fmt.Errorf("there is no test %s in %s", name, t.pkg))
		case "skip":
			errs = append(errs, fmt.Errorf("%s is skipped", name))
		default:
			errs = append(errs, fmt.Errorf("%s fails", name))
		}
	}
	if r.unbuilt {
		errs = []error{errors.New("it does not build")}
	}
	if r.failed || r.unbuilt {
		errs = append(errs, fmt.Errorf("go test says:\n%s", indent(r.output.String())))
	}
	return errors.Join(errs...)
}

// syncBuilder is a strings.Builder to which several goroutines may write.
type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// WriteString implements io.StringWriter.
func (s *syncBuilder) WriteString(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.WriteString(text)
}

// String returns the text written so far.
func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
