package main

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

// release is how long it may take to give the Lease back. Who waits for it waits for leaseDuration otherwise.
const release = 3 * time.Second

// leaseNamespace is where the Lease is, "": nobody says so.
func (c *capture) leaseNamespace() string {
	return cmp.Or(c.cfg.LeaderElection.Namespace, c.cluster.namespace)
}

// newElector returns nil where the configuration wants no election. It asks nothing of the cluster.
func (c *capture) newElector() (*leader.Elector, error) {
	e := &c.cfg.LeaderElection
	if !e.Enabled {
		return nil, nil
	}
	if c.leaseNamespace() == "" {
		return nil, errors.New("leaderElection.namespace: name the namespace of the Lease: this is no pod of the cluster, whose own would be taken")
	}
	if remembers(c.cfg) && configMapOf(c.flags, c.cfg, c.cluster.namespace) == nil {
		return nil, errors.New("checkpoint.configMap: name one: this is no pod of the cluster, the checkpoint would be a file, and " +
			"whoever takes over (leaderElection) could not read it")
	}
	return leader.New(leader.Options{
		Config: c.cluster.rest, Namespace: c.leaseNamespace(), Name: e.Lease, Identity: newIdentity(os.Hostname),
		LeaseDuration: e.LeaseDuration.Duration, RenewDeadline: e.RenewDeadline.Duration, RetryPeriod: e.RetryPeriod.Duration,
		Log: c.log, Registerer: c.reg,
	})
}

// newIdentity is the name that this process holds the Lease under: that of the pod, and what no other process has. A container
// that is started again in its pod is another one.
func newIdentity(hostname func() (string, error)) string {
	name, err := hostname()
	if err != nil || name == "" {
		name = "kubecdc"
	}
	return name + "_" + strings.ToLower(rand.Text()[:10])
}

// leaseName is the Lease as informers know it, which must not be captured: each renewal would be an event. ok is false where
// there is none.
func (c *capture) leaseName() (name informers.Name, ok bool) {
	if !c.cfg.LeaderElection.Enabled {
		return informers.Name{}, false
	}
	return informers.Name{Group: "coordination.k8s.io", Resource: "leases", Namespace: c.leaseNamespace(), Name: c.cfg.LeaderElection.Lease}, true
}

// fence is what all that is written to the bus has to pass; nil: there is no election.
func (c *capture) fence() publish.Fence {
	if c.elector == nil {
		return nil
	}
	return c.elector.Fence()
}

// eligible is the error with which this agent would end as soon as it leads. Who stands by counts as ready, and an update that has
// such an agent ends the one that works: so whoever could not lead must not stand by. It changes nothing, at the bus or elsewhere. What
// may pass, as an API server that is away, it waits for, and nobody stands by meanwhile.
func (c *capture) eligible(ctx context.Context, id *identity, b *bus) error {
	if c.elector == nil {
		return nil // this one leads now
	}
	if err := b.check(); err != nil {
		return err
	}
	return c.resumable(ctx, id)
}

// elect stands by until this agent leads, and then runs lead, whose ctx ends with ctx or when another agent leads. When lead has
// returned, with everything drained and remembered, the Lease is given back.
func (c *capture) elect(ctx context.Context, lead func(ctx context.Context, epoch uint64) error) error {
	if c.elector == nil {
		return lead(ctx, 0)
	}
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	electing, stopElecting := context.WithCancel(all)
	leading, stopLeading := context.WithCancelCause(ctx)
	defer context.AfterFunc(all, func() { stopLeading(context.Cause(all)) })()
	g.Go(func() error { return c.elector.Run(electing) })
	g.Go(func() error {
		defer stopElecting()
		defer stopLeading(nil)
		term, err := c.elector.Wait(leading)
		if err != nil {
			c.log.Info("told to stop while standing by, kubecdc ends")
			return nil
		}
		return lead(leading, term.Epoch)
	})
	err := g.Wait()
	giving, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), release, fmt.Errorf("no answer within %v", release))
	defer cancel()
	if err := c.elector.Release(giving); err != nil {
		c.log.Warn("the Lease is not given back: whoever stands by waits until it is over", "wait", c.cfg.LeaderElection.LeaseDuration.Duration, "err", err)
	}
	return err
}
