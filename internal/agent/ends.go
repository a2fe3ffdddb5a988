package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/buses"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// An agent that does not run cannot end its scopes. A command does it in its place, under its name
// and that of its run: readers ignore the events of a run after those of a later one.

// endsInFlight is how many ends a command sends at a time.
const endsInFlight = 64

// Ends are the ends of scopes that one run of an agent has observed.
type Ends struct {
	Cluster    string // name
	ClusterUID string
	Writer     string
	Run        string
	Epoch      uint64
	At         time.Time // of the events
	Scopes     []EndedScope
}

// EndedScope is a scope that nobody observes any more.
type EndedScope struct {
	Name            string
	Resource        *object.Resource
	ResourceVersion uint64 // up to which the agent had everything
	History         uint32
}

// SendEnds sends the ends of scopes to the bus of a configuration, and waits until the bus has
// them. All are of one cluster. sent, unless nil, is called for each scope that has ended, from any
// goroutine. embedded reports whether the bus is the embedded JetStream. If ctx ends before all are
// sent, the error says why the bus did not accept them.
func SendEnds(
	ctx context.Context, cfg *config.Config, embedded bool, all []Ends, sent func(*Ends, *EndedScope), log *slog.Logger,
) error {
	if len(all) == 0 {
		return nil
	}
	b, err := newBus(cfg, all[0].Cluster, embedded, nil, nil, log, publish.NewMetrics(nil))
	if err != nil {
		return ConfigError{err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failed := make(chan error, 1)
	go func() {
		err := b.run(ctx)
		cancel(err)
		failed <- err
	}()
	for i := range all {
		if err = sendEnds(ctx, b, cfg, &all[i], sent, log); err != nil {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), b.Ready())
	}
	cancel(nil)
	if ended := <-failed; ended != nil {
		return ended
	}
	return err
}

// sendEnds sends the ends of the scopes of one run.
func sendEnds(
	ctx context.Context, b *bus, cfg *config.Config, ends *Ends, sent func(*Ends, *EndedScope), log *slog.Logger,
) error {
	q := queue.New[*object.Delta](queue.Options{
		Events:        cfg.Queue.Events,
		Bytes:         int64(cfg.Queue.Bytes),
		InFlight:      publish.InFlight,
		InFlightBytes: int64(cfg.Queue.InFlightBytes),
	}, nil)
	encoder := encode.New(encode.Options{
		Cluster:    ends.Cluster,
		ClusterUID: ends.ClusterUID,
		Mode:       encode.Mode(cfg.Event.Mode),
		Epoch:      ends.Epoch,
		Writer:     ends.Writer,
		Run:        ends.Run,
	})
	o := b.options(cfg)
	o.DeadLetters = nil // an end among the dead letters ends nothing
	delta := func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value }
	dispatcher := publish.NewDispatcher(q, delta, encoder, b.Bus, o, log, nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return dispatcher.Run(ctx) })
	g.Go(func() error {
		defer q.Close()
		lanes, ctx := errgroup.WithContext(ctx)
		lanes.SetLimit(endsInFlight)
		for i := range ends.Scopes {
			s := &ends.Scopes[i]
			lanes.Go(func() error {
				event := &object.StreamEvent{
					Kind:            object.ScopeEnded,
					Scope:           s.Name,
					Resource:        s.Resource,
					ResourceVersion: s.ResourceVersion,
					History:         s.History,
					End:             object.Forgotten,
				}
				if err := store.Send(ctx, q.Lane(s.Name), event, ends.At); err != nil {
					return fmt.Errorf("the end of %s: %w", s.Name, err)
				}
				if sent != nil {
					sent(ends, s)
				}
				return nil
			})
		}
		return lanes.Wait()
	})
	return g.Wait()
}

// WritableBus is a bus of an agent that a command reads and writes as the agent would.
type WritableBus struct {
	Config   *config.Config
	Source   consume.Source
	Explain  func(error) error // adds advice to an error of Source.Read
	Embedded bool
}

// OpenWritable opens the bus of the options with the credentials of the agent. If the bus is the
// embedded JetStream, it is that of a running agent.
func (o *Options) OpenWritable() (*WritableBus, error) {
	cfg, err := o.LoadConfig()
	if err != nil {
		return nil, err
	}
	w := &WritableBus{Config: cfg, Embedded: o.IsEmbedded()}
	if w.Embedded {
		up := localBuses(o.DataDir)
		if len(up) == 0 {
			return nil, errors.New("no agent with an embedded JetStream runs here: " +
				"start one, or name the bus with --config or --bus")
		}
		url := up[0].URL
		if len(up) > 1 {
			err := fmt.Errorf("%d agents with an embedded JetStream run here: choose one with --data-dir", len(up))
			return nil, ConfigError{err}
		}
		chosen, ok := BusOf(url, o.DataDir, cfg.Bus)
		if !ok {
			return nil, fmt.Errorf("%s is the URL of no bus", url)
		}
		cfg.UseBus(chosen)
	}
	d, settings := cfg.Bus.Chosen()
	readable, ok := settings.(driver.Readable)
	if !ok {
		return nil, ConfigError{errors.New("the configured bus keeps no records: nothing can be ended there")}
	}
	r := &driver.Reading{
		Key:        "bus." + d.Name,
		ConfigFile: o.Config,
		Cluster:    cfg.Cluster,
		DeadLetter: cfg.DeadLetter.Of(d),
	}
	w.Source, w.Explain, err = buses.Reader(readable).Source(r)
	return w, err
}

// SendEnd sends the end of a scope of the checkpoint d to the bus of its agent, which does not run.
func (k *KeptCheckpoint) SendEnd(ctx context.Context, d *checkpoint.Document, scope string, c *checkpoint.Scope) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the name of this machine: %w", err)
	}
	last := d.Time // of the last run, whose name is not known. No later run begins before it.
	if last.IsZero() {
		last = d.Saved
	}
	at := time.Now()
	if at.Before(last) {
		at = last
	}
	resource := object.Resource{
		Group:      c.Group,
		Version:    c.Version,
		Name:       c.Resource,
		Kind:       c.Kind,
		Namespaced: c.Namespaced,
	}
	ended := EndedScope{
		Name:            scope,
		Resource:        &resource,
		ResourceVersion: c.ResourceVersion,
		History:         c.History,
	}
	ends := Ends{
		Cluster:    d.Cluster,
		ClusterUID: d.ClusterUID,
		Writer:     writerOf(d.ClusterUID, keptIn(&k.location, host), nodeOf(k.Config)),
		Run:        runOf(d.Epoch, last),
		Epoch:      d.Epoch,
		At:         at,
		Scopes:     []EndedScope{ended},
	}
	log := slog.New(terminal.NewHandler(terminal.Detect(k.stderr, os.Getenv), slog.LevelWarn))
	cfg := k.Config
	if k.options.IsEmbedded() {
		local, err := startLocalBus(ctx, k.options.DataDir, d.ClusterUID, "", &url.URL{}, log)
		if err != nil {
			return err
		}
		defer func() { _ = local.Close() }() // the bus has acknowledged the end
		own := *cfg
		cfg = &own
		cfg.Bus, err = busOfLocal(local, cfg.Bus)
		if err != nil {
			return err
		}
	}
	return SendEnds(ctx, cfg, k.options.IsEmbedded(), []Ends{ends}, nil, log)
}
