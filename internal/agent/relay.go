package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/bus/buses"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/relay/debezium"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// NewRelay returns one relay of the configuration, for a single run. cluster is the name of the
// cluster whose records it relays, "" for the records of every cluster on the bus.
func NewRelay(
	cfg *config.Config, r *config.Relay, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger,
	m *relay.Metrics,
) (*relay.Relay, error) {
	sub, err := NewRelaySubscription(cfg, r, cluster, log)
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", r.Name, err)
	}
	target, err := targetOf(cfg, r, cluster, stdout, fence, log.With("relay", r.Name))
	if err != nil {
		return nil, fmt.Errorf("relay %s: to: %w", r.Name, err)
	}
	return relay.New(relay.Options{
		Name:         r.Name,
		Subscription: sub,
		Target:       target,
		Match:        MatchRelay(r, cluster),
		Whole:        wholeOf(r, sub),
		Refused:      relay.Refused(r.Refused),
	}, log, m), nil
}

// wholeOf returns relay.Options.Whole of a relay.
func wholeOf(r *config.Relay, sub driver.Subscription) func(resource, scope string) bool {
	if SplitsNamespaces(r.To) {
		return func(string, string) bool { return false }
	}
	partial, ok := sub.(driver.Partial)
	return func(resource, scope string) bool {
		if !r.Copies(resource, scope) {
			return false
		}
		return !ok || HasScope(partial.HasAll, resource, scope)
	}
}

// HasScope reports whether a subscription has all events of a scope, or of all scopes of a resource
// (""). hasAll reports that of objects.
func HasScope(hasAll func(*consume.Objects) bool, resource, scope string) bool {
	plural, group, _ := strings.Cut(resource, ".")
	o := consume.Objects{Groups: []string{group}, Resource: plural}
	if hasAll(&o) {
		return true
	}
	namespaces, ok := config.NamespacesOf(scope).Literal()
	return ok && !slices.ContainsFunc(namespaces, func(namespace string) bool {
		o.Namespace = namespace
		return !hasAll(&o)
	})
}

// SplitsNamespaces reports whether the objects of a resource go to several logs of a target, by
// their namespaces. Then no progress of an agent is sent there: none of the logs has all objects of
// a scope, and a log of one namespace must not name others.
func SplitsNamespaces(to config.RelayTarget) bool {
	_, settings := to.Chosen()
	splitter, ok := settings.(driver.Splitter)
	return ok && splitter.SplitsNamespaces()
}

// NewRelaySubscription returns the subscription of a relay to the bus of the configuration. It is
// not open yet.
func NewRelaySubscription(
	cfg *config.Config, r *config.Relay, cluster string, log *slog.Logger,
) (driver.RelaySubscription, error) {
	d, settings := cfg.Bus.Chosen()
	bus, ok := buses.Of(settings).(driver.Reader)
	if !ok {
		return nil, config.ErrNotReadable()
	}
	events := consume.AllEvents
	if to, _ := r.To.Chosen(); len(r.Operations) > 0 || to != nil && to.ObjectsOnly { // neither relays stream events
		events = consume.ObjectEvents
	}
	return bus.Subscribe(&driver.Relaying{
		Name:       r.Name,
		Cluster:    cluster,
		DeadLetter: cfg.DeadLetter.Of(d),
		Start:      driver.Start(r.Start),
		Objects:    objectsOf(r),
		Events:     events,
		Log:        log,
	})
}

// targetOf returns the target of a relay, for the relay's format.
func targetOf(
	cfg *config.Config, r *config.Relay, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger,
) (relay.Target, error) {
	_, settings := r.To.Chosen()
	rows, ok := buses.Of(settings).(driver.ChangelogOpener)
	if r.Format != config.FormatDebezium || !ok {
		return NewRelayTarget(cfg, r.To, cluster, stdout, fence, log)
	}
	table, err := rows.OpenChangelog(envOf(cfg, r.To, cluster, stdout, fence, log), r.StreamTopic)
	if err != nil {
		return nil, driver.WithClusterAdvice(err, cluster)
	}
	return debezium.New(debezium.Options{Changelog: *table, Log: log}), nil
}

func envOf(
	cfg *config.Config, to config.RelayTarget, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger,
) *driver.Env {
	d, _ := to.Chosen()
	return &driver.Env{
		Key:           "to." + d.Name,
		Cluster:       cluster,
		MaxEventBytes: int(cfg.Event.MaxBytes),
		Fence:         fence,
		Stdout:        stdout,
		Log:           log,
	}
}

// NewRelayTarget returns the target of a relay that sends events. It checks fence before each
// attempt.
func NewRelayTarget(
	cfg *config.Config, to config.RelayTarget, cluster string, stdout io.Writer, fence publish.Fence, log *slog.Logger,
) (relay.Target, error) {
	_, settings := to.Chosen()
	target, err := buses.Of(settings).Open(envOf(cfg, to, cluster, stdout, fence, log))
	if _, named := settings.(driver.Named); named {
		err = driver.WithClusterAdvice(err, cluster)
	}
	return target, err
}

// objectsOf returns the objects whose events the bus has to send to a relay, with the stream events
// of their resources. MatchRelay is false for all others.
func objectsOf(r *config.Relay) []consume.Objects {
	resources := []consume.Objects{{}}
	if len(r.Resources) > 0 {
		resources = nil
	}
	for _, p := range r.Resources {
		o := consume.Objects{Groups: p.Groups()}
		if p.Resource != "*" {
			o.Resource = p.Resource
		}
		resources = append(resources, o)
	}
	namespaces, ok := r.Namespaces.Literal()
	if !ok {
		return resources
	}
	var out []consume.Objects
	for _, o := range resources {
		for _, o.Namespace = range namespaces {
			out = append(out, o)
		}
	}
	return out
}

