package answer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/past/live"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// Cluster is a running cluster that a diff compares with.
type Cluster struct {
	Client *apiserver.Client
	From   string         // the source of its configuration, for people
	Agent  *config.Config // of the agent; the default one if it is not known
	Known  bool           // Agent is that of the agent that wrote the record
}

// compareLive compares a state with a running cluster.
func (q *Question) compareLive(ctx context.Context, to *Cluster, from *state) ([]timeline.Difference, error) {
	clusters := Clusters{}
	clusters.addScopes(from.sure.Scopes)
	if err := clusters.One("scopes", "cluster"); err != nil {
		return nil, err
	}
	if only := q.Record.Lacks(q.Wanted); only != "" {
		return nil, UsageError{
			fmt.Errorf(
				"objects that the record lacks for this reader would be shown as new; name the namespace (--namespace) or the resources: %s",
				only),
		}
	}
	fmt.Fprintf(q.Stderr, "live is the cluster at %s (%s)\n", to.Client.Host, to.From)
	cluster := live.Cluster{Client: to.Client}
	var answer *live.Answer
	err := q.counting(ctx, func() (string, bool) {
		return fmt.Sprintf("reading the cluster: %s objects", wording.Count(int(cluster.Objects()))), false
	}, func(ctx context.Context) (err error) {
		answer, err = cluster.Compare(ctx, &live.Question{
			State:     from.State,
			Time:      from.sure.time,
			Takes:     q.Wanted.TakesObject,
			Namespace: q.Wanted.LiteralNamespace(),
			Labelled:  q.labelled,
			Withheld:  func(resource string) []string { return withheld(to.Agent, resource) },
			Known:     to.Known,
			Own: func(resource, namespace, name string) bool {
				return isOwn(to.Agent, resource, namespace, name)
			},
		})
		return err
	})
	if another := (*live.AnotherClusterError)(nil); errors.As(err, &another) {
		return nil, fmt.Errorf("%w: name the right context with --context, or another record", err)
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Own) > 0 {
		fmt.Fprintf(q.Stderr, "not compared, because the agent never captures its own checkpoint and Lease: %s\n",
			strings.Join(answer.Own, ", "))
	}
	for _, resource := range slices.Sorted(maps.Keys(answer.Withheld)) {
		fmt.Fprintf(q.Stderr, "not compared in %s, because the record does not have it: %s\n", resource,
			strings.Join(answer.Withheld[resource], ", "))
	}
	for _, resource := range slices.Sorted(maps.Keys(answer.Unproven)) {
		fmt.Fprintf(q.Stderr,
			"not shown in %s, because the agent may redact it; --config names its configuration: %s\n",
			resource, strings.Join(answer.Unproven[resource], ", "))
	}
	return answer.Differences, nil
}

// isOwn reports whether a configuration names an object as the agent's own: the ConfigMap of its
// checkpoint, or the Lease of its election.
func isOwn(cfg *config.Config, resource, namespace, name string) bool {
	switch configMap, election := cfg.Checkpoint.ConfigMap, &cfg.LeaderElection; resource {
	case "configmaps":
		return configMap != nil && *configMap == config.CheckpointConfigMap{Namespace: namespace, Name: name}
	case "leases.coordination.k8s.io":
		return election.Enabled && election.Namespace == namespace && election.Lease == name
	}
	return false
}

// withheld returns the paths that an agent with a configuration strips or redacts in objects of a
// resource.
func withheld(cfg *config.Config, resource string) []string {
	plural, group, _ := strings.Cut(resource, ".")
	paths := slices.Clone(cfg.Strip)
	for i := range cfg.Watch {
		r := &cfg.Watch[i]
		if slices.ContainsFunc(r.Resources,
			func(p config.ResourcePattern) bool { return p.Match(group, p.Version, plural) }) {
			paths = append(paths, r.Redact...)
		}
	}
	return paths
}
