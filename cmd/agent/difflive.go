package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/live"
	"github.com/kubecdc/kubecdc/internal/terminal"
	"github.com/kubecdc/kubecdc/internal/timeline"
)

// compareLive compares a state with the running cluster of the kubeconfig.
func (f *diffFlags) compareLive(ctx context.Context, q *question, from *timeline.State, sure *certainty) ([]timeline.Difference, error) {
	if sources := sourcesOf(sure.Scopes); len(sources) > 1 {
		return nil, usageError{fmt.Errorf("the record has several clusters: name one with --cluster: %s", strings.Join(sources, ", "))}
	}
	found, err := f.running.FindCluster()
	if err != nil {
		return nil, err
	}
	client, err := apiserver.New(found.REST)
	if err != nil {
		return nil, err
	}
	cfg, err := f.bus.configured()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(q.stderr, "live is the cluster at %s (%s)\n", client.Host, found.From)
	cluster := live.Cluster{Client: client}
	var answer *live.Answer
	err = q.counting(ctx, func() string {
		return fmt.Sprintf("reading the cluster: %s objects", terminal.Count(int(cluster.Objects())))
	}, func(ctx context.Context) (err error) {
		answer, err = cluster.Compare(ctx, &live.Question{
			State: from, Time: sure.time, Takes: q.wanted.TakesObject, Namespace: q.wanted.LiteralNamespace(), Labelled: q.labelled,
			Withheld: func(resource string) []string { return withheld(cfg, resource) }, Known: f.bus.config != "",
		})
		return err
	})
	if another := (*live.AnotherClusterError)(nil); errors.As(err, &another) {
		return nil, fmt.Errorf("%w: name the right context with --context, or another record", err)
	}
	if err != nil {
		return nil, err
	}
	for _, resource := range slices.Sorted(maps.Keys(answer.Withheld)) {
		fmt.Fprintf(q.stderr, "not compared in %s, because the record does not have it: %s\n", resource, strings.Join(answer.Withheld[resource], ", "))
	}
	for _, resource := range slices.Sorted(maps.Keys(answer.Unproven)) {
		fmt.Fprintf(q.stderr, "not shown in %s, because the agent may redact it; --config names its configuration: %s\n",
			resource, strings.Join(answer.Unproven[resource], ", "))
	}
	return answer.Differences, nil
}

// sourcesOf returns the sources of scopes, sorted.
func sourcesOf(scopes []timeline.Scope) []string {
	all := map[string]bool{}
	for i := range scopes {
		all[scopes[i].Source] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// withheld returns the paths that an agent with a configuration strips or redacts in objects of a resource.
func withheld(cfg *config.Config, resource string) []string {
	plural, group, _ := strings.Cut(resource, ".")
	paths := slices.Clone(cfg.Strip)
	for i := range cfg.Watch {
		r := &cfg.Watch[i]
		if slices.ContainsFunc(r.Resources, func(p config.ResourcePattern) bool { return p.Match(group, p.Version, plural) }) {
			paths = append(paths, r.Redact...)
		}
	}
	return paths
}
