package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namespace is the namespace of the demo.
const namespace = "shop"

// v1 returns a resource of version v1. The demo uses no other version.
func v1(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// manifest returns an object of the given name with the other fields.
func manifest(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	object := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	for k, v := range fields {
		object[k] = v
	}
	return &unstructured.Unstructured{Object: object}
}

func settings(file string) map[string]any {
	return map[string]any{"data": map[string]any{"shop.properties": file}}
}

// settingsFile returns the n-th version of the file in the ConfigMap. Each differs from the
// previous one in one line.
func settingsFile(n int) string {
	pageSize := []string{"20", "50"}
	cacheTTL := []string{"60s", "5m"}
	logLevel := []string{"info", "debug"}
	return fmt.Sprintf(strings.TrimPrefix(`
# What the shop shows, and how.
title        = Corner Shop
currency     = EUR
page.size    = %s
cache.ttl    = %s
log.level    = %s
checkout     = enabled
`, "\n"), pageSize[(n+1)/3%2], cacheTTL[(n+2)/3%2], logLevel[n/3%2])
}

// web is the Deployment as the deployer applies it: the autoscaler sets the number of replicas.
func web(image string) *unstructured.Unstructured {
	labels := map[string]any{"app": "web"}
	return manifest("apps/v1", "Deployment", "web", map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"terminationGracePeriodSeconds": int64(5),
				"containers": []any{map[string]any{
					"name": "web", "image": image,
					"ports":     []any{map[string]any{"name": "http", "containerPort": int64(8080)}},
					"env":       []any{map[string]any{"name": "LOCALE", "value": "en"}},
					"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}},
				}},
			},
		},
	}})
}

func service() *unstructured.Unstructured {
	return manifest("v1", "Service", "web", map[string]any{"spec": map[string]any{
		"selector": map[string]any{"app": "web"},
		"ports":    []any{map[string]any{"name": "http", "port": int64(80), "targetPort": "http"}},
	}})
}

// couponGroup is the API group of the custom resource.
const couponGroup = "shop.test"

func couponDefinition() *unstructured.Unstructured {
	text := map[string]any{"type": "string"}
	return manifest("apiextensions.k8s.io/v1", "CustomResourceDefinition", "coupons."+couponGroup, map[string]any{
		"spec": map[string]any{
			"group": couponGroup, "scope": "Namespaced",
			"names": map[string]any{"plural": "coupons", "singular": "coupon", "kind": "Coupon"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"spec": map[string]any{"type": "object", "properties": map[string]any{
							"percent": map[string]any{"type": "integer"}, "until": text,
							"products": map[string]any{"type": "array", "items": text},
						}},
					},
				}},
			}},
		},
	})
}

func coupon(name string) *unstructured.Unstructured {
	return manifest(couponGroup+"/v1", "Coupon", name, map[string]any{"spec": map[string]any{
		"percent": int64(10), "until": "2027-03-31", "products": []any{"apples", "pears"},
	}})
}