// MatchRelay returns a function that reports whether a relay selects an event. Stream events match
// with their resource, and the progress of an agent always, except if operations are configured:
// without some operations, their statements would be wrong.
func MatchRelay(r *config.Relay, cluster string) func(*consume.Event) bool {
	return func(e *consume.Event) bool {
		version := strings.TrimPrefix(strings.TrimPrefix(e.APIVersion, e.Group()), "/")
		switch {
		case cluster != "" && e.Cluster != "" && e.Cluster != cluster:
			return false
		case e.Progress == nil && !r.Takes(e.Group(), version, e.Resource):
			return false
		case e.Data == nil:
			return len(r.Operations) == 0
		}
		op := config.Operation(strings.TrimPrefix(e.Type.Name(), "object."))
		return r.Namespaces.Match(e.Namespace) && (len(r.Operations) == 0 || slices.Contains(r.Operations, op))
	}
}

// Pauses before a relay that has failed is started again. The pause doubles each time. It is reset
// after the relay has run for as long as the longest pause.
const (
	firstRelayPause = 5 * time.Second
	mostRelayPause  = 2 * time.Minute
)

// errNotStarted is the state of a relay that has not been started.
var errNotStarted = errors.New("not started yet: waiting for the cluster's uid from the API server")

// Runner is a relay that runs once.
type Runner interface {
	Run(ctx context.Context) error
	Ready() error
}

// RelayHost runs relays concurrently with the agent. A relay that fails does not end the agent: the
// host logs it, shows it in /readyz, and restarts it. A nil *RelayHost has no relays.
type RelayHost struct {
	log    *slog.Logger
	pause  time.Duration // the first
	relays []*hostedRelay
}

// hostedRelay is a relay with its state.
type hostedRelay struct {
	cfg *config.Relay

	mu      sync.Mutex
	running Runner // nil while it does not run
	failure error  // why it does not run
}

// NewRelayHost returns a host for the relays of a configuration, nil without relays.
func NewRelayHost(relays []config.Relay, log *slog.Logger) *RelayHost {
	if len(relays) == 0 {
		return nil
	}
	h := &RelayHost{log: log, pause: firstRelayPause}
	for i := range relays {
		h.relays = append(h.relays, &hostedRelay{cfg: &relays[i], failure: errNotStarted})
	}
	return h
}

// Probes returns the checks of /readyz. A relay that fails does not make the agent unready.
func (h *RelayHost) Probes() []admin.Probe {
	if h == nil {
		return nil
	}
	var all []admin.Probe
	for _, r := range h.relays {
		all = append(all, admin.Probe{Name: "relay " + r.cfg.Name, Ready: r.checkReady, Aside: true})
	}
	return all
}

func (r *hostedRelay) checkReady() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		return r.failure
	}
	return r.running.Ready()
}

func (r *hostedRelay) setRunning(running Runner, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.failure = running, failure
}

// Run runs all relays until ctx ends. It calls open for each run of a relay, after fence has
// passed. Without an election, fence is nil.
func (h *RelayHost) Run(ctx context.Context, fence publish.Fence, open func(*config.Relay) (Runner, error)) {
	if h == nil {
		return
	}
	var g errgroup.Group
	for _, r := range h.relays {
		g.Go(func() error {
			h.keep(ctx, r, fence, open)
			return nil
		})
	}
	_ = g.Wait() // none of them returns an error
}

// keep restarts one relay until ctx ends.
func (h *RelayHost) keep(
	ctx context.Context, r *hostedRelay, fence publish.Fence, open func(*config.Relay) (Runner, error),
) {
	rest := h.pause
	// A suspended leader may take the cursor after another agent leads, and then end. Therefore a
	// leader takes the cursor back, but only once: a second time, the other is not a former leader.
	takesBack := fence != nil
	for {
		began := time.Now()
		running, err := openRelay(ctx, r.cfg, fence, open)
		if err == nil {
			r.setRunning(running, nil)
			err = running.Run(ctx)
		}
		if ctx.Err() != nil {
			if err != nil {
				h.log.Warn("relay failed while it stopped: its last records may be delivered again", "relay",
					r.cfg.Name, "err", err)
			}
			return
		}
		elsewhere := errors.Is(err, subscription.ErrElsewhere)
		switch {
		case errors.Is(err, leader.ErrLost): // the agent ends with this error
			r.setRunning(nil, err)
			return
		case elsewhere && takesBack:
			takesBack = false
		case elsewhere: // the two would take the cursor from each other forever
			r.setRunning(nil, err)
			h.log.Error("another relay of this name is running, so this one stops: run only one", "relay", r.cfg.Name,
				"err", err)
			return
		case err == nil:
			err = errors.New("it stopped unexpectedly")
		}
		if time.Since(began) >= mostRelayPause {
			rest = h.pause
		}
		r.setRunning(nil, err)
		h.log.Error("relay failed, restarting it; records wait on the bus meanwhile", "relay", r.cfg.Name, "err", err,
			"after", rest)
		if pause.For(ctx, rest) != nil {
			return
		}
		rest = min(2*rest, mostRelayPause)
	}
}

// openRelay opens a relay after fence has passed, because a relay starts by taking the cursor from
// its owner.
func openRelay(
	ctx context.Context, r *config.Relay, fence publish.Fence, open func(*config.Relay) (Runner, error),
) (Runner, error) {
	if fence != nil {
		if err := fence.Pass(ctx); err != nil {
			return nil, err
		}
	}
	return open(r)
}
