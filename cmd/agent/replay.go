package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/relay/replay"
	"github.com/kubecdc/kubecdc/internal/relay/replay/target"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/wording"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

type replayFlags struct {
	ask                                          askFlags
	target                                       target.Target
	namespaces, ops                              []string
	from, to, speed, cluster, position, logLevel string
	refused                                      string

	relay config.Relay // the selection of --namespace and --op
}

func newReplayCommand(stdout, stderr io.Writer) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --from MOMENT [--to MOMENT] --target TARGET [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Send the record between two moments again, to another bus",
		Long: `Send the record between two moments again: to another JetStream or Kafka, an HTTP receiver, a file or standard output.
The events keep their ids, times and contents. They are delivered at least once, and in order per object.

A snapshot of the first moment comes first: for each scope snapshot.started, a read of each object, snapshot.completed.
A consumer without history has a correct table from the beginning. A second run sends the same ids.

` + momentHelp + `

` + resourceHelp + `

--namespace and --op select events, as for relays. With --op, events about the stream are left out.

--speed 1 keeps the distances of the record, 10 is ten times as fast, max does not wait. The snapshot is always sent at
once. A Kafka partition that lags behind another one by a fetch (up to 4 MiB) is sent without distances.

--cluster changes the name of the cluster in the events, in their source and keys, and in subjects and topics. Use it if
consumers of the target also follow the live cluster. To them, an old event of the same source is a late copy. An old
snapshot may remove newer objects.

With --position, a replay that was killed continues when the command is repeated. The file stores the moments, and how
far the events are delivered. A target file is then continued; without --position it must not exist or be empty.

The target is refused if it is a log of the record itself. Credentials and settings of the target are those of the bus
in --target-config. If the target takes nothing for 15 seconds at the start, the command fails. Later it waits.

` + certaintyHelp + ` With --exact, nothing is sent then.`,
		Example: `  kubecdc replay --from 14:00 --to 14:10 --target stdout: | jq .type
  kubecdc replay deploy,cm -n shop --from 'yesterday 14:00' --to 'yesterday 15:00' --target file:shop.jsonl
  kubecdc replay --from 24h --target nats://staging:4222 --cluster drill --speed 10
  kubecdc replay --from 2026-11-20T00:00:00Z --target kafka://kafka-0:9092/audit --position audit.position
  kubecdc replay --config kubecdc.yaml --from rv:48211 --target https://audit.example/events --op created,deleted`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runReplay(cmd.Context(), &f, args, stdout, stderr)
		},
		ValidArgsFunction: func(
			cmd *cobra.Command, args []string, typed string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			f.narrow()
			return f.ask.completeObjects(cmd, args, typed)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "", "the first `moment`: its state is sent as a snapshot, and the events after it")
	fl.StringVar(&f.to, "to", "now", "the last `moment`")
	fl.StringVar(&f.target.URL, "target", "", "`target`: "+target.Forms())
	fl.StringVar(&f.target.Config, "target-config", "",
		"configuration `file` whose bus has the settings and credentials of the target")
	addLogs(cmd, &f.target.Access, "target-")
	fl.StringVar(&f.speed, "speed", "max", "`speed` of the record's time: 1, 10, 0.5, or max")
	fl.StringVar(&f.cluster, "cluster", "", "`name` of the cluster in the events that are sent (default: as it is)")
	fl.StringVar(&f.ask.cluster, "source-cluster", "", "`name` of the cluster to send, if the record has several")
	fl.StringVar(&f.ask.clusterUID, "source-cluster-uid", "",
		"`uid` of the cluster to send, or its beginning, if the record has several of one name")
	fl.StringVar(&f.position, "position", "", "`file` that stores how far the replay is, to continue it")
	fl.StringSliceVarP(&f.namespaces, "namespace", "n", nil,
		"only objects in these `namespaces`; patterns, ! before one excludes")
	fl.StringSliceVar(&f.ops, "op", nil, "only these `operations`: "+strings.Join(config.Operation("").Values(), ", "))
	fl.StringVar(&f.refused, "refused", string(config.RelayStop),
		"`what` to do with an event that the target rejects for good: stop or skip")
	levels := config.LogLevel("").Values()
	fl.StringVar(&f.logLevel, "log-level", "warn", "lowest `level` that is logged: "+strings.Join(levels, ", "))
	completeWords(cmd, "log-level", levels...)
	fl.BoolVar(&f.ask.exact, "exact", false,
		"send nothing and exit with code 3 unless the state at the first moment is exact")
	f.ask.bus.addBus(cmd)
	completeWords(cmd, "from", "10m", "1h", "24h")
	completeWords(cmd, "to", "now", "10m", "1h")
	completeWords(cmd, "speed", "1", "10", "max")
	completeWords(cmd, "op", config.Operation("").Values()...)
	completeWords(cmd, "refused", config.RelayRefused("").Values()...)
	_ = cmd.RegisterFlagCompletionFunc("namespace", f.ask.completeNamespaces) // fails for flags that do not exist
	return cmd
}

