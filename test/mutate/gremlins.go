package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// report is what gremlins writes with --output. Its totals are not read: they leave out what ran
// out of time.
type report struct {
	Files []file `json:"files"`
}

// file has the changes of a file.
type file struct {
	Name      string     `json:"file_name"` // within the package
	Mutations []mutation `json:"mutations"`
}

// mutation is a change of one operator or keyword.
type mutation struct {
	Type   string `json:"type"`
	Status status `json:"status"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // of the operator, in bytes, from 1
}

type status string

const (
	runnable   status = "RUNNABLE" // of a dry run: a test runs the line
	notCovered status = "NOT COVERED"
	killed     status = "KILLED"
	lived      status = "LIVED"
	timedOut   status = "TIMED OUT"
	notViable  status = "NOT VIABLE"
	skipped    status = "SKIPPED"
)

// parseReport reads a report. Its files and their changes are sorted.
func parseReport(data []byte) (report, error) {
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return report{}, fmt.Errorf("the report of gremlins: %w", err)
	}
	slices.SortFunc(r.Files, func(a, b file) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range r.Files {
		slices.SortFunc(f.Mutations, func(a, b mutation) int {
			return cmp.Or(a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Type, b.Type))
		})
		for _, m := range f.Mutations {
			known := []status{runnable, notCovered, killed, lived, timedOut, notViable, skipped}
			if !slices.Contains(known, m.Status) {
				return report{}, fmt.Errorf("the report of gremlins: unknown status %q", m.Status)
			}
		}
	}
	return r, nil
}

// count returns how many changes have the status.
func (r report) count(s status) int {
	n := 0
	for _, f := range r.Files {
		for _, m := range f.Mutations {
			if m.Status == s {
				n++
			}
		}
	}
	return n
}

// covered returns the number of changes to try, by file.
func (r report) covered() map[string]int {
	all := map[string]int{}
	for _, f := range r.Files {
		for _, m := range f.Mutations {
			if m.Status == runnable {
				all[f.Name]++
			}
		}
	}
	return all
}

// part is one of the parts into which a package's files are divided.
type part struct {
	number int // from 1
	of     int
}

func parsePart(text string) (part, error) {
	var p part
	_, err := fmt.Sscanf(text, "%d/%d", &p.number, &p.of)
	if err != nil || p.number < 1 || p.number > p.of {
		return part{}, fmt.Errorf("--part must be as 3/7, got %q", text)
	}
	return p, nil
}

// files returns the files of the part, sorted. The parts have about as many changes each: the file
// with the most goes first, and each to the part that has the fewest.
func (p part) files(changes map[string]int) []string {
	names := slices.SortedFunc(maps.Keys(changes), func(a, b string) int {
		if changes[a] != changes[b] {
			return changes[b] - changes[a]
		}
		return strings.Compare(a, b)
	})
	loads := make([]int, p.of)
	var mine []string
	for _, name := range names {
		least := slices.Index(loads, slices.Min(loads))
		loads[least] += changes[name]
		if least == p.number-1 {
			mine = append(mine, name)
		}
	}
	slices.Sort(mine)
	return mine
}

// coefficient is how many times as long as all tests with their compilation a change may take.
const coefficient = "8"

// runner runs gremlins.
type runner struct {
	gremlins string
	root     string    // of the repository
	log      io.Writer // for what gremlins prints
}

// find returns all changes of a package, and whether its tests run their lines.
func (r runner) find(ctx context.Context, pkg string) (report, error) {
	return r.unleash(ctx, pkg, "/", "--dry-run")
}

// try tries all changes of the files. It takes hours for some packages.
func (r runner) try(ctx context.Context, pkg string, files []string) (report, error) {
	others, err := filepath.Glob(filepath.Join(r.root, pkg, "*.go"))
	if err != nil {
		return report{}, err
	}
	out := []string{"/"}
	for _, other := range others {
		name := filepath.Base(other)
		if !strings.HasSuffix(name, "_test.go") && !slices.Contains(files, name) {
			out = append(out, "^"+regexp.QuoteMeta(name)+"$")
		}
	}
	return r.unleash(ctx, pkg, strings.Join(out, "|"))
}

// unleash runs gremlins for the files of a package but those that match without. It works on a
// copy of the repository.
func (r runner) unleash(ctx context.Context, pkg, without string, flags ...string) (report, error) {
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return report{}, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	written := filepath.Join(scratch, "report.json")
	args := []string{
		"unleash", "./" + path.Clean(pkg), "--workers", "1", "--timeout-coefficient", coefficient,
		"--exclude-files", without, "--output", written,
	}
	cmd := exec.CommandContext(ctx, r.gremlins, append(args, flags...)...)
	cmd.Dir = r.root
	cmd.Stdout = r.log
	cmd.Stderr = r.log
	// Gremlins has no flags for the tests. Without -count=1, the tests' time, from which it has its
	// time limit, would be that of a look into the cache.
	tests := strings.TrimSpace(os.Getenv("GOFLAGS") + " -short -count=1 -vet=off")
	cmd.Env = append(os.Environ(), "GOFLAGS="+tests, "TMPDIR="+scratch)
	// A test that runs must not outlive the command. Nothing needs a softer signal: the copy of the
	// repository is in the scratch directory too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		return report{}, context.Cause(ctx)
	}
	if err != nil {
		return report{}, fmt.Errorf("gremlins: %w", err)
	}
	data, err := os.ReadFile(written)
	if errors.Is(err, os.ErrNotExist) {
		return report{}, errors.New("gremlins found nothing to change")
	}
	if err != nil {
		return report{}, err
	}
	return parseReport(data)
}
