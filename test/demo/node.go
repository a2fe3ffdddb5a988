package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// nodeName is the node of all Pods of the demo.
const nodeName = "node-1"

// reaction is how long the scheduler and the kubelet take for a step: long enough to be seen.
const reaction = 600 * time.Millisecond

// node stands in for the scheduler and a kubelet, which the control plane lacks. It binds Pods,
// marks them as running, and removes deleted ones, so that rollouts complete.
type node struct {
	client dynamic.Interface
	queue  workqueue.TypedRateLimitingInterface[string]
	ips    int
}

func newNode(client dynamic.Interface) *node {
	return &node{
		client: client,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
}

// register creates the Node object.
func (n *node) register(ctx context.Context) error {
	nodes := n.client.Resource(v1("", "nodes"))
	object := manifest("v1", "Node", nodeName, nil)
	if _, err := nodes.Create(ctx, object, metav1.CreateOptions{FieldManager: "kubelet"}); err != nil {
		return fmt.Errorf("create node %s: %w", nodeName, err)
	}
	return n.patchStatus(ctx, nodes, nodeName, map[string]any{
		"capacity":   map[string]any{"cpu": "8", "memory": "32Gi", "pods": "110"},
		"conditions": []any{condition("Ready")},
	})
}

// run handles the Pods of the namespace until ctx ends.
func (n *node) run(ctx context.Context) error {
	pods := n.client.Resource(v1("", "pods")).Namespace(namespace)
	enqueue := func(object any) {
		if pod, ok := object.(*unstructured.Unstructured); ok {
			n.queue.AddAfter(pod.GetName(), reaction)
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return pods.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, o)
			},
		},
		ObjectType: &unstructured.Unstructured{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, object any) {
			enqueue(object)
		}},
	})
	var reading sync.WaitGroup
	reading.Go(func() { informer.RunWithContext(ctx) })
	defer reading.Wait()
	defer context.AfterFunc(ctx, n.queue.ShutDown)()
	for {
		name, shutdown := n.queue.Get()
		if shutdown {
			return nil
		}
		object, exists, err := store.GetByKey(namespace + "/" + name)
		if err == nil && exists {
			err = n.advance(ctx, object.(*unstructured.Unstructured))
		}
		switch {
		case err == nil, apierrors.IsNotFound(err):
			n.queue.Forget(name)
		case ctx.Err() == nil: // a conflict, or a slow API server: retried a little later
			n.queue.AddRateLimited(name)
		}
		n.queue.Done(name)
	}
}

// advance takes a Pod one step further in its life. The next update of the Pod calls it again.
func (n *node) advance(ctx context.Context, pod *unstructured.Unstructured) error {
	pods, name := n.client.Resource(v1("", "pods")).Namespace(namespace), pod.GetName()
	assigned, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	switch {
	case pod.GetDeletionTimestamp() != nil:
		now := int64(0)
		uid := pod.GetUID()
		return pods.Delete(ctx, name, metav1.DeleteOptions{
			GracePeriodSeconds: &now,
			Preconditions:      &metav1.Preconditions{UID: &uid},
		})
	case assigned == "":
		binding := manifest("v1", "Binding", name, map[string]any{"target": map[string]any{
			"kind": "Node",
			"name": nodeName,
		}})
		_, err := pods.Create(ctx, binding, metav1.CreateOptions{FieldManager: "kube-scheduler"}, "binding")
		return err
	case phase != "Running":
		return n.start(ctx, pods, pod)
	default:
		return nil
	}
}

// start writes the status of a kubelet whose containers run.
func (n *node) start(ctx context.Context, pods dynamic.ResourceInterface, pod *unstructured.Unstructured) error {
	n.ips++
	ip := fmt.Sprintf("10.1.0.%d", n.ips%250+1)
	now := time.Now().UTC().Format(time.RFC3339)
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	var statuses []any
	for _, c := range containers {
		c, _ := c.(map[string]any)
		statuses = append(statuses, map[string]any{
			"name": c["name"], "image": c["image"], "imageID": "", "ready": true, "started": true, "restartCount": 0,
			"state": map[string]any{"running": map[string]any{"startedAt": now}},
		})
	}
	return n.patchStatus(ctx, pods, pod.GetName(), map[string]any{
		"phase": "Running", "podIP": ip, "podIPs": []any{map[string]any{"ip": ip}}, "startTime": now,
		"conditions":        []any{condition("ContainersReady"), condition("Ready")},
		"containerStatuses": statuses,
	})
}

func (n *node) patchStatus(ctx context.Context, r dynamic.ResourceInterface, name string, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = r.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubelet"},
		"status")
	return err
}

func condition(name string) map[string]any {
	return map[string]any{"type": name, "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
}
