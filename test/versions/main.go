package main

import (
	"context"
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
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// kind is a kind of server.
type kind struct {
	name     string   // of the flag
	title    string   // in the output
	versions []string // pinned, ascending
	table    table    // of the results
	// test runs the tests on one version. It returns the cells of the table between the version and
	// the date.
	test func(ctx context.Context, r *runner, version string) (cells []string, err error)
}

// kinds returns all kinds of servers.
func kinds() []kind {
	return []kind{kubernetes(), natsServer(), kafka(), kine()}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("versions", flag.ContinueOnError)
	flags.SetOutput(stderr)
	update := flags.Bool("update", false,
		"write the versions that pass, with the date, to docs/reference/compatibility.md")
	chosen := map[string]*string{}
	all := kinds()
	for _, k := range all {
		chosen[k.name] = flags.String(k.name, "",
			"versions of "+k.title+", separated by commas or spaces; none: none; oldest: the oldest; default: all")
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	root, err := repository(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "versions:", err)
		return 1
	}
	r := &runner{root: root, stdout: stdout, stderr: stderr}
	var failed []string
	for _, k := range all {
		versions, err := k.choose(*chosen[k.name])
		if err != nil {
			fmt.Fprintln(stderr, "versions:", err)
			return 2
		}
		for _, version := range versions {
			cells, err := k.test(ctx, r, version)
			if err == nil && *update {
				err = k.table.write(filepath.Join(root, document), k.versions, version, cells)
			}
			if err != nil {
				fmt.Fprintf(stderr, "versions: %s %s: %v\n", k.title, version, err)
				failed = append(failed, k.title+" "+version)
			}
			if ctx.Err() != nil {
				return 1
			}
		}
	}
	if len(failed) > 0 {
		fmt.Fprintln(stderr, "failed:", strings.Join(failed, ", "))
		return 1
	}
	return 0
}

// choose returns the versions that a flag selects, in full or by their minors. They must be pinned:
// the table has no others.
func (k *kind) choose(text string) ([]string, error) {
	switch text {
	case "":
		return k.versions, nil
	case "none":
		return nil, nil
	case "oldest":
		return k.versions[:1], nil
	}
	var chosen []string
	for _, name := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' }) {
		i := slices.IndexFunc(k.versions, func(v string) bool { return v == name || strings.HasPrefix(v, name+".") })
		if i < 0 {
			return nil,
				fmt.Errorf("%s: unknown version %q, known are %s", k.title, name, strings.Join(k.versions, ", "))
		}
		chosen = append(chosen, k.versions[i])
	}
	return chosen, nil
}

// repository returns the directory of the repository.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(filepath.Dir(strings.TrimSpace(string(out)))), nil
}
