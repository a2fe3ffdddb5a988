package main

import (
	"cmp"
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
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const (
	exitFailed = 1
	exitUsage  = 2
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if part, ok := parts[args[0]]; ok {
			if err := part(ctx, args[1:], stdout); err != nil {
				fmt.Fprintln(stderr, "bench "+args[0]+":", err)
				return exitFailed
			}
			return 0
		}
	}
	b, output, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	if err = b.measure(ctx, output, stdout); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return 0
}

// measure runs the requested measurements and prints the results, even if an error ended them
// early.
func (b *bench) measure(ctx context.Context, output string, stdout io.Writer) error {
	var report interface{ print(w io.Writer) error }
	var err error
	switch {
	case len(b.busNames) > 0:
		var r *BusReport
		r, err = b.buses(ctx, b.busNames)
		if r != nil && len(r.Buses) > 0 {
			report = r
		}
	case slices.Equal(b.sections, []string{crds}):
		var r *DefinitionsReport
		r, err = b.definitions(ctx)
		if r != nil && len(r.Runs) > 0 {
			report = r
		}
	case slices.Equal(b.sections, []string{questions}):
		var r *PastReport
		r, err = b.past(ctx)
		if len(r.Asked) > 0 {
			report = r
		}
		if err == nil && b.check {
			err = r.check()
		}
	case slices.Equal(b.sections, []string{filters}):
		var r *FilterReport
		r, err = b.filters(ctx)
		if r != nil && len(r.Costs) > 0 {
			report = r
		}
	default:
		var r *Report
		r, err = b.all(ctx)
		if len(r.Runs) > 0 || len(r.Deep) > 0 {
			report = r
		}
	}
	switch {
	case report == nil:
		return err
	case output == "json":
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return errors.Join(err, e.Encode(report))
	default:
		return errors.Join(err, report.print(stdout))
	}
}

// Sections that run only on request: they have reports of their own.
const (
	crds      = "crds"    // a start with many custom resources
	filters   = "filters" // the cost of filters
	questions = "record"  // of the past
)

// sections in the order in which they run.
var sections = []string{"throughput", "deep", "scale", "heap", "blocked", "latency"}

func parse(args []string, stderr io.Writer) (*bench, string, error) {
	b := &bench{stderr: stderr, began: time.Now()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var output, only, against, ways, records string
	flags.BoolVar(&b.quick, "quick", false, "throughput and deep objects only, about two minutes")
	flags.StringVar(&b.agent, "agent", filepath.Join("..", "bin", "kubecdc"),
		"the kubecdc binary, as make build leaves it")
	flags.StringVar(&output, "o", "table", "table or json")
	flags.StringVar(&only, "only", "",
		"sections to run, of "+strings.Join(sections, ",")+" (default all), or "+crds+", "+filters+" or "+questions+
			" alone")
	flags.StringVar(&against, "contestants", "", "contestants to run, of "+everyone+" (default all)")
	flags.StringVar(&ways, "buses", "",
		"instead of all else, the way to each bus beside its client used bare: all, or of "+strings.Join(busNames, ","))
	flags.IntVar(&b.pods, "pods", 1000, "pods, where their number is not what is measured")
	flags.IntVar(&b.crds, "crds", 1000, "definitions of --only crds")
	flags.IntVar(&b.changes, "changes", 200_000, "changes of the shorter record of --only record")
	flags.StringVar(&records, "records", "nats,kafka", "buses of --only record")
	flags.BoolVar(&b.check, "check", false, "fail if --only record misses a goal that does not depend on the machine")
	flags.IntVar(&b.objects, "objects", 20_000, "objects of --only record")
	flags.IntVar(&b.updates, "updates", 0, "updates per run (default 50000, 30000 with --quick, 20000 with --buses)")
	flags.IntVar(&b.repeat, "repeat", 0, "repetitions; the median counts (default 3, 2 with --quick)")
	flags.StringVar(&b.dir, "dir", "", "where the bus keeps its files for the time being (default the system's; 2 GB)")
	flags.BoolVar(&b.keep, "keep", false, "keep the directories of the runs, for their logs")
	if err := flags.Parse(args); err != nil {
		return nil, "", err
	}
	if flags.NArg() > 0 {
		return nil, "", fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if against == "" {
		against = everyone
	}
	if output != "table" && output != "json" {
		return nil, "", fmt.Errorf("-o: must be table or json, got %q", output)
	}
	b.records = strings.Split(records, ",")
	if slices.ContainsFunc(b.records, func(bus string) bool { return bus != "nats" && bus != "kafka" }) {
		return nil, "", fmt.Errorf("--records: want nats, kafka or both, got %q", records)
	}
	b.sections = sections
	if b.quick {
		b.sections = sections[:2]
	}
	if only != "" {
		b.sections = strings.Split(only, ",")
	}
	for _, s := range b.sections {
		if !slices.Contains(sections, s) && only != crds && only != filters && only != questions {
			return nil, "",
				fmt.Errorf("--only: %q is none of %s; %s, %s and %s go alone", s, strings.Join(sections, ","), crds,
					filters, questions)
		}
	}
	if ways != "" {
		var err error
		b.busNames, err = chooseBuses(ways)
		if err != nil {
			return nil, "", err
		}
		b.updates = cmp.Or(b.updates, 20_000)
	}
	if b.updates == 0 {
		b.updates = pick(b.quick, 30_000, 50_000)
	}
	if b.repeat == 0 && only == crds {
		b.repeat = 2 // and once more while the API server rejects requests
	}
	if b.repeat == 0 && only == questions {
		b.repeat = 5
	}
	if b.repeat == 0 {
		b.repeat = pick(b.quick, 2, 3)
	}
	var err error
	b.self, err = os.Executable()
	if err != nil {
		return nil, "", err
	}
	b.contestants, err = b.choose(against)
	return b, output, err
}

func pick[T any](yes bool, this, that T) T {
	if yes {
		return this
	}
	return that
}
