// Command rollout is a small controller: it prints when a rollout of a Deployment is complete. It
// is an example of a controller that can be tested on the past: docs/guides/time-travel.md.
//
//	KUBECONFIG=... go run ./examples/go/rollout
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	c := &controller{complete: map[types.UID]int64{}}
	deployments := factory.Apps().V1().Deployments().Informer()
	if _, err := deployments.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { c.observe(o.(*appsv1.Deployment), !initial) },
		UpdateFunc: func(_, o any) { c.observe(o.(*appsv1.Deployment), true) },
		DeleteFunc: func(o any) {
			if d, ok := o.(*appsv1.Deployment); ok {
				c.forget(d)
			}
		},
	}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// controller prints each rollout once.
type controller struct {
	mu       sync.Mutex
	complete map[types.UID]int64 // generation of the last rollout that was complete
}

// observe prints that a rollout is complete, unless it was complete before. Changes of metadata do
// not begin a rollout: they keep the generation.
func (c *controller) observe(d *appsv1.Deployment, announce bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !complete(d) || c.complete[d.UID] == d.Generation {
		return
	}
	c.complete[d.UID] = d.Generation
	if announce {
		fmt.Fprintf(os.Stdout, "%s/%s runs %s, resourceVersion %s\n", d.Namespace, d.Name,
			d.Spec.Template.Spec.Containers[0].Image, d.ResourceVersion)
	}
}

func (c *controller) forget(d *appsv1.Deployment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.complete, d.UID)
}

// complete reports whether all replicas run the Deployment's current template.
func complete(d *appsv1.Deployment) bool {
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	return d.Status.ObservedGeneration >= d.Generation && // the status is of this spec, not of an earlier one
		d.Status.UpdatedReplicas == replicas &&
		d.Status.Replicas == replicas &&
		d.Status.AvailableReplicas == replicas
}
