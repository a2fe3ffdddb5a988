// Command vulncheck fails if the agent calls code with a known vulnerability. The database is a
// version of the module golang.org/x/vulndb, pinned with its sum, so that the same sources give the
// same answer. govulncheck finds the calls.
//
//	vulncheck [--exceptions FILE] [--max-age 720h] DIRECTORY PACKAGE…
//
// It prints the called vulnerabilities, with one of the calls. The standard library is that of the
// Go toolchain that runs it: make vulncheck sets the one of go.mod. Exit code 0: no called
// vulnerability without an exception; 1: some, or the check failed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	scanner = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"

	database    = "golang.org/x/vulndb"
	databaseVer = "v0.0.0-20261105234957-e22db6528018"
	databaseSum = "h1:mfngRv0Yoh0VApsXKEN82CjD99kl7mtparN3bs3JnqI="
)

// maxAhead bounds how far in the future the last day of an exception may be.
const maxAhead = 90 * 24 * time.Hour

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	file := flag.String("exceptions", "exceptions.txt", "accepted vulnerabilities")
	maxAge := flag.Duration("max-age", 0, "fail if the database is older; 0: any age")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: vulncheck [--exceptions FILE] [--max-age 720h] DIRECTORY PACKAGE…")
		os.Exit(2)
	}
	if err := check(ctx, os.Stdout, *file, *maxAge, flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1) //nolint:gocritic // The signal handler ends with the process.
	}
}

func check(ctx context.Context, out io.Writer, file string, maxAge time.Duration, dir string, packages []string) error {
	now := time.Now()
	if err := checkAge(databaseVer, maxAge, now); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	exceptions, err := parseExceptions(string(text), now)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	db, err := download(ctx)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	args := append([]string{"run", scanner, "-C", dir, "-format", "json", "-db", "file://" + filepath.ToSlash(db)},
		packages...)
	messages, err := output(exec.CommandContext(ctx, "go", args...))
	if err != nil {
		return fmt.Errorf("govulncheck: %w", err)
	}
	r, err := read(bytes.NewReader(messages))
	if err != nil {
		return fmt.Errorf("output of govulncheck: %w", err)
	}
	fmt.Fprintf(out, "%s, database of %s: %d vulnerabilities are called, %d others are in modules of the build\n",
		r.goVersion, databaseVer, len(r.called), r.others)
	return judge(out, r, exceptions)
}

// checkAge fails if the version of the database, a pseudo-version, is older than maxAge.
func checkAge(version string, maxAge time.Duration, now time.Time) error {
	parts := strings.Split(version, "-")
	if len(parts) != 3 {
		return fmt.Errorf("the version of the database is no pseudo-version: %s", version)
	}
	made, err := time.Parse("20060102150405", parts[1])
	if err != nil {
		return err
	}
	if age := now.Sub(made); maxAge > 0 && age > maxAge {
		return fmt.Errorf(
			"the database is %d days old, and at most %d are allowed: take a newer version of %s in release/vulncheck/main.go",
			int(age.Hours()/24), int(maxAge.Hours()/24), database)
	}
	return nil
}

// download returns the directory of the database's files. The module has the pinned sum.
func download(ctx context.Context) (string, error) {
	b, err := output(exec.CommandContext(ctx, "go", "mod", "download", "-json", database+"@"+databaseVer))
	if err != nil {
		return "", err
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(b, &module); err != nil {
		return "", err
	}
	if module.Sum != databaseSum {
		return "", fmt.Errorf("%s %s has the sum %s, want %s", database, databaseVer, module.Sum, databaseSum)
	}
	return filepath.Join(module.Dir, "data", "osv"), nil
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var errs bytes.Buffer
	cmd.Stderr = &errs
	b, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, errs.String())
	}
	return b, nil
}

// exception accepts a vulnerability until a day.
type exception struct {
	id, why string
	last    time.Time
}

