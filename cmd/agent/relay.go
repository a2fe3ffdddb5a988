package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config"
)

type relayFlags struct {
	config, cluster              string
	bus, to, name, start, refuse string
	format                       string
	dataDir                      string
	namespaces, ops              []string
	access                       driver.Access
	agent.Overrides
}

// areSet reports whether flags describe a relay.
func (f *relayFlags) areSet() bool {
	words := []string{f.bus, f.dataDir, f.to, f.name, f.start, f.refuse, f.format}
	isWord := slices.ContainsFunc(words, func(word string) bool { return word != "" })
	return isWord || len(f.access.Flags) > 0 || len(f.namespaces) > 0 || len(f.ops) > 0
}

func newRelayCommand(stdout, stderr io.Writer) *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{
		Use:   "relay {--config FILE [NAME...] | --bus URL --to TARGET --name NAME [RESOURCE[,RESOURCE...]]}",
		Short: "Forward records from a bus to HTTP, Slack, stdout or another bus",
		Long: `Forward records from a JetStream stream or Kafka topics to a receiver of CloudEvents over HTTP, a channel of Slack,
standard output, or another JetStream or Kafka. Selected records are delivered at least once, in order per object.

A relay stores its position under its name on the bus that it reads: in the key-value bucket kubecdc-relay of JetStream,
or as the consumer group kubecdc-relay-NAME of Kafka. A receiver that is slow or unavailable delays neither the agent
nor other relays. Nothing is lost as long as the bus keeps the records. Run a relay of one name only once: on JetStream
the one that was started last takes over, and the other ends.

With --config, the command runs all relays of the file's list "relays", or the named ones. They read the file's bus, and
/metrics and /readyz are served at its server.address. 'kubecdc run' with the same file runs them beside the agent: then
do not run them here too.

Without --config, flags describe one relay. Resources are written as in the file: deployments.apps, pods,
'*.networking.k8s.io'. Slack's target is a file with the URL of an incoming webhook, which is a secret.`,
		Example: `  kubecdc relay --config kubecdc.yaml
  kubecdc relay --config kubecdc.yaml slack-payments
  kubecdc relay --bus nats://127.0.0.1:4222 --to slack:/etc/kubecdc/webhook --name deploys deployments.apps --op updated
  kubecdc relay --bus kafka://kafka-0:9092/kubecdc.prod --to https://hooks.example/kubecdc --name hook
  kubecdc relay --bus nats://127.0.0.1:4222 --to stdout: --name audit --start beginning >> audit.jsonl
  kubecdc relay status --config kubecdc.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := f.load(args)
			if err != nil {
				return err
			}
			// Otherwise a closed pipe would end the process by the signal before the cursor is
			// saved.
			signal.Ignore(syscall.SIGPIPE)
			return agent.RunRelays(cmd.Context(), cfg, &agent.RelayProcess{
				Serve:  f.config != "",
				Build:  build(),
				Stdout: stdout,
				Stderr: stderr,
			})
		},
	}
	fl := cmd.Flags()
	addRelayFlags(cmd, &f)
	addLogLevel(cmd, &f.Overrides)
	fl.StringVar(&f.to, "to", "", "`target`: "+catalog.URLs(catalog.Targets()))
	fl.StringVar(&f.name, "name", "", "`name` of the relay, under which its position is stored")
	fl.StringVar(&f.start, "start", "", "`where` to begin the first time: live or beginning (default live)")
	fl.StringVar(&f.refuse, "refused", "",
		"`what` to do with a record that the target rejects for good: stop or skip (default stop)")
	fl.StringVar(&f.format, "format", "",
		"`form` of the output: events, or with Kafka debezium, rows of a table (default events)")
	fl.StringSliceVarP(&f.namespaces, "namespace", "n", nil,
		"only objects in these `namespaces`; patterns, ! before one excludes")
	fl.StringSliceVar(&f.ops, "op", nil, "only these `operations`: "+strings.Join(config.Operation("").Values(), ", "))
	completeWords(cmd, "start", config.RelayStart("").Values()...)
	completeWords(cmd, "refused", config.RelayRefused("").Values()...)
	completeWords(cmd, "format", config.RelayFormat("").Values()...)
	completeWords(cmd, "op", config.Operation("").Values()...)
	cmd.AddCommand(newRelayStatusCommand(stdout))
	return cmd
}

// addRelayFlags adds the flags that select the records.
func addRelayFlags(cmd *cobra.Command, f *relayFlags) {
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `file`")
	addOverrides(cmd, &f.Overrides)
	cmd.Flags().
		StringVar(&f.cluster, "cluster", "",
			"only records of this `cluster`, and {cluster} in topics and subjects (default: that of the file)")
	cmd.Flags().StringVar(&f.bus, "bus", "", "`URL` of the bus to read: "+catalog.URLs(catalog.Readable()))
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "in place of --bus: `directory` of the kubecdc that runs here")
	addLogs(cmd, &f.access, "")
}

// load returns the configuration with only the selected relays.
func (f *relayFlags) load(args []string) (*config.Config, error) {
	switch {
	case f.config != "" && f.areSet():
		return nil, usageError{
			errors.New(
				"--config describes relays completely: remove the other flags, and name relays of the file as arguments"),
		}
	case f.config == "":
		return f.describe(args)
	}
	cfg, err := (&agent.Options{Config: f.config, Overrides: f.Overrides}).LoadConfig()
	switch {
	case err != nil:
		return nil, err
	case len(cfg.Relays) == 0:
		return nil, usageError{
			fmt.Errorf("%s: has no relays: list them under the key relays, see docs/guides/relay.md", f.config),
		}
	}
	cfg.Cluster = cmp.Or(f.cluster, cfg.Cluster)
	if len(args) == 0 {
		return cfg, nil
	}
	names := make([]string, len(cfg.Relays))
	for i := range cfg.Relays {
		names[i] = cfg.Relays[i].Name
	}
	for _, name := range args {
		if !slices.Contains(names, name) {
			return nil, usageError{
				fmt.Errorf("%s: has no relay %q, there are %s", f.config, name, strings.Join(names, ", ")),
			}
		}
	}
	cfg.Relays = slices.DeleteFunc(cfg.Relays, func(r config.Relay) bool { return !slices.Contains(args, r.Name) })
	return cfg, nil
}

// busURL returns the URL of the bus to read: the named one, or that of the kubecdc with the named
// directory.
func (f *relayFlags) busURL() (string, error) {
	switch {
	case f.dataDir == "":
		return f.bus, nil
	case f.bus != "":
		return "", usageError{errors.New("--data-dir takes the place of --bus: remove one or the other")}
	}
	return agent.FindBus(f.dataDir, io.Discard)
}

// describe builds a configuration from flags.
func (f *relayFlags) describe(args []string) (*config.Config, error) {
	busURL, err := f.busURL()
	if err != nil {
		return nil, err
	}
	for _, needed := range []struct{ flag, value string }{{"bus", busURL}, {"to", f.to}, {"name", f.name}} {
		if needed.value == "" {
			return nil, usageError{
				fmt.Errorf("--%s is missing: want --config FILE, or --bus URL --to TARGET --name NAME", needed.flag),
			}
		}
	}
	cfg, err := (&agent.Options{Config: f.config, Overrides: f.Overrides}).LoadConfig()
	if err != nil {
		return nil, err
	}
	cfg.Cluster = cmp.Or(f.cluster, cfg.Cluster)
	b, ok := agent.BusOf(busURL, f.dataDir, nil)
	_, settings := b.Chosen()
	bus, readable := settings.(driver.Readable)
	if !ok || !readable {
		return nil, usageError{
			fmt.Errorf("--bus: must be %s: a relay reads what a bus keeps", catalog.URLs(catalog.Readable())),
		}
	}
	if err := bus.SetAccess(&f.access); err != nil {
		return nil, usageError{err}
	}
	cfg.UseBus(b)
	r := config.Relay{
		Name:    f.name,
		Start:   cmp.Or(config.RelayStart(f.start), config.RelayLive),
		Refused: cmp.Or(config.RelayRefused(f.refuse), config.RelayStop),
		Format:  cmp.Or(config.RelayFormat(f.format), config.FormatEvents),
	}
	r.To, ok = config.TargetOf(f.to)
	if !ok {
		// not repeated: it may be a secret
		return nil, usageError{errors.New("--to: must be " + catalog.URLs(catalog.Targets()))}
	}
	for _, arg := range args {
		for text := range strings.SplitSeq(arg, ",") {
			var p config.ResourcePattern
			if err := p.UnmarshalText([]byte(text)); err != nil {
				return nil, usageError{fmt.Errorf("%q: %w", text, err)}
			}
			r.Resources = append(r.Resources, p)
		}
	}
	for _, text := range f.namespaces {
		var p config.NamespacePattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return nil, usageError{fmt.Errorf("--namespace: %w", err)}
		}
		r.Namespaces = append(r.Namespaces, p)
	}
	for _, op := range f.ops {
		r.Operations = append(r.Operations, config.Operation(op))
	}
	cfg.Relays = []config.Relay{r}
	if err := cfg.Validate(); err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}
