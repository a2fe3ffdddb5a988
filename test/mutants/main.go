// Command mutants makes small wrong changes to the agent, one at a time, and checks that tests
// fail. Each change is a patch in the directory of this file. Its header names the tests that must
// catch it; no others run.
//
// A guarantee that hangs on a call, an order or a wait has a patch, because no tool takes these
// away. A guarantee that a quick test of its own package holds needs none.
//
// A mutant is caught if one of its tests fails, or if the race detector, goleak or a panic ends it.
// It is an error of the patch if the mutant does not build, if a test does not exist or is skipped,
// or if a test exceeds the time limit. All tests must first pass on the unchanged tree.
//
// Nothing is written to the tree: the go command reads the changed files through an overlay.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	root    string // of the repository
	patches string // directory
	only    string // a mutant's name has one of these, separated by commas; "": all run
	output  string // text or json
	limit   time.Duration
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.root, "root", "..", "`directory` of the repository")
	flags.StringVar(&o.patches, "patches", "mutants", "`directory` of the patches")
	flags.StringVar(&o.only, "only", "",
		"run the mutants whose names contain one of these `parts`, separated by commas")
	flags.StringVar(&o.output, "o", "text", "output `format`: text or json")
	flags.DurationVar(&o.limit, "limit", 4*time.Minute,
		"end the tests of one package after this `time`, which is an error of the mutant (five times as long without one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("-o must be text or json, got %q", o.output)
	}
	began := time.Now()
	all, err := load(o.patches)
	if err != nil {
		return err
	}
	all = selected(all, o.only)
	if len(all) == 0 {
		return fmt.Errorf("no patch of %s matches --only %q", o.patches, o.only)
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "kubecdc-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	b := &bench{
		root:     root,
		scratch:  scratch,
		limit:    o.limit,
		progress: stderr,
	}
	if err := b.apply(ctx, all); err != nil {
		return err
	}
	if err := b.checkUnchanged(ctx, all); err != nil {
		return err
	}
	b.each(ctx, all, func(ctx context.Context, m *mutant) {
		start := time.Now()
		m.verdict = b.try(ctx, m)
		m.seconds = time.Since(start).Seconds()
		b.say(m)
	})
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err := report(stdout, o.output, all, time.Since(began)); err != nil {
		return err
	}
	if missed := slices.DeleteFunc(all, func(m *mutant) bool { return m.verdict.kind == caught }); len(missed) > 0 {
		return fmt.Errorf("%d mutants were not caught", len(missed))
	}
	return nil
}

// selected returns the mutants whose names contain one of the parts.
func selected(all []*mutant, parts string) []*mutant {
	if parts == "" {
		return all
	}
	return slices.DeleteFunc(all, func(m *mutant) bool {
		return !slices.ContainsFunc(strings.Split(parts, ","), func(part string) bool {
			return strings.Contains(m.name, part)
		})
	})
}

// bench runs tests, with and without a mutant.
type bench struct {
	root     string // of the repository
	scratch  string // directory of the changed files
	limit    time.Duration
	progress io.Writer

	mu    sync.Mutex // guards progress
	total int
	over  int
}

// each calls do for all mutants, two at a time. At most one of the two has tests of the module
// test, which start a control plane.
func (b *bench) each(ctx context.Context, all []*mutant, do func(context.Context, *mutant)) {
	b.total, b.over = len(all), 0
	var real, pure []*mutant
	for _, m := range all {
		if m.isReal() {
			real = append(real, m)
		} else {
			pure = append(pure, m)
		}
	}
	var mu sync.Mutex
	// take returns the next mutant of mine or, if there is none, of the root module.
	take := func(mine *[]*mutant) *mutant {
		mu.Lock()
		defer mu.Unlock()
		for _, from := range []*[]*mutant{mine, &pure} {
			if len(*from) > 0 {
				m := (*from)[0]
				*from = (*from)[1:]
				return m
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for _, mine := range []*[]*mutant{&real, &pure} {
		wg.Go(func() {
			for m := take(mine); m != nil && ctx.Err() == nil; m = take(mine) {
				do(ctx, m)
			}
		})
	}
	wg.Wait()
}

// say logs the verdict of a mutant.
func (b *bench) say(m *mutant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over++
	fmt.Fprintf(b.progress, "[%2d/%d] %-8s %5.1fs  %s%s\n", b.over, b.total, m.verdict.kind, m.seconds, m.name,
		m.verdict.because())
	if m.verdict.kind != caught {
		fmt.Fprintf(b.progress, "        intent: %s\n%s", m.intent, indent(m.verdict.output))
	}
}

func indent(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString("        | " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return out.String()
}

// row is a mutant in the output.
type row struct {
	Mutant   string   `json:"mutant"`
	Package  string   `json:"package"`
	Intent   string   `json:"intent"`
	RevertOf string   `json:"revertOf,omitempty"` // subject of the commit
	Tests    []string `json:"tests"`
	Tier     string   `json:"tier"`
	Verdict  string   `json:"verdict"`
	By       []string `json:"by,omitempty"`
	Seconds  float64  `json:"seconds"`
}

func rows(all []*mutant) []row {
	out := make([]row, 0, len(all))
	for _, m := range all {
		r := row{
			Mutant:   m.name,
			Package:  m.pkg,
			Intent:   m.intent,
			RevertOf: m.revertOf,
			Tier:     m.tier,
			Verdict:  string(m.verdict.kind),
			By:       m.verdict.by,
			Seconds:  m.seconds,
		}
		for _, t := range m.tests {
			r.Tests = append(r.Tests, t.names...)
		}
		out = append(out, r)
	}
	return out
}

// report writes the table and the totals.
func report(w io.Writer, format string, all []*mutant, took time.Duration) error {
	list := rows(all)
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(list)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MUTANT\tPACKAGE\tVERDICT\tSECONDS\tTIER\tTESTS\tREVERT OF")
	reverts := 0
	verdicts := map[string]int{}
	tiers := map[string]int{}
	for _, r := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%s\t%s\t%s\n", r.Mutant, r.Package, r.Verdict, r.Seconds, r.Tier,
			strings.Join(r.Tests, " "), r.RevertOf)
		verdicts[r.Verdict]++
		if r.RevertOf != "" {
			reverts++
		}
		if r.Verdict == string(caught) {
			tiers[r.Tier]++
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w,
		"\n%d mutants, %d of them reverts of fixes: %d caught, %d survived, %d errors\ncaught by make check: %d, by make test: %d, by make test-long: %d\n%.0f seconds\n",
		len(list), reverts, verdicts[string(caught)], verdicts[string(survived)], verdicts[string(broken)],
		tiers[tierCheck], tiers[tierTest], tiers[tierLong], took.Seconds())
	return err
}
