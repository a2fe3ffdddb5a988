// Package target opens the target of a replay: another bus, an HTTP receiver, a file or
// standard output. It refuses a log of the record itself, because the replay would read its own
// output.
package target

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/buses"
	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Forms are the forms of a URL, for people.
func Forms() string { return catalog.URLs(catalog.Buses()) + ", or file:PATH" }

// Target names a target.
type Target struct {
	URL    string
	Config string // file whose bus has the settings and credentials of the target; "" without one
	Access driver.Access
}

// Opened is an open target.
type Opened struct {
	relay.Target
	File *os.File // nil if the target is not a file
	// Split reports whether the target has logs that are for one namespace each.
	Split bool
}

// Close closes the file, if there is one.
func (o *Opened) Close() error {
	if o.File == nil {
		return nil
	}
	return o.File.Close()
}

// errSource means that a replay would write to its own source.
var errSource = errors.New(
	"--target is a log of the record itself, and the replay would read its own output: name another stream, topic or file")

// Options describe the replay that opens a target.
type Options struct {
	Cluster   string // in subjects and topics
	Continues bool   // an earlier run has sent events
	Record    []consume.Log
	Source    string // the file that is read, "" if none
	Stdout    io.Writer
	Log       *slog.Logger
}

// Open opens the target. It returns an error if the target is a log of the record.
func (t *Target) Open(ctx context.Context, o *Options) (*Opened, error) {
	cfg, to := config.Default(), new(Opened)
	cfg.Bus, _ = config.BusOf("stdout:", nil)
	var err error
	switch path, isFile := strings.CutPrefix(t.URL, "file:"); {
	case isFile:
		to.File, err = openTargetFile(strings.TrimPrefix(path, "//"), o)
		o.Stdout = to.File
	case t.URL == "stdout:" || t.URL == "-":
		if f, ok := o.Stdout.(*os.File); ok && isSameFile(f, o.Source) {
			err = agent.ConfigError{Err: errSource}
		}
	default:
		cfg, err = t.load()
		if err == nil {
			err = o.check(ctx, cfg)
		}
	}
	if err != nil {
		return nil, err
	}
	to.Target, err = agent.NewRelayTarget(cfg, config.RelayTarget(cfg.Bus), o.Cluster, o.Stdout, nil, o.Log)
	if err != nil {
		return nil, errors.Join(agent.ConfigError{Err: fmt.Errorf("--target: %w", err)}, to.Close())
	}
	to.Split = agent.SplitsNamespaces(config.RelayTarget(cfg.Bus))
	return to, nil
}

// check returns an error if the target bus has a log of the record.
func (o *Options) check(ctx context.Context, cfg *config.Config) error {
	d, settings := cfg.Bus.Chosen()
	bus, ok := buses.Of(settings).(driver.Reader)
	if !ok {
		return nil
	}
	logs, err := bus.Logs(ctx, &driver.Reading{
		Key:        "bus." + d.Name,
		Cluster:    cmp.Or(o.Cluster, cfg.Cluster),
		DeadLetter: cfg.DeadLetter.Of(d),
	})
	if err != nil {
		return agent.ConfigError{Err: fmt.Errorf("--target: %w", err)}
	}
	if slices.ContainsFunc(logs, func(l consume.Log) bool { return l.ID != "" && slices.Contains(o.Record, l) }) {
		return agent.ConfigError{Err: errSource}
	}
	return nil
}

// load returns a configuration whose bus is the target.
func (t *Target) load() (*config.Config, error) {
	cfg := config.Default()
	if t.Config != "" {
		var err error
		cfg, err = (&agent.Options{Config: t.Config}).LoadConfig()
		if err != nil {
			return nil, err
		}
	}
	if t.URL != "" {
		b, err := agent.BusFromURL(t.URL, cfg.Bus)
		if err != nil {
			// not repeated: it may be a secret
			return nil, agent.ConfigError{Err: errors.New("--target: want " + Forms())}
		}
		cfg.UseBus(b)
	}
	if flag := t.Access.Given(); flag != "" {
		_, settings := cfg.Bus.Chosen()
		bus, ok := settings.(driver.Readable)
		if !ok || bus.SetAccess(&t.Access) != nil {
			return nil, agent.ConfigError{
				Err: fmt.Errorf("--target-%s does not apply to the target: remove it, or name another --target", flag),
			}
		}
	}
	if cfg.Bus.Stdout() {
		return nil, agent.ConfigError{
			Err: fmt.Errorf("--target-config %s: its bus is standard output: use --target stdout: instead", t.Config),
		}
	}
	cfg.Relays = nil
	if err := cfg.Validate(); err != nil {
		return nil, agent.ConfigError{Err: fmt.Errorf("--target: %w", err)}
	}
	return cfg, nil
}

func openTargetFile(path string, o *Options) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	if isSameFile(f, o.Source) {
		return nil, errors.Join(agent.ConfigError{Err: errSource}, f.Close())
	}
	if err := trimLastLine(f, o.Continues); err != nil {
		return nil, errors.Join(agent.ConfigError{Err: fmt.Errorf("--target file:%s: %w", path, err)}, f.Close())
	}
	return f, nil
}

// trimLastLine removes a partial last line of a killed writer. Unless a replay continues, a file
// with content is an error.
func trimLastLine(f *os.File, continues bool) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	if !continues {
		return errors.New("it exists and is not empty: name another file, or continue a replay with --position")
	}
	const block = 64 << 10
	for end := info.Size(); end > 0; end -= block {
		from := max(end-block, 0)
		part := make([]byte, end-from)
		if _, err := f.ReadAt(part, from); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return f.Truncate(from + int64(i) + 1)
		}
	}
	return f.Truncate(0)
}

func isSameFile(f *os.File, path string) bool {
	if path == "" {
		return false
	}
	a, err := f.Stat()
	b, missing := os.Stat(path)
	return err == nil && missing == nil && os.SameFile(a, b)
}
