package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// fewFailures is the largest number of failed tests that are run again. More failures have a common
// cause, not bad luck.
const fewFailures = 3

// final are the marks of failures that are never run again: a second run that passes would hide a
// defect that was seen. VERDICT is the mark of oracles (Fail of test/oracle). Package rapid draws
// other cases in a second run. Package suite of the test module prints "leave behind" after the
// last test.
var final = []string{
	"VERDICT: ", "[rapid] failed", "[rapid] panic", "[rapid] flaky",
	"DATA RACE", "race detected", "panic:", "fatal error:", "found unexpected goroutines",
	"FAIL: the tests leave behind ",
}

func isFinal(output string) bool {
	return slices.ContainsFunc(final, func(mark string) bool { return strings.Contains(output, mark) })
}

// seedOf finds what a test has printed of its seed, such as FAULT_SEED=7: setting this variable
// repeats the test.
var seedOf = regexp.MustCompile(`\b[A-Z][A-Z_]*_SEED=[0-9]+\b`)

// again runs each failed test a second time, alone and with its seed, and returns the exit code
// that holds then. Tests that pass then count as passed and as flaky.
func (c *counter) again(ctx context.Context, args []string, stderr io.Writer, code int) int {
	tests := c.repeatable()
	if len(tests) == 0 {
		return code
	}
	flags := slices.DeleteFunc(slices.Clone(args), isPackage)
	for _, f := range tests {
		seeds := seedsOf(f.output)
		fmt.Fprintf(c.out, "running %s of %s again%s\n", f.test, f.pkg, seedText(seeds))
		second := newCounter(c.out)
		second.env = seeds
		exit, err := second.run(ctx, append(slices.Clone(flags), "-count=1", "-run", "^"+f.test+"$", f.pkg), stderr)
		if err != nil || exit != 0 || second.pass == 0 {
			fmt.Fprintf(c.out, "%s of %s has failed twice%s\n", f.test, f.pkg, seedText(seeds))
			return code
		}
	}
	for _, f := range tests {
		fmt.Fprintf(c.out, "FLAKY: %s of %s failed, and passed when it was run again%s\n", f.test, f.pkg,
			seedText(seedsOf(f.output)))
		for line := range strings.Lines(reason(f.output)) {
			fmt.Fprint(c.out, "  | "+line)
		}
	}
	c.flaky = len(tests)
	c.pass += c.fail
	c.fail = 0
	c.failures = nil
	return 0
}

// repeatable returns the failed tests, without their subtests, or none if a second run could hide
// something.
func (c *counter) repeatable() []failure {
	var tests []failure
	for _, f := range c.failures {
		if isFinal(f.output) {
			return nil
		}
		if !strings.Contains(f.test, "/") {
			f.output = c.withSubtests(f)
			tests = append(tests, f)
		}
	}
	if c.broken || len(tests) > fewFailures {
		return nil
	}
	return tests
}

// withSubtests returns the output of a failed test and of its failed subtests: one of them may have
// printed the seed.
func (c *counter) withSubtests(test failure) string {
	output := test.output
	for _, f := range c.failures {
		if f.pkg == test.pkg && strings.HasPrefix(f.test, test.test+"/") {
			output = f.output + output
		}
	}
	return output
}

func seedsOf(output string) []string {
	seeds := seedOf.FindAllString(output, -1)
	slices.Sort(seeds)
	return slices.Compact(seeds)
}

func seedText(seeds []string) string {
	if len(seeds) == 0 {
		return ""
	}
	return ", " + strings.Join(seeds, " ")
}

// isPackage reports whether an argument of go test is a package, in the forms that this project
// uses.
func isPackage(arg string) bool {
	return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "github.com/")
}
