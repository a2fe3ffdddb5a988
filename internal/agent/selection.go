package agent

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/agent/reload"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/rbac"
)

// specOf returns the selection for informers: what they observe and send.
func specOf(l *reload.Loaded, log *slog.Logger, m *filter.Metrics) (selection.Spec, error) {
	mac, err := l.MAC()
	if err != nil {
		return selection.Spec{}, err
	}
	s := selection.Spec{
		Strip:   l.Strip,
		Secrets: l.Redaction.Secrets,
		MAC:     mac,
		Part:    partOf(l.Config),
	}
	for i := range l.Watch {
		rule, err := ruleOf(l, i, log, m)
		if err != nil {
			return selection.Spec{}, err
		}
		s.Rules = append(s.Rules, rule)
	}
	return s, nil
}

// ruleOf returns rule i of the configuration for informers.
func ruleOf(l *reload.Loaded, i int, log *slog.Logger, m *filter.Metrics) (selection.Rule, error) {
	r := &l.Watch[i]
	rule := selection.Rule{
		Namespaces:    r.Namespaces.Match,
		AllNamespaces: r.Namespaces.Match(""),
		LabelSelector: r.LabelSelector,
		FieldSelector: r.FieldSelector,
		Redact:        r.Redact,
	}
	for _, p := range r.Resources {
		rule.Resources = append(rule.Resources, p)
	}
	for _, p := range r.Except {
		rule.Except = append(rule.Except, p)
	}
	if names, ok := r.Namespaces.Literal(); ok {
		rule.Names = names
	} else if !r.Namespaces.All() {
		for _, p := range r.Namespaces {
			rule.Patterns = append(rule.Patterns, string(p))
		}
	}
	o := filter.Options{
		Where:   r.Where,
		OnError: string(r.OnError),
		Rule:    fmt.Sprintf("watch[%d]", i),
		Log:     log,
		Metrics: m,
		Removes: func(res *object.Resource) bool {
			secret := res.Group == "" && res.Name == "secrets" && l.Redaction.Secrets
			return l.Redaction.Mode == config.RedactRemove && (secret || len(r.Redact) > 0)
		},
	}
	for _, op := range r.Operations {
		o.Operations = append(o.Operations, string(op))
	}
	for _, n := range l.Noise {
		o.Noise = append(o.Noise, string(n))
	}
	f, err := filter.New(o)
	if err != nil {
		return selection.Rule{}, fmt.Errorf("%s: %w", o.Rule, err)
	}
	rule.Filters = selection.FilterText{Operations: o.Operations, Where: r.Where, Noise: o.Noise}
	if r.Where != "" {
		rule.Where, rule.Filters.OnError = o.OnError+": "+r.Where, o.OnError
	}
	rule.Filter = func(res *object.Resource) selection.Filter {
		if x := f.For(res); x != nil { // a nil pointer in the interface would not be nil
			return x
		}
		return nil
	}
	return rule, nil
}

// NewInformers returns the informers of a configuration. o has the remaining options.
func NewInformers(l *reload.Loaded, o informers.Options, m *filter.Metrics) (*informers.Manager, error) {
	s, err := specOf(l, o.Log, m)
	if err != nil {
		return nil, err
	}
	o.Spec = s
	o.DeletedNodes = l.Mode == config.ModeCentral
	o.Snapshot, o.Every = informer.SnapshotMode(l.Snapshot.Mode), l.Snapshot.Every.Duration
	o.MaxUnpaged = int(l.Snapshot.UnpagedObjects)
	o.Match = func(patterns []string) func(string) bool {
		namespaces := make(config.Namespaces, len(patterns))
		for i, p := range patterns {
			namespaces[i] = config.NamespacePattern(p)
		}
		return namespaces.Match
	}
	return informers.New(o)
}

// newIdleInformers returns informers that only answer questions about the cluster and never run.
func newIdleInformers(cfg *config.Config, rc *rest.Config) (*informers.Manager, error) {
	idle := *cfg
	idle.Redaction = config.Redaction{Mode: config.RedactRemove} // needs no key
	return NewInformers(&reload.Loaded{Config: &idle},
		informers.Options{Config: rc, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}, nil)
}

// DiscoverResources reads the resources that the cluster serves, and applies the selection of the
// agent's own informers. host is the API server.
func (o *Options) DiscoverResources(ctx context.Context, cfg *config.Config) (_ *rbac.Discovery, host string, _ error) {
	c, err := o.FindCluster()
	if err != nil {
		return nil, "", err
	}
	set, err := newIdleInformers(cfg, c.REST)
	if err != nil {
		return nil, "", ConfigError{err}
	}
	host = c.Host()
	plan, err := set.Plan(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("discover the resources of %s: %w", host, err)
	}
	d := &rbac.Discovery{Unserved: plan.Unserved, Unknown: plan.Unknown, Uncapturable: map[string]string{}}
	for _, u := range plan.Uncapturable {
		d.Uncapturable[u.Pattern] = u.Why
	}
	for _, p := range plan.Resources {
		r := p.Resource
		d.Resources = append(d.Resources, rbac.Resource{
			Group:      r.Group,
			Resource:   r.Name,
			Namespaced: r.Namespaced,
			Rules:      p.Rules,
		})
	}
	return d, host, nil
}

// Apply switches running informers to another configuration.
func Apply(
	ctx context.Context, informers *informers.Manager, next *reload.Loaded, log *slog.Logger, m *filter.Metrics,
) (reload.Scopes, error) {
	s, err := specOf(next, log, m)
	if err != nil {
		return reload.Scopes{}, err
	}
	before := scopesOf(informers)
	if err := informers.Reload(ctx, s); err != nil {
		return reload.Scopes{}, err
	}
	var d reload.Scopes
	after := scopesOf(informers)
	for scope := range after {
		if before[scope] {
			d.Kept++
		} else {
			d.Begun++
		}
	}
	d.Ended = len(before) - d.Kept
	return d, nil
}

// scopesOf returns the observed scopes.
func scopesOf(s *informers.Manager) map[string]bool {
	all := map[string]bool{}
	for _, st := range s.Status() {
		// The selection names it, but the cluster does not serve it, or not with the verb watch.
		named := st.Health != informer.HealthOK && st.Phase == informer.PhaseWaiting && st.Failures == 0
		if !named && st.Phase != informer.PhaseRetiring {
			all[st.Scope] = true
		}
	}
	return all
}