// parseExceptions reads lines of ID, day and reason.
func parseExceptions(text string, now time.Time) ([]exception, error) {
	var all []exception
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[0], "GO-") {
			return nil, fmt.Errorf("line %d: want ID, last day and reason, got %q", i+1, line)
		}
		last, err := time.Parse(time.DateOnly, fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		end := last.Add(24 * time.Hour)
		switch {
		case !now.Before(end):
			return nil, fmt.Errorf("line %d: the exception for %s ended on %s", i+1, fields[0], fields[1])
		case end.Sub(now) > maxAhead+24*time.Hour:
			return nil, fmt.Errorf("line %d: %s is more than %d days ahead", i+1, fields[1], int(maxAhead.Hours()/24))
		}
		if slices.ContainsFunc(all, func(e exception) bool { return e.id == fields[0] }) {
			return nil, fmt.Errorf("line %d: %s is there twice", i+1, fields[0])
		}
		all = append(all, exception{id: fields[0], why: fields[2], last: last})
	}
	return all, nil
}

// result is what govulncheck has found.
type result struct {
	goVersion string
	called    []vulnerability // sorted by ID
	others    int             // vulnerabilities that are imported or required only
}

// vulnerability is one that the code calls.
type vulnerability struct{ id, summary, fixed, call string }

// frame is a part of a trace: the vulnerable function first, then its callers.
type frame struct {
	Module, Version, Package, Function, Receiver string
	Position                                     *struct {
		Filename string
		Line     int
	}
}

func (f *frame) name() string {
	if f.Receiver != "" {
		return f.Package + "." + f.Receiver + "." + f.Function
	}
	return f.Package + "." + f.Function
}

// read reads the messages of govulncheck -format json. Its exit code is 0 whatever it has found.
func read(messages io.Reader) (result, error) {
	var r result
	summaries := map[string]string{}
	called := map[string]vulnerability{}
	seen := map[string]bool{}
	for d := json.NewDecoder(messages); ; {
		var m struct {
			Config *struct {
				GoVersion string `json:"go_version"`
				ScanLevel string `json:"scan_level"`
			}
			OSV     *struct{ ID, Summary string }
			Finding *struct {
				OSV   string
				Fixed string `json:"fixed_version"`
				Trace []frame
			}
		}
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r, err
		}
		switch f := m.Finding; {
		case m.Config != nil:
			if m.Config.ScanLevel != "symbol" {
				return r, fmt.Errorf("it has looked for %ss, want symbols", m.Config.ScanLevel)
			}
			r.goVersion = m.Config.GoVersion
		case m.OSV != nil:
			summaries[m.OSV.ID] = m.OSV.Summary
		case f != nil:
			seen[f.OSV] = true
			if _, ok := called[f.OSV]; ok || len(f.Trace) == 0 || f.Trace[0].Function == "" {
				continue
			}
			first, entry := f.Trace[0], f.Trace[len(f.Trace)-1]
			call := entry.name() + " calls " + first.name()
			if entry.Position != nil {
				call = fmt.Sprintf("%s:%d: %s", entry.Position.Filename, entry.Position.Line, call)
			}
			called[f.OSV] = vulnerability{id: f.OSV, fixed: first.Module + "@" + f.Fixed, call: call}
		}
	}
	if r.goVersion == "" {
		return r, errors.New("it has no configuration: nothing was looked for")
	}
	for id, v := range called {
		v.summary = summaries[id]
		r.called = append(r.called, v)
	}
	slices.SortFunc(r.called, func(a, b vulnerability) int { return strings.Compare(a.id, b.id) })
	r.others = len(seen) - len(called)
	return r, nil
}

// judge prints what is called, and fails if there is no exception for it, or an exception for
// nothing.
func judge(out io.Writer, r result, exceptions []exception) error {
	unused := slices.Clone(exceptions)
	bad := 0
	for _, v := range r.called {
		verdict := "FAILED"
		if i := slices.IndexFunc(unused, func(e exception) bool { return e.id == v.id }); i >= 0 {
			verdict = "accepted until " + unused[i].last.Format(time.DateOnly) + " (" + unused[i].why + ")"
			unused = slices.Delete(unused, i, i+1)
		} else {
			bad++
		}
		fmt.Fprintf(out, "%s: %s: %s\n  fixed in %s\n  %s\n", v.id, verdict, v.summary, v.fixed, v.call)
	}
	var err error
	if bad > 0 {
		err = fmt.Errorf("the agent calls %d vulnerabilities: take the fixed versions, or see release/exceptions.txt",
			bad)
	}
	for _, e := range unused {
		err = errors.Join(err, fmt.Errorf("the exception for %s is not needed: remove it", e.id))
	}
	return err
}
