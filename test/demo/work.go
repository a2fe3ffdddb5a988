package main

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// namespace is where the demo happens.
const namespace = "shop"

// pace is the time between two changes.
const pace = 1500 * time.Millisecond

// work changes a few objects, over and over, until ctx ends.
func work(ctx context.Context, config *rest.Config, stderr io.Writer) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	configMaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
	secrets := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(namespace)
	deployments := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(namespace)
	o := metav1.PatchOptions{FieldManager: "demo"}
	patch := func(r dynamic.ResourceInterface, name, patch string) error {
		_, err := r.Patch(ctx, name, types.MergePatchType, []byte(patch), o)
		return err
	}
	create := func(r dynamic.ResourceInterface, object map[string]any) error {
		_, err := r.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: "demo"})
		return err
	}

	steps := []struct {
		what string
		do   func() error
	}{
		{"create a ConfigMap", func() error {
			return create(configMaps, map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "prices"},
				"data": map[string]any{"apple": "1.20", "pear": "1.50"},
			})
		}},
		{"edit it", func() error { return patch(configMaps, "prices", `{"data":{"apple":"1.35","plum":"2.10"}}`) }},
		{"create a Secret (its values are not sent)", func() error {
			return create(secrets, map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "db"},
				"stringData": map[string]any{"password": "correct horse"},
			})
		}},
		{"create a Deployment (the controller manager makes the rest)", func() error { return create(deployments, deployment()) }},
		{"scale it", func() error { return patch(deployments, "web", `{"spec":{"replicas":3}}`) }},
		{"roll it out", func() error {
			return patch(deployments, "web", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`)
		}},
		{"delete everything", func() error {
			background := metav1.DeletePropagationBackground
			for name, r := range map[string]dynamic.ResourceInterface{"prices": configMaps, "db": secrets, "web": deployments} {
				if err := r.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	if err := create(namespaces, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}); err != nil {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	for {
		for _, s := range steps {
			select {
			case <-time.After(pace):
			case <-ctx.Done():
				return nil
			}
			step(stderr, s.what)
			if err := s.do(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", s.what, err)
			}
		}
	}
}

func deployment() map[string]any {
	labels := map[string]any{"app": "web"}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "labels": labels},
		"spec": map[string]any{
			"replicas": int64(1),
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}},
			},
		},
	}
}
