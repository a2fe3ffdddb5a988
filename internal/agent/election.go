package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// releaseTimeout limits the release of the Lease. If the release fails, a standby waits for
// leaseDuration.
const releaseTimeout = 3 * time.Second

// leaseNamespace returns the namespace of the Lease, "" if it is unknown.
func (a *agent) leaseNamespace() string {
	return cmp.Or(a.cfg.LeaderElection.Namespace, a.cluster.namespace)
}

// newElector returns nil if the configuration has no election. It sends no request.
func (a *agent) newElector() (*leader.Elector, error) {
	e := &a.cfg.LeaderElection
	if !e.Enabled {
		return nil, nil
	}
	if a.leaseNamespace() == "" {
		return nil,
			errors.New(
				"leaderElection.namespace: set the namespace of the Lease: the agent is not in a pod of the cluster, whose namespace would be the default")
	}
	if KeepsCheckpoint(a.cfg) && configMapOf(a.options, a.cfg, a.cluster.namespace) == nil {
		return nil,
			errors.New(
				"checkpoint.configMap: set one: the agent is not in a pod of the cluster, so the checkpoint would be a file, which " +
					"another replica (leaderElection) could not read")
	}
	return leader.New(leader.Options{
		Config:        a.cluster.REST,
		Namespace:     a.leaseNamespace(),
		Name:          e.Lease,
		Identity:      newIdentity(os.Hostname),
		LeaseDuration: e.LeaseDuration.Duration,
		RenewDeadline: e.RenewDeadline.Duration,
		RetryPeriod:   e.RetryPeriod.Duration,
		Log:           a.log,
		Registerer:    a.reg,
	})
}

// newIdentity returns the holder's name for the Lease: the pod's name and a random part, because a
// restarted container is another holder.
func newIdentity(hostname func() (string, error)) string {
	name, err := hostname()
	if err != nil || name == "" {
		name = "kubecdc"
	}
	return name + "_" + strings.ToLower(rand.Text()[:10])
}

// leaseName returns the Lease, which must not be captured: each renewal would be an event. ok is
// false without an election.
func (a *agent) leaseName() (name informers.Name, ok bool) {
	if !a.cfg.LeaderElection.Enabled {
		return informers.Name{}, false
	}
	return informers.Name{
		Group:     "coordination.k8s.io",
		Resource:  "leases",
		Namespace: a.leaseNamespace(),
		Name:      a.cfg.LeaderElection.Lease,
	}, true
}

// fence returns the fence that is checked before each write to the bus, nil without an election.
func (a *agent) fence() publish.Fence {
	if a.elector == nil {
		return nil
	}
	return a.elector.Fence()
}

// preflight returns the error with which this agent would end as soon as it leads. A standby counts
// as ready, and a rollout stops the working agent when a standby is ready. So an agent that could
// not lead must not become a standby. preflight changes nothing. It waits if the failure is
// temporary, such as an API server that does not respond.
func (a *agent) preflight(ctx context.Context, id *identity, b *bus) error {
	if a.elector == nil {
		return nil // it leads at once
	}
	if err := b.check(); err != nil {
		return err
	}
	return a.checkCheckpoint(ctx, id)
}

// elect waits until this agent leads, and then runs lead, whose ctx ends with ctx or when another
// agent leads. lead drains the queue and saves the checkpoint; after it has returned, the Lease is
// released.
func (a *agent) elect(ctx context.Context, lead func(ctx context.Context, epoch uint64) error) error {
	if a.elector == nil {
		return lead(ctx, 0)
	}
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	electing, stopElecting := context.WithCancel(all)
	leading, stopLeading := context.WithCancelCause(ctx)
	defer context.AfterFunc(all, func() { stopLeading(context.Cause(all)) })()
	g.Go(func() error { return a.elector.Run(electing) })
	g.Go(func() error {
		defer stopElecting()
		defer stopLeading(nil)
		term, err := a.elector.Wait(leading)
		if err != nil {
			a.log.Info("stopped while on standby")
			return nil
		}
		return lead(leading, term.Epoch)
	})
	err := g.Wait()
	releasing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), releaseTimeout,
		fmt.Errorf("no answer within %v", releaseTimeout))
	defer cancel()
	if err := a.elector.Release(releasing); err != nil {
		a.log.Warn("cannot release the Lease: a standby waits until it expires", "wait",
			a.cfg.LeaderElection.LeaseDuration.Duration, "err", err)
	}
	return err
}
