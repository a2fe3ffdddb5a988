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

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	publishstdout "github.com/kubecdc/kubecdc/internal/publish/stdout"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const replayTargets = "nats://host:port, tls://host:port, kafka://host:port/topic, http(s)://host/path, file:PATH or stdout:"

// replayTarget is the target of a replay, as the flags name it.
type replayTarget struct {
	url, config, stream string
}

// openTarget is a target that is ready to run.
type openTarget struct {
	relay.Target
	file *os.File // nil: it is none
}

// Close closes the file of the target.
func (t *openTarget) Close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// errSource says that a replay would write to what it reads.
var errSource = errors.New("--target is a log of the record itself, and the replay would read what it has written: name another stream, topic or file")

// targetOptions say for whom a target is opened.
type targetOptions struct {
	cluster   string // in subjects and topics
	continues bool   // an earlier run has sent something
	record    []consume.Log
	source    string // the file that is read; "": none
	stdout    io.Writer
	log       *slog.Logger
}

// open opens the target. It is an error if that is a log of the record.
func (t *replayTarget) open(ctx context.Context, o *targetOptions) (*openTarget, error) {
	if path, ok := strings.CutPrefix(t.url, "file:"); ok {
		return openTargetFile(strings.TrimPrefix(path, "//"), o)
	}
	if t.url == "stdout:" || t.url == "-" {
		if f, ok := o.stdout.(*os.File); ok && isSameFile(f, o.source) {
			return nil, usageError{errSource}
		}
		return &openTarget{Target: relay.NewWriter(publishstdout.New(o.stdout, nil))}, nil
	}
	cfg, err := t.load()
	if err != nil {
		return nil, err
	}
	logs, err := targetLogs(ctx, cfg, cmp.Or(o.cluster, cfg.Cluster))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(logs, func(l consume.Log) bool {
		return l.ID != "" && slices.ContainsFunc(o.record, func(r consume.Log) bool { return r.Name == l.Name && r.ID == l.ID })
	}) {
		return nil, usageError{errSource}
	}
	target, err := newRelayTarget(cfg, config.RelayTarget(cfg.Bus), o.cluster, o.stdout, nil, o.log)
	if err != nil {
		return nil, usageError{fmt.Errorf("--target: %w", err)}
	}
	return &openTarget{Target: target}, nil
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
		b, err := flagBus(t.url, cfg.Bus)
		if err != nil {
			return nil, usageError{errors.New("--target: want " + replayTargets)} // it is not repeated: it may be a secret
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

// openTargetFile opens a file to append to.
func openTargetFile(path string, o *targetOptions) (*openTarget, error) {
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
	return &openTarget{relay.NewWriter(publishstdout.New(f, nil)), f}, nil
}

// trimLastLine removes the part of a line with which a file ends if its writer was killed. It is an error if the file has lines of something else.
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

// isSameFile reports whether an open file is the one of a path.
func isSameFile(f *os.File, path string) bool {
	if path == "" {
		return false
	}
	a, err := f.Stat()
	b, missing := os.Stat(path)
	return err == nil && missing == nil && os.SameFile(a, b)
}

// targetLogs returns the logs of a bus that exist.
func targetLogs(ctx context.Context, cfg *config.Config, cluster string) ([]consume.Log, error) {
	d, settings := cfg.Bus.Chosen()
	bus, ok := settings.(driver.Readable)
	if !ok {
		return nil, nil
	}
	logs, err := bus.Logs(ctx, &driver.Reading{Key: "bus." + d.Name, Cluster: cluster, DeadLetter: cfg.DeadLetter.Of(d)})
	if err != nil {
		return nil, usageError{fmt.Errorf("--target: %w", err)}
	}
	return logs, nil
}
