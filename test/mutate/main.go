// Command mutate has gremlins change the conditions and operators of packages, one at a time, and
// judges which of the changes the tests of a package must catch.
//
// packages.yaml lists the packages. A package with a floor is held. These are errors there:
//
//   - a change that no test catches, and that the list does not accept with a reason;
//   - an efficacy or a coverage below the floor;
//   - an accepted change of a line that the code no longer has.
//
// A package without a floor is not yet held: what survives is printed.
//
// A package's files are divided into as many parts as it has nights. A night tries one part, so
// all are tried in that many nights. Run with the same --part, the same files are tried again.
//
// Gremlins runs the short tests of the changed package, and no others: what only the tests of
// another package catch survives. A change that does not compile counts as caught, because
// `go test` fails in the same way.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	root     string // of the repository
	list     string // file
	gremlins string // path of the program
	pkg      string // "": all of the list
	part     string // "" or as "3/7"
	limit    time.Duration
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.root, "root", "..", "`directory` of the repository")
	flags.StringVar(&o.list, "list", "mutate/packages.yaml", "`file` with the packages")
	flags.StringVar(&o.gremlins, "gremlins", "gremlins", "the `program`")
	flags.StringVar(&o.pkg, "package", "",
		"try this `package` whole, as ./internal/queue; without it, tonight's part of each listed package")
	flags.StringVar(&o.part, "part", "", "try this `part`, as 3/7")
	flags.DurationVar(&o.limit, "limit", 5*time.Hour, "end after this `time`, which is an error")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	all, err := loadPackages(o.list)
	if err != nil {
		return err
	}
	if err := all.check(root); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not finished after %s", o.limit))
	defer cancel()
	var errs []error
	for _, p := range all.selected(o.pkg) {
		part, err := choosePart(o, p, time.Now())
		if err != nil {
			return err
		}
		r := runner{gremlins: o.gremlins, root: root, log: stderr}
		if err := tryPackage(ctx, r, p, part, stdout); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Package, err))
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	return errors.Join(errs...)
}

// choosePart returns the part of a package that is tried: the one named, all of a package named,
// or tonight's.
func choosePart(o options, p *pack, now time.Time) (part, error) {
	if o.part != "" {
		return parsePart(o.part)
	}
	if o.pkg != "" {
		return part{number: 1, of: 1}, nil
	}
	day := int(now.Unix() / (24 * 60 * 60))
	return part{number: day%p.Nights + 1, of: p.Nights}, nil
}

// tryPackage runs gremlins for a part of a package and writes the verdict. The error says how the
// package falls short of its list.
func tryPackage(ctx context.Context, r runner, p *pack, part part, out io.Writer) error {
	found, err := r.find(ctx, p.Package)
	if err != nil {
		return err
	}
	files := part.files(found.covered())
	fmt.Fprintf(out, "%s: part %d/%d: %s\n", p.Package, part.number, part.of, strings.Join(files, " "))
	tried := report{}
	if len(files) > 0 {
		tried, err = r.try(ctx, p.Package, files)
		if err != nil {
			return err
		}
	}
	v, err := p.judge(r.root, found, tried)
	if err != nil {
		return err
	}
	v.write(out)
	return v.err()
}