// narrow makes the source read one namespace alone if --namespace names no other.
func (f *replayFlags) narrow() {
	names := slices.Compact(slices.Clone(f.namespaces)) // a completion parses the flags twice, which repeats the names
	if len(names) == 1 && !strings.ContainsAny(names[0], "!*?") {
		f.ask.namespace = names[0]
	}
}

// runReplay resends a part of a record.
func runReplay(ctx context.Context, f *replayFlags, args []string, stdout, stderr io.Writer) error {
	if levels := config.LogLevel("").Values(); !slices.Contains(levels, f.logLevel) {
		return usageError{fmt.Errorf("--log-level: must be one of %s, got %q", strings.Join(levels, ", "), f.logLevel)}
	}
	o, err := f.options(stderr)
	if err != nil {
		return err
	}
	o.Asked = []string{
		strings.Join(args, " "), strings.Join(f.namespaces, ","), strings.Join(f.ops, ","), f.ask.cluster,
	}
	if f.ask.clusterUID != "" { // else the ids of the snapshot are those of a record with one cluster of a name
		o.Asked = append(o.Asked, f.ask.clusterUID)
	}
	o.Position, err = f.openPosition(ctx, args, o)
	if err != nil {
		return err
	}
	defer func() { _ = o.Position.Close() }() // it is only a lock
	if _, done := o.Position.Begun(); done {
		fmt.Fprintf(stderr, "The replay is complete, according to %s: delete that file to send it again.\n", f.position)
		return nil
	}
	f.ask.noPager = true
	return f.ask.answer(ctx, args, stdout, stderr, func(q *answers.Question) error {
		return f.replay(ctx, q, o, stdout, stderr)
	})
}

// replay resends the events of a question.
func (f *replayFlags) replay(
	ctx context.Context, q *answers.Question, o *replay.Options, stdout, stderr io.Writer,
) (err error) {
	o.Record = q.Record
	o.Selection = q.Wanted
	o.Stderr = q.Stderr
	o.Whole = f.wholeOf(q)
	if q.Record.HasSeveralLogs() {
		o.Copies, err = f.ask.bus.CopiesOf()
		if err != nil {
			return err
		}
	}
	var r *replay.Replay
	if err := q.During(ctx, func(ctx context.Context) error {
		r, err = replay.Prepare(ctx, *o)
		return err
	}); err != nil {
		return err
	}
	scopes, reading := r.Start()
	if err := q.JudgeMoment(ctx, o.From, scopes, reading); err != nil {
		return err
	}
	clusters := answer.Clusters(r.Clusters())
	if err := clusters.One("events", "source-cluster"); err != nil {
		return err
	}
	begun, _ := o.Position.Begun()
	cfg := config.Default()
	cfg.Log.Level = config.LogLevel(f.logLevel)
	log, _ := agent.NewLogger(cfg.Log, cfg.Log.Level.Slog(),
		terminal.Detect(terminal.NewLogWriter(ctx, stderr), os.Getenv))
	to, err := f.target.Open(ctx, &target.Options{
		Cluster:   cmp.Or(f.cluster, strings.Join(slices.Collect(maps.Values(clusters)), "")),
		Continues: begun,
		Record:    r.Logs(),
		Source:    f.sourceFile(),
		Stdout:    stdout,
		Log:       log,
	})
	if err != nil {
		return err
	}
	r.Split = to.Split
	if to.File != nil {
		r.Sync = to.File.Sync
	}
	return errors.Join(f.send(ctx, q, r, to.Target, o, log), to.Close())
}

// wholeOf returns a function that reports whether the replay has all events of a scope, or of all
// scopes of a resource ("").
func (f *replayFlags) wholeOf(q *answers.Question) func(resource, scope string) bool {
	return func(resource, scope string) bool {
		s := q.Wanted
		inNamespace := &config.Relay{}
		if s.Namespace != "" {
			inNamespace.Namespaces = config.Namespaces{config.NamespacePattern(s.Namespace)}
		}
		selected := len(s.Resources) == 0 || slices.ContainsFunc(s.Resources, func(r record.Resource) bool {
			return r.String() == resource && r.Names == nil
		})
		switch {
		case !selected, s.Selector != nil && !s.Selector.Empty(), !inNamespace.Copies(resource, scope),
			!f.relay.Copies(resource, scope):
			return false
		case q.Record.Reads == nil:
			return true
		}
		return agent.HasScope(func(o *consume.Objects) bool {
			_, all := q.Record.Reads([]consume.Objects{*o}, consume.AllEvents, s.Cluster)
			return all
		}, resource, scope)
	}
}

// sourceFile returns the file of the record, "" if the record is on a bus.
func (f *replayFlags) sourceFile() string {
	path, ok := strings.CutPrefix(f.ask.bus.Bus, "file:")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(path, "//")
}

