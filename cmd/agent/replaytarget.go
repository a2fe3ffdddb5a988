package main

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
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const replayTargets = "nats://host:port, tls://host:port, kafka://host:port/topic, http(s)://host/path, file:PATH or stdout:"

// replayTarget has the flags that name the target of a replay.
type replayTarget struct {
	url, config, stream string
}

// openTarget is an open target.
type openTarget struct {
	relay.Target
	file *os.File // nil if the target is not a file
}

// Close closes the file, if there is one.
func (t *openTarget) Close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// errSource means that a replay would write to its own source.
var errSource = errors.New("--target is a log of the record itself, and the replay would read what it has written: name another stream, topic or file")

// targetOptions describe the replay that opens a target.
type targetOptions struct {
	cluster   string // in subjects and topics
	continues bool   // an earlier run has sent events
	record    []consume.Log
	source    string // the file that is read, "" if none
	stdout    io.Writer
	log       *slog.Logger
}

// open opens the target. It returns an error if the target is a log of the record.
func (t *replayTarget) open(ctx context.Context, o *targetOptions) (*openTarget, error) {
	cfg, to := config.Default(), new(openTarget)
	cfg.Bus, _ = config.BusOf("stdout:", nil)
	var err error
	switch path, isFile := strings.CutPrefix(t.url, "file:"); {
	case isFile:
		to.file, err = openTargetFile(strings.TrimPrefix(path, "//"), o)
		o.stdout = to.file
	case t.url == "stdout:" || t.url == "-":
		if f, ok := o.stdout.(*os.File); ok && isSameFile(f, o.source) {
			err = usageError{errSource}
		}
	default:
		if cfg, err = t.load(); err == nil {
			err = o.check(ctx, cfg)
		}
	}
	if err != nil {
		return nil, err
	}
	if to.Target, err = agent.NewRelayTarget(cfg, config.RelayTarget(cfg.Bus), o.cluster, o.stdout, nil, o.log); err != nil {
		return nil, errors.Join(usageError{fmt.Errorf("--target: %w", err)}, to.Close())
	}
	return to, nil
}

// check returns an error if the target bus has a log of the record.
func (o *targetOptions) check(ctx context.Context, cfg *config.Config) error {
	d, settings := cfg.Bus.Chosen()
	bus, ok := settings.(driver.Readable)
	if !ok {
		return nil
	}
	logs, err := bus.Logs(ctx, &driver.Reading{Key: "bus." + d.Name, Cluster: cmp.Or(o.cluster, cfg.Cluster), DeadLetter: cfg.DeadLetter.Of(d)})
	if err != nil {
		return usageError{fmt.Errorf("--target: %w", err)}
	}
	if slices.ContainsFunc(logs, func(l consume.Log) bool { return l.ID != "" && slices.Contains(o.record, l) }) {
		return usageError{errSource}
	}
	return nil
}

// load returns a configuration whose bus is the target.
func (t *replayTarget) load() (*config.Config, error) {
	cfg := config.Default()
	if t.config != "" {
		var err error
		if cfg, err = (&tailFlags{config: t.config}).configured(); err != nil {
			return nil, err
		}
	}
	if t.url != "" {
		b, err := agent.BusFromURL(t.url, cfg.Bus)
		if err != nil {
			return nil, usageError{errors.New("--target: want " + replayTargets)} // not repeated: it may be a secret
		}
		cfg.UseBus(b)
	}
	if t.stream != "" {
		_, settings := cfg.Bus.Chosen()
		bus, ok := settings.(driver.Readable)
		if !ok || bus.SetAccess(&driver.Access{Stream: t.stream}) != nil {
			return nil, usageError{errors.New("--target-stream is one of JetStream: leave it out, or name a NATS server with --target")}
		}
	}
	if cfg.Bus.Stdout() {
		return nil, usageError{fmt.Errorf("--target-config %s: its bus is standard output, name that as --target stdout: instead", t.config)}
	}
	cfg.Relays = nil
	if err := cfg.Validate(); err != nil {
		return nil, usageError{fmt.Errorf("--target: %w", err)}
	}
	return cfg, nil
}

func openTargetFile(path string, o *targetOptions) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	if isSameFile(f, o.source) {
		return nil, errors.Join(usageError{errSource}, f.Close())
	}
	if err := trimLastLine(f, o.continues); err != nil {
		return nil, errors.Join(usageError{fmt.Errorf("--target file:%s: %w", path, err)}, f.Close())
	}
	return f, nil
}

// trimLastLine removes a partial last line of a killed writer. Unless a replay continues, a file with content is an error.
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
