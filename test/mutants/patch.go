package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one patch.
type mutant struct {
	name string // of the file, without its suffix
	file string
	mutantHeader
	changes []string // files that it changes, relative to the repository
	overlay string   // file for the flag -overlay

	verdict verdict
	seconds float64
}

// mutantHeader is the text above the diff: lines of the form "key: value". A line that begins with
// two spaces continues the previous one.
type mutantHeader struct {
	intent   string // what is wrong with the change
	revertOf string // subject of the commit that it reverts; "": it reverts none
	pkg      string // the changed package
	tests    []testSet
	tier     string // the target that runs the tests
	shows    string // text that must be in the output of the tests; "": none
}

// testSet is a line "tests: ./internal/queue TestA TestB/sub": tests of one package.
type testSet struct {
	pkg   string // relative to the repository
	names []string
}

// The tiers of tests, each with the target that runs it.
const (
	tierCheck = "check" // make check, with -short
	tierTest  = "test"  // make test
	tierLong  = "long"  // make test-long
)

// isReal reports whether the mutant has tests of the module test.
func (m *mutant) isReal() bool { return slices.ContainsFunc(m.tests, testSet.isReal) }

// isReal reports whether the tests are of the module test.
func (t testSet) isReal() bool { return strings.HasPrefix(t.pkg, "./test/") }

// load reads the patches of a directory.
func load(dir string) ([]*mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	var errs []error
	for _, file := range files { // sorted
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m := &mutant{name: strings.TrimSuffix(filepath.Base(file), ".patch"), file: file}
		if err := m.parse(string(data)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}

// parse reads the header, and the names of the files that the diff changes.
func (m *mutant) parse(text string) error {
	header, diff, ok := strings.Cut(text, "\n--- a/")
	if !ok {
		return errors.New("no diff: it begins with a line '--- a/FILE'")
	}
	header = strings.ReplaceAll(header, "\n  ", " ")
	for line := range strings.Lines(header) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "intent":
			m.intent = value
		case "revert-of":
			m.revertOf = value
		case "package":
			m.pkg = value
		case "tier":
			m.tier = value
		case "shows":
			m.shows = value
		case "tests":
			words := strings.Fields(value)
			if len(words) < 2 || !strings.HasPrefix(words[0], "./") {
				return fmt.Errorf("tests: must be a package and tests, as './internal/queue TestModel', got %q", value)
			}
			m.tests = append(m.tests, testSet{words[0], words[1:]})
		default:
			return fmt.Errorf("unknown key %q in the header", key)
		}
	}
	for line := range strings.Lines("--- a/" + diff) {
		if file, ok := strings.CutPrefix(line, "--- a/"); ok {
			m.changes = append(m.changes, strings.TrimSpace(file))
		}
	}
	switch {
	case m.intent == "":
		return errors.New("intent: is missing: say what is wrong with the change")
	case m.pkg == "":
		return errors.New("package: is missing")
	case len(m.tests) == 0:
		return errors.New("tests: is missing: name the tests that catch it")
	case m.tier != tierCheck && m.tier != tierTest && m.tier != tierLong:
		return fmt.Errorf("tier: must be %s, %s or %s, got %q", tierCheck, tierTest, tierLong, m.tier)
	}
	return nil
}

// pattern returns the value of -run for the tests.
func (t testSet) pattern() string {
	all := make([]string, 0, len(t.names))
	for _, name := range t.names {
		parts := strings.Split(name, "/")
		for n, part := range parts {
			parts[n] = "^" + regexp.QuoteMeta(part) + "$"
		}
		all = append(all, strings.Join(parts, "/"))
	}
	return strings.Join(all, "|")
}

// apply writes the changed files of all mutants to the scratch directory. The error names all
// patches that do not apply.
func (b *bench) apply(ctx context.Context, all []*mutant) error {
	var errs []error
	for _, m := range all {
		if err := b.applyOne(ctx, m); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (b *bench) applyOne(ctx context.Context, m *mutant) error {
	dir := filepath.Join(b.scratch, m.name)
	replace := map[string]string{}
	for _, file := range m.changes {
		original, changed := filepath.Join(b.root, file), filepath.Join(dir, file)
		data, err := os.ReadFile(original)
		if err != nil {
			return m.stale(err.Error())
		}
		if err := os.MkdirAll(filepath.Dir(changed), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(changed, data, 0o600); err != nil {
			return err
		}
		replace[original] = changed
	}
	patch, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "-p1", "--whitespace=nowarn", patch)
	cmd.Dir = dir
	// git must not find a repository: in one, it would not apply the patch to files that it
	// ignores.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(b.scratch), "GIT_DIR=", "LC_ALL=C")
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool {
		return v == "GIT_DIR=" || strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_WORK_TREE=")
	})
	if out, err := cmd.CombinedOutput(); err != nil {
		return m.stale(string(bytes.TrimSpace(out)))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	m.overlay = filepath.Join(dir, "overlay.json")
	return os.WriteFile(m.overlay, overlay, 0o600)
}

// stale returns the error for a patch that does not apply.
func (m *mutant) stale(why string) error {
	return fmt.Errorf(
		"%s does not apply to %s: %s\n\tport it to the changed code, so that it does the same: %s\n\tif there is no such code any more, put another mutant in its place",
		m.file, strings.Join(m.changes, ", "), why, m.intent)
}