// options parses the flags.
func (f *replayFlags) options(stderr io.Writer) (*replay.Options, error) {
	switch {
	case f.from == "":
		return nil, usageError{errors.New("--from is missing: name the moment at which to begin, such as --from 1h")}
	case f.target.URL == "" && f.target.Config == "":
		return nil, usageError{errors.New("--target is missing: want " + target.Forms())}
	case f.target.URL == "stdout:" && f.position != "":
		return nil, usageError{
			errors.New("--position: standard output cannot be continued; name a file: --target file:PATH"),
		}
	}
	o := &replay.Options{Refused: relay.Refused(f.refused), Cluster: f.cluster}
	var err error
	o.From, o.To, err = readSpan(f.from, f.to, stderr)
	if err != nil {
		return nil, err
	}
	o.Speed, err = readSpeed(f.speed)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(config.RelayRefused("").Values(), f.refused) {
		return nil, usageError{fmt.Errorf("--refused %q: want stop or skip", f.refused)}
	}
	r := &f.relay
	*r = config.Relay{}
	for _, text := range f.namespaces {
		var p config.NamespacePattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return nil, usageError{fmt.Errorf("--namespace: %w", err)}
		}
		r.Namespaces = append(r.Namespaces, p)
	}
	for _, op := range f.ops {
		if !slices.Contains(config.Operation("").Values(), op) {
			return nil, usageError{
				fmt.Errorf("--op %q: want %s", op, strings.Join(config.Operation("").Values(), ", ")),
			}
		}
		r.Operations = append(r.Operations, config.Operation(op))
	}
	o.Match = agent.MatchRelay(r, "")
	f.narrow()
	return o, nil
}

// readSpan parses --from and --to of a replay.
func readSpan(from, to string, stderr io.Writer) (first, last timeline.Moment, err error) {
	now := time.Now()
	first, err = timeline.ParseMoment(from, now)
	if err != nil {
		return first, last, usageError{fmt.Errorf("--from: %w", err)}
	}
	last, err = timeline.ParseMoment(to, now)
	if err != nil {
		return first, last, usageError{fmt.Errorf("--to: %w", err)}
	}
	switch {
	case first.IsNow():
		return first, last, usageError{errors.New("--from now: nothing follows it; name an earlier moment")}
	case first.After(last):
		return first, last, usageError{fmt.Errorf("--from %s is after --to %s: exchange them", first, last)}
	}
	remark(stderr, from, now)
	remark(stderr, to, now)
	return first, last, nil
}

func readSpeed(text string) (float64, error) {
	if text == "max" {
		return 0, nil
	}
	speed, err := strconv.ParseFloat(text, 64)
	if err != nil || !(speed > 0 && speed <= 1e6) {
		return 0, usageError{fmt.Errorf("--speed %q: want a number above 0, such as 1, 10 or 0.5, or max", text)}
	}
	return speed, nil
}

// openPosition opens the position file, if there is one, and applies its moments.
func (f *replayFlags) openPosition(ctx context.Context, args []string, o *replay.Options) (*replay.Position, error) {
	if f.position == "" {
		return nil, nil
	}
	given := map[string]string{
		"resources":            strings.Join(args, " "),
		"--namespace":          strings.Join(f.namespaces, ","),
		"--op":                 strings.Join(f.ops, ","),
		"--from":               f.from,
		"--to":                 f.to,
		"--source-cluster":     f.ask.cluster,
		"--source-cluster-uid": f.ask.clusterUID,
		"--cluster":            f.cluster,
		"--config":             f.ask.bus.Config,
		"--target-config":      f.target.Config,
	}
	for _, of := range catalog.Flags() {
		if of.Log {
			given["--"+of.Name] = f.ask.bus.access.Flags[of.Name]
			given["--target-"+of.Name] = f.target.Access.Flags[of.Name]
		}
	}
	p, err := replay.OpenPosition(ctx, f.position, given,
		map[string]string{"--bus": f.ask.bus.Bus, "--target": f.target.URL}, o.From.String(), o.To.String())
	if err != nil {
		return nil, usageError{fmt.Errorf("--position %w", err)}
	}
	begin, end := p.Moments()
	o.From, o.To, err = readSpan(begin, end, io.Discard)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--position %s: %w", f.position, err), p.Close())
	}
	return p, nil
}

// send runs the replay and prints its result.
func (f *replayFlags) send(
	ctx context.Context, q *answers.Question, r *replay.Replay, to relay.Target, o *replay.Options, log *slog.Logger,
) error {
	began := time.Now()
	err := r.Run(ctx, to, log)
	sent, took := r.Sent(), time.Since(began)
	if err != nil {
		advice := ""
		if f.position != "" {
			advice = "; repeat the command to continue"
		}
		return fmt.Errorf("the replay is not complete%s: %w", advice, err)
	}
	scopes, reading := r.End()
	q.SayMoment(o.To, scopes, reading)
	fmt.Fprintf(q.Stderr, "sent %s events in %s, %s a second\n", wording.Count(sent), took.Round(time.Millisecond),
		wording.Count(int(float64(sent)/took.Seconds())))
	return nil
}
