package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// pace is the time that a person has for one change; changes that trigger others take busy.
const (
	pace = 1500 * time.Millisecond
	busy = 3 * time.Second
)

// workload is a day in a shop's namespace, change by change.
type workload struct {
	client dynamic.Interface
	screen *screen
	past   *past

	makesPods bool // There is no controller manager: the workload creates the Pods of its Deployment.
	pods      int  // How many it has created.
}

// change is one line of the story.
type change struct {
	caption string
	do      func(ctx context.Context) error
	wait    time.Duration // after it
}

// run makes changes until ctx ends.
func (w *workload) run(ctx context.Context) error {
	if err := w.play(ctx, w.opening()); err != nil {
		return err
	}
	for round := 0; ctx.Err() == nil; round++ {
		if err := w.play(ctx, w.round(round)); err != nil {
			return err
		}
	}
	return nil
}

func (w *workload) play(ctx context.Context, changes []change) error {
	for _, c := range changes {
		if ctx.Err() != nil {
			return nil
		}
		w.screen.caption(c.caption)
		err := c.do(ctx)
		if err == nil && w.makesPods {
			err = w.syncPods(ctx)
		}
		switch {
		case err == nil, ctx.Err() != nil:
		case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsForbidden(err):
			// The person at the other terminal has deleted or created something.
			w.screen.printf("  left out: %v\n", err)
		default:
			return fmt.Errorf("%s: %w", c.caption, err)
		}
		select {
		case <-time.After(c.wait):
		case <-ctx.Done():
		}
	}
	return nil
}

// kubectlEdit is the field manager of kubectl edit, shown by changedBy.
const kubectlEdit = "kubectl-edit"

// prepare defines the custom resource beforehand, because the agent looks for new resources only
// from time to time.
func (w *workload) prepare(ctx context.Context) error {
	if err := w.create(v1("apiextensions.k8s.io", "customresourcedefinitions"), couponDefinition())(ctx); err != nil {
		return fmt.Errorf("define coupons: %w", err)
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := w.in(v1(couponGroup, "coupons")).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil // not served yet
		}
		return err == nil, err
	})
}

// opening returns the changes that happen once: they create the objects that the rounds change.
func (w *workload) opening() []change {
	password := map[string]any{"stringData": map[string]any{"password": "correct horse"}}
	return []change{
		{
			"kubectl create namespace " + namespace,
			w.create(v1("", "namespaces"), manifest("v1", "Namespace", namespace, nil)), pace,
		},
		{
			"kubectl create configmap settings --from-file=shop.properties",
			w.create(v1("", "configmaps"), manifest("v1", "ConfigMap", "settings", settings(settingsFile(0)))), pace,
		},
		{"kubectl edit configmap settings", w.editSettings(1), pace},
		{
			"kubectl create secret generic database --from-literal=password=…   (values of Secrets are never sent)",
			w.create(v1("", "secrets"), manifest("v1", "Secret", "database", password)), pace,
		},
		{"the deployer applies a Deployment and a Service", func(ctx context.Context) error {
			return errors.Join(
				w.apply(v1("apps", "deployments"), web("shop/web:1.0"))(ctx),
				w.apply(v1("", "services"), service())(ctx))
		}, busy},
	}
}

// round returns the changes that repeat, n counting from 0. They leave everything as before, except
// for versions and one line of the settings.
func (w *workload) round(n int) []change {
	deployments := v1("apps", "deployments")
	secrets := v1("", "secrets")
	services := v1("", "services")
	pods := v1("", "pods")
	coupons, name := v1(couponGroup, "coupons"), []string{"spring", "autumn"}[n%2]
	image := fmt.Sprintf("shop/web:1.%d", n+1)
	release := fmt.Sprint(n + 1)
	port := 8080 - n%2*8000
	changes := []change{
		{"kubectl create -f " + name + ".yaml   (a custom resource)", w.create(coupons, coupon(name)), pace},
		{"kubectl edit coupon " + name, w.patch(
			kubectlEdit, coupons, name, `{"spec":{"percent":15,"products":["apples","pears","plums"]}}`,
		), pace},
		{"kubectl delete coupon " + name, w.remove(coupons, name), pace},
		{"the deployer rolls out " + image, w.apply(deployments, web(image)), busy},
		{
			"the password is rotated   (that it was is told, the value is not)",
			w.patch("secret-rotator", secrets, "database", fmt.Sprintf(
				`{"stringData":{"password":"horse no. %s"},"metadata":{"annotations":{"rotation":%q}}}`, release,
				release,
			)), pace,
		},
		{"kubectl edit configmap settings", w.editSettings(n + 2), pace},
		{
			"the autoscaler sees load: 3 replicas",
			w.patch("horizontal-pod-autoscaler", deployments, "web", `{"spec":{"replicas":3}}`), busy,
		},
		{"kubectl label deployment web release=" + release, w.patch(
			"kubectl-label", deployments, "web", fmt.Sprintf(`{"metadata":{"labels":{"release":%q}}}`, release),
		), pace},
		{"kubectl edit service web", w.patch(
			kubectlEdit, services, "web",
			fmt.Sprintf(`{"spec":{"ports":[{"name":"http","port":%d,"targetPort":"http"}]}}`, port),
		), pace},
		{
			"kubectl scale deployment web --replicas=1",
			w.patch("kubectl", deployments, "web", `{"spec":{"replicas":1}}`), busy,
		},
		{"kubectl delete pod -l app=web   (its ReplicaSet makes another)", w.removeAll(pods, "app=web"), busy},
	}
	if n == 0 { // after the coupon's end
		changes = slices.Insert(changes, 3, []change{
			{"kubecdc history configmap settings -n shop   (each version, from the bus)", w.past.history, pace},
			{
				"kubecdc get configmap settings -n shop --at rv:… -o yaml   (as it was before the edit)", w.past.get,
				pace,
			},
		}...)
	}
	return changes
}

func (w *workload) editSettings(n int) func(context.Context) error {
	return func(ctx context.Context) error {
		patch, err := json.Marshal(settings(settingsFile(n)))
		if err != nil {
			return err
		}
		return w.patch(kubectlEdit, v1("", "configmaps"), "settings", string(patch))(ctx)
	}
}

func (w *workload) in(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	switch resource.Resource {
	case "namespaces", "customresourcedefinitions":
		return w.client.Resource(resource)
	default:
		return w.client.Resource(resource).Namespace(namespace)
	}
}

func (w *workload) create(
	resource schema.GroupVersionResource, object *unstructured.Unstructured,
) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.in(resource).Create(ctx, object, metav1.CreateOptions{FieldManager: "kubectl-create"})
		return err
	}
}

func (w *workload) apply(
	resource schema.GroupVersionResource, object *unstructured.Unstructured,
) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.in(resource).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
			FieldManager: "deployer",
			Force:        true,
		})
		return err
	}
}

func (w *workload) patch(
	manager string, resource schema.GroupVersionResource, name, patch string,
) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.in(resource).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{
			FieldManager: manager,
		})
		return err
	}
}

func (w *workload) remove(resource schema.GroupVersionResource, name string) func(context.Context) error {
	return func(ctx context.Context) error { return w.in(resource).Delete(ctx, name, metav1.DeleteOptions{}) }
}

func (w *workload) removeAll(resource schema.GroupVersionResource, selector string) func(context.Context) error {
	return func(ctx context.Context) error {
		return w.in(resource).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
	}
}
