package answer

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubecdc/kubecdc/internal/past/live"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// Cluster is a running cluster that a diff compares with.
type Cluster struct {
	Live  *live.Cluster
	From  string // the source of its configuration, for people
	Agent *Agent // that wrote the record; one with the default configuration if it is not known
	Known bool   // Agent is the agent that wrote the record
}

// CanCompare returns an error unless a state can be compared with a running cluster.
func (q *Question) CanCompare(s *State) error {
	clusters := Clusters{}
	clusters.AddScopes(s.Sure.Scopes)
	if err := clusters.One("scopes", "cluster"); err != nil {
		return err
	}
	if only := q.Record.Lacks(q.Wanted); only != "" {
		return UsageError{
			fmt.Errorf(
				"objects that the record lacks for this reader would be shown as new; name the namespace (--namespace) or the resources: %s",
				only),
		}
	}
	return nil
}

// CompareLive compares a state with a running cluster.
func (q *Question) CompareLive(ctx context.Context, to *Cluster, from *State) (*live.Answer, error) {
	var answer *live.Answer
	err := q.showCount(ctx, func() (string, bool) {
		return fmt.Sprintf("reading the cluster: %s objects", wording.Count(int(to.Live.Objects()))), false
	}, func(ctx context.Context) (err error) {
		answer, err = to.Live.Compare(ctx, &live.Question{
			State:     from.State,
			Time:      from.Sure.time,
			Takes:     q.Wanted.TakesObject,
			Namespace: q.Wanted.LiteralNamespace(),
			Labelled:  q.hasLabels,
			Withheld:  to.Agent.Withholds,
			Known:     to.Known,
			Own:       to.Agent.Owns,
		})
		return err
	})
	if another := (*live.AnotherClusterError)(nil); errors.As(err, &another) {
		return nil, fmt.Errorf("%w: name the right context with --context, or another record", err)
	}
	return answer, err
}
