package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// syncPods creates and deletes Pods until they match the Deployment web. It replaces the
// controllers of Deployments and ReplicaSets on a control plane without a controller manager.
func (w *workload) syncPods(ctx context.Context) error {
	deployment, err := w.in(v1("apps", "deployments")).Get(ctx, "web", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	template, _, _ := unstructured.NestedMap(deployment.Object, "spec", "template")
	replicas, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	pods := w.in(v1("", "pods"))
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return err
	}
	image := imageOf(template)
	for _, pod := range list.Items {
		switch {
		case pod.GetDeletionTimestamp() != nil:
		case replicas > 0 && imageOf(pod.Object) == image:
			replicas--
		default:
			if err := pods.Delete(ctx, pod.GetName(), metav1.DeleteOptions{}); err != nil &&
				!apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	for ; replicas > 0; replicas-- {
		w.pods++
		pod := manifest("v1", "Pod", fmt.Sprintf("web-%d", w.pods), map[string]any{"spec": template["spec"]})
		pod.SetLabels(map[string]string{"app": "web"})
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"}); err != nil {
			return err
		}
	}
	return nil
}

// imageOf returns the image of the first container of a Pod or of a template.
func imageOf(pod map[string]any) string {
	containers, _, _ := unstructured.NestedSlice(pod, "spec", "containers")
	if len(containers) == 0 {
		return ""
	}
	container, _ := containers[0].(map[string]any)
	image, _ := container["image"].(string)
	return image
}
