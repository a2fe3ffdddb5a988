package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// fewFailures is up to how many tests are run again. Where more fail it is no accident.
const fewFailures = 3

// again runs the failed tests once more, and returns the exit code that holds then.
func (c *counter) again(ctx context.Context, args []string, stderr io.Writer, code int) int {
	tests := c.suspects()
	if len(tests) == 0 {
		return code
	}
	flags := slices.DeleteFunc(slices.Clone(args), isPackage)
	for pkg, names := range tests {
		second := newCounter(c.out)
		pattern := "^(" + strings.Join(names, "|") + ")$"
		fmt.Fprintf(c.out, "running again what has failed: %s of %s\n", strings.Join(names, ", "), pkg)
		if exit, err := second.run(ctx, append(slices.Clone(flags), "-count=1", "-run", pattern, pkg), stderr); err != nil || exit != 0 || second.pass == 0 {
			return code
		}
	}
	for _, f := range c.failures {
		fmt.Fprintf(c.out, "FLAKY: %s of %s failed, and passed when it was run again\n", f.test, f.pkg)
		for line := range strings.Lines(reason(f.output)) {
			fmt.Fprint(c.out, "  | "+line)
		}
	}
	c.pass, c.fail, c.failures = c.pass+c.fail, 0, nil
	return 0
}

// suspects are the failed tests by package, none where running them again would hide something.
func (c *counter) suspects() map[string][]string {
	tests := map[string][]string{}
	n := 0
	for _, f := range c.failures {
		for _, sign := range []string{"DATA RACE", "race detected", "panic:", "found unexpected goroutines"} {
			if strings.Contains(f.output, sign) {
				return nil
			}
		}
		if name, _, sub := strings.Cut(f.test, "/"); !sub {
			tests[f.pkg] = append(tests[f.pkg], name)
			n++
		}
	}
	if c.broken || n > fewFailures {
		return nil
	}
	return tests
}

// isPackage tells the packages among the arguments of go test, as this project names them.
func isPackage(arg string) bool {
	return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "github.com/")
}
